"""Sets of similar transitions among the rows of a ring, for the replay buffers of other libraries."""

from __future__ import annotations

import heapq
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

NONE = -1


class Finder(Protocol):
    """Which set a transition belongs to: an index of `comper.memory.indexes`, or `EqualKeys`."""

    def get_index(self, key: Any) -> int:
        """The set of the nearest representative within δ, or NO_MATCH, which is -1."""

    def update_index(self, set_id: int, key: Any) -> None:
        """Make the key the representative of the set."""

    def forget(self, set_id: int) -> None:
        """Drop a set."""


class EqualKeys:
    """The finder for δ = 0 with transitions of any kind, given as bytes: one set for each different key."""

    def __init__(self) -> None:
        self._sets: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}

    def get_index(self, key: bytes) -> int:
        return self._sets.get(key, NONE)

    def update_index(self, set_id: int, key: bytes) -> None:
        self._sets[key] = set_id
        self._keys[set_id] = key

    def forget(self, set_id: int) -> None:
        del self._sets[self._keys.pop(set_id)]


class RingSets:
    """Which rows of a ring hold similar transitions. A set lives as long as one of its transitions is in the ring."""

    def __init__(self, num_rows: int, finder: Finder) -> None:
        self._finder = finder
        self._set_of = np.full(num_rows, NONE, np.int32)
        self._latest = np.full(num_rows, NONE, np.int32)  # the row in which a set was met last
        self._sizes = np.zeros(num_rows, np.int32)
        self._members = np.zeros(num_rows, np.int32)  # the living sets, in no order
        self._places = np.zeros(num_rows, np.int32)  # where each of them is in _members
        self._num_sets = self._end = 0
        self._free: list[int] = []  # a heap of the free set ids below _end

    def __len__(self) -> int:
        """Sets alive."""
        return self._num_sets

    def find(self, key: Any) -> int:
        """A row with the first transition of the set that this one belongs to; -1 if it is the first of a new set."""
        set_id = self._finder.get_index(key)
        return NONE if set_id == NONE else int(self._latest[set_id])

    def add(self, row: int, key: Any, similar_row: int) -> None:
        """Put a row into the set of a similar one, as `find` returned it, or into a new set."""
        set_id = self._new_set(key) if similar_row == NONE else int(self._set_of[similar_row])
        self._set_of[row], self._latest[set_id] = set_id, row
        self._sizes[set_id] += 1

    def remove(self, row: int) -> None:
        """Take out a row that is about to be overwritten; nothing if it was never written."""
        set_id = int(self._set_of[row])
        if set_id == NONE:
            return
        self._set_of[row] = NONE
        self._sizes[set_id] -= 1
        if not self._sizes[set_id]:
            self._drop(set_id)
        elif self._latest[set_id] == row:  # not in a ring, where the oldest row goes first
            self._latest[set_id] = np.flatnonzero(self._set_of == set_id)[-1]

    def rows(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The latest row of each of these sets, numbered from 0 to len(self) - 1."""
        rows: npt.NDArray[np.int32] = self._latest[self._members[numbers]]
        return rows

    @property
    def sizes(self) -> npt.NDArray[np.int32]:
        """How many rows each set has, in the order of their numbers."""
        sizes: npt.NDArray[np.int32] = self._sizes[self._members[: self._num_sets]]
        return sizes

    def _new_set(self, key: Any) -> int:
        set_id = heapq.heappop(self._free) if self._free else self._end
        self._end = max(self._end, set_id + 1)
        self._finder.update_index(set_id, key)
        self._members[self._num_sets] = set_id
        self._places[set_id] = self._num_sets
        self._num_sets += 1
        return set_id

    def _drop(self, set_id: int) -> None:
        self._finder.forget(set_id)
        self._num_sets -= 1
        last = self._members[self._num_sets]
        self._members[self._places[set_id]] = last
        self._places[last] = self._places[set_id]
        heapq.heappush(self._free, set_id)

    # State: which set each row belongs to and the order of the sets. Keys come from the rows themselves.

    def state_dict(self) -> dict[str, npt.NDArray[np.int32]]:
        return {
            "set_of": self._set_of.copy(),
            "latest": self._latest[self._members[: self._num_sets]],
            "members": self._members[: self._num_sets].copy(),
        }

    def load_state_dict(self, state: dict[str, npt.NDArray[Any]], keys: dict[int, Any]) -> None:
        """Become the sets that wrote this state; `keys` gives the key of the latest row of each set by that row."""
        set_of, latest, members = (np.asarray(state[name]) for name in ("set_of", "latest", "members"))
        num_rows = len(self._set_of)
        for array, shape in ((set_of, (num_rows,)), (latest, members.shape), (members, members.shape[:1])):
            is_outside = array.size > 0 and (array.min() < NONE or array.max() >= num_rows)
            if array.dtype != np.int32 or array.shape != shape or is_outside:
                raise ValueError("sets name rows that are not there")
        if (set_of[latest] != members).any() or not np.array_equal(np.unique(set_of[set_of != NONE]), np.sort(members)):
            raise ValueError("the sets do not agree with the rows")
        self._set_of[...] = set_of
        self._num_sets, self._end = len(members), int(members.max(initial=NONE)) + 1
        self._members[: len(members)] = members
        self._places[members], self._latest[members] = np.arange(len(members)), latest
        self._sizes[...] = np.bincount(set_of[set_of != NONE], minlength=num_rows)
        self._free = sorted(set(range(self._end)) - set(members.tolist()))
        for set_id, row in zip(members.tolist(), latest.tolist(), strict=True):
            self._finder.update_index(set_id, keys[row])
