"""δ = 0, the paper's setting (Table 7): similar means equal."""

from __future__ import annotations

import sys
from typing import Any

from comper.memory.frames import FrameStore
from comper.memory.indexes.base import NO_MATCH, Representatives, TransitionKey

BYTES_PER_ENTRY = 64
"""Of a dictionary, about. Asking it would tell how it grew as well, which a dictionary read back does not know."""


class ExactIndex:
    """Finds the representative equal in every pixel, the action and the reward. Constant time: frames are interned.

    Several sets may share an equal representative after updates; the oldest (lowest set id) answers.
    """

    def __init__(self, frames: FrameStore) -> None:
        self._representatives = Representatives(frames)
        self._sets: dict[TransitionKey, tuple[int, ...]] = {}

    def get_index(self, key: TransitionKey) -> int:
        sets = self._sets.get(key)
        return sets[0] if sets else NO_MATCH

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        if set_id in self._representatives:
            self._unlist(set_id, self._representatives[set_id])
        self._representatives.put(set_id, key)
        self._list(set_id, key)

    def forget(self, set_id: int) -> None:
        self._unlist(set_id, self._representatives.remove(set_id))

    def _list(self, set_id: int, key: TransitionKey) -> None:
        others = self._sets.get(key)
        self._sets[key] = tuple(sorted((*others, set_id))) if others else (set_id,)

    def _unlist(self, set_id: int, key: TransitionKey) -> None:
        others = tuple(i for i in self._sets.pop(key) if i != set_id)
        if others:
            self._sets[key] = others

    def __len__(self) -> int:
        return len(self._representatives)

    @property
    def nbytes(self) -> int:
        if not self._sets:
            return 0
        key = next(iter(self._sets))
        per_key = sum(sys.getsizeof(part) for part in (key, key.s, key.s_next, key.r)) + sys.getsizeof((0,))
        return len(self) * (per_key + 2 * BYTES_PER_ENTRY)

    def state_dict(self) -> dict[str, Any]:
        return self._representatives.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._representatives.load_state_dict(state)
        self._sets = {}
        for set_id in self._representatives:
            self._list(set_id, self._representatives[set_id])

    def check_valid(self) -> tuple[bool, str]:
        listed = sorted(set_id for sets in self._sets.values() for set_id in sets)
        if listed != sorted(self._representatives):
            return False, "the sets listed by key are not the sets that have a representative"
        if any(self._representatives[set_id] != key for key, sets in self._sets.items() for set_id in sets):
            return False, "a set is listed under a key that is not its representative"
        return self._representatives.check_valid()
