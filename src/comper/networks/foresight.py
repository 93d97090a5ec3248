"""A Q-network that learns to foresee what it will make of the states that follow: self-prediction. D7.

From what its convolutions say of a state, a small model goes on step by step, given the actions that were taken, and is to
arrive at what the hidden layer makes of the states that were met (SPR, Schwarzer et al. 2020). Rewards are rare; what follows
is seen at every step, so the convolutions learn from all of them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comper.networks.cnn import CNN, Conv2d, QNetworkFactory
from comper.networks.residual import ResidualCNN
from comper.networks.stacking import Linear, NetworkFactory


def can_foresee(make: NetworkFactory) -> bool:
    """Whether this makes one of our networks for pictures."""
    return isinstance(make(), CNN | ResidualCNN)


def with_foresight(make: NetworkFactory, num_actions: int) -> QNetworkFactory:
    """The same network with a model of what follows."""
    described = getattr(make, "description", "network")
    return QNetworkFactory(f"{described}, with foresight", lambda: Foresight(make(), num_actions))


class Foresight(nn.Module):
    """One of our Q-networks for pictures, and a model of the steps that follow."""

    takes_trial_axis = True

    def __init__(self, network: nn.Module, num_actions: int):
        super().__init__()
        if not isinstance(network, CNN | ResidualCNN):
            raise TypeError(f"A {type(network).__name__} has no convolutions to foresee with.")
        self.network = network
        filters, num_units = network.num_filters, network.Dense1.weight.shape[-1]
        self.Conv1 = Conv2d(filters, filters, 3, 1, bias=False)
        self.Action = Linear(num_actions, filters)  # its bias is the convolution's
        self.Conv2 = Conv2d(filters, filters, 3, 1)
        self.Guess = Linear(num_units, num_units)

    def forward(self, frames: Tensor, *met: Tensor) -> Tensor:
        """Q(s, ·; Θ) of states (..., B, history, *observation_shape).

        What was met: targets (..., B, A); frames (..., K·B, history, *observation_shape) of the K states that followed each;
        the actions between, one-hot (..., K, B, A); and how much each step counts, (..., K, B). With them the last axis of
        the result, (..., B, A + 1, 2), has the Q-values and their losses, and in the last row 0 and what was not foreseen.
        """
        if not met:
            q: Tensor = self.network(frames)
            return q
        targets, following, actions, weights = met
        features = self.network.features(frames)
        q = self.network.answer(self.network.hidden_sums(features))
        losses = F.huber_loss(q, targets, reduction="none")
        unforeseen = (weights * self._unforeseen(features, following, actions)).sum(-2)
        return torch.stack((F.pad(q, (0, 1)), torch.cat((losses, unforeseen.unsqueeze(-1)), -1)), -1)

    def _unforeseen(self, features: Tensor, following: Tensor, actions: Tensor) -> Tensor:
        """(..., K, B) 1 - the cosine between each guess and what the network makes of the state that was met."""
        with torch.no_grad():
            wanted = self.network.hidden_sums(self.network.features(following))
            wanted = wanted.view(*actions.shape[:-1], -1)
        guesses = []
        for action in actions.unbind(-3):
            features = self._next(features, action)
            guesses.append(self.Guess.forward(self.network.hidden_sums(features)))
        return 1 - F.cosine_similarity(torch.stack(guesses, -3), wanted, dim=-1)

    def _next(self, features: Tensor, action: Tensor) -> Tensor:
        """What the convolutions should say of the next state."""
        change = self.Conv1.forward(_with_edge(features)) + self.Action.forward(action)[..., None, None]
        return (features + self.Conv2.forward(_with_edge(change.relu()))).relu()


def _with_edge(features: Tensor) -> Tensor:
    """Zeros around them, so that a convolution keeps their size."""
    return F.pad(features, (1, 1, 1, 1))
