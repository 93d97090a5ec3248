"""The replay memory of DQN: the last transitions, the oldest goes first. Mnih et al. 2015; Table 8."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore
from comper.memory.transitions import Transition, TransitionBatch, TransitionTable


class ReplayMemory:
    """A ring of transitions with uniform sampling."""

    def __init__(self, frames: FrameStore, *, capacity: int = 100_000, history_length: int = 4):
        self.frames = frames
        self.capacity = capacity
        self._table = TransitionTable(frames, capacity=capacity, history_length=history_length)
        self._num_added = 0

    def add(self, transition: Transition) -> None:
        """Store a transition in place of the oldest."""
        self._table.write(self._num_added % self.capacity, transition)
        self._num_added += 1

    def sample(self, batch_size: int, rng: np.random.Generator) -> TransitionBatch:
        """Draw transitions uniformly, with replacement."""
        if not self._num_added:
            raise ValueError("The replay memory is empty: there is nothing to sample.")
        return self._table.gather(self._draw(batch_size, rng))

    def _draw(self, batch_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.integers(len(self), size=batch_size)

    def __len__(self) -> int:
        return min(self._num_added, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes held: frames and rows."""
        return self.frames.nbytes + len(self) * self._table.bytes_per_row

    def check_valid(self) -> tuple[bool, str]:
        """Check that every row up to the size holds a transition."""
        references = len(self._table.frame_references())
        expected = len(self) * 2 * self._table.history_length
        if references != expected:
            return False, f"{references} frame references, expected {expected}."
        return self.frames.check_valid()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the frames, which the store saves."""
        return {"table": self._table.state_dict(), "num_added": self._num_added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._table.load_state_dict(state["table"])
        self._num_added = int(state["num_added"])
