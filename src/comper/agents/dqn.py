"""DQN of Mnih et al. (2015) with the settings of Table 8, for T trials at once: the paper's baseline."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from comper.agents.interface import TrialSetup
from comper.learners.frame_bank import FrameBank
from comper.learners.learner import QLearner
from comper.learners.optimisers import MnihRMSProp
from comper.memory.replay import ReplayMemory
from comper.memory.transitions import Transition, TransitionBatch
from comper.networks.cnn import ObservationSpec, make_q_network
from comper.networks.stacking import NetworkFactory
from comper.protocol import DQNConfig


class DQNAgent:
    """A replay memory, a Q-network Θ and its copy Θ' that gives the targets, for each trial."""

    def __init__(self, config: DQNConfig, setups: Sequence[TrialSetup], *, num_actions: int, device: torch.device):
        self.config = config
        self._setups = setups
        self._bank = FrameBank([setup.frames for setup in setups], device)
        self.replay = [
            ReplayMemory(setup.frames, capacity=config.replay_capacity, history_length=config.history_length)
            for setup in setups
        ]
        self.q_network = QLearner(
            dqn_networks(config, setups[0].frames.shape, num_actions)["CNN"],
            self._bank,
            [setup.weights for setup in setups],
            loss=config.loss,
            optimiser=MnihRMSProp(
                step_size=config.step_size,
                gradient_momentum=config.gradient_momentum,
                squared_gradient_momentum=config.squared_gradient_momentum,
                min_squared_gradient=config.min_squared_gradient,
            ),
        )
        self.target = self.q_network.copy()

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """a_t, Q_t ← ε-Greedy(s_t, ε, Θ): Algorithm 3."""
        return self.q_network.act(states, epsilon, trials, [self._setups[i].exploration for i in trials])

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Add the transition to the replay memory."""
        self.replay[trial].add(transition)

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Every 4 actions one update; every 1,000 the target network takes over the weights."""
        c = self.config
        if t >= c.replay_start_steps and t % c.train_period_steps == 0:
            rows = TransitionBatch.stack([self.replay[i].sample(c.batch_size, self._setups[i].sampling) for i in trials])
            batch: Any = SimpleNamespace(**vars(rows), trials=trials)
            q_next = self.q_network.values(batch.s_next, trials, of=self.target).amax(-1)
            # y = r + γ max_a' Q̂(s', a'; Θ')
            target = self._bank.tensor(batch.r) + c.discount * self._bank.tensor(batch.continues) * q_next
            self.q_network.fit(batch, target)
        if t % c.target_period_steps == 0:
            self.target.copy_from(self.q_network.population)

    def epsilon(self, *, frames: int, steps: int) -> float:
        """The exploration rate: Table 4."""
        return self.config.epsilon(frames=frames, steps=steps)

    def is_finite(self) -> bool:
        """Whether every loss so far was a finite number."""
        return self.q_network.loss.is_finite()

    def metrics(self, trial: int) -> dict[str, Any]:
        """Size of the replay memory, and the mean loss since the last call."""
        replay = self.replay[trial]
        return {"cnn_loss": self.q_network.loss.read(trial), "replay_size": len(replay), "bytes_held": replay.nbytes}

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's networks and memory; its frames and random streams are saved beside them."""
        return {
            "q_network": self.q_network.state_dict(trial),
            "target": self.target.state_dict(trial),
            "replay": self.replay[trial].state_dict(),
        }

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote; the trial's frame store must have been read back before."""
        self.q_network.load_state_dict(trial, state["q_network"])
        self.target.load_state_dict(trial, state["target"])
        self.replay[trial].load_state_dict(state["replay"])


def dqn_networks(config: DQNConfig, frame_shape: tuple[int, ...], num_actions: int) -> dict[str, NetworkFactory]:
    """The network of Mnih et al. with the paper's 18 outputs."""
    return {"CNN": make_q_network(ObservationSpec(frame_shape, config.history_length), num_actions)}
