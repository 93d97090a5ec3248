"""An agent with a replay memory and a target network, DQN or DDQN, whose updates are written down."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from comper.agents.agent import Agent
from comper.memory.transitions import Batch, Transition
from comper.protocol import AgentConfig
from tests.toys import agent_of, setups

NUM_ACTIONS = 4
NUM_STATES = 6
BIAS = "Dense3.bias"
"""Of the last layer: its gradient for an action is the sum of the loss's slopes at that action's Q-values."""


class Update(NamedTuple):
    """One call of `fit`."""

    t: int
    batch: Batch
    target: Tensor
    q: Tensor


class ReplayAgent:
    """States are grey levels 0 to 5; they stay interned, so that state i is frame i."""

    def __init__(self, kind: type[Agent], config: AgentConfig, seed: int = 0):
        self.setup = setups((3,), [seed])[0]
        for level in range(NUM_STATES):
            assert self.setup.frames.intern(np.full(3, 50 * level, np.uint8)) == level
        self.agent: Any = agent_of(kind, config, [self.setup], NUM_ACTIONS)
        self.updates: list[Update] = []
        self._t = 0
        fit = self.agent.q_network.fit

        def watched(batch: Batch, target: Tensor) -> Tensor:
            q: Tensor = fit(batch, target)
            self.updates.append(Update(self._t, batch, target.clone(), q))
            return q

        self.agent.q_network.fit = watched

    def store(self, s: int, s_next: int, *, a: int = 0, r: float = 0.0, terminal: bool = False, last: bool = False) -> None:
        self.agent.store(0, Transition((s,), a, r, (s_next,), terminal), 0.0, is_last=terminal or last)

    def learn(self, t: int) -> None:
        self._t = t
        self.agent.learn(t, [0])

    def q_table(self, *, of_target: bool = False) -> Tensor:
        """Q(s, ·) of every state, of the network or of its target network."""
        states = np.arange(NUM_STATES)[None, :, None]
        table: Tensor = self.agent.q_network.values(states, [0], of=self.agent.target if of_target else None)[0]
        return table

    def explore(self, count: int, *, seed: int = 0) -> None:
        """Store random transitions, some of them game overs and truncations."""
        rng = np.random.default_rng(seed)
        for _ in range(count):
            s, s_next = rng.integers(NUM_STATES, size=2).tolist()
            ending = rng.choice(3, p=[0.7, 0.2, 0.1])
            self.store(
                s, s_next, a=int(rng.integers(NUM_ACTIONS)), r=float(rng.normal()), terminal=ending == 1, last=ending == 2
            )

    def weights_equal_targets(self) -> bool:
        """Whether the target network has the present weights."""
        mine, theirs = self.agent.q_network.weights(0), self.agent.target.weights(0)
        return all(torch.equal(mine[name], theirs[name]) for name in mine)

    def last_bias(self) -> Tensor:
        bias: Tensor = self.agent.q_network.weights(0)[BIAS]
        return bias
