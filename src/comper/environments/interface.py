"""What an environment is to the rest of the project: frames out, actions in, and a state that can be written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one action."""

    frames: NDArray[Any]
    """The K observations made while the action was held, oldest first: (K, *frame_shape)."""
    reward: float
    """Raw sum."""
    terminated: bool
    """Whether the game is over."""
    truncated: bool
    """Whether the frame cap ended the episode, not the game."""
    num_frames: int
    """Emulator frames this step took."""

    @property
    def is_last(self) -> bool:
        """Whether the episode has ended, for either reason."""
        return self.terminated or self.truncated


class Environment(Protocol):
    """One episode after another: reset, then step until a step is the last."""

    num_actions: int
    frame_shape: tuple[int, ...]
    frame_dtype: np.dtype[Any]
    observations_per_step: int

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation, of frame_shape."""
        ...

    def step(self, action: int) -> Step:
        """Take one action."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Write down everything the future depends on: arrays, ints, strings, bytes and dicts of them."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from what `state_dict` wrote."""
        ...
