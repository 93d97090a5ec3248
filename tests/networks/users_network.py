"""A network of a user's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class UsersNetwork(nn.Module):
    """Convolutions, a batch normalisation with its buffers, and a parameter that is not trained and belongs to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(2, 4, 3, stride=2)
        self.normalisation = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 3 * 3, 3)
        self.offset = nn.Parameter(torch.randn(3), requires_grad=False)

    def forward(self, frames: Tensor) -> Tensor:
        hidden = self.normalisation(self.convolution(frames)).relu()
        q_values: Tensor = self.head(hidden.flatten(1)) + self.offset
        return q_values
