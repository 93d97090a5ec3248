"""δ > 0, exactly: Euclidean distance over [s/255, a, r, s'/255], behind lower bounds that only discard what is too far.

A lookup narrows down in three stages, each cheaper per transition than the next and each without false dismissals:
1. a handful of numbers per transition (action, reward, the sum of its frames' images) against the query's, for all of them;
2. for those left, the images of each frame (`codes.py`), or, where transitions differ from the background in a few
   pixels only and no projection could tell them apart, the exact distances from the lists of those pixels (`postings.py`);
3. for those left, nearest bound first, the exact distance. A distance found shrinks the radius for all others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from comper.memory.frames import FrameStore
from comper.memory.indexes.base import NO_MATCH, Representatives, TransitionKey
from comper.memory.indexes.codes import NUM_LEADING, FrameCodes
from comper.memory.indexes.postings import Postings

Rows = npt.NDArray[np.int64]

TRAINING_SIZES = (16, 128, 1024, 8192)
"""Updates after which background and directions are taken from the representatives anew."""
MAX_THRESHOLD = 1e12
"""Far beyond any use, and its square is still a float32."""
FIRST_CHECKS = 16
CHECKS = 128
CHECK_COST = 100
"""What the exact distance of a frame costs, in entries of the postings read in the same time, about."""
SUM_ROUNDING = 1 + 2.0**-12
"""A sum of n float32 squares is off by less than n·2⁻²³ of itself; this allows n = 2,048 terms."""


class L2Index:
    """Finds the nearest representative with D(τ, τ') = √(Σ(Δpixel/255)² + Δa² + Δr²) ≤ δ (1 in place of 255 unless 8-bit).

    D is computed as √(Σ Δpixel² + 255²·(Δa² + Δr²)) / 255, in integers under the root where the rewards are integers: a
    distance that is a whole number of 255ths is exact, so that the inclusive threshold means what it says.
    """

    def __init__(self, frames: FrameStore, threshold: float) -> None:
        if not 0 <= threshold <= MAX_THRESHOLD:
            raise ValueError(f"threshold = {threshold}: must be from 0 to {MAX_THRESHOLD:g}.")
        self.threshold = float(threshold)
        self._representatives = Representatives(frames)
        self._codes = FrameCodes(frames)
        self._updates = 0
        self._num_frames = 0  # in one transition; known with the first
        self._clear(1024)

    def _clear(self, capacity: int) -> None:
        """Rows are only ever appended; the row of a replaced or forgotten transition is dead until `_make_room`."""
        self._end = 0
        self._row_of: dict[int, int] = {}
        self._set_ids = np.full(capacity, NO_MATCH, np.int64)
        self._ids = np.zeros((capacity, self._num_frames), np.int64)
        self._scalars = np.zeros((capacity, 2))  # a and r
        self._sq_norms = np.zeros(capacity)  # |y|² over all frames
        self._sketches = np.zeros((NUM_LEADING + 3, capacity), np.float32)  # a, z_1, ρ, r, z_2, ...: one row per column
        self._is_posted = np.zeros(capacity, np.bool_)
        self._postings = Postings(self._codes.num_pixels)
        self._buffers = np.empty((2, capacity), np.float32)
        self._reach = 0.0  # the largest |τ| in the index, for the rounding errors

    # The three verbs.

    def get_index(self, key: TransitionKey) -> int:
        if not self._row_of:
            return NO_MATCH
        ids = self._ensure(key)
        search = _Search(self, key, ids)
        return search.nearest()

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        ids = self._ensure(key)
        self._representatives.put(set_id, key)
        self._kill(set_id)
        self._updates += 1
        if self._updates in TRAINING_SIZES:
            self._rebuild(should_train=True)
            return
        if self._end == len(self._set_ids):
            self._make_room()
        self._append(set_id, key, ids)

    def forget(self, set_id: int) -> None:
        self._representatives.remove(set_id)
        self._kill(set_id)

    # Rows.

    def _ensure(self, key: TransitionKey) -> tuple[int, ...]:
        ids = key.s + key.s_next
        if not self._num_frames:
            self._num_frames = len(ids)
            self._clear(len(self._set_ids))
        if len(ids) != self._num_frames:
            raise ValueError(f"transition of {len(ids)} frames: the others in the index have {self._num_frames}.")
        self._codes.ensure(ids)
        return ids

    def _append(self, set_id: int, key: TransitionKey, ids: tuple[int, ...]) -> None:
        row = self._end
        self._end += 1
        self._row_of[set_id] = row
        self._set_ids[row] = set_id
        self._ids[row] = ids
        self._scalars[row] = key.a, key.r
        self._sq_norms[row] = self._codes.sq_norms[self._ids[row]].sum()
        self._sketches[:, row] = self._sketch(key, ids)
        self._reach = max(self._reach, self._length(key, ids))
        self._is_posted[row] = self._codes.is_integral and self._postings.add(row, [self._codes.difference(i) for i in ids])

    def _kill(self, set_id: int) -> None:
        row = self._row_of.pop(set_id, None)
        if row is not None:
            self._sketches[0, row] = np.inf  # infinitely far from every query
            self._set_ids[row] = NO_MATCH

    def _make_room(self) -> None:
        """Drop the dead rows, and make room for as many again as are left."""
        living = np.fromiter(self._row_of.values(), np.int64, len(self._row_of))
        n, capacity, old = len(living), max(1024, 2 * len(living)), self.__dict__.copy()
        self._clear(capacity)
        for name in ("_set_ids", "_ids", "_scalars", "_sq_norms", "_is_posted"):
            getattr(self, name)[:n] = old[name][living]
        self._sketches[:, :n] = old["_sketches"][:, living]
        self._end, self._reach, self._postings = n, old["_reach"], old["_postings"]
        self._row_of = dict(zip(old["_row_of"], range(n), strict=True))
        new_rows = np.full(old["_end"], -1, np.int64)
        new_rows[living] = np.arange(n)
        self._postings.renumber(new_rows)

    def _rebuild(self, *, should_train: bool) -> None:
        """Rows anew from the representatives."""
        keys = {set_id: self._representatives[set_id] for set_id in self._representatives}
        if should_train:
            self._codes.train(np.array([key.s + key.s_next for key in keys.values()], np.int64))
        self._clear(max(1024, 2 * len(keys)))
        for set_id, key in keys.items():
            self._append(set_id, key, self._ensure(key))

    def _sketch(self, key: TransitionKey, ids: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """a, z_1, ρ, r, z_2, ..., where z sums over the frames: directions (v, ..., v)/√n of the whole transition."""
        z = self._codes.leading[list(ids)].sum(axis=0) / math.sqrt(len(ids))
        rho = math.sqrt(max(0.0, float(self._codes.sq_norms[list(ids)].sum()) - float(z @ z)))
        scale = self._codes.scale
        return np.array([key.a * scale, z[0], rho, key.r * scale, *z[1:]], np.float32)

    def _length(self, key: TransitionKey, ids: tuple[int, ...]) -> float:
        sq_scalars = (key.a**2 + key.r**2) * self._codes.scale**2
        return math.sqrt(float(self._codes.sq_norms[list(ids)].sum()) + sq_scalars)

    # State.

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def nbytes(self) -> int:
        rows = (self._set_ids, self._ids, self._scalars, self._sq_norms, self._sketches, self._buffers)
        return sum(array.nbytes for array in rows) + self._codes.nbytes + self._postings.nbytes

    def state_dict(self) -> dict[str, Any]:
        """The representatives and the count of updates. Codes are computed again: no answer depends on them."""
        return {**self._representatives.state_dict(), "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._representatives.load_state_dict(state)
        self._updates = int(state["updates"])
        self._codes = FrameCodes(self._representatives.frames)
        self._num_frames = 0
        self._rebuild(should_train=len(self._representatives) >= TRAINING_SIZES[0])

    def check_valid(self) -> tuple[bool, str]:
        alive = {int(self._set_ids[row]): row for row in range(self._end) if np.isfinite(self._sketches[0, row])}
        if alive != self._row_of or sorted(alive) != sorted(self._representatives):
            return False, "the living rows are not those of the sets that have a representative"
        if any(tuple(self._ids[row]) != (k := self._representatives[i]).s + k.s_next for i, row in alive.items()):
            return False, "a row holds other frames than its representative"
        return self._representatives.check_valid()


class _Search:
    """One lookup. All lengths in pixel steps."""

    def __init__(self, index: L2Index, key: TransitionKey, ids: tuple[int, ...]) -> None:
        self._index, self._codes, self._ids = index, index._codes, ids
        self._scalars = np.array([key.a, key.r], np.float64)
        self._sq_norm = float(self._codes.sq_norms[list(ids)].sum())
        self._sketch = index._sketch(key, ids)
        # What rounding can do to a difference of two images, or of two sketches, each off by at most relative_error·|τ|.
        self._slack = 2 * self._codes.relative_error * 1.5 * max(index._reach, index._length(key, ids))
        self._best_sq = math.inf
        self._best_set = NO_MATCH
        self._shrink(math.inf)

    def _shrink(self, sq_distance: float) -> None:
        """Bounds above `_sq_radius` are certainly above both δ and the best distance so far."""
        radius = min(math.sqrt(sq_distance), self._index.threshold * self._codes.scale * (1 + 2.0**-40))
        self._sq_radius = (radius + self._slack) ** 2 * SUM_ROUNDING

    def nearest(self) -> int:
        rows, bounds = self._sketched()
        if len(rows) > FIRST_CHECKS:
            rows, bounds = self._post(rows, bounds)
            rows, bounds = self._check_first(rows, bounds)
        if len(rows) > CHECKS:
            rows, bounds = self._imaged(rows, bounds)
        order = np.argsort(bounds, kind="stable")
        rows, bounds = rows[order], bounds[order]
        for start in range(0, len(rows), CHECKS):
            if bounds[start] > self._sq_radius:
                break
            self._check(rows[start : start + CHECKS])
        return self._best_set

    def _sketched(self) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Stage 1: all rows by their sketches; the later columns only for what the first three leave."""
        n, index = self._index._end, self._index
        columns, total, term = index._sketches[:, :n], index._buffers[0, :n], index._buffers[1, :n]
        np.subtract(columns[0], self._sketch[0], out=total)
        np.multiply(total, total, out=total)
        for j in (1, 2):
            np.subtract(columns[j], self._sketch[j], out=term)
            np.multiply(term, term, out=term)
            np.add(total, term, out=total)
        rows = np.flatnonzero(total <= self._sq_radius)
        bounds = total[rows]
        if len(rows) > FIRST_CHECKS:
            for j in range(3, len(columns)):
                bounds += np.square(columns[j, rows] - self._sketch[j])
            keep = bounds <= self._sq_radius
            rows, bounds = rows[keep], bounds[keep]
        return rows, bounds

    def _post(self, rows: Rows, bounds: npt.NDArray[np.float32]) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Exact distances of the rows that differ from the background in few pixels; the other rows are left."""
        index = self._index
        is_posted = index._is_posted[rows]
        posted = rows[is_posted]
        most_work = len(posted) * len(self._ids) * CHECK_COST - index._end // 4
        dots = index._postings.dots([self._codes.difference(i) for i in self._ids], index._end, most_work=most_work)
        if dots is None:
            return rows, bounds
        self._consider(posted, index._sq_norms[posted] + self._sq_norm - 2.0 * dots[posted] + self._sq_scalars(posted))
        left = ~is_posted & (bounds <= self._sq_radius)
        return rows[left], bounds[left]

    def _check_first(self, rows: Rows, bounds: npt.NDArray[np.float32]) -> tuple[Rows, npt.NDArray[np.float32]]:
        """The few nearest by bound: one of them is likely near enough to discard the rest."""
        if len(rows) <= FIRST_CHECKS:
            return rows, bounds
        order = np.argpartition(bounds, FIRST_CHECKS)
        self._check(rows[order[:FIRST_CHECKS]])
        rest = order[FIRST_CHECKS:]
        rest = rest[bounds[rest] <= self._sq_radius]
        return rows[rest], bounds[rest]

    def _imaged(self, rows: Rows, bounds: npt.NDArray[np.float32]) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Stage 2: the images of each frame, one frame after the other."""
        images = self._codes.images
        bounds = self._sq_scalars(rows).astype(np.float32)
        for j, query in enumerate(self._ids):
            delta = images[self._index._ids[rows, j]] - images[query]
            bounds += np.einsum("ij,ij->i", delta, delta)
            keep = bounds <= self._sq_radius
            rows, bounds = rows[keep], bounds[keep]
        return rows, bounds

    def _check(self, rows: Rows) -> None:
        """Stage 3: exact distances."""
        sq = self._sq_scalars(rows)
        for j, query in enumerate(self._ids):
            ids = self._index._ids[rows, j]
            others = np.flatnonzero(ids != query)
            if len(others):
                sq[others] += self._codes.sq_distances(ids[others], query)
        self._consider(rows, sq)

    def _sq_scalars(self, rows: Rows) -> npt.NDArray[np.float64]:
        """255²·(Δa² + Δr²)"""
        delta = self._index._scalars[rows] - self._scalars
        return np.asarray((delta[:, 0] ** 2 + delta[:, 1] ** 2) * self._codes.scale**2)

    def _consider(self, rows: Rows, sq: npt.NDArray[np.float64]) -> None:
        """Keep the nearest row within δ; of equally near ones the oldest set."""
        smallest = float(sq.min())
        if smallest > self._best_sq or math.sqrt(smallest) / self._codes.scale > self._index.threshold:
            return
        oldest = int(self._index._set_ids[rows[sq == smallest]].min())
        is_tie = smallest == self._best_sq
        self._best_set = min(oldest, self._best_set) if is_tie else oldest
        self._best_sq = smallest
        self._shrink(smallest)
