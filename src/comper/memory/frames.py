"""Frames, each stored once: what makes a transition a few integers and strict similarity an equality of integers.

Consecutive transitions share frames (s' of one is s of the next), stacked states share three of four, and games repeat
themselves. `FrameStore` interns frames by content: equal pixels get the same id, so comparing ids compares pixels.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = Sequence[int] | npt.NDArray[np.integer[Any]]


class FrameStore:
    """Frames interned by content and counted by reference; a frame nobody refers to is forgotten.

    Ids are slots of `frames`. A new frame takes the lowest free slot, so ids depend on the calls alone, never on the
    interpreter's hash seed, and a store read back from `state_dict` goes on with the same ids.
    """

    _hash: Callable[[bytes], int] = staticmethod(hash)

    def __init__(self, shape: Sequence[int], dtype: npt.DTypeLike = np.uint8, *, initial_capacity: int = 1024) -> None:
        if initial_capacity < 1:
            raise ValueError(f"initial_capacity = {initial_capacity}: must be 1 or more.")
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self._is_float = np.issubdtype(self.dtype, np.floating)
        self._next_serial = 0
        self.journal: list[int] | None = None
        """Set to [] by whoever keeps a copy of the frames: every slot that gets new content is then noted here."""
        self._clear(initial_capacity)

    def _clear(self, capacity: int) -> None:
        self._allocate(capacity)
        self._counts = [0] * capacity
        self._serials = np.full(capacity, -1, np.int64)
        self._ids_by_hash: dict[int, int | tuple[int, ...]] = {}  # an id alone is half as large as a tuple of one
        self._free: list[int] = []  # a heap of the free slots below _end
        self._end = 0  # slots from here on were never used

    # Frames in and out.

    def intern(self, frame: npt.NDArray[Any]) -> int:
        """The id of this content. The caller owns one more reference to it and gives it back with `release`."""
        if frame.shape != self.shape or frame.dtype != self.dtype:
            raise ValueError(f"frame of {frame.dtype}{frame.shape}: the store holds {self.dtype}{self.shape}.")
        if self._is_float:
            frame = frame + self.dtype.type(0)  # -0.0 equals 0.0, but its bytes do not
        content = frame.tobytes()
        key = self._hash(content)
        ids = self._ids_of(key)
        for i in ids:
            if self._content(i) == content:
                self._counts[i] += 1
                return i
        i = self._take_slot()
        self._write(i, frame)
        self._counts[i] = 1
        self._list(key, (*ids, i))
        return i

    def retain(self, ids: Ids) -> None:
        """One more reference for each id; an id that occurs twice counts twice."""
        counts = self._counts
        for i in self._held(ids):
            counts[i] += 1

    def release(self, ids: Ids) -> None:
        """One reference less for each id; frames without any are forgotten and their slots are free again."""
        counts = self._counts
        held = self._held(ids)
        for i in held:
            counts[i] -= 1
        if any(counts[i] < 0 for i in held):
            for i in held:
                counts[i] += 1
            raise ValueError(f"release of frames {held[:8]}: more references given back than owned.")
        for i in dict.fromkeys(held):
            if not counts[i]:
                self._forget(i)

    def _held(self, ids: Ids) -> Sequence[int]:
        # States are a few ids: a loop over a list of counts is several times faster than array arithmetic.
        plain: Sequence[int] = ids.ravel().tolist() if isinstance(ids, np.ndarray) else ids
        counts, end = self._counts, self._end
        if not all(0 <= i < end and counts[i] for i in plain):
            raise ValueError(f"frame ids {list(plain[:8])}: not all of them are held by the store.")
        return plain

    def _take_slot(self) -> int:
        i = heapq.heappop(self._free) if self._free else self._end
        if i == self._end:
            self._end += 1
            if self._end > self.capacity:
                self._grow()
        self._serials[i] = self._next_serial
        self._next_serial += 1
        if self.journal is not None:
            self.journal.append(i)
        return i

    def _grow(self) -> None:
        n = self.capacity
        self._enlarge(2 * n)
        self._counts += [0] * n
        self._serials = np.concatenate([self._serials, np.full(n, -1, np.int64)])

    def _forget(self, i: int) -> None:
        key = self._hash(self._content(i))
        self._list(key, tuple(j for j in self._ids_of(key) if j != i))
        self._erase(i)
        self._serials[i] = -1
        heapq.heappush(self._free, i)

    def _ids_of(self, key: int) -> tuple[int, ...]:
        """The frames whose content has this hash."""
        ids = self._ids_by_hash.get(key, ())
        return (ids,) if isinstance(ids, int) else ids

    def _list(self, key: int, ids: tuple[int, ...]) -> None:
        if ids:
            self._ids_by_hash[key] = ids[0] if len(ids) == 1 else ids
        else:
            del self._ids_by_hash[key]

    # How the pixels are kept: all that `CompressedFrameStore` does otherwise.

    def _allocate(self, capacity: int) -> None:
        self._frames = np.empty((capacity, *self.shape), self.dtype)  # pages not yet written cost nothing

    def _enlarge(self, capacity: int) -> None:
        old = self._frames
        self._allocate(capacity)
        self._frames[: len(old)] = old

    def _write(self, i: int, frame: npt.NDArray[Any]) -> None:
        self._frames[i] = frame

    def _erase(self, i: int) -> None:
        """Nothing: the next frame in this slot takes the place of the pixels."""

    def _content(self, i: int) -> bytes:
        content: bytes = self._frames[i].tobytes()
        return content

    @property
    def capacity(self) -> int:
        """Slots there are now; the store grows when they are used up."""
        return len(self._frames)

    def gather(self, ids: Ids, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """The pixels of these frames, in the order and shape of the ids; into `out` where it is given."""
        return np.take(self._frames, ids, axis=0, out=out, mode="clip")  # clip: unbuffered, so faster

    def located(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """An array (.., *shape) and the rows in which these frames stand: the store's own, so that nothing is copied."""
        return self._frames, ids

    @property
    def nbytes(self) -> int:
        """Bytes of the frames held."""
        return len(self) * int(np.prod(self.shape)) * self.dtype.itemsize

    # Frames as data.

    @property
    def frames(self) -> npt.NDArray[Any]:
        """The backing array (capacity, *shape). Growing replaces it, so do not keep it. `gather` works with every store."""
        return self._frames

    @property
    def serials(self) -> npt.NDArray[np.int64]:
        """For each slot a number that no other content of this store ever had, -1 when free: tells cached work from stale."""
        return self._serials

    def __len__(self) -> int:
        return self._end - len(self._free)

    def references(self, frame_id: int) -> int:
        """How many references there are to this frame; 0 when the slot is free."""
        return self._counts[frame_id]

    def equal(self, id_a: int, id_b: int) -> bool:
        """Whether two frames have equal pixels. They are interned: comparing the ids is enough."""
        return id_a == id_b

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The frames held, their ids and reference counts. The free slots follow from the ids."""
        ids, counts = self.held()
        return {"ids": ids, "counts": counts, "frames": self.gather(ids)}

    def coding(self, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        """How these frames are kept, where that is more than their pixels: may be given to `load_state_dict` as well."""
        return {}

    def held(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The ids held and how many references there are to each."""
        counts = np.array(self._counts, np.int64)
        ids = np.flatnonzero(counts)
        return ids, counts[ids]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the store that wrote this state. Serials are new: what others cached about the old frames is stale."""
        ids, counts, frames = (np.asarray(state[name]) for name in ("ids", "counts", "frames"))
        if frames.shape != (len(ids), *self.shape) or frames.dtype != self.dtype:
            raise ValueError(f"state of frames {frames.dtype}{frames.shape[1:]}: the store holds {self.dtype}{self.shape}.")
        capacity, end = self.capacity, int(ids.max(initial=-1)) + 1
        while capacity < end:
            capacity *= 2
        self._clear(capacity)
        self._end = end
        self._restore(ids.tolist(), frames, state.get("coding", {}))
        for i, count in zip(ids.tolist(), counts.tolist(), strict=True):
            self._counts[i] = count
        self._serials[ids] = self._next_serial + np.arange(len(ids))
        self._next_serial += len(ids)
        self._free = [i for i in range(end) if not self._counts[i]]  # ascending, which is a heap
        if self.journal is not None:
            self.journal[:] = ids.tolist()
        for i in ids.tolist():
            key = self._hash(self._content(i))
            self._list(key, (*self._ids_of(key), i))

    def _restore(self, ids: list[int], frames: npt.NDArray[Any], coding: dict[str, Any]) -> None:
        for i, frame in zip(ids, frames, strict=True):
            self._write(i, frame)

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and the first that does not."""
        held = [i for i, count in enumerate(self._counts) if count]
        listed = sorted(i for key in self._ids_by_hash for i in self._ids_of(key))
        contents = {self._content(i) for i in held}
        serials = self._serials[held]
        claims = {
            "no negative reference count": min(self._counts) >= 0,
            "the frames counted are the frames listed by hash": held == listed,
            "every slot below the end is held or free": sorted([*held, *self._free]) == list(range(self._end)),
            "no content is stored twice": len(contents) == len(held),
            "every frame is listed under its hash": all(
                self._hash(self._content(i)) == key for key in self._ids_by_hash for i in self._ids_of(key)
            ),
            "serials of held frames differ": len(np.unique(serials)) == len(held) and bool((serials >= 0).all()),
        }
        broken = [claim for claim, holds in claims.items() if not holds]
        return not broken, broken[0] if broken else "valid"
