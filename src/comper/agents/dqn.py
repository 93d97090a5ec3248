"""DQN of Mnih et al. (2015) with the settings of Table 8, for T trials at once: the paper's baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from comper.agents.interface import TrialSetup
from comper.learners.acting import act_by
from comper.learners.frame_bank import FrameBank
from comper.learners.q_learner import QNetwork
from comper.memory.replay import ReplayMemory
from comper.memory.transitions import Transition, TransitionBatch
from comper.networks.parameters import LayerSpec, Population
from comper.networks.q_network import q_network_layers
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
        layers = dqn_layers(config, setups[0].frames.shape, num_actions)["CNN"]
        rngs = [setup.weights for setup in setups]
        self.q_network = QNetwork(layers, config, self._bank, rngs)
        self.target = Population(layers, rngs, device)
        self.target.copy_from(self.q_network.population)

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """a_t, Q_t ← ε-Greedy(s_t, ε, Θ): Algorithm 3."""
        q = self.q_network.values(states[:, None], trials)[:, 0].cpu().numpy()
        return act_by(q, epsilon, [self._setups[i].exploration for i in trials])

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Add the transition to the replay memory."""
        self.replay[trial].add(transition)

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Every 4 actions one update; every 1,000 the target network takes over the weights."""
        c = self.config
        if t >= c.replay_start_steps and t % c.train_period_steps == 0:
            batch = TransitionBatch.stack([self.replay[i].sample(c.batch_size, self._setups[i].sampling) for i in trials])
            q_next = self.q_network.values(batch.s_next, trials, population=self.target).amax(-1)
            # y = r + γ max_a' Q̂(s', a'; Θ')
            target = self._bank.tensor(batch.r) + c.discount * self._bank.tensor(batch.continues) * q_next
            self.q_network.fit(batch, target, trials)
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


def dqn_layers(config: DQNConfig, frame_shape: tuple[int, ...], num_actions: int) -> dict[str, tuple[LayerSpec, ...]]:
    """The network of Mnih et al. with the paper's 18 outputs."""
    return {"CNN": q_network_layers(config.history_length, frame_shape, num_actions)}
