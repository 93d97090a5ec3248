"""What the training loop asks of an agent. T trials advance in lockstep; a trial is known by its number, 0 to T-1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore
from comper.memory.transitions import Transition


@dataclass(frozen=True)
class TrialSetup:
    """What one trial brings along: its frames and its own random streams."""

    frames: FrameStore
    weights: np.random.Generator
    exploration: np.random.Generator
    sampling: np.random.Generator


class Agent(Protocol):
    """An agent for T trials. Arrays have one row for each of the trials named in the call."""

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Choose an action for each state, given as frame ids (n, history), and its Q-value."""

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Remember a transition; `is_last` when its episode ends there, by a game over or by the frame cap."""

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Learn, if it is time to, after t agent steps."""

    def epsilon(self, *, frames: int, steps: int) -> float:
        """The exploration rate after so many frames and agent steps of a trial."""

    def is_finite(self) -> bool:
        """Whether every loss since the last `metrics` was a finite number; asked at every step."""

    def metrics(self, trial: int) -> dict[str, Any]:
        """What metrics.jsonl records of a trial besides the loop's own counters; losses are means since the last call."""

    def state_dict(self, trial: int) -> dict[str, Any]:
        """Everything that a resumed trial needs, besides its frames and random streams."""

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
