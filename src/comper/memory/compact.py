"""`CompactMemory`: experience replay that stores equal observations once and similar transitions as one set."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from comper.errors import DamagedFileError
from comper.memory import array_folder
from comper.memory.array_folder import StoredArray, stored, stored_frames
from comper.memory.compressed import make_frame_store
from comper.memory.indexes import NO_MATCH, TransitionKey, make_index
from comper.memory.transitions import Transition, TransitionTable

FORMAT = "comper compact memory, version 1"
MAX_REWARD = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class SampledTransitions:
    """Transitions drawn from a memory: n rows in every array."""

    observations: npt.NDArray[Any]
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float32]
    next_observations: npt.NDArray[Any]
    terminated: npt.NDArray[np.bool_]
    set_ids: npt.NDArray[np.int64]


class CompactMemory:
    """A replay memory of at most `capacity` sets of similar transitions; when it is full, the oldest set is forgotten.

    >>> import numpy as np
    >>> from comper.memory import CompactMemory
    >>> memory = CompactMemory(capacity=10_000, observation_shape=(84, 84))
    >>> dark, bright = np.zeros((84, 84), np.uint8), np.full((84, 84), 255, np.uint8)
    >>> memory.add(dark, 2, 1.0, bright, terminated=False)
    0
    >>> memory.add(bright, 0, 0.0, dark, terminated=True)
    1
    >>> memory.add(dark, 2, 1.0, bright, terminated=False)  # the first transition again: no new set
    0
    >>> len(memory), memory.set_sizes.tolist()
    (2, [2, 1])
    >>> batch = memory.sample(32)
    >>> batch.observations.shape, batch.rewards.shape
    ((32, 84, 84), (32,))
    >>> memory.save("my_memory")
    >>> len(CompactMemory.load("my_memory"))
    2

    Two transitions are similar if their Euclidean distance over [s/255, a, r, s'/255] is at most `similarity` (1 in
    place of 255 unless observations are 8-bit); 0, the default, means equal. A set keeps the observations, action and
    reward of its first transition and whether the episode terminated at its latest one. Its id, an integer, never
    changes.

    With `frame_stack`, the first axis of an observation is a stack of frames. Consecutive stacks share most of their
    frames, and each frame is then stored once. With `compression="zlib"` frames take several times less memory and a
    few microseconds more each.
    """

    def __init__(
        self,
        capacity: int,
        observation_shape: Sequence[int],
        *,
        similarity: float = 0.0,
        seed: int = 0,
        dtype: npt.DTypeLike = np.uint8,
        frame_stack: bool = False,
        compression: str = "none",
    ) -> None:
        self.similarity = _number("similarity", similarity)
        if not 0 <= self.similarity < math.inf:
            raise ValueError(f"similarity = {similarity}: must be 0 or more.")
        self.dtype = _dtype(dtype)
        self.capacity = _integer("capacity", capacity)
        if not isinstance(observation_shape, Sequence):
            raise ValueError(f"observation_shape = {observation_shape!r}: must be a tuple of integers, such as (84, 84).")
        self.observation_shape = tuple(_integer("observation_shape", n) for n in observation_shape)
        if min(self.observation_shape, default=1) < 1 or (frame_stack and not self.observation_shape):
            raise ValueError(f"observation_shape = {self.observation_shape}: every axis has a length of 1 or more.")
        self.frame_stack, self.compression = bool(frame_stack), compression
        frame_shape = self.observation_shape[1:] if frame_stack else self.observation_shape
        self._history = self.observation_shape[0] if frame_stack else 1
        if not isinstance(compression, str):
            raise ValueError(f'compression = {compression!r}: must be "none" or "zlib".')
        self._store = make_frame_store(compression, frame_shape, self.dtype)
        self._index = make_index("l2" if similarity else "exact", self._store, self.similarity)
        self._table = TransitionTable(self._store, capacity=self.capacity, history_length=self._history)
        self._sizes = np.zeros(self.capacity, np.int64)
        self._next_set_id = 0
        self._rng = np.random.default_rng(seed)

    # Transitions in and out.

    def add(
        self,
        observation: npt.NDArray[Any],
        action: int,
        reward: float,
        next_observation: npt.NDArray[Any],
        terminated: bool,
    ) -> int:
        """Remember a transition and return the id of its set, known or new. Arrays are copied."""
        frames, next_frames = self._frames_of(observation), self._frames_of(next_observation)
        a, r = _integer("action", action), _number("reward", reward)
        if not (-(2**31) <= a < 2**31 and abs(r) <= MAX_REWARD):
            raise ValueError(f"action = {action}, reward = {reward}: must be a 32-bit integer and a finite number.")
        r = float(np.float32(r))  # as the table keeps it, so that a memory read back finds the same sets
        s, s_next = (tuple(map(self._store.intern, each)) for each in (frames, next_frames))
        set_id = self._file(Transition(s, a, r, s_next, bool(terminated)))
        self._store.release(s + s_next)
        return set_id

    def sample(self, n: int) -> SampledTransitions:
        """Draw n sets uniformly, with replacement, and return the transition of each."""
        if not len(self):
            raise ValueError("The memory is empty: there is nothing to sample.")
        if _integer("n", n) < 0:
            raise ValueError(f"n = {n}: must be 0 or more.")
        set_ids = self._first_set_id + self._rng.integers(len(self), size=n)
        batch = self._table.gather(set_ids % self.capacity)
        observations, next_observations = (
            self._store.gather(ids).reshape(n, *self.observation_shape) for ids in (batch.s, batch.s_next)
        )
        return SampledTransitions(observations, batch.a, batch.r, next_observations, batch.continues == 0, set_ids)

    def _frames_of(self, observation: npt.NDArray[Any]) -> npt.NDArray[Any]:
        try:
            array = np.asarray(observation)
        except ValueError:
            raise ValueError("observation: its rows have different lengths, so it is no array.") from None
        if array.shape != self.observation_shape or array.dtype != self.dtype:
            raise ValueError(
                f"observation of {array.dtype}{array.shape}: the memory holds {self.dtype}{self.observation_shape}."
            )
        _require_finite(array)
        return array.reshape(self._history, *self._store.shape)

    def _file(self, transition: Transition) -> int:
        set_id = self._index.get_index(_key(transition))
        if set_id == NO_MATCH:
            set_id = self._next_set_id
            if set_id >= self.capacity:
                self._forget(set_id - self.capacity)
            self._put(set_id, transition)
            self._next_set_id += 1
        self._sizes[set_id % self.capacity] += 1
        self._table.set_terminal(set_id % self.capacity, transition.is_terminal)
        return set_id

    def _put(self, set_id: int, transition: Transition) -> None:
        self._index.update_index(set_id, _key(transition))
        self._table.write(set_id % self.capacity, transition)

    def _forget(self, set_id: int) -> None:
        self._index.forget(set_id)
        self._table.erase(set_id % self.capacity)
        self._sizes[set_id % self.capacity] = 0

    # What is remembered.

    def __repr__(self) -> str:
        held = f"{len(self)} of {self.capacity} sets of {int(self.set_sizes.sum())} transitions, {self.nbytes / 1e6:.1f} MB"
        kind = f"observations {self.dtype}{self.observation_shape}, similarity {self.similarity:g}"
        return f"<CompactMemory: {held}; {kind}, compression {self.compression!r}>"

    def __len__(self) -> int:
        """Sets remembered."""
        return min(self._next_set_id, self.capacity)

    @property
    def _first_set_id(self) -> int:
        return self._next_set_id - len(self)

    @property
    def set_ids(self) -> npt.NDArray[np.int64]:
        """The ids of the remembered sets, oldest first."""
        return np.arange(self._first_set_id, self._next_set_id)

    @property
    def set_sizes(self) -> npt.NDArray[np.int64]:
        """How many transitions were added to each of the remembered sets, oldest first."""
        sizes: npt.NDArray[np.int64] = self._sizes[self.set_ids % self.capacity]
        return sizes

    def count(self, set_id: int) -> int:
        """How many transitions were added to a set; 0 if it is not remembered."""
        is_remembered = self._first_set_id <= set_id < self._next_set_id
        return int(self._sizes[set_id % self.capacity]) if is_remembered else 0

    @property
    def nbytes(self) -> int:
        """Bytes that the remembered sets take: frames, index and rows."""
        per_row = self._table.bytes_per_row + self._sizes.itemsize
        return self._store.nbytes + self._index.nbytes + len(self) * per_row

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and the first that does not."""
        ids, references = self._store.held()
        in_table = np.bincount(self._table.frame_references(), minlength=1 + int(ids.max(initial=0)))
        claims = {
            "the index knows the remembered sets": len(self._index) == len(self),
            "every remembered set has a transition": bool((self.set_sizes >= 1).all()),
            "no frame is held but by rows and index": bool((2 * in_table[ids] == references).all()),
            "every frame of a row is held": int(in_table.sum()) == int(in_table[ids].sum()),
        }
        broken = [claim for claim, holds in claims.items() if not holds]
        if broken:
            return False, broken[0]
        is_valid, message = self._index.check_valid()
        return self._store.check_valid() if is_valid else (False, message)

    # Files.

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the memory to a folder, replacing one saved there before. An interruption leaves one of the two."""
        about = {
            "format": FORMAT,
            "settings": {
                "capacity": self.capacity,
                "observation_shape": self.observation_shape,
                "similarity": self.similarity,
                "dtype": self.dtype.str,
                "frame_stack": self.frame_stack,
                "compression": self.compression,
            },
            "next_set_id": self._next_set_id,
            "generator": self._rng.bit_generator.state,
        }
        array_folder.write(Path(folder), about, self._columns())

    def _columns(self) -> dict[str, StoredArray]:
        """Everything in the order of the sets' ids. States are given as positions in `frames`."""
        transitions = self._table.gather(self.set_ids % self.capacity)
        ids, frames = stored_frames(self._store)
        arrays = {
            "states": np.searchsorted(ids, transitions.s),
            "next_states": np.searchsorted(ids, transitions.s_next),
            "actions": transitions.a,
            "rewards": transitions.r,
            "terminated": transitions.continues == 0,
            "set_sizes": self.set_sizes,
        }
        return {"frames": frames, **stored(arrays)}

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read back a saved memory, which goes on as if it had never stopped: same ids, same samples."""
        about, arrays = array_folder.read(Path(folder))
        try:
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            memory = cls(**about["settings"])
            memory._restore(arrays, about["next_set_id"])
            memory._rng.bit_generator.state = about["generator"]
        except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
            message = f"{folder}: not what CompactMemory.save writes ({type(error).__name__}: {error})."
            raise DamagedFileError(message) from None
        return memory

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], next_set_id: int) -> None:
        if not 0 <= next_set_id < 2**62:
            raise ValueError(f"next_set_id = {next_set_id}")
        self._next_set_id = operator.index(next_set_id)
        n, frames = len(self), arrays["frames"]
        _require(frames, self.dtype, (len(frames), *self._store.shape))
        for name in ("states", "next_states"):
            _require(arrays[name], np.int64, (n, self._history), low=0, high=len(frames) - 1)
        _require(arrays["actions"], np.int64, (n,), low=-(2**31), high=2**31 - 1)
        _require(arrays["rewards"], np.float32, (n,))
        _require(arrays["terminated"], np.bool_, (n,))
        _require(arrays["set_sizes"], np.int64, (n,), low=1)
        ids = np.array([self._store.intern(frame) for frame in frames], np.int64)
        states = (ids[arrays[name]] for name in ("states", "next_states"))
        columns = (*states, *(arrays[name] for name in ("actions", "rewards", "terminated")))
        rows = zip(self.set_ids.tolist(), *(column.tolist() for column in columns), strict=True)
        for set_id, s, s_next, a, r, is_terminal in rows:
            self._put(set_id, Transition(tuple(s), a, r, tuple(s_next), is_terminal))
        self._sizes[self.set_ids % self.capacity] = arrays["set_sizes"]
        self._store.release(ids)


def _integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} = {value!r}: must be an integer.") from None


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} = {value!r}: must be a finite number.") from None


def _dtype(value: npt.DTypeLike) -> np.dtype[Any]:
    try:
        dtype = np.dtype(value)
    except TypeError:
        raise ValueError(f"dtype = {value!r}: must be a kind of number, such as numpy.uint8.") from None
    if dtype.kind not in "biuf":
        raise ValueError(f"dtype = {dtype}: observations are numbers.")
    return dtype


def _key(transition: Transition) -> TransitionKey:
    return TransitionKey(transition.s, transition.a, transition.r, transition.s_next)


def _require_finite(array: npt.NDArray[Any]) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("observations and rewards must be finite numbers.")


def _require(
    array: npt.NDArray[Any],
    dtype: npt.DTypeLike,
    shape: tuple[int, ...],
    *,
    low: float = -math.inf,
    high: float = math.inf,
) -> None:
    """Check what a file says before anything is done with it."""
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"an array is {array.dtype}{array.shape}, expected {np.dtype(dtype)}{shape}")
    if array.size and (array.min() < low or array.max() > high):
        raise ValueError(f"an array holds numbers outside {low} to {high}")
    _require_finite(array)
