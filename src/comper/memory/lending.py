"""States that lend their transitions to states that look like them, the less the farther they are.

Between "equal" and "everything alike": what followed an action in a state counts for states near it too, with a weight that
falls from 1 to 0 at a reach (kernel-based averages, Ormoneit and Sen 2002). Larger pictures are compared as a few cells,
everything else number by number. The unit of distance is the mean distance between a state and the one that followed it, so
that a reach means the same in every game. New states look for lenders among those that were there before, so that a state
and the one that followed it seldom take each other for the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from comper.memory.frames import FrameStore
from comper.memory.propagation import NO_NODE, Floats, Ints, Layout, layout_of

CELLS = 12
"""Each way, to which larger pictures are shrunk."""
AT_A_TIME = 256
"""States that are looked at, or compared with all others, at a time."""
DISTANCES_AT_A_TIME = 1 << 22
"""Of those, at most: 24 bytes each, or 40 of numbers that are no bytes."""
BYTES_PER_LOAN = 150
"""Approximate: an edge that is lent, while values travel."""

Floats32 = NDArray[np.float32]


class Lending:
    """What the states of a graph look like, and which are the nearest to each other."""

    def __init__(self, frames: FrameStore, history_length: int, *, reach: float, num_lenders: int):
        self.reach, self.num_lenders = reach, num_lenders
        self._frames = frames
        self._features: NDArray[Any] = np.zeros((0, num_features(frames.shape, history_length)), feature_type(frames.dtype))

    def look_at(self, nodes: Ints, states: Ints) -> None:
        """Take note of what these nodes look like, from the frames (n, history) of their states."""
        missing = int(nodes.max(initial=-1)) + 1 - len(self._features)
        if missing > 0:
            room = np.zeros((max(missing, len(self._features)), self._features.shape[1]), self._features.dtype)
            self._features = np.concatenate([self._features, room])
        for start in range(0, len(nodes), AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            self._features[nodes[part]] = self._seen(states[part])

    def nearest(self, nodes: Ints, earlier: Ints) -> tuple[NDArray[np.int32], Floats32]:
        """The nearest `earlier` nodes of each node (n, k) and their distances; NO_NODE where there are fewer."""
        found = np.full((len(nodes), self.num_lenders), NO_NODE, np.int32)
        distances = np.zeros(found.shape, np.float32)
        num_found, others = min(self.num_lenders, len(earlier)), self._features[earlier]
        at_a_time = min(AT_A_TIME, max(1, DISTANCES_AT_A_TIME // max(1, len(earlier))))
        for start in range(0, len(nodes) if num_found else 0, at_a_time):
            part = slice(start, start + at_a_time)
            squares = _squares(self._features[nodes[part]], others)
            places = np.argpartition(squares, num_found - 1, axis=1)[:, :num_found]
            found[part, :num_found] = earlier[places]
            distances[part, :num_found] = np.sqrt(np.take_along_axis(squares, places, axis=1))
        return found, distances

    def weights(self, distances: Floats32, layout: Layout) -> Floats:
        """1 for no distance, 0 from the reach on; the unit is the mean step of these edges."""
        reach = self.reach * self._mean_step(layout)
        return np.maximum(0.0, 1 - distances.astype(np.float64) / reach) if reach else np.zeros(distances.shape)

    @property
    def bytes_per_node(self) -> int:
        """Bytes of what one state looks like: spare room depends on when a run was continued, and is not counted."""
        return int(self._features.itemsize * self._features.shape[1])

    def _mean_step(self, layout: Layout) -> float:
        source, target = np.repeat(layout.pair_node, layout.num_outcomes), layout.target
        is_step = (target != NO_NODE) & (target != source)
        difference = self._features[source[is_step]] - self._features[target[is_step]]
        return float(np.sqrt(np.square(difference).sum(axis=1)).mean()) if len(difference) else 0.0

    def _seen(self, states: Ints) -> NDArray[Any]:
        """The numbers by which states (n, history) are compared: (n, features)."""
        frames = self._frames.gather(states.ravel())
        sides = self._frames.shape[:2] if len(self._frames.shape) > 1 else ()
        for axis, side in enumerate(sides, start=1):
            starts = np.arange(min(CELLS, side)) * side // min(CELLS, side)
            sizes = np.diff(starts, append=side).reshape(-1, *[1] * (frames.ndim - axis - 1))
            frames = np.add.reduceat(frames, starts, axis=axis, dtype=self._features.dtype) / sizes
        scale = np.float32(1 / 255 if self._frames.dtype == np.uint8 else 1)
        return np.asarray(frames, self._features.dtype).reshape(len(states), -1) * scale


def num_features(shape: Sequence[int], history_length: int) -> int:
    """Numbers by which two states are compared."""
    sides = [min(CELLS, side) for side in shape[:2]] if len(shape) > 1 else shape
    return history_length * math.prod((*sides, *shape[2:]))


def needed_bytes(features: int, num_lenders: int, num_states: int) -> tuple[int, int]:
    """Bytes held for so many states at most, given those of a state's features, and bytes more while values travel."""
    distances = 40 * min(AT_A_TIME * num_states, DISTANCES_AT_A_TIME)
    at_work = 2 * features + 2 * num_lenders * BYTES_PER_LOAN  # spare room and a copy, and loans both ways
    return num_states * (8 * num_lenders + features), num_states * at_work + distances


def feature_type(frames: DTypeLike) -> np.dtype[Any]:
    """Of these numbers: pictures in bytes lie near 0, anything else may differ by little and be large."""
    return np.dtype(np.float32 if np.dtype(frames).itemsize == 1 else np.float64)


def with_loans(own: Layout, borrower: Ints, lender: Ints, weight: Floats) -> Layout:
    """A graph in which each borrower has its lender's edges too, as often met as the weight says."""
    source, action = (np.repeat(column, own.num_outcomes) for column in (own.pair_node, own.pair_action))
    count = own.weight * np.repeat(own.pair_visits, own.num_outcomes)
    first = np.searchsorted(source, np.arange(own.num_nodes + 1))
    sizes = first[lender + 1] - first[lender]
    lent = np.repeat(first[lender] - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    return layout_of(
        source=np.concatenate([source, np.repeat(borrower, sizes)]),
        action=np.concatenate([action, action[lent]]),
        reward=np.concatenate([own.reward, own.reward[lent]]),
        target=np.concatenate([own.target, own.target[lent]]),
        count=np.concatenate([count, count[lent] * np.repeat(weight, sizes)]),
        num_nodes=own.num_nodes,
    )


def _squares(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Squared distances (A, B) of rows."""
    products = a @ b.T
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * products
    return np.asarray(np.maximum(squares, 0))
