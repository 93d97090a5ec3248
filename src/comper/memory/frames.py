"""Frames, each stored once. A transition is then a few integers, and strict similarity is equality of integers.

Consecutive transitions share frames (s' of one is s of the next), stacked states share three of four, and games repeat
themselves. `FrameStore` interns frames by content: equal pixels get the same id, so comparing ids compares pixels.
`ObservationHistory` makes the states of a trial from them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Ids = Sequence[int] | npt.NDArray[np.integer[Any]]
MAX_REFERENCES = 2**48
"""To one frame; more than any memory can hold, and far from the end of 64 bits."""


class PixelStorage(Protocol):
    """How a frame store keeps its pixels. Only free slots are written, and only written ones are read or erased."""

    def enlarge(self, capacity: int) -> None:
        """Make room for this many slots."""

    def write(self, slot: int, frame: npt.NDArray[Any]) -> None:
        """Keep a copy of the frame."""

    def erase(self, slot: int) -> None:
        """Free the slot."""

    def content(self, slot: int) -> bytes:
        """The pixels of one frame as bytes."""

    def gather(self, slots: Ids, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """A copy of the pixels, in the order and shape of the slots; written to `out` if it is given."""

    def array_and_rows(self, slots: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """An array (.., *shape) and the rows of it that hold these frames. It is read at once and never written."""

    @property
    def nbytes(self) -> int:
        """Bytes of the frames held."""

    def coding(self, slots: npt.NDArray[np.int64]) -> dict[str, Any]:
        """What `restore` needs besides the pixels to keep these frames in the same number of bytes."""

    def restore(self, slots: Sequence[int], frames: npt.NDArray[Any], coding: dict[str, Any]) -> None:
        """Write the frames of a saved store into this new storage."""


StorageFactory = Callable[[tuple[int, ...], np.dtype[Any], int], PixelStorage]
"""(frame shape, dtype, capacity) -> a new storage."""


class PlainPixels:
    """Frames in one array: the fastest storage."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int) -> None:
        self._array = np.empty((capacity, *shape), dtype)  # pages that were not written yet take no memory
        self._frame_bytes = math.prod(shape) * dtype.itemsize
        self._num_frames = 0

    def enlarge(self, capacity: int) -> None:
        larger = np.empty((capacity, *self._array.shape[1:]), self._array.dtype)
        larger[: len(self._array)] = self._array
        self._array = larger

    def write(self, slot: int, frame: npt.NDArray[Any]) -> None:
        self._array[slot] = frame
        self._num_frames += 1

    def erase(self, slot: int) -> None:
        self._num_frames -= 1  # the next frame in this slot overwrites the pixels

    def content(self, slot: int) -> bytes:
        content: bytes = self._array[slot].tobytes()
        return content

    def gather(self, slots: Ids, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        return self._array.take(slots, axis=0, out=out, mode="clip")  # clip: unbuffered, so faster

    def array_and_rows(self, slots: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        return self._array, slots  # nothing is copied

    @property
    def nbytes(self) -> int:
        return self._num_frames * self._frame_bytes

    def coding(self, slots: npt.NDArray[np.int64]) -> dict[str, Any]:
        return {}

    def restore(self, slots: Sequence[int], frames: npt.NDArray[Any], coding: dict[str, Any]) -> None:
        for slot, frame in zip(slots, frames, strict=True):
            self.write(slot, frame)


class FrameStore:
    """Frames interned by content and counted by reference; a frame without references is forgotten.

    An id is the slot of its frame. A new frame takes the lowest free slot, so ids depend only on the calls, never on the
    interpreter's hash seed, and a store read back from `state_dict` goes on with the same ids.
    """

    _hash: Callable[[bytes], int] = staticmethod(hash)

    def __init__(
        self,
        shape: Sequence[int],
        dtype: npt.DTypeLike = np.uint8,
        *,
        initial_capacity: int = 1024,
        storage: StorageFactory = PlainPixels,
    ) -> None:
        if initial_capacity < 1:
            raise ValueError(f"initial_capacity = {initial_capacity}: must be 1 or more.")
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self._is_float = np.issubdtype(self.dtype, np.floating)
        self._make_storage = storage
        self._next_serial = 0
        self.journal: list[int] | None = None
        """Set it to [] to keep a copy of the frames elsewhere: every slot with new content is then appended to it."""
        self._clear(initial_capacity)

    def _clear(self, capacity: int) -> None:
        self._pixels = self._make_storage(self.shape, self.dtype, capacity)
        self._counts = [0] * capacity
        self._serials = np.full(capacity, -1, np.int64)
        self._ids_by_hash: dict[int, int | tuple[int, ...]] = {}  # a single id takes half the space of a tuple of one
        self._free: list[int] = []  # a heap of the free slots below _end
        self._end = 0  # slots from here on were never used

    # Frames in and out.

    def intern(self, frame: npt.NDArray[Any]) -> int:
        """Return the id of this content. The caller owns one more reference to it and gives it back with `release`."""
        if frame.shape != self.shape or frame.dtype != self.dtype:
            raise ValueError(f"frame of {frame.dtype}{frame.shape}: the store holds {self.dtype}{self.shape}.")
        if self._is_float:
            frame = frame + self.dtype.type(0)  # -0.0 equals 0.0, but its bytes do not
        content = frame.tobytes()
        key = self._hash(content)
        ids = self._ids_of(key)
        for i in ids:
            if self._pixels.content(i) == content:
                self._counts[i] += 1
                return i
        i = self._take_slot()
        self._pixels.write(i, frame)
        self._counts[i] = 1
        self._list(key, (*ids, i))
        return i

    def retain(self, ids: Ids) -> None:
        """Add one reference for each id; an id that occurs twice counts twice."""
        counts = self._counts
        for i in self._held(ids):
            counts[i] += 1

    def release(self, ids: Ids) -> None:
        """Give back one reference for each id; frames without any are forgotten and their slots are free again."""
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
        self._pixels.enlarge(2 * n)
        self._counts += [0] * n
        self._serials = np.concatenate([self._serials, np.full(n, -1, np.int64)])

    def _forget(self, i: int) -> None:
        key = self._hash(self._pixels.content(i))
        self._list(key, tuple(j for j in self._ids_of(key) if j != i))
        self._pixels.erase(i)
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

    # Frames as data.

    def gather(self, ids: Ids, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the pixels of these frames, in the order and shape of the ids; written to `out` if it is given."""
        return self._pixels.gather(ids, out)

    def array_and_rows(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """An array (.., *shape) and its rows that hold these frames, without a copy if possible. Do not keep it."""
        return self._pixels.array_and_rows(ids)

    @property
    def capacity(self) -> int:
        """Slots there are now; the store grows when they are used up."""
        return len(self._counts)

    @property
    def nbytes(self) -> int:
        """Bytes of the frames held."""
        return self._pixels.nbytes

    @property
    def serials(self) -> npt.NDArray[np.int64]:
        """For each slot a number that no other content of this store ever had, -1 when free: the key of a cache."""
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
        """How these frames are compressed, if they are; `load_state_dict` accepts it as `coding`."""
        return self._pixels.coding(ids)

    def held(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The ids held and how many references there are to each."""
        counts = np.array(self._counts, np.int64)
        ids = np.flatnonzero(counts)
        return ids, counts[ids]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the store that wrote this state. Serials are new, so every cache of frames is renewed."""
        ids, counts, frames = (np.asarray(state[name]) for name in ("ids", "counts", "frames"))
        if frames.shape != (len(ids), *self.shape) or frames.dtype != self.dtype:
            raise ValueError(f"state of frames {frames.dtype}{frames.shape[1:]}: the store holds {self.dtype}{self.shape}.")
        if counts.shape != ids.shape or counts.min(initial=1) < 1 or counts.max(initial=1) > MAX_REFERENCES:
            raise ValueError("frames that nobody, or nobody can, refer to.")
        capacity, end = self.capacity, int(ids.max(initial=-1)) + 1
        while capacity < end:
            capacity *= 2
        self._clear(capacity)
        self._end = end
        self._pixels.restore(ids.tolist(), frames, state.get("coding", {}))
        for i, count in zip(ids.tolist(), counts.tolist(), strict=True):
            self._counts[i] = count
        self._serials[ids] = self._next_serial + np.arange(len(ids))
        self._next_serial += len(ids)
        self._free = [i for i in range(end) if not self._counts[i]]  # ascending, which is a heap
        if self.journal is not None:
            self.journal[:] = ids.tolist()
        for i in ids.tolist():
            key = self._hash(self._pixels.content(i))
            self._list(key, (*self._ids_of(key), i))

    def check_references(self, ids: npt.NDArray[np.integer[Any]]) -> None:
        """Refuse frame ids, each once for each time it is referred to, that this store holds less often or not at all."""
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self._counts):
            raise ValueError("frames are referred to that are not held.")
        if (np.bincount(ids.astype(np.int64), minlength=len(self._counts)) > np.array(self._counts, np.int64)).any():
            raise ValueError("frames are referred to more often than is counted.")

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and the first that does not."""
        held = [i for i, count in enumerate(self._counts) if count]
        listed = sorted(i for key in self._ids_by_hash for i in self._ids_of(key))
        contents = {i: self._pixels.content(i) for i in held}
        serials = self._serials[held]
        claims = {
            "no negative reference count": min(self._counts) >= 0,
            "the frames counted are the frames listed by hash": held == listed,
            "every slot below the end is held or free": sorted([*held, *self._free]) == list(range(self._end)),
            "no content is stored twice": len(set(contents.values())) == len(held),
            "every frame is listed under its hash": all(i in self._ids_of(self._hash(contents[i])) for i in held),
            "serials of held frames differ": len(np.unique(serials)) == len(held) and bool((serials >= 0).all()),
        }
        broken = [claim for claim, holds in claims.items() if not holds]
        return not broken, broken[0] if broken else "valid"


class Held(NamedTuple):
    """What a memory refers to: frame ids, once for each time, and actions."""

    frames: npt.NDArray[np.integer[Any]]
    actions: npt.NDArray[np.integer[Any]]


class ObservationHistory:
    """The current state s_t of a trial and the one before it; both hold references to their frames.

    single:   a | b | c ...                 one new frame per step, one frame per state
    rolling:  aaaa | aaab | aabc | abcd     one new frame per step, four frames per state
    stacked:  aaaa | bcde | fghi            four new frames per step, four frames per state (A8)
    """

    def __init__(self, frames: FrameStore, history_length: int):
        self._frames = frames
        self._length = history_length
        self._previous: tuple[int, ...] = ()
        self.state: tuple[int, ...] = ()

    def reset(self, frame: npt.NDArray[Any]) -> None:
        """Begin an episode: its first frame fills the whole state (A8)."""
        self._release()
        first = self._frames.intern(frame)
        self.state = (first,) * self._length
        self._frames.retain(self.state[1:])

    def advance(self, frames: Iterable[npt.NDArray[Any]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Take in new frames, oldest first; return (s_t, s_t+1), valid until the next call."""
        new = tuple(self._frames.intern(frame) for frame in frames)
        joined = self.state + new
        self._frames.retain(self.state)  # once more, as part of `joined`
        self._frames.release(joined[: -self._length])
        self._frames.release(self._previous)
        self._previous, self.state = self.state, joined[-self._length :]
        return self._previous, self.state

    def _release(self) -> None:
        self._frames.release(self._previous + self.state)
        self._previous = self.state = ()

    def state_dict(self) -> dict[str, Any]:
        """The frame ids of both states."""
        return {"previous": np.array(self._previous, np.int64), "state": np.array(self.state, np.int64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote. The frame store's own state has counted these references already."""
        self._previous, self.state = tuple(state["previous"].tolist()), tuple(state["state"].tolist())
        if len(self.state) != self._length or len(self._previous) not in (0, self._length):
            raise ValueError(f"a state of {len(self.state)} frames, expected {self._length}.")

    def frame_references(self) -> npt.NDArray[np.int64]:
        """Every frame id held, once for each time it is held."""
        return np.array(self._previous + self.state, np.int64)
