"""Training with compressed frames (D4): fewer bytes, the same run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comper.protocol import ComperConfig, DQNConfig
from comper.training.preflight import needs_of
from comper.training.train import RunOptions, train_population

SMALL: dict[str, Any] = {"frames": 400, "episode_cap_frames": 300, "replay_start_steps": 20, "log_period_steps": 20}


def log_of(config: ComperConfig | DQNConfig, out: Path) -> tuple[str, list[dict[str, Any]]]:
    options = RunOptions(device="cpu", checkpoint_period_steps=0, show_progress=False)
    (path,) = train_population(["asterix"], "agent", config, seed=3, trials=1, out=out, options=options)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["steps_per_second"]
    return next(path.glob("episodes.*")).read_text(), lines


@pytest.mark.parametrize("make", [ComperConfig, DQNConfig])
def test_a_run_is_the_same_with_compressed_frames_but_for_its_bytes(make: Any, tmp_path: Path) -> None:
    episodes, plain = log_of(make(**SMALL), tmp_path / "plain")
    same_episodes, compressed = log_of(make(**SMALL, frame_compression="zlib"), tmp_path / "compressed")
    assert episodes == same_episodes
    assert [line.pop("bytes_held") for line in plain][-1] > 2 * [line.pop("bytes_held") for line in compressed][-1]
    assert plain == compressed
    assert plain[-1]["cnn_loss"]


def test_less_memory_is_asked_for() -> None:
    assert needs_of(DQNConfig(frame_compression="zlib"), trials=1).memory < needs_of(DQNConfig(), trials=1).memory
