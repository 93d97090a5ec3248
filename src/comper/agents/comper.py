"""COMPER: Algorithm 2 of the paper, for T trials at once. Lines 6-10 and 26-34 are the loop, in `training/loop.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent, AgentSpec, MemoryEstimate, NetworkFactory, Task, TrialSetup
from comper.memory.indexes import make_index
from comper.memory.transition_memory import ReducedTransitionMemories, Sets, TransitionMemories, TransitionMemory
from comper.memory.transitions import Transition, TransitionBatch
from comper.protocol import LearnerConfig
from comper.settings import require, setting

if TYPE_CHECKING:
    import torch

    from comper.learners.learner import TrainingSet


@dataclass(frozen=True, kw_only=True)
class ComperConfig(LearnerConfig):
    """COMPER with the settings of Tables 3 to 7."""

    reward_clip: float = setting(0.0, "A4c", "rewards are learned from within ± this (scores stay raw); 0: not clipped")
    target_period_steps: int = setting(
        100, "Table 7", "UTF, agent steps between trainings of the QLSTM, which then updates RTM"
    )
    sets_per_training: int = setting(1_000, "Table 7", "similar-transition sets taken from TM for one QLSTM training, at most")
    memory_sets: int = setting(
        100_000,
        "Table 7, A7",
        "similar-transition sets remembered; the oldest goes first",
        synonyms=("buffer_size",),
    )
    similarity_threshold: float = setting(
        0.0, "Table 7, A9", "δ, the largest Euclidean distance between similar transitions", most=1e9, synonyms=("delta",)
    )
    index: str = setting(
        "auto",
        "Section 5.1, D1",
        "TMI: exact (δ = 0), l2 (δ > 0, exact distances), faiss (the paper's IndexFlatL2); auto chooses by δ; "
        "none: nothing is similar, TM is a plain FIFO",
        ("auto", "exact", "l2", "faiss", "none"),
    )
    alignment: str = setting(
        "successor",
        "Section 4.4, A1",
        "Q-value the QLSTM learns for a transition: of its successor as stored, of its successor as the CNN sees it now, "
        "of its set's next member (Eq. 5), or max Q(s', ·)",
        ("successor", "successor-fresh", "set", "max"),
    )
    sequence_length: int = setting(
        1, "Table 10, A3", "time steps of the QLSTM; above 1 it also reads the set's last Q-values", most=1_000
    )
    rtm: str = setting(
        "accumulate",
        "Section 4.3, A19",
        "the sets that trained the QLSTM are added to RTM (accumulate) or become RTM (replace)",
        ("accumulate", "replace"),
        before="accumulate",
    )
    input_scale: str = setting(
        "fixed",
        "A4a",
        "inputs of the QLSTM: fixed (pixels / 255, a / 17, r squeezed), or minmax, each one's range in the last training set",
        ("fixed", "minmax"),
        before="fixed",
    )
    qlstm_epochs: int = setting(1, "A4", "passes over the sets of one QLSTM training", most=10_000)
    qlstm_batch_size: int = setting(16, "Appendix B", "transitions in one QLSTM update", most=65_536)
    qlstm_step_size: float = setting(0.00025, "Table 6", "step size of the QLSTM's RMSProp", above=0, most=1_000)
    qlstm_gradient_momentum: float = setting(0.0, "Table 6", "momentum of the QLSTM's RMSProp")
    qlstm_decay: float = setting(0.9, "Table 6", "decay of the QLSTM's mean squared gradient")
    qlstm_epsilon: float = setting(1e-10, "Table 6, A13", "constant added under the root of the QLSTM's RMSProp")
    qlstm_mean_square_start: float = setting(
        1.0, "A13", "where the mean square of the QLSTM's RMSProp starts; 1 as in TensorFlow 1", most=1_000, before=0.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        delta, index = self.similarity_threshold, self.index
        has_no_distance = index in ("exact", "none")
        require(not (has_no_distance and delta > 0), "similarity_threshold", delta, f"0 with index = {index}; use l2 or faiss")
        require(self.sets_per_training <= self.memory_sets, "sets_per_training", self.sets_per_training, "at most memory_sets")

    @property
    def index_kind(self) -> str:
        """The index that `auto` stands for."""
        if self.index != "auto":
            return self.index
        return "exact" if self.similarity_threshold == 0 else "l2"


class ComperAgent(Agent):
    """Two memories, TM and RTM, and two networks, the CNN Q(s, a; Θ) and the QLSTM R(τ; Ω), for each trial."""

    metric_labels: ClassVar = {"tm_sets": "TM", "rtm_sets": "RTM"}

    def __init__(self, config: ComperConfig, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):
        from comper.learners.frame_bank import FrameBank
        from comper.learners.learner import QLearner, QLSTMLearner
        from comper.learners.optimisers import RMSProp, paper_optimiser

        self.config = config
        self._exploration = [trial.exploration for trial in trials]
        networks, rngs = self.networks(config, task), [trial.weights for trial in trials]
        self.bank = FrameBank([trial.frames for trial in trials], device)
        # Alg. 2, l. 1-2: TM ← ∅, RTM ← ∅, initialise Θ and Ω.
        self.tm = TransitionMemories([_transition_memory(config, trial) for trial in trials])
        sampling = [trial.sampling for trial in trials]
        self.rtm = ReducedTransitionMemories(self.tm, sampling, discount=config.discount, mode=config.rtm)
        optimiser = paper_optimiser(config)
        self.q_network = QLearner(networks["CNN"], self.bank, rngs, loss=config.loss, optimiser=optimiser)
        self.qlstm = QLSTMLearner(
            networks["QLSTM"],
            self.bank,
            rngs,
            batch_size=config.qlstm_batch_size,
            num_epochs=config.qlstm_epochs,
            optimiser=RMSProp(
                step_size=config.qlstm_step_size,
                momentum=config.qlstm_gradient_momentum,
                decay=config.qlstm_decay,
                epsilon=config.qlstm_epsilon,
                mean_square_start=config.qlstm_mean_square_start,
            ),
        )
        self.parts = {"q_network": self.q_network, "qlstm": self.qlstm, "tm": self.tm, "rtm": self.rtm}

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """a_t, Q_t ← ε-Greedy(s_t, ε, Θ): Alg. 2, l. 5 and 34."""
        return self.q_network.act(states, epsilon, trials, [self._exploration[i] for i in trials])

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """TM.StoreTransition([τ_t, Q_t], δ): Alg. 2, l. 8. A4c: the reward is clipped; A1: TM notes what follows what."""
        self.tm.store(trial, transition.clipped(self.config.reward_clip), q, is_last=is_last)

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Alg. 2, l. 11-25."""
        c = self.config
        if t < c.replay_start_steps or t % c.train_period_steps:  # l. 11, A12
            return
        due = [i for i in trials if self.rtm.is_empty(i) or t % c.target_period_steps == 0]  # l. 12
        sets = self.tm.take(c.sets_per_training, due)  # A5: at most 1,000 sets; they leave TM
        self.qlstm.fit(self._training_sets(sets), due)  # l. 13
        self.rtm.absorb(sets)  # l. 14
        batch = self.rtm.sample(c.batch_size, trials)  # l. 16-17
        q_target = self.qlstm.predict(batch)  # l. 18
        # l. 20: r_t + γ · Q_target; A2: the discount is 0 where the game ended.
        target = self.bank.tensor(batch.r) + self.bank.tensor(batch.discount) * q_target
        q_value = self.q_network.fit(batch, target)  # l. 19-24
        self.tm.refresh(batch, q_value.cpu().numpy())  # A6, Section 4.2: replayed transitions return to TM with their new Q

    def _training_sets(self, sets: Sets) -> list[TrainingSet]:
        """QLSTM-TrainSet of each trial, Eq. 5: transitions with the Q-values they are aligned with, in temporal order."""
        from comper.learners.learner import TrainingSet

        made, skips_newest = [], self.config.alignment == "set"
        transitions = [self.tm.gather(trial, set_ids) for trial, set_ids in sets]
        following = self._following_q(sets, transitions)
        for (trial, set_ids), t, (following_q, is_known) in zip(sets, transitions, following, strict=True):
            q_history = self.tm[trial].q_history(set_ids, skip_newest=skips_newest)
            useful = np.flatnonzero(is_known & (t.continues > 0))
            made.append(TrainingSet(t.rows(useful), q_history[useful], following_q[useful]))
        return made

    def _following_q(
        self, sets: Sets, transitions: Sequence[TransitionBatch]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """For each trial the Q-value that follows each transition by the alignment (A1), and whether there is one."""
        alignment = self.config.alignment
        if alignment == "successor":  # Q(s_t+1, a_t+1) of the transition that really followed, as stored
            return [self.tm[trial].successor_q(set_ids) for trial, set_ids in sets]
        if alignment == "set":  # Q_i(k+1) of the same set
            return [self.tm[trial].next_q_in_set(set_ids) for trial, set_ids in sets]
        q_next = self.q_network.values_of_each([t.s_next for t in transitions], sets.trials)
        if alignment == "max":  # max_a Q(s_t+1, a; Θ)
            return [(q.max(axis=-1), np.ones(len(q), np.bool_)) for q in q_next]
        # Q(s_t+1, a_t+1; Θ): the transition that really followed, with the Q-value that it has now
        successors = [self.tm[trial].successor_action(set_ids) for trial, set_ids in sets]
        return [(q[np.arange(len(q)), a], is_known) for q, (a, is_known) in zip(q_next, successors, strict=True)]

    def epsilon(self, *, frames: int, steps: int) -> float:
        """ε: 1 while the memory is first filled, then linear. Table 4, A12."""
        c = self.config
        if steps < c.replay_start_steps:
            return 1.0
        return c.epsilon_start + min(1.0, frames / c.epsilon_decay_frames) * (c.epsilon_end - c.epsilon_start)

    def is_finite(self) -> bool:
        """Whether every loss so far was a finite number."""
        return self.q_network.loss.is_finite() and self.qlstm.loss.is_finite()

    def metrics(self, trial: int) -> dict[str, Any]:
        """Sizes and counters of the paper's figures, and mean losses since the last call."""
        tm, set_sizes = self.tm[trial], self.tm[trial].set_sizes
        return {
            "cnn_loss": self.q_network.loss.read(trial),
            "qlstm_loss": self.qlstm.loss.read(trial),
            "tm_sets": len(tm),
            "tm_peak_sets": tm.read_peak(),
            "rtm_sets": self.rtm.size(trial),
            "known_sets": tm.num_sets,
            "similar_hits": tm.similar_hits,
            "mean_set_size": float(set_sizes.mean()),
            "max_set_size": int(set_sizes.max()),
            "bytes_held": tm.nbytes,
        }

    @classmethod
    def networks(cls, config: ComperConfig, task: Task) -> dict[str, NetworkFactory]:
        """The architectures of Tables 9 and 10. A16: Table 9's count for stacked frames leaves out the first bias."""
        from comper.networks.qlstm import QLSTM

        state_size = config.history_length * int(np.prod(task.observation_shape))
        return {
            "CNN": task.q_network(config.history_length, first_bias=config.observation != "stacked"),
            "QLSTM": partial(
                QLSTM,
                state_size,
                task.num_actions,
                sequence_length=config.sequence_length,
                scales_inputs=config.input_scale == "minmax",
            ),
        }

    @classmethod
    def memory_estimate(cls, config: ComperConfig, task: Task) -> MemoryEstimate:
        """Rows of TM with TMI and RTM; the CNN's weights with two averages, the QLSTM's with one or two."""
        from comper.networks.inspection import num_parameters

        h, sets = config.history_length, config.memory_sets
        row = 8 * h + 4 + 4 + 4 + 1 + 4 * (config.sequence_length + 1) + 8 * 5 + 1
        index = min(sets, config.frames) * (16 * h + 400)
        networks = cls.networks(config, task)
        qlstm_copies = 3 if config.qlstm_gradient_momentum else 2
        weights = 3 * num_parameters(networks["CNN"]) + qlstm_copies * num_parameters(networks["QLSTM"])
        state, transition = task.state_bytes(h), _transition_bytes(config, task)
        batch = max(config.batch_size * max(state, transition), config.qlstm_batch_size * transition)
        return MemoryEstimate(sets, sets * row + index, 4 * weights, batch)


def _transition_bytes(config: ComperConfig, task: Task) -> int:
    """Bytes that one transition takes on its way through the QLSTM and back; at most 1.1 times what was measured."""
    from comper.networks.qlstm import LSTM_UNITS, transition_size

    state_size = config.history_length * int(np.prod(task.observation_shape))
    inputs = 2 * state_size * task.observation_dtype.itemsize
    each_time = 4 * (transition_size(state_size) + 1 + 32 * sum(LSTM_UNITS))
    return inputs + config.sequence_length * each_time


def _transition_memory(config: ComperConfig, trial: TrialSetup) -> TransitionMemory:
    return TransitionMemory(
        trial.frames,
        make_index(config.index_kind, trial.frames, config.similarity_threshold),
        capacity=config.memory_sets,
        history_length=config.history_length,
        sequence_length=config.sequence_length,
    )


COMPER_SINGLE = AgentSpec(
    "comper-single", "COMPER, one frame as the state (84x84x1), a decision every 5 frames", ComperAgent, ComperConfig()
)
COMPER_STACKED = AgentSpec(
    "comper-stacked",
    "COMPER, four frames as the state (84x84x4), a decision every 20 frames",
    ComperAgent,
    ComperConfig(observation="stacked"),
)
