"""An environment and a network of a user's own, as Python objects."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch


class Light(gymnasium.Env[Any, Any]):
    """A lamp is left or right; the action that names its side pays 1. Sixteen steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._look(), {}

    def step(self, action: int) -> Any:
        reward = float(action == self._side)
        self._steps += 1
        return self._look(), reward, self._steps == 16, False, {}

    def _look(self) -> Any:
        self._side = int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self._side]


def linear_network(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(state_shape)), num_actions))
