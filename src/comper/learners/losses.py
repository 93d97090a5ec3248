"""Losses of the two networks, as pure functions of parameters and a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from comper.networks.parameters import Parameters
from comper.networks.q_network import q_values
from comper.networks.qlstm import predict


def squared_td_loss(p: Parameters, s: Tensor, a: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ (y - Q(s, a; Θ))²: its gradient is Δ of Algorithm 2, l. 19-21. Return it with the Q-values."""
    q = _taken(q_values(p, s), a)
    return 0.5 * (target - q).square().sum(-1), q


def huber_td_loss(p: Parameters, s: Tensor, a: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The same with each error clipped to ±1 in the gradient, as Mnih et al. do (A4b)."""
    q = _taken(q_values(p, s), a)
    return torch.nn.functional.huber_loss(q, target, reduction="none").sum(-1), q


TD_LOSSES = {"squared": squared_td_loss, "huber": huber_td_loss}


def qlstm_loss(
    p: Parameters, s: Tensor, a: Tensor, r: Tensor, s_next: Tensor, q_history: Tensor, target: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean squared error of the predictions that count. Section 4.4."""
    prediction = predict(p, s, a, r, s_next, q_history)
    num_samples = weight.sum(-1).clamp(min=1)
    return (weight * (prediction - target).square()).sum(-1) / num_samples, prediction


def _taken(q: Tensor, a: Tensor) -> Tensor:
    """Q(s, a) of Q(s, ·)."""
    return q.gather(-1, a.unsqueeze(-1)).squeeze(-1)
