"""δ = 0, the paper's setting (Table 7): similar means equal."""

from __future__ import annotations

import sys
from typing import Any

from comper.memory.frames import FrameStore
from comper.memory.indexes.base import NO_MATCH, Representatives, TransitionKey, packed

BYTES_PER_ENTRY = 64
"""Of a dictionary, about. Asking it would tell how it grew as well, which a dictionary read back does not know."""


class ExactIndex:
    """Finds the representative equal in every pixel, the action and the reward. Constant time: frames are interned.

    Several sets may share an equal representative after updates; the oldest (lowest set id) answers.
    """

    def __init__(self, frames: FrameStore) -> None:
        self._representatives = Representatives(frames)
        self._sets: dict[bytes, int | tuple[int, ...]] = {}  # by packed key; several only where updates made them equal

    def get_index(self, key: TransitionKey) -> int:
        sets = self._sets.get(packed(key), NO_MATCH)
        return sets if isinstance(sets, int) else sets[0]

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        if set_id in self._representatives:
            self._unlist(set_id, self._representatives.packed(set_id))
        self._list(set_id, self._representatives.put(set_id, key))

    def forget(self, set_id: int) -> None:
        self._unlist(set_id, packed(self._representatives.remove(set_id)))

    def _list(self, set_id: int, content: bytes) -> None:
        others = self._sets_of(content)
        self._sets[content] = tuple(sorted((*others, set_id))) if others else set_id

    def _unlist(self, set_id: int, content: bytes) -> None:
        others = tuple(i for i in self._sets_of(content) if i != set_id)
        del self._sets[content]
        if others:
            self._sets[content] = others if len(others) > 1 else others[0]

    def _sets_of(self, content: bytes) -> tuple[int, ...]:
        sets = self._sets.get(content, ())
        return (sets,) if isinstance(sets, int) else sets

    def __len__(self) -> int:
        return len(self._representatives)

    @property
    def nbytes(self) -> int:
        if not self._sets:
            return 0
        key = next(iter(self._sets))
        per_key = sys.getsizeof(key) + sys.getsizeof(1 << 20)
        return len(self) * (per_key + 2 * BYTES_PER_ENTRY)

    def state_dict(self) -> dict[str, Any]:
        return self._representatives.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._representatives.load_state_dict(state)
        self._sets = {}
        for set_id in self._representatives:
            self._list(set_id, self._representatives.packed(set_id))

    def check_valid(self) -> tuple[bool, str]:
        listed = sorted(set_id for content in self._sets for set_id in self._sets_of(content))
        if listed != sorted(self._representatives):
            return False, "the sets listed by key are not the sets that have a representative"
        if any(self._representatives.packed(set_id) != key for key in self._sets for set_id in self._sets_of(key)):
            return False, "a set is listed under a key that is not its representative"
        return self._representatives.check_valid()
