"""Q-networks whose values are the means of histograms, learned as classes: HL-Gauss, Farebrother et al. 2024. D7."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from comper.networks.cnn import Duelling, QNetworkFactory
from comper.networks.joystick import Joystick, summing
from comper.networks.stacking import Linear, NetworkFactory

WIDTHS_OF_A_CLASS = 0.75
"""σ of the normal distribution around a target. It spreads over about six classes, so that near ones teach each other."""


def with_histograms(make: NetworkFactory, num_classes: int, value_range: float) -> QNetworkFactory:
    """The same network with a histogram for each action, of classes evenly spaced over ± `value_range`."""
    described = getattr(make, "description", "network")
    return QNetworkFactory(
        f"{described}, {num_classes} classes of values", lambda: HistogramNetwork(make(), num_classes, value_range)
    )


class HistogramNetwork(nn.Module):
    """One of our Q-networks whose last layer gives the logits of a histogram in place of each value."""

    takes_trial_axis = True

    def __init__(self, network: nn.Module, num_classes: int, value_range: float):
        super().__init__()
        self._num_classes, self._range = num_classes, value_range
        name, last = list(network.named_children())[-1]
        if not isinstance(last, Linear):
            raise TypeError(f"The last layer is a {type(last).__name__}, which cannot be given classes.")
        self._duelling = isinstance(last, Duelling)
        self._shares = last.shares if isinstance(last, Joystick) else None
        num_inputs, num_outputs = last.weight.shape
        network.add_module(name, Linear(num_inputs, num_outputs * num_classes))
        self.network = network

    def forward(self, frames: Tensor, targets: Tensor | None = None) -> Tensor:
        """Q(s, ·; Θ) of states (..., B, history, *observation_shape).

        With targets (..., B, A), or one for all actions (..., B, 1), the last axis of the result, (..., B, A, 2), has the
        Q-value, without its gradient, and the cross-entropy of its histogram with that of the target.
        """
        log_p = self._logits(frames).log_softmax(-1)
        centres = torch.linspace(-self._range, self._range, self._num_classes, device=log_p.device)
        if targets is None:
            return (log_p.exp() * centres).sum(-1)
        q = (log_p.detach().exp() * centres).sum(-1)
        wanted = histograms(targets, self._num_classes, self._range)
        return torch.stack((q, -(wanted * log_p).sum(-1)), -1)

    def _logits(self, frames: Tensor) -> Tensor:
        y: Tensor = self.network(frames).unflatten(-1, (-1, self._num_classes))
        if self._shares is not None:
            return (y.mT @ summing(self._shares, y.device)).mT
        if not self._duelling:
            return y
        value, advantages = y.split_with_sizes((1, y.shape[-2] - 1), -2)
        return value + advantages - advantages.mean(-2, keepdim=True)


def histograms(targets: Tensor, num_classes: int, value_range: float) -> Tensor:
    """The part of a normal distribution around each target that lies in each class; together they are 1.

    The centres of the outermost classes are ± `value_range`; a target beyond counts as that.
    """
    width = 2 * value_range / (num_classes - 1)
    end = value_range + width / 2
    edges = torch.linspace(-end, end, num_classes + 1, device=targets.device)
    targets = targets.clamp(-value_range, value_range).unsqueeze(-1)
    below = torch.erf((edges - targets) / (math.sqrt(2) * WIDTHS_OF_A_CLASS * width))
    return below.diff(dim=-1) / (below[..., -1:] - below[..., :1])
