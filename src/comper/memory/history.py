"""From frames to states: the last observations of a trial, as frame ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore


class ObservationHistory:
    """The current state s_t of a trial and the one before it; both hold references to their frames.

    single:   a | b | c ...                 one new frame a step, one frame a state
    rolling:  aaaa | aaab | aabc | abcd     one new frame a step, four frames a state
    stacked:  aaaa | bcde | fghi            four new frames a step, four frames a state (A8)
    """

    def __init__(self, frames: FrameStore, history_length: int):
        self._frames = frames
        self._length = history_length
        self._previous: tuple[int, ...] = ()
        self.state: tuple[int, ...] = ()

    def reset(self, frame: NDArray[Any]) -> None:
        """Begin an episode: its first frame fills the whole state (A8)."""
        self._release()
        first = self._frames.intern(frame)
        self.state = (first,) * self._length
        self._frames.retain(self.state[1:])

    def advance(self, frames: Iterable[NDArray[Any]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take in new frames, oldest first; return (s_t, s_t+1), valid until the next call."""
        new = tuple(self._frames.intern(frame) for frame in frames)
        joined = self.state + new
        self._frames.retain(self.state)  # once more, as part of what is joined
        self._frames.release(joined[: -self._length])
        self._frames.release(self._previous)
        self._previous, self.state = self.state, joined[-self._length :]
        return self._previous, self.state

    def _release(self) -> None:
        self._frames.release(self._previous + self.state)
        self._previous = self.state = ()

    def state_dict(self) -> dict[str, Any]:
        """Both states' frame ids."""
        return {"previous": np.array(self._previous, np.int64), "state": np.array(self.state, np.int64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote. The store, loaded from the same checkpoint, counts these references already."""
        self._previous, self.state = tuple(state["previous"].tolist()), tuple(state["state"].tolist())
