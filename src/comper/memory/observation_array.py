"""Arrays of observations for the replay buffers of other libraries: equal frames are stored once.

An `ObservationPool` holds the frames. An `ObservationArray` is written and read as a NumPy array is, by its leading
axes, but keeps 4 bytes per frame of an observation. Stacks share frames with each other, and s' with the next s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from comper.errors import UsageError
from comper.memory.array_folder import StoredArray, stored_frames
from comper.memory.compressed import make_frame_store

EMPTY = -1
"""The frame id of a row that was never written."""
MIN_FRAME_BYTES = 1024
"""A plane of an image is a frame of its own from this size on; below it, the bookkeeping would take more than it saves."""
MIN_SHARED_BYTES = {"b": 32, "i": 32, "u": 32, "f": 512}
"""By kind of number: smaller observations are cheaper to repeat than to share. Real numbers seldom occur twice."""

Observations = npt.NDArray[Any]


def frame_axis(shape: Sequence[int], dtype: npt.DTypeLike) -> int | None:
    """The axis along which an observation is a stack of frames or of colours; None if it is one frame."""
    if len(shape) < 3:
        return None
    axis = 0 if len(shape) > 3 or shape[0] <= shape[-1] else len(shape) - 1
    frame_bytes = math.prod(shape) // shape[axis] * np.dtype(dtype).itemsize
    return axis if frame_bytes >= MIN_FRAME_BYTES else None


def is_worth_sharing(shape: Sequence[int], dtype: npt.DTypeLike) -> bool:
    """Whether an array of such observations is likely to be smaller if equal ones are stored once."""
    dtype = np.dtype(dtype)
    return math.prod(shape) * dtype.itemsize >= MIN_SHARED_BYTES.get(dtype.kind, math.inf)


class _Latest(NamedTuple):
    """The latest observation of an environment, in the layout in which it came, and as bytes, frame by frame."""

    observation: Observations
    content: bytes
    ids: tuple[int, ...]


class ObservationPool:
    """The frames of observations of one shape, each stored once."""

    def __init__(
        self, shape: Sequence[int], dtype: npt.DTypeLike, *, compression: str = "none", initial_capacity: int = 1024
    ) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._axis = frame_axis(self.shape, self.dtype)
        self.frames_per_observation = 1 if self._axis is None else self.shape[self._axis]
        frame_shape = tuple(n for axis, n in enumerate(self.shape) if axis != self._axis)
        self.frames = make_frame_store(compression, frame_shape, self.dtype, initial_capacity=initial_capacity)
        self._frame_bytes = math.prod(frame_shape) * self.dtype.itemsize
        self._order = None if self._axis is None else (self._axis, *(i for i in range(len(self.shape)) if i != self._axis))
        self._latest: dict[int, _Latest] = {}
        self._shift = 1

    def intern(self, observation: Observations, lane: int = 0) -> tuple[int, ...]:
        """Return the ids of the frames; the caller owns one more reference to each.

        Most observations repeat the latest one of their environment (`lane`), or continue it by a frame. Comparing bytes
        with it takes a fraction of the time that looking up every frame does.
        """
        latest = self._latest.get(lane)
        if latest is not None and (latest.observation == observation).all():
            self.frames.retain(latest.ids)
            return latest.ids
        content = (observation if self._order is None else observation.transpose(self._order)).tobytes()
        ids = () if latest is None else self._continued(content, latest)
        self.frames.retain(ids)
        frames = np.frombuffer(content, self.dtype).reshape(self.frames_per_observation, *self.frames.shape)
        ids += tuple(self.frames.intern(frame) for frame in frames[len(ids) :])
        self.frames.retain(ids)  # once more, for `_latest`
        self._latest[lane] = _Latest(observation.copy(order="K"), content, ids)
        if latest is not None:
            self.frames.release(latest.ids)
        return ids

    def _continued(self, content: bytes, latest: _Latest) -> tuple[int, ...]:
        """The ids of the first frames, as far as they are the last ones of the observation before."""
        for shift in (self._shift, *range(1, self.frames_per_observation)):
            if shift < self.frames_per_observation and content.startswith(latest.content[shift * self._frame_bytes :]):
                self._shift = shift
                return latest.ids[shift:]
        return ()

    def gather(self, ids: npt.NDArray[np.int32]) -> Observations:
        """A copy of the observations with these frame ids (.., frames per observation)."""
        if ids.size and ids.min() <= EMPTY:
            raise UsageError("A row that was never written cannot be read.")
        frames = self.frames.gather(ids)
        lead = ids.ndim - 1
        if not self._axis:  # one frame, or frames first
            return frames.reshape(*ids.shape[:-1], *self.shape)
        return np.ascontiguousarray(np.moveaxis(frames, lead, lead + self._axis))

    def checked(self, observations: npt.ArrayLike) -> Observations:
        """Observations as an array of this pool's kind of number, or an error that says what is wrong with them."""
        return checked(observations, self.shape, self.dtype)

    def clear(self) -> None:
        """Give back what is held besides the rows of arrays."""
        for latest in self._latest.values():
            self.frames.release(latest.ids)
        self._latest = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the frames held, without those of the bookkeeping."""
        return self.frames.nbytes

    # Saving: the frames once, and each array as positions among them.

    def held(self) -> tuple[npt.NDArray[np.int64], StoredArray]:
        """The ids held, and their frames, of which few are in memory at once."""
        return stored_frames(self.frames)

    def restore(self, frames: Observations, arrays: Sequence[tuple[ObservationArray, npt.NDArray[np.int32]]]) -> None:
        """Fill empty arrays with rows that were saved as positions among these frames (`EMPTY`: not written)."""
        if frames.dtype != self.dtype or frames.shape[1:] != self.frames.shape:
            raise ValueError(f"frames are {frames.dtype}{frames.shape[1:]}, expected {self.dtype}{self.frames.shape}")
        for array, places in arrays:
            if places.dtype != np.int32 or places.shape != array.ids.shape:
                raise ValueError(f"rows are {places.dtype}{places.shape}, expected int32{array.ids.shape}")
            if places.size and (places.min() < EMPTY or places.max() >= len(frames)):
                raise ValueError("rows name frames that are not there")
        ids = np.array([*map(self.frames.intern, frames), EMPTY], np.int32)  # the last one, at -1, is that of empty rows
        for array, places in arrays:
            array.ids[...] = ids[places]
            self.frames.retain(array.ids[array.ids != EMPTY])
        self.frames.release(ids[:-1])


class ObservationArray:
    """Observations by row, or by row and environment (`lead`): equal to what was written, and far smaller."""

    def __init__(self, pool: ObservationPool, lead: Sequence[int]) -> None:
        self.pool = pool
        self.ids = np.full((*lead, pool.frames_per_observation), EMPTY, np.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ids.shape[:-1] + self.pool.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.pool.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the rows written; those of the frames are the pool's."""
        return int((self.ids[..., 0] != EMPTY).sum()) * self.ids.itemsize * self.pool.frames_per_observation

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Any) -> Observations:
        """A copy of the observations. Only the leading axes can be indexed."""
        parts = list(index) if isinstance(index, tuple) else [index]
        while parts and (parts[-1] is Ellipsis or (isinstance(parts[-1], slice) and parts[-1] == slice(None))):
            parts.pop()
        if len(parts) >= self.ids.ndim:
            raise IndexError(f"index {index!r}: take an observation first, then a part of it.")
        return self.pool.gather(self.ids[tuple(parts)])

    def __setitem__(self, row: int, observations: npt.ArrayLike) -> None:
        """Write a row: one observation, or one per environment."""
        values = self.pool.checked(observations)
        if values.shape != self.shape[1:]:
            raise UsageError(f"observations of {values.shape}: a row holds {self.shape[1:]}.")
        if self.ids.ndim == 2:
            self._put(self.ids[row], self.pool.intern(values))
            return
        for lane, (place, value) in enumerate(zip(self.ids[row], values, strict=True)):
            self._put(place, self.pool.intern(value, lane))

    def copy(self, source: tuple[int, ...], target: tuple[int, ...]) -> None:
        """Make one observation equal to another of the same array."""
        ids = tuple(self.ids[source].tolist())
        self.pool.frames.retain(ids)
        self._put(self.ids[target], ids)

    def _put(self, place: npt.NDArray[np.int32], ids: tuple[int, ...]) -> None:
        before = place.tolist()
        place[:] = ids
        if before[0] != EMPTY:
            self.pool.frames.release(before)

    def clear(self) -> None:
        """Forget every row."""
        self.pool.frames.release(self.ids[self.ids != EMPTY])
        self.ids.fill(EMPTY)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Observations:
        return self[:].astype(dtype or self.dtype, copy=False)


def checked(observations: npt.ArrayLike, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Observations:
    """Observations (.., *shape) as an array of this kind of number, or an error that says what is wrong with them."""
    values = np.asarray(observations)
    if values.shape[max(0, values.ndim - len(shape)) :] != shape:
        raise UsageError(f"observations of shape {values.shape}: the buffer was made for observations of {shape}.")
    if values.dtype == dtype:
        return values
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise UsageError(f"observations of {values.dtype}: the buffer was made for {dtype}; convert them, or its space.")
    return values.astype(dtype, copy=False)
