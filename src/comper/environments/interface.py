"""What the training loop asks of an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one action."""

    frames: NDArray[Any]
    """(K, *frame_shape): the K observations made while the action was held, oldest first."""
    reward: float
    """The raw sum."""
    terminated: bool
    """The game is over."""
    truncated: bool
    """The frame cap ended the episode."""
    num_frames: int
    """Emulator frames this step took."""


class Environment(Protocol):
    """A game with discrete actions whose observations are arrays of one shape."""

    num_actions: int
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype[Any]

    def reset(self) -> NDArray[Any]:
        """Begin an episode and return its first observation."""

    def step(self, action: int) -> Step:
        """Hold an action and return what came of it."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed episode needs, as plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
