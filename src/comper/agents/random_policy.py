"""A score without learning: a uniformly random action at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent, AgentSpec, Task, TrialSetup
from comper.protocol import AgentConfig

if TYPE_CHECKING:
    import torch


class RandomPolicy(Agent):
    """Any action, from the trial's own random stream."""

    learns = False

    def __init__(self, config: AgentConfig, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):
        self._streams = [trial.exploration for trial in trials]
        self._num_actions = task.num_actions

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Any action."""
        return np.array([self._streams[i].integers(self._num_actions) for i in trials]), np.zeros(len(trials), np.float32)

    def epsilon(self, *, frames: int, steps: int) -> float:
        """Every action is random."""
        return 1.0


RANDOM = AgentSpec("random", "no learning: a uniformly random action at every step", RandomPolicy, AgentConfig())
