"""COMPER: Algorithm 2 of the paper, for T trials at once. Lines 6-10 and 26-34 are the loop, in `training/loop.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from comper.agents.interface import TrialSetup
from comper.learners.frame_bank import FrameBank
from comper.learners.learner import QLearner, QLSTMLearner, TrainingSet
from comper.learners.optimisers import MnihRMSProp, RMSProp
from comper.memory.indexes import make_index
from comper.memory.reduced import ReducedTransitionMemory
from comper.memory.transition_memory import TransitionMemory
from comper.memory.transitions import Transition, TransitionBatch
from comper.networks.cnn import ObservationSpec, make_q_network
from comper.networks.qlstm import QLSTM
from comper.networks.stacking import NetworkFactory
from comper.protocol import ComperConfig

NO_TRANSITION = -1


class ComperAgent:
    """Two memories, TM and RTM, and two networks, the CNN Q(s, a; Θ) and the QLSTM R(τ; Ω), for each trial."""

    def __init__(self, config: ComperConfig, setups: Sequence[TrialSetup], *, num_actions: int, device: torch.device):
        self.config = config
        self._setups = setups
        self._bank = FrameBank([setup.frames for setup in setups], device)
        # Alg. 2, l. 1-2: TM ← ∅, RTM ← ∅, initialise Θ and Ω.
        self.tm = [_transition_memory(config, setup) for setup in setups]
        self.rtm = [ReducedTransitionMemory(tm) for tm in self.tm]
        networks = comper_networks(config, setups[0].frames.shape, num_actions)
        rngs = [setup.weights for setup in setups]
        self.q_network = QLearner(
            networks["CNN"],
            self._bank,
            rngs,
            loss=config.loss,
            optimiser=MnihRMSProp(
                step_size=config.step_size,
                gradient_momentum=config.gradient_momentum,
                squared_gradient_momentum=config.squared_gradient_momentum,
                min_squared_gradient=config.min_squared_gradient,
            ),
        )
        self.qlstm = QLSTMLearner(
            networks["QLSTM"],
            self._bank,
            rngs,
            batch_size=config.qlstm_batch_size,
            num_epochs=config.qlstm_epochs,
            optimiser=RMSProp(
                step_size=config.qlstm_step_size,
                momentum=config.qlstm_gradient_momentum,
                decay=config.qlstm_decay,
                epsilon=config.qlstm_epsilon,
            ),
        )
        self._previous = [NO_TRANSITION] * len(setups)

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """a_t, Q_t ← ε-Greedy(s_t, ε, Θ): Alg. 2, l. 5 and 34."""
        return self.q_network.act(states, epsilon, trials, [self._setups[i].exploration for i in trials])

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """TM.StoreTransition([τ_t, Q_t], δ): Alg. 2, l. 8. A1: also note which transition this one followed."""
        set_id = self.tm[trial].store_transition(transition, q)
        if self._previous[trial] != NO_TRANSITION:
            self.tm[trial].link(self._previous[trial], set_id)
        self._previous[trial] = NO_TRANSITION if is_last else set_id

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Alg. 2, l. 11-25."""
        c = self.config
        if t < c.replay_start_steps or t % c.train_period_steps:  # l. 11
            return
        due = [i for i in trials if self.rtm[i].is_empty or t % c.target_period_steps == 0]  # l. 12
        taken = [self.tm[i].take(c.sets_per_training) for i in due]  # A5: at most 1,000 sets; they leave TM
        self.qlstm.fit([self._training_set(i, sets) for i, sets in zip(due, taken, strict=True)], due)  # l. 13
        for i, sets in zip(due, taken, strict=True):
            self.rtm[i].absorb(sets)  # l. 14
        drawn = [self.rtm[i].sample(c.batch_size, self._setups[i].sampling) for i in trials]  # l. 16-17
        rows = TransitionBatch.stack([self.tm[i].gather(sets) for i, sets in zip(trials, drawn, strict=True)])
        q_history = np.stack([self.tm[i].q_history(sets) for i, sets in zip(trials, drawn, strict=True)])
        batch: Any = SimpleNamespace(**vars(rows), trials=trials, q_history=q_history)
        q_target = self.qlstm.predict(batch)  # l. 18
        # l. 20: r_t + γ · Q_target; A2: where the game ended there, nothing follows.
        target = self._bank.tensor(batch.r) + c.discount * self._bank.tensor(batch.continues) * q_target
        q_value = self.q_network.fit(batch, target).cpu().numpy()  # l. 19-24
        for i, sets, q in zip(trials, drawn, q_value, strict=True):
            self.tm[i].refresh(sets, q)  # A6, Section 4.2: replayed transitions return to TM with their new Q-values

    def _training_set(self, trial: int, set_ids: NDArray[np.int64]) -> TrainingSet:
        """QLSTM-TrainSet, Eq. 5: each transition with the Q-value that its alignment (A1) gives it, in temporal order."""
        tm, alignment = self.tm[trial], self.config.alignment
        transitions = tm.gather(set_ids)
        if alignment == "successor":  # Q(s_t+1, a_t+1) of the transition that really followed
            following_q, is_known = tm.successor_q(set_ids)
        elif alignment == "set":  # Q_i(k+1) of the same set
            following_q, is_known = tm.next_q_in_set(set_ids)
        else:  # max_a Q(s_t+1, a)
            following_q = self.q_network.values(transitions.s_next[None], [trial])[0].amax(-1).cpu().numpy()
            is_known = np.ones(len(set_ids), np.bool_)
        q_history = tm.q_history(set_ids, skip_newest=alignment == "set")
        useful = np.flatnonzero(is_known & (transitions.continues > 0))
        return TrainingSet(transitions.rows(useful), q_history[useful], following_q[useful])

    def epsilon(self, *, frames: int, steps: int) -> float:
        """The exploration rate: Table 4."""
        return self.config.epsilon(frames=frames, steps=steps)

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
            "rtm_sets": len(self.rtm[trial]),
            "known_sets": tm.num_sets,
            "similar_hits": tm.similar_hits,
            "mean_set_size": float(set_sizes.mean()),
            "max_set_size": int(set_sizes.max()),
            "bytes_held": tm.nbytes,
        }

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's networks, memories and links; its frames and random streams are saved beside them."""
        return {
            "q_network": self.q_network.state_dict(trial),
            "qlstm": self.qlstm.state_dict(trial),
            "tm": self.tm[trial].state_dict(),
            "rtm": self.rtm[trial].state_dict(),
            "previous": self._previous[trial],
        }

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote; the trial's frame store must have been read back before."""
        self.q_network.load_state_dict(trial, state["q_network"])
        self.qlstm.load_state_dict(trial, state["qlstm"])
        self.tm[trial].load_state_dict(state["tm"])
        self.rtm[trial].load_state_dict(state["rtm"])
        self._previous[trial] = state["previous"]


def comper_networks(config: ComperConfig, frame_shape: tuple[int, ...], num_actions: int) -> dict[str, NetworkFactory]:
    """The architectures of Tables 9 and 10. A16: Table 9's count for stacked frames leaves out the first bias."""
    observation = ObservationSpec(frame_shape, config.history_length)
    return {
        "CNN": make_q_network(observation, num_actions, first_bias=config.observation != "stacked"),
        "QLSTM": partial(QLSTM, observation.size, num_actions, sequence_length=config.sequence_length),
    }


def _transition_memory(config: ComperConfig, setup: TrialSetup) -> TransitionMemory:
    return TransitionMemory(
        setup.frames,
        make_index(config.index_kind, setup.frames, config.similarity_threshold),
        capacity=config.memory_sets,
        history_length=config.history_length,
        sequence_length=config.sequence_length,
    )
