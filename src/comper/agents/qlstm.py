"""The QLSTM R(τ; Ω) of every trial: trains on sets of similar transitions and predicts target values. Section 4.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from comper.agents.frame_bank import FrameBank
from comper.agents.losses import qlstm_loss
from comper.agents.meters import LossMeter
from comper.memory.transitions import TransitionBatch
from comper.networks.learner import Learner
from comper.networks.optimisers import RMSProp
from comper.networks.parameters import LayerSpec, Population
from comper.networks.qlstm import predict, transition_vectors
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
        return self._learner(predict, self._vectors(batch, trials), self._bank.tensor(q_history), trials=trials)

    def fit(self, training_sets: Sequence[TrainingSet], trials: Sequence[int]) -> None:
        """Train Ω on one training set for each trial, in temporal order; a shorter one has its last batches empty (A4)."""
        size = self._config.qlstm_batch_size
        longest = max(len(training_set.following_q) for training_set in training_sets)
        for _ in range(self._config.qlstm_epochs):
            for start in range(0, longest, size):
                rows = [_padded_rows(len(training_set.following_q), start, size) for training_set in training_sets]
                self._fit_batch(training_sets, rows, trials)

    def _fit_batch(
        self,
        training_sets: Sequence[TrainingSet],
        rows: list[tuple[NDArray[np.int64], NDArray[np.float32]]],
        trials: Sequence[int],
    ) -> None:
        pairs = [(set_, picked) for set_, (picked, _) in zip(training_sets, rows, strict=True)]
        vectors = self._vectors(TransitionBatch.stack([set_.transitions.rows(picked) for set_, picked in pairs]), trials)
        history = self._bank.tensor(np.stack([set_.q_history[picked] for set_, picked in pairs]))
        target = self._bank.tensor(np.stack([set_.following_q[picked] for set_, picked in pairs]))
        weight = self._bank.tensor(np.stack([weight for _, weight in rows]))
        active = weight.any(1)
        losses, _ = self._learner.fit(qlstm_loss, vectors, history, target, weight, trials=trials, active=active)
        self.loss.add(losses, trials, active)

    def _vectors(self, batch: TransitionBatch, trials: Sequence[int]) -> Tensor:
        s, s_next = self._bank.gather(batch.s, trials), self._bank.gather(batch.s_next, trials)
        a, r = self._bank.tensor(batch.a), self._bank.tensor(batch.r)
        return transition_vectors(s, a, r, s_next, num_actions=self._num_actions)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's weights, its optimiser's averages, and the loss since the last log line."""
        return {"learner": self._learner.state_dict(trial), "loss": self.loss.state_dict(trial)}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._learner.load_state_dict(trial, state["learner"])
        self.loss.load_state_dict(trial, state["loss"])


def _padded_rows(length: int, start: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Rows start to start + size, those past the end replaced by the first one, and a weight that leaves these out."""
    rows = np.arange(start, start + size)
    counts = rows < length
    return np.where(counts, rows, 0), counts.astype(np.float32)
