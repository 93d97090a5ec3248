"""A score without learning: the same action at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent, AgentSpec, Task, TrialSetup
from comper.errors import UsageError
from comper.protocol import AgentConfig
from comper.settings import setting

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class ConstantConfig(AgentConfig):
    """Which action."""

    action: str = setting("0", "Section 6, notes on floors", "the action taken at every step, by name or number")


class ConstantPolicy(Agent):
    """One action for the whole trial."""

    learns = False

    def __init__(self, config: ConstantConfig, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):
        self._action = action_number(config.action, task.action_names)

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The one action."""
        return np.full(len(trials), self._action), np.zeros(len(trials), np.float32)

    @classmethod
    def check(cls, config: ConstantConfig, task: Task) -> None:
        """The action must be one of the environment's."""
        action_number(config.action, task.action_names)


def action_number(action: str, names: Sequence[str]) -> int:
    """The number of an action given by name or number."""
    if action.upper() in names:
        return list(names).index(action.upper())
    if action in names:
        return list(names).index(action)
    if action.isdecimal() and int(action) < len(names):
        return int(action)
    raise UsageError(f"action = {action!r}: must be one of {', '.join(names)}, or 0 to {len(names) - 1}.")


CONSTANT = AgentSpec("constant", "no learning: one action at every step (--action)", ConstantPolicy, ConstantConfig())
