"""The floors every score is read against: a uniformly random policy, and one action for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.agents.interface import TrialSetup
from comper.memory.transitions import Transition


class RandomAgent:
    """A uniformly random action at every step."""

    def __init__(self, setups: Sequence[TrialSetup], *, num_actions: int):
        self._setups = setups
        self._num_actions = num_actions

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Any action, from the trial's own stream."""
        actions = [self._setups[i].exploration.integers(self._num_actions) for i in trials]
        return np.array(actions), np.zeros(len(trials), np.float32)

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Remember nothing."""

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Learn nothing."""

    def epsilon(self, *, frames: int, steps: int) -> float:
        """Every action is random."""
        return 1.0

    def is_finite(self) -> bool:
        """Whether every loss so far was a finite number."""
        return True

    def metrics(self, trial: int) -> dict[str, Any]:
        """Nothing of its own."""
        return {}

    def state_dict(self, trial: int) -> dict[str, Any]:
        """Nothing besides the random streams, which are saved beside it."""
        return {}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Nothing to read back."""


class ConstantAgent(RandomAgent):
    """The same action at every step."""

    def __init__(self, setups: Sequence[TrialSetup], *, num_actions: int, action: int):
        super().__init__(setups, num_actions=num_actions)
        if not 0 <= action < num_actions:
            raise ValueError(f"action = {action}: this environment has actions 0 to {num_actions - 1}.")
        self._action = action

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The one action."""
        return np.full(len(trials), self._action), np.zeros(len(trials), np.float32)

    def epsilon(self, *, frames: int, steps: int) -> float:
        """No action is random."""
        return 0.0
