"""Runs of a few seconds, with checkpoints and without, for films and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comper import train

QUICK: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False}
LEARNS: dict[str, Any] = {
    "frames": 300, "replay_start_steps": 32, "target_period_steps": 40, "log_period_steps": 20,
}  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("viewed")


@pytest.fixture(scope="session")
def compact_run(folder: Path) -> Path:
    """COMPER on MinAtar: a compact memory at steps 100 and 200."""
    return train("minatar:breakout", "comper-single", out=folder, checkpoint_period_steps=100, **LEARNS, **QUICK)[0]


@pytest.fixture(scope="session")
def stacked_run(folder: Path) -> Path:
    """DQN on an Atari game with held actions: a replay memory."""
    small = LEARNS | {"frames": 600, "screen_size": 36, "episode_cap_frames": 400, "replay_start_steps": 8}
    return train("freeway", "dqn", out=folder, checkpoint_period_steps=10, observation="stacked", **small, **QUICK)[0]


@pytest.fixture(scope="session")
def random_run(folder: Path) -> Path:
    """A policy without learning, weights, Q-values and memory."""
    return train("gym:CartPole-v1", "random", frames=50, out=folder, **QUICK)[0]


@pytest.fixture(scope="session")
def unsaved_run(folder: Path) -> Path:
    """A run without checkpoints."""
    return train("gym:CartPole-v1", "comper-single", out=folder, checkpoint_period_steps=0, **LEARNS, **QUICK)[0]
