"""DQN of Mnih et al. (2015) with the settings of Table 8, for T trials at once: the paper's baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent, AgentSpec, MemoryEstimate, NetworkFactory, Task, TrialSetup
from comper.memory.transitions import ReplayMemories, Transition
from comper.protocol import LearnerConfig
from comper.settings import setting

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DQNConfig(LearnerConfig):
    """DQN as the paper ran it beside COMPER. Table 8."""

    observation: str = setting(
        "rolling",
        "Table 8, A8",
        "rolling: the last four observations, a decision every one; see also single and stacked",
        ("single", "stacked", "rolling"),
    )
    replay_start_steps: int = setting(1_000, "Table 8, A12", "agent steps of random policy before the first update")
    loss: str = setting("huber", "A4b", "the CNN's loss on the temporal-difference error", ("squared", "huber"))
    replay_capacity: int = setting(
        100_000, "Table 8", "transitions in the replay memory; the oldest goes first", synonyms=("buffer_size",)
    )
    target_period_steps: int = setting(1_000, "Table 8", "agent steps between copies of Θ to the target network")


class DQNAgent(Agent):
    """A replay memory, a Q-network Θ and its copy Θ' that gives the targets, for each trial."""

    metric_labels: ClassVar = {"replay_size": "replay"}

    def __init__(self, config: DQNConfig, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):
        from comper.learners.frame_bank import FrameBank
        from comper.learners.learner import QLearner
        from comper.learners.optimisers import paper_optimiser

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
        )
        network, rngs = self.networks(config, task)["CNN"], [trial.weights for trial in trials]
        self.q_network = QLearner(network, self.bank, rngs, loss=config.loss, optimiser=paper_optimiser(config))
        self.target = self.q_network.copy()
        self.parts = {"q_network": self.q_network, "target": self.target, "replay": self.replay}

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """a_t, Q_t ← ε-Greedy(s_t, ε, Θ): Algorithm 3."""
        return self.q_network.act(states, epsilon, trials, [self._exploration[i] for i in trials])

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Add the transition to the replay memory; A4c: its reward is clipped."""
        self.replay.add(trial, transition.clipped(self.config.reward_clip), is_last=is_last)

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Every 4 actions one update; every 1,000 the target network takes over the weights."""
        c = self.config
        if t >= c.replay_start_steps and t % c.train_period_steps == 0:
            batch = self.replay.sample(c.batch_size, trials)
            q_next = self.q_network.values(batch.s_next, trials, of=self.target).amax(-1)
            # y = r + γ max_a' Q̂(s', a'; Θ'), without the second term where the game ended
            target = self.bank.tensor(batch.r) + self.bank.tensor(batch.discount) * q_next
            self.q_network.fit(batch, target)
        if t % c.target_period_steps == 0:
            self.target.copy_from(self.q_network.population)

    def epsilon(self, *, frames: int, steps: int) -> float:
        """ε: 1 while the memory is first filled, then linear. Table 4, A12."""
        c = self.config
        if steps < c.replay_start_steps:
            return 1.0
        return c.epsilon_start + min(1.0, frames / c.epsilon_decay_frames) * (c.epsilon_end - c.epsilon_start)

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
    def networks(cls, config: DQNConfig, task: Task) -> dict[str, NetworkFactory]:
        """The network of Mnih et al. with the paper's 18 outputs."""
        return {"CNN": task.q_network(config.history_length)}

    @classmethod
    def memory_estimate(cls, config: DQNConfig, task: Task) -> MemoryEstimate:
        """Rows of the replay memory; weights with two averages, and the target network's."""
        from comper.networks.inspection import num_parameters

        row = 8 * config.history_length + 4 + 4 + 4 + 1 + 1
        weights = 4 * num_parameters(cls.networks(config, task)["CNN"])
        batch = config.batch_size * task.state_bytes(config.history_length)
        return MemoryEstimate(config.replay_capacity, config.replay_capacity * row, 4 * weights, batch)


DQN = AgentSpec(
    "dqn",
    "DQN of Mnih et al. 2015 with the paper's settings, the last four frames as the state",
    DQNAgent,
    DQNConfig(),
    environment={"pooling": "max"},  # Table 8, A15: the maximum of the last two frames, as Mnih et al. do
)
