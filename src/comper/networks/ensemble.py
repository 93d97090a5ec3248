"""Several Q-networks in one: each learns by itself, and what counts is their mean. D7."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from comper.networks.cnn import QNetworkFactory
from comper.networks.histogram import HistogramNetwork
from comper.networks.stacking import NetworkFactory


def with_members(make: NetworkFactory, num_members: int) -> QNetworkFactory:
    """So many networks of this kind, which differ in their start weights."""
    described = getattr(make, "description", "network")
    return QNetworkFactory(f"{num_members} times {described}", lambda: Ensemble(make, num_members))


class Ensemble(nn.Module):
    """The mean of several of our Q-networks. What they agree on is what they have learned; what they guess averages out."""

    takes_trial_axis = True

    def __init__(self, make: NetworkFactory, num_members: int):
        super().__init__()
        self.members = nn.ModuleList(make() for _ in range(num_members))

    def forward(self, frames: Tensor, targets: Tensor | None = None) -> Tensor:
        """Q(s, ·; Θ) of states (..., B, history, *observation_shape).

        With targets (..., B, A), or one for all actions (..., B, 1), the last axis of the result, (..., B, A, 2), has the
        Q-value and the sum of the members' losses.
        """
        if targets is None:
            return torch.stack([member(frames) for member in self.members]).mean(0)
        q, losses = torch.stack([_with_loss(member, frames, targets) for member in self.members]).unbind(-1)
        return torch.stack((q.mean(0), losses.sum(0)), -1)


def _with_loss(member: nn.Module, frames: Tensor, targets: Tensor) -> Tensor:
    """Q-values and losses of one member, on the last axis."""
    if isinstance(member, HistogramNetwork):
        return member.forward(frames, targets)
    q: Tensor = member(frames)
    return torch.stack((q, huber_loss(q, targets.expand_as(q), reduction="none")), -1)
