"""The CNN Q(s, ·; Θ) of every trial: asks and updates it, given states as frame ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.learners.frame_bank import FrameBank
from comper.learners.learner import Learner
from comper.learners.losses import TD_LOSSES
from comper.learners.meters import LossMeter
from comper.learners.optimisers import MnihRMSProp
from comper.memory.transitions import TransitionBatch
from comper.networks.parameters import LayerSpec, Population
from comper.networks.q_network import q_values
from comper.protocol import LearnerConfig

MAX_STATES = 256
"""States of one trial that are put through the network at a time."""


class QNetwork:
    """T convolutional networks with the optimiser of Table 5."""

    def __init__(
        self, layers: Sequence[LayerSpec], config: LearnerConfig, bank: FrameBank, rngs: Sequence[np.random.Generator]
    ):
        self._bank = bank
        self._loss = TD_LOSSES[config.loss]
        self.population = Population(layers, rngs, bank.device)
        optimiser = MnihRMSProp(
            self.population,
            step_size=config.step_size,
            gradient_momentum=config.gradient_momentum,
            squared_gradient_momentum=config.squared_gradient_momentum,
            min_squared_gradient=config.min_squared_gradient,
        )
        self._learner = Learner(self.population, optimiser)
        self.loss = LossMeter(len(rngs), bank.device)

    def values(self, states: NDArray[np.int64], trials: Sequence[int], *, population: Population | None = None) -> Tensor:
        """Q(s, ·) of states (n, B, history): (n, B, actions). Another population of the same layers may answer instead."""
        chosen = population or self.population
        parts = np.array_split(states, range(MAX_STATES, states.shape[1], MAX_STATES), axis=1)
        return torch.cat([chosen.apply(q_values, self._bank.gather(part, trials), trials=trials) for part in parts], dim=1)

    def fit(self, batch: TransitionBatch, target: Tensor, trials: Sequence[int]) -> Tensor:
        """One update of Θ towards the targets (n, B). Return Q(s, a) as it was before."""
        inputs = (self._bank.gather(batch.s, trials), self._bank.tensor(batch.a), target)
        losses, q = self._learner.fit(self._loss, *inputs, trials=trials)
        self.loss.add(losses / batch.a.shape[1], trials)
        return q

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's weights, its optimiser's averages, and the loss since the last log line."""
        return {"learner": self._learner.state_dict(trial), "loss": self.loss.state_dict(trial)}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._learner.load_state_dict(trial, state["learner"])
        self.loss.load_state_dict(trial, state["loss"])
