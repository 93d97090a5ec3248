"""Training with compressed frames (D4): fewer bytes, the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comper.training.train import train

SMALL: dict[str, Any] = {"frames": 400, "episode_cap_frames": 300, "replay_start_steps": 20, "log_period_steps": 20}


def log_of(agent: str, out: Path, **changes: Any) -> tuple[str, list[dict[str, Any]]]:
    options: dict[str, Any] = {"device": "cpu", "checkpoint_period_steps": 0, "show_progress": False}
    (path,) = train("asterix", agent, seed=3, out=out, **options, **SMALL, **changes)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["steps_per_second"]
    return next(path.glob("episodes.*")).read_text(), lines


@pytest.mark.parametrize("agent", ["comper-single", "dqn"])
def test_a_run_is_the_same_with_compressed_frames_but_for_its_bytes(agent: str, tmp_path: Path) -> None:
    episodes, plain = log_of(agent, tmp_path / "plain")
    same_episodes, compressed = log_of(agent, tmp_path / "compressed", frame_compression="zlib")
    assert episodes == same_episodes
    assert [line.pop("bytes_held") for line in plain][-1] > 2 * [line.pop("bytes_held") for line in compressed][-1]
    assert plain == compressed
    assert plain[-1]["cnn_loss"]
