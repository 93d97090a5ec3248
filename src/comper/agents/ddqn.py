"""Double DQN with n-step returns (van Hasselt et al. 2016; Sutton 1988): a stronger baseline than the paper's, D5.

Its settings are those of the literature on few frames, not tuned on the paper's games: three steps and Adam's constant from
Rainbow (Hessel et al. 2018), and an exploration that ends after a fifth of the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent, AgentSpec, MemoryEstimate, NetworkFactory, Task, TrialSetup
from comper.memory.transitions import ReplayMemories, Transition
from comper.protocol import AgentConfig
from comper.settings import setting

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DDQNConfig(AgentConfig):
    """Double DQN with n-step returns and Adam."""

    observation: str = setting("rolling", "D5", "what a state is", ("single", "stacked", "rolling"))
    discount: float = setting(0.99, "D5", "γ, the discount factor", most=1, synonyms=("gamma",))
    num_steps: int = setting(3, "D5", "steps of rewards in a target before the network's estimate", most=1_000)
    epsilon_end: float = setting(0.01, "D5", "final exploration rate", most=1)
    epsilon_decay_frames: int = setting(20_000, "D5", "frames over which ε falls linearly from 1")
    replay_start_steps: int = setting(1_000, "D5", "agent steps of random policy before the first update")
    replay_capacity: int = setting(100_000, "D5", "transitions in the replay memory", synonyms=("buffer_size",))
    batch_size: int = setting(32, "D5", "transitions replayed for one update", most=65_536)
    train_period_steps: int = setting(4, "D5", "agent steps between updates", synonyms=("train_freq",))
    target_period_steps: int = setting(1_000, "D5", "agent steps between copies of Θ to the target network")
    reward_clip: float = setting(1.0, "D5", "rewards are learned from within ± this (scores stay raw); 0: not clipped")
    network: str = setting("auto", "D3", "the Q-network: auto, or your own my_module:make_network")
    step_size: float = setting(0.0001, "D5", "Adam's step size", above=0, most=1_000, synonyms=("lr", "learning_rate"))
    adam_epsilon: float = setting(1.5e-4, "D5", "constant added to the root in Adam", above=0)


class DDQNAgent(Agent):
    """A replay memory, a Q-network Θ and its copy Θ', for each trial."""

    metric_labels: ClassVar = {"replay_size": "replay"}

    def __init__(self, config: DDQNConfig, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):
        from comper.learners.frame_bank import FrameBank
        from comper.learners.learner import QLearner
        from comper.learners.optimisers import Adam

        self.config = config
        self._exploration = [trial.exploration for trial in trials]
        stores = [trial.frames for trial in trials]
        self.bank = FrameBank(stores, device)
        self.replay = ReplayMemories(
            stores,
            [trial.sampling for trial in trials],
            capacity=config.replay_capacity,
            history_length=config.history_length,
            discount=config.discount,
            num_steps=config.num_steps,
        )
        adam = Adam(step_size=config.step_size, epsilon=config.adam_epsilon)
        network, rngs = self.networks(config, task)["CNN"], [trial.weights for trial in trials]
        self.q_network = QLearner(network, self.bank, rngs, loss="huber", optimiser=adam)
        self.target = self.q_network.copy()
        self.parts = {"q_network": self.q_network, "target": self.target, "replay": self.replay}

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """ε-greedy."""
        return self.q_network.act(states, epsilon, trials, [self._exploration[i] for i in trials])

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Add the transition to the replay memory."""
        self.replay.add(trial, transition.clipped(self.config.reward_clip), is_last=is_last)

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """One update every few steps; from time to time the target network takes over the weights."""
        c = self.config
        if t >= c.replay_start_steps and t % c.train_period_steps == 0:
            batch = self.replay.sample(c.batch_size, trials)
            best = self.q_network.values(batch.s_next, trials).argmax(-1, keepdim=True)
            q_next = self.q_network.values(batch.s_next, trials, of=self.target).gather(-1, best).squeeze(-1)
            # y = Σ_k γ^k r_t+k + γ^n Q̂(s_t+n, argmax_a Q(s_t+n, a; Θ); Θ')
            target = self.bank.tensor(batch.r) + self.bank.tensor(batch.discount) * q_next
            self.q_network.fit(batch, target)
        if t % c.target_period_steps == 0:
            self.target.copy_from(self.q_network.population)

    def epsilon(self, *, frames: int, steps: int) -> float:
        """1 while the memory is first filled, then a line."""
        c = self.config
        if steps < c.replay_start_steps:
            return 1.0
        return 1.0 + min(1.0, frames / c.epsilon_decay_frames) * (c.epsilon_end - 1.0)

    def is_finite(self) -> bool:
        """Whether every loss so far was a finite number."""
        return self.q_network.loss.is_finite()

    def metrics(self, trial: int) -> dict[str, Any]:
        """Size of the replay memory, and the mean loss since the last call."""
        return {
            "cnn_loss": self.q_network.loss.read(trial),
            "replay_size": self.replay.size(trial),
            "bytes_held": self.replay.nbytes(trial),
        }

    @classmethod
    def networks(cls, config: DDQNConfig, task: Task) -> dict[str, NetworkFactory]:
        """The network of DQN."""
        return {"CNN": task.q_network(config.history_length)}

    @classmethod
    def memory_estimate(cls, config: DDQNConfig, task: Task) -> MemoryEstimate:
        """Rows of the replay memory; weights with two averages, and the target network's."""
        from comper.networks.inspection import num_parameters

        row = 8 * config.history_length + 4 + 4 + 4 + 1 + 1
        weights = 4 * num_parameters(cls.networks(config, task)["CNN"])
        batch = config.batch_size * task.state_bytes(config.history_length)
        return MemoryEstimate(config.replay_capacity, config.replay_capacity * row, 4 * weights, batch)


DDQN = AgentSpec(
    "ddqn",
    "double DQN with 3-step returns and Adam, the last four frames as the state",
    DDQNAgent,
    DDQNConfig(),
    environment={"pooling": "max"},
)
