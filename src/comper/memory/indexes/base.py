"""What every similarity index answers, and the bookkeeping of representatives that all of them share."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from comper.memory.frames import FrameStore

NO_MATCH = -1
"""No representative within δ; faiss answers with the same number."""


class TransitionKey(NamedTuple):
    """A transition as the index sees it: τ = (s, a, r, s') with frame ids in place of pixels."""

    s: tuple[int, ...]
    a: int
    r: float
    s_next: tuple[int, ...]


class SimilarityIndex(Protocol):
    """TMI: finds the set of similar transitions that a transition belongs to.

    Each set has one representative. An index keeps references to the frames of its representatives; the frames of a
    key that is looked up are the caller's.
    """

    def get_index(self, key: TransitionKey) -> int:
        """Alg. 1, l. 1: the set id of the nearest representative within δ (the lowest of equally near), or NO_MATCH."""

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        """Alg. 1, l. 3: make the transition the representative of the set, new or known."""

    def forget(self, set_id: int) -> None:
        """The set is evicted: drop its representative."""

    def __len__(self) -> int:
        """How many representatives there are."""

    @property
    def nbytes(self) -> int:
        """Bytes this index needs besides the frames, about."""

    def state_dict(self) -> dict[str, Any]:
        """The representatives, as plain arrays; read back beside the state of the frame store."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the index that wrote this state. The frame store must have been read back before."""

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and the first that does not."""


@cache
def _layout(num_s: int, num_s_next: int) -> struct.Struct:
    return struct.Struct(f"<B{num_s + num_s_next + 1}id")


def packed(key: TransitionKey) -> bytes:
    """A key as bytes, equal where keys are equal: a quarter of what tuples of numbers take."""
    num_s, num_s_next = len(key.s), len(key.s_next)
    try:
        return _layout(num_s, num_s_next).pack(num_s, *key.s, *key.s_next, key.a, key.r + 0.0)  # -0.0 equals 0.0
    except struct.error as error:
        raise ValueError(f"{key}: ids and actions have 31 bits ({error}).") from None


def unpacked(content: bytes) -> TransitionKey:
    """The key that was packed."""
    num_s, num_ids = content[0], (len(content) - 13) // 4
    _, *ids, a, r = _layout(num_s, num_ids - num_s).unpack(content)
    return TransitionKey(tuple(ids[:num_s]), a, r, tuple(ids[num_s:]))


class Representatives:
    """set id -> key, in the order in which the keys came, holding one reference to each frame of each key."""

    def __init__(self, frames: FrameStore) -> None:
        self.frames = frames
        self._keys: dict[int, bytes] = {}

    def put(self, set_id: int, key: TransitionKey) -> bytes:
        """Keep a key; return it packed."""
        self.frames.retain(key.s + key.s_next)
        if set_id in self._keys:
            self.remove(set_id)
        content = self._keys[set_id] = packed(key)
        return content

    def remove(self, set_id: int) -> TransitionKey:
        if set_id not in self._keys:
            raise KeyError(f"set {set_id} is not in the index.")
        key = unpacked(self._keys.pop(set_id))
        self.frames.release(key.s + key.s_next)
        return key

    def __contains__(self, set_id: int) -> bool:
        return set_id in self._keys

    def __getitem__(self, set_id: int) -> TransitionKey:
        return unpacked(self._keys[set_id])

    def packed(self, set_id: int) -> bytes:
        """The key of a set as bytes."""
        return self._keys[set_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def state_dict(self) -> dict[str, Any]:
        keys = [unpacked(content) for content in self._keys.values()]
        return {
            "set_ids": np.array(list(self._keys), np.int64),
            "s": np.array([key.s for key in keys], np.int64),
            "a": np.array([key.a for key in keys], np.int64),
            "r": np.array([key.r for key in keys], np.float64),
            "s_next": np.array([key.s_next for key in keys], np.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read the keys back. The references are part of the frame store's own state and are not taken again."""
        columns = (np.asarray(state[name]).tolist() for name in ("set_ids", "s", "a", "r", "s_next"))
        self._keys = {
            set_id: packed(TransitionKey(tuple(s), a, r, tuple(s_next)))
            for set_id, s, a, r, s_next in zip(*columns, strict=True)
        }

    def check_valid(self) -> tuple[bool, str]:
        needed: dict[int, int] = {}
        for key in map(unpacked, self._keys.values()):
            for i in key.s + key.s_next:
                needed[i] = needed.get(i, 0) + 1
        missing = [i for i, n in needed.items() if self.frames.references(i) < n]
        return not missing, f"frames {missing[:8]} have fewer references than representatives" if missing else "valid"
