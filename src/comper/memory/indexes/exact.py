"""What every similarity index answers, the keys and representatives that all of them share, and the index for δ = 0."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from comper.memory.frames import FrameStore

NO_MATCH = -1
"""No representative within δ; faiss answers with the same number."""
BYTES_PER_ENTRY = 64
"""Approximate, of a dictionary. Its real size depends on how it grew, so it would differ after reading it back."""


class TransitionKey(NamedTuple):
    """A transition as the index sees it: τ = (s, a, r, s') with frame ids in place of pixels."""

    s: tuple[int, ...]
    a: int
    r: float
    s_next: tuple[int, ...]


class SimilarityIndex(Protocol):
    """TMI: finds the set of similar transitions that a transition belongs to.

    Each set has one representative. An index holds references to the frames of its representatives; the caller holds
    those of a key that is looked up.
    """

    def get_index(self, key: TransitionKey) -> int:
        """Alg. 1, l. 1: the set id of the nearest representative within δ (the lowest of equally near), or NO_MATCH."""

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        """Alg. 1, l. 3: make the transition the representative of the set, new or known."""

    def forget(self, set_id: int) -> None:
        """Drop the representative of a set that is forgotten."""

    def __len__(self) -> int:
        """The number of representatives."""

    @property
    def nbytes(self) -> int:
        """Bytes this index takes besides the frames, approximately."""

    def state_dict(self) -> dict[str, Any]:
        """The representatives, as plain arrays; read back beside the state of the frame store."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the index that wrote this state. The frame store must have been read back before."""

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and the first that does not."""


def held_by(index: SimilarityIndex) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The sets that have a representative, and the frame ids that an index holds, once for each time."""
    state = index.state_dict()
    return state["set_ids"], np.concatenate(
        [np.zeros(0, np.int64), *(state[n].ravel() for n in ("s", "s_next") if n in state)]
    )


@cache
def _layout(num_s: int, num_s_next: int) -> struct.Struct:
    return struct.Struct(f"<B{num_s + num_s_next + 1}id")


def packed(key: TransitionKey) -> bytes:
    """A key as bytes, equal exactly when the keys are: takes a quarter of the space of tuples."""
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

    def remove(self, set_id: int) -> None:
        key = self[set_id]
        del self._keys[set_id]
        self.frames.release(key.s + key.s_next)

    def __contains__(self, set_id: int) -> bool:
        return set_id in self._keys

    def __getitem__(self, set_id: int) -> TransitionKey:
        return unpacked(self.packed(set_id))

    def packed(self, set_id: int) -> bytes:
        """The key of a set as bytes."""
        if set_id not in self._keys:
            raise KeyError(f"set {set_id} is not in the index.")
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
        """Read the keys back. The frame store's own state has counted their references already."""
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


class ExactIndex:
    """δ = 0, the paper's setting (Table 7): finds the representative with equal pixels, action and reward.

    Takes constant time, because frames are interned. After updates several sets may have equal representatives; then the
    oldest set (the lowest id) is the answer.
    """

    def __init__(self, frames: FrameStore) -> None:
        self._representatives = Representatives(frames)
        self._sets: dict[bytes, int | tuple[int, ...]] = {}  # by packed key; several only where updates made them equal

    def _content(self, key: TransitionKey) -> bytes:
        """What equal transitions have in common."""
        return packed(key)

    def _content_of(self, set_id: int) -> bytes:
        return self._representatives.packed(set_id)

    def get_index(self, key: TransitionKey) -> int:
        sets = self._sets.get(self._content(key), NO_MATCH)
        return sets if isinstance(sets, int) else sets[0]

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        if set_id in self._representatives:
            self._unlist(set_id, self._content_of(set_id))
        self._representatives.put(set_id, key)
        self._list(set_id, self._content_of(set_id))

    def forget(self, set_id: int) -> None:
        self._unlist(set_id, self._content_of(set_id))
        self._representatives.remove(set_id)

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
            self._list(set_id, self._content_of(set_id))

    def check_valid(self) -> tuple[bool, str]:
        listed = sorted(set_id for content in self._sets for set_id in self._sets_of(content))
        if listed != sorted(self._representatives):
            return False, "the sets listed by key are not the sets that have a representative"
        if any(self._content_of(set_id) != content for content in self._sets for set_id in self._sets_of(content)):
            return False, "a set is listed under a key that is not its representative"
        return self._representatives.check_valid()


class NoIndex:
    """Finds no transition similar, not even an equal one: every transition is a set of its own, and TM a plain FIFO (D6).

    It keeps the numbers of the sets and nothing else. They are not counted in `nbytes`, since a FIFO would not need them.
    """

    nbytes = 0

    def __init__(self) -> None:
        self._sets: set[int] = set()

    def get_index(self, key: TransitionKey) -> int:
        return NO_MATCH

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        self._sets.add(set_id)

    def forget(self, set_id: int) -> None:
        if set_id not in self._sets:
            raise KeyError(f"set {set_id} is not in the index.")
        self._sets.remove(set_id)

    def __len__(self) -> int:
        return len(self._sets)

    def state_dict(self) -> dict[str, Any]:
        return {"set_ids": np.array(sorted(self._sets), np.int64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sets = set(np.asarray(state["set_ids"]).tolist())

    def check_valid(self) -> tuple[bool, str]:
        return True, "valid"
