"""Transitions as rows of integers: frame ids, action, reward, terminal. The pixels stay in the FrameStore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore


class Transition(NamedTuple):
    """τ_t = (s_t, a_t, r_t, s_t+1), states as frame ids. A2: also whether the game ended there."""

    s: tuple[int, ...]
    a: int
    r: float
    s_next: tuple[int, ...]
    is_terminal: bool


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions, column by column."""

    s: NDArray[np.int64]
    """(B, history) frame ids."""
    a: NDArray[np.int64]
    r: NDArray[np.float32]
    s_next: NDArray[np.int64]
    continues: NDArray[np.float32]
    """1, or 0 where the game ended: no value follows."""

    def rows(self, rows: NDArray[np.int64]) -> TransitionBatch:
        """Some of the transitions."""
        return TransitionBatch(self.s[rows], self.a[rows], self.r[rows], self.s_next[rows], self.continues[rows])

    @staticmethod
    def stack(batches: Sequence[TransitionBatch]) -> TransitionBatch:
        """Batches of several trials, with the trial axis in front."""
        columns = zip(*((b.s, b.a, b.r, b.s_next, b.continues) for b in batches), strict=True)
        return TransitionBatch(*(np.stack(column) for column in columns))


class TransitionTable:
    """A fixed number of rows, each empty or one transition; the frames of a written row are held in the store."""

    def __init__(self, frames: FrameStore, *, capacity: int, history_length: int):
        if capacity < 1:
            raise ValueError(f"capacity = {capacity}: a memory holds at least one transition.")
        self.frames = frames
        self.capacity = capacity
        self.history_length = history_length
        self._s = np.zeros((capacity, history_length), np.int32)
        self._a = np.zeros(capacity, np.int32)
        self._r = np.zeros(capacity, np.float32)
        self._s_next = np.zeros((capacity, history_length), np.int32)
        self._continues = np.zeros(capacity, np.float32)
        self._is_written = np.zeros(capacity, np.bool_)

    def write(self, row: int, transition: Transition) -> None:
        """Put a transition into a row, in place of what was there."""
        self.frames.retain(transition.s)
        self.frames.retain(transition.s_next)
        self.erase(row)
        self._s[row], self._a[row], self._r[row], self._s_next[row], is_terminal = transition
        self._continues[row] = not is_terminal
        self._is_written[row] = True

    def erase(self, row: int) -> None:
        """Empty a row and let go of its frames."""
        if self._is_written[row]:
            self.frames.release(self._s[row])
            self.frames.release(self._s_next[row])
            self._is_written[row] = False

    def set_terminal(self, row: int, is_terminal: bool) -> None:
        """Record whether the game ended at the row's latest occurrence."""
        self._continues[row] = not is_terminal

    def gather(self, rows: NDArray[np.int64]) -> TransitionBatch:
        """The transitions of these rows."""
        s, a, s_next = (column[rows].astype(np.int64) for column in (self._s, self._a, self._s_next))
        return TransitionBatch(s, a, self._r[rows], s_next, self._continues[rows])

    def frame_references(self) -> NDArray[np.int32]:
        """Every frame id held, once for each time it is held."""
        written = self._is_written
        return np.concatenate([self._s[written].ravel(), self._s_next[written].ravel()])

    @property
    def bytes_per_row(self) -> int:
        return sum(column.nbytes for column in self._columns().values()) // self.capacity

    def state_dict(self) -> dict[str, Any]:
        """The columns; the frames are the store's to save."""
        return {name: column.copy() for name, column in self._columns().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote. The store, loaded from the same checkpoint, counts these references already."""
        for name, column in self._columns().items():
            if state[name].shape != column.shape:
                raise ValueError(f"{name}: saved with shape {state[name].shape}, expected {column.shape}.")
            column[...] = state[name]

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {
            "s": self._s,
            "a": self._a,
            "r": self._r,
            "s_next": self._s_next,
            "continues": self._continues,
            "is_written": self._is_written,
        }
