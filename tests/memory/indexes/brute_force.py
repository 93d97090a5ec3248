"""The definition of similarity, literally, and small frame stores to compare indexes on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, TransitionKey


class BruteForceIndex:
    """The definition, literally: every pixel of every representative, in Python's integers."""

    def __init__(self, frames: FrameStore, threshold: float) -> None:
        self._frames, self._threshold = frames, threshold
        self._scale = 255 if frames.dtype == np.uint8 else 1
        self._vectors: dict[int, tuple[list[Any], int, float]] = {}

    def _vector(self, key: TransitionKey) -> tuple[list[Any], int, float]:
        return [x for i in key.s + key.s_next for x in self._frames.gather([i]).ravel().tolist()], key.a, key.r

    def sq_distance(self, key: TransitionKey, set_id: int) -> float:
        """D², times 255² for 8-bit frames."""
        (p, a, r), (q, b, s) = self._vector(key), self._vectors[set_id]
        pixels = sum((x - y) ** 2 for x, y in zip(p, q, strict=True))
        return float(pixels + ((a - b) ** 2 + (r - s) ** 2) * self._scale**2)

    def get_index(self, key: TransitionKey) -> int:
        found = sorted((self.sq_distance(key, set_id), set_id) for set_id in self._vectors)
        return found[0][1] if found and math.sqrt(found[0][0]) / self._scale <= self._threshold else NO_MATCH

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        self._vectors[set_id] = self._vector(key)

    def forget(self, set_id: int) -> None:
        del self._vectors[set_id]


def store_of(*values: int, size: int = 4) -> FrameStore:
    """A store whose frame i is all zero but for its first pixel, values[i]."""
    store = FrameStore((size,))
    for value in values:
        pixels = np.zeros(size, np.uint8)
        pixels[0] = value
        store.intern(pixels)
    return store


def key(s: int, a: int = 0, r: float = 0.0, s_next: int = 0) -> TransitionKey:
    return TransitionKey((s,), a, r, (s_next,))


def random_keys(
    store: FrameStore, n: int, rng: np.random.Generator, *, levels: int, num_frames: int = 1
) -> list[TransitionKey]:
    frames = [store.intern(rng.integers(0, levels, store.shape).astype(store.dtype)) for _ in range(n)]

    def state() -> tuple[int, ...]:
        return tuple(frames[i] for i in rng.integers(0, n, num_frames))

    return [TransitionKey(state(), int(rng.integers(3)), float(rng.integers(2)), state()) for _ in range(n)]


def near_duplicates(n: int, rng: np.random.Generator, *, size: int, changes: int) -> npt.NDArray[np.uint8]:
    frames = np.repeat(rng.integers(0, 256, (1, size), dtype=np.uint8), n, axis=0)
    for frame in frames:
        pixels = rng.integers(0, size, changes)
        frame[pixels] = rng.integers(0, 256, changes)
    return frames
