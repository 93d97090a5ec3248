"""Q-networks fitted to values that are data: one pass forward and one back, no target network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.learners.frame_bank import FrameBank
from comper.learners.learner import LossFunction, Network, QLearner
from comper.learners.optimisers import Rule
from comper.networks.stacking import NetworkFactory


class Following(NamedTuple):
    """What followed B states for K steps."""

    frames: Tensor
    """(n, K·B, history, ...) of the states that were come to."""
    actions: NDArray[np.float32]
    """(n, K, B, A) one-hot."""
    weights: NDArray[np.float32]
    """(n, K, B) how much each step counts."""


class ValueLearner(QLearner):
    """The networks Q(s, ·; Θ) of T trials, fitted to values of several actions of a state at once."""

    def __init__(
        self, network: NetworkFactory, bank: FrameBank, rngs: Sequence[np.random.Generator], *, loss: str, optimiser: Rule
    ):
        super().__init__(network, bank, rngs, loss="huber" if loss == "foresight" else loss, optimiser=optimiser)
        self._weighted_loss = WEIGHTED_LOSSES[loss]

    def fit_values(
        self,
        frames: Tensor,
        targets: NDArray[np.float32],
        weights: NDArray[np.float32],
        trials: Sequence[int],
        following: Following | None = None,
    ) -> Tensor:
        """One update of Θ towards values (n, B, A) of states given by their frames, each value with its weight.

        A network with foresight also learns from what followed. Return Q(s, ·) as it was before, (n, B, A).
        """
        met = (following.frames, *map(self._bank.tensor, following[1:])) if following else ()
        inputs = (frames, self._bank.tensor(targets), self._bank.tensor(weights), *met)
        losses, q = self._update(self._weighted_loss, *inputs, trials=trials)
        self.loss.add(losses / targets.shape[1], trials)
        return q

    def _update_group(
        self, group: int, loss_function: LossFunction, inputs: Sequence[Tensor], active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The same without autograd, where it is this loss and the network computes its own gradients."""
        found = None
        if loss_function is weighted_huber_loss:
            frames, targets, weights = inputs
            found = self.population.explicit_gradients(group, frames, lambda q: weights * (q - targets).clamp_(-1, 1))
        if found is None:
            return super()._update_group(group, loss_function, inputs, active)
        q, gradients = found
        self._optimiser.step(group, gradients)
        return loss_function(lambda _: q, *inputs)[0], q


def weighted_huber_loss(network: Network, s: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Σ w · Huber's loss of Q(s, a; Θ) over states and actions. Return it with Q(s, ·; Θ)."""
    q = network(s)
    losses = weights * torch.nn.functional.huber_loss(q, targets, reduction="none")
    return losses.sum((-2, -1)), q


def weighted_own_loss(network: Network, s: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The same of the losses that the network itself computes: a `HistogramNetwork`, an `Ensemble`."""
    q, losses = network(s, targets).unbind(-1)
    return (weights * losses).sum((-2, -1)), q


def weighted_foresight_loss(
    network: Network, s: Tensor, targets: Tensor, weights: Tensor, *following: Tensor
) -> tuple[Tensor, Tensor]:
    """Huber's, and what a `Foresight` did not foresee of what followed."""
    q, losses = network(s, targets, *following).unbind(-1)
    return (torch.nn.functional.pad(weights, (0, 1), value=1.0) * losses).sum((-2, -1)), q[..., :-1]


WEIGHTED_LOSSES: dict[str, LossFunction] = {
    "huber": weighted_huber_loss,
    "own": weighted_own_loss,
    "foresight": weighted_foresight_loss,
}
