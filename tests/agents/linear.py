"""Agents whose Q-values are the numbers in a table: one-hot states, and a network that is one matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from comper.memory.transitions import Transition
from comper.protocol import AgentConfig
from tests.toys import setups, task_of

Table = Sequence[Sequence[float]]
"""Q(s, a), a row for each state."""

NUM_ACTIONS = 2


class OneMatrix(torch.nn.Module):
    """Q(s, ·) of a one-hot state is a column of the matrix."""

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.table = torch.nn.Linear(num_states, NUM_ACTIONS, bias=False)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.table(states.flatten(1))
        return values


class Tabular:
    """One trial of an agent over `num_states` states, and the (batch, target) of each of its updates."""

    def __init__(self, kind: Any, config: AgentConfig, num_states: int = 5):
        (self.setup,) = setups((num_states,), [0])
        task = dataclasses.replace(task_of([self.setup], NUM_ACTIONS), make_network=lambda shape, n: OneMatrix(num_states))
        made: Any = kind(config, task, [self.setup], device=torch.device("cpu"))
        self.agent = made
        self.states = [self.setup.frames.intern(255 * np.eye(num_states, dtype=np.uint8)[s]) for s in range(num_states)]
        self.updates: list[tuple[Any, Any]] = []
        self._fit: Callable[..., Any] = self.agent.q_network.fit
        self.agent.q_network.fit = self._watched_fit

    def _watched_fit(self, batch: Any, target: Any) -> Any:
        self.updates.append((batch, target.clone()))
        return self._fit(batch, target)

    def set_values(self, table: Table, target: Table) -> None:
        """Give Θ and Θ' their Q-values."""
        for owner, values in ((self.agent.q_network, table), (self.agent.target, target)):
            owner.load_weights(0, {"table.weight": torch.tensor(values, dtype=torch.float32).T.contiguous()})

    def values(self, population: Any) -> list[list[float]]:
        """The table that a network's weights are now."""
        table: list[list[float]] = population.weights(0)["table.weight"].T.tolist()
        return table

    def store(self, s: int, a: int, r: float, s_next: int, *, terminal: bool = False, last: bool = False) -> None:
        transition = Transition((self.states[s],), a, r, (self.states[s_next],), terminal)
        self.agent.store(0, transition, 0.0, is_last=terminal or last)

    def targets(self) -> dict[int, float]:
        """State -> target of the latest update; a state's target must be the same in every row."""
        batch, target = self.updates[-1]
        found: dict[int, float] = {}
        for ids, y in zip(batch.s[0, :, 0].tolist(), target[0].tolist(), strict=True):
            assert found.setdefault(self.states.index(ids), y) == y
        return found
