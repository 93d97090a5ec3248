"""The QLSTM R(τ; Ω) of every trial: trains on sets of similar transitions and predicts target values. Section 4.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comper.learners.frame_bank import FrameBank
from comper.learners.learner import Learner
from comper.learners.losses import qlstm_loss
from comper.learners.meters import LossMeter
from comper.learners.optimisers import RMSProp
from comper.memory.transitions import TransitionBatch
from comper.networks.parameters import LayerSpec, Population
from comper.networks.qlstm import predict
from comper.protocol import ComperConfig


class TrainingSet(NamedTuple):
    """QLSTM-TrainSet of one trial, Equation 5: transitions, their sets' Q-values so far, the Q-value aligned with each."""

    transitions: TransitionBatch
    q_history: NDArray[np.float32]
    following_q: NDArray[np.float32]


class QLSTM:
    """T recurrent networks with the optimiser of Table 6."""

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        config: ComperConfig,
        bank: FrameBank,
        rngs: Sequence[np.random.Generator],
        *,
        num_actions: int,
    ):
        self._config = config
        self._bank = bank
        self._num_actions = num_actions
        self.population = Population(layers, rngs, bank.device)
        optimiser = RMSProp(
            self.population,
            step_size=config.qlstm_step_size,
            momentum=config.qlstm_gradient_momentum,
            decay=config.qlstm_decay,
            epsilon=config.qlstm_epsilon,
        )
        self._learner = Learner(self.population, optimiser)
        self.loss = LossMeter(len(rngs), bank.device)

    def predict(self, batch: TransitionBatch, q_history: NDArray[np.float32], trials: Sequence[int]) -> Tensor:
        """R(τ; Ω) of transitions (n, B)."""
        s, s_next = self._bank.gather(batch.s, trials), self._bank.gather(batch.s_next, trials)
        a, r, history = (self._bank.tensor(column) for column in (batch.a, batch.r, q_history))
        return self._learner(predict, s, self._scaled(a), r, s_next, history, trials=trials)

    def fit(self, training_sets: Sequence[TrainingSet], trials: Sequence[int]) -> None:
        """Train Ω on one training set for each trial, in temporal order; a shorter one has its last batches empty (A4)."""
        size = self._config.qlstm_batch_size
        longest = max((len(training_set.following_q) for training_set in training_sets), default=0)
        num_batches = -(-longest // size)
        if not num_batches:
            return
        rows, weight = _padded([len(training_set.following_q) for training_set in training_sets], num_batches * size)
        batch = TransitionBatch.stack([set_.transitions.rows(r) for set_, r in zip(training_sets, rows, strict=True)])
        history = np.stack([set_.q_history[r] for set_, r in zip(training_sets, rows, strict=True)])
        target = np.stack([set_.following_q[r] for set_, r in zip(training_sets, rows, strict=True)])
        # Everything goes to the device at once, so that the updates follow each other without waiting for the host.
        s, s_next = self._bank.locate(batch.s, trials), self._bank.locate(batch.s_next, trials)
        columns = [self._bank.tensor(column) for column in (batch.a, batch.r, history, target, weight)]
        for start in [*range(0, num_batches * size, size)] * self._config.qlstm_epochs:
            a, r, *rest = (column[:, start : start + size] for column in columns)
            inputs = (s.frames(start, start + size), self._scaled(a), r, s_next.frames(start, start + size), *rest)
            has_samples = np.asarray(weight[:, start : start + size].any(axis=1))
            active = None if has_samples.all() else self._bank.tensor(has_samples)
            losses, _ = self._learner.fit(qlstm_loss, *inputs, trials=trials, active=active)
            self.loss.add(losses, trials, active)

    def _scaled(self, a: Tensor) -> Tensor:
        """The action as a share of the largest (A4a)."""
        return a / max(1, self._num_actions - 1)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's weights, its optimiser's averages, and the loss since the last log line."""
        return {"learner": self._learner.state_dict(trial), "loss": self.loss.state_dict(trial)}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._learner.load_state_dict(trial, state["learner"])
        self.loss.load_state_dict(trial, state["loss"])


def _padded(lengths: Sequence[int], size: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows 0 to size of each training set, those past its end replaced by the first, and a weight that leaves these out."""
    rows = np.arange(size)
    counts = rows < np.array(lengths)[:, None]
    return np.where(counts, rows, 0), counts.astype(np.float32)
