"""Actions of a joystick, read from their names (UP, LEFT, DOWNRIGHTFIRE), and an output layer for their parts. D7.

18 actions are three positions across, three along, and a button. Most games heed only some of them: in Asterix six actions
all go up. What UP is worth is learned from all actions that have it (Sharma et al. 2017, arXiv:1705.07269).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from comper.networks.stacking import Gradient, Linear

Shares = tuple[tuple[int, ...], ...]
"""A row for each output: 1 for the actions that it counts in, 0 for the others."""

PARTS = re.compile("(UP|DOWN)?(LEFT|RIGHT)?(FIRE)?")
MIRRORED = {"LEFT": "RIGHT", "RIGHT": "LEFT"}


def _parts_of(action_names: Sequence[str]) -> list[tuple[str, ...]]:
    """Up or down, left or right, and fire, of each action, "" where it has none; empty if they are not a joystick's."""
    found = [PARTS.fullmatch("" if name == "NOOP" else name) for name in action_names]
    return [] if None in found else [match.groups("") for match in found if match]


def joystick_shares(action_names: Sequence[str], *, own: bool) -> Shares:
    """Rows for the parts of these actions and, with `own`, one for each action; none if they are not a joystick's."""
    columns = list(zip(*_parts_of(action_names), strict=True))
    parts = [tuple(int(part == of_action) for of_action in column) for column in columns for part in dict.fromkeys(column)]
    shared = [row for row in parts if 0 in row]  # what all actions have in common tells none from another
    each = [tuple(int(i == j) for j in range(len(action_names))) for i in range(len(action_names))]
    return (*shared, *each) if own and columns else tuple(shared)


def mirrored_actions(action_names: Sequence[str]) -> list[int]:
    """The number of each action's mirror image; empty if one has none, or if they are not a joystick's."""
    parts = _parts_of(action_names)
    images = [(along, MIRRORED.get(across, across), fire) for along, across, fire in parts]
    return [parts.index(image) for image in images] if set(images) == set(parts) else []


def buttons_of(action_names: Sequence[str]) -> tuple[list[int], list[int]]:
    """For each action the one with the same position of the stick and FIRE pressed, and the one with FIRE let go of.

    Both are empty if the actions are not a joystick's, or if a position lacks one of the two.
    """
    parts = _parts_of(action_names)
    both = [[(along, across, fire) for along, across, _ in parts] for fire in ("FIRE", "")]
    pressed, released = ([parts.index(part) if part in parts else -1 for part in row] for row in both)
    return ([], []) if -1 in pressed + released else (pressed, released)


class Joystick(Linear):
    """A duelling output whose advantages are sums: Q(s, a) = V + A(a) - mean of A, A(a) of the outputs that count in a."""

    def __init__(self, num_inputs: int, num_actions: int, shares: Shares):
        super().__init__(num_inputs, 1 + len(shares))
        self.shares = shares

    def forward(self, x: Tensor) -> Tensor:
        """Q-values of (B, inputs), or of (T, B, inputs) with stacked parameters."""
        return super().forward(x) @ summing(self.shares, x.device)

    def backward(self, x: Tensor, d: Tensor) -> tuple[Tensor, dict[str, Gradient]]:
        """The gradients of x and of the parameters, given that of the Q-values of a batch (B, actions)."""
        return super().backward(x, d @ summing(self.shares, d.device).t())


@cache
def summing(shares: Shares, device: torch.device) -> Tensor:
    """The matrix (outputs, actions) that makes Q-values of outputs, the state's value first."""
    advantages = torch.tensor(shares, dtype=torch.float32)
    advantages -= advantages.mean(1, keepdim=True)
    return torch.cat([torch.ones(1, advantages.shape[1]), advantages]).to(device)
