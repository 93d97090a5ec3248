"""Runs of a real game that take a second, and runs that a signal stopped: for tests of whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comper.errors import StoppedError
from comper.training.checkpointing import Checkpointer
from comper.training.resume import resume
from comper.training.train import train

SMALL: dict[str, Any] = {
    "screen_size": 36, "frames": 200, "episode_cap_frames": 150, "replay_start_steps": 12, "target_period_steps": 20,
    "memory_sets": 200, "sets_per_training": 30, "log_period_steps": 10, "epsilon_decay_frames": 100,
}  # fmt: skip
RUN = Path("comper-single", "asterix", "seed-0")


def start(out: Path, *, trials: int = 1, period: int | None = 10, **settings: Any) -> Path:
    options: dict[str, Any] = {
        "agent": "comper-single",
        "trials": trials,
        "out": out,
        "workers": 0,
        "device": "cpu",
        "show_progress": False,
        "processes": 1,
    }
    train("asterix", checkpoint_period_steps=period, **(options | SMALL | settings))
    return out / RUN


def outcome(folder: Path) -> tuple[bytes, list[dict[str, Any]], bytes]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["steps_per_second"]
    return (folder / "episodes.jsonl").read_bytes(), lines, (folder / "weights.safetensors").read_bytes()


def interrupted(out: Path, monkeypatch: pytest.MonkeyPatch, *, at: int = 35, trials: int = 1, name: str = "SIGTERM") -> Path:
    """A run that a signal stopped at a step."""
    with monkeypatch.context() as patch:
        after_step = Checkpointer.after_step

        def ask_to_stop(self: Checkpointer, trials: Any, step: int) -> None:
            self._request.name = name if step == at else None
            after_step(self, trials, step)

        patch.setattr(Checkpointer, "after_step", ask_to_stop)
        with pytest.raises(StoppedError, match=rf"stopped by {name}: saved at step {at}; continue with `comper resume ") as e:
            start(out, trials=trials)
    assert e.value.exit_code == 130
    return out / RUN


def go_on(*folders: Path) -> list[Path]:
    return resume(folders, workers=0, device="cpu", show_progress=False, processes=1)
