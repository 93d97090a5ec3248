"""One lookup in the l2 index: from all representatives to the nearest, by bounds that never exceed the distance."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from comper.memory.indexes.codes import FrameCodes
from comper.memory.indexes.exact import NO_MATCH
from comper.memory.indexes.postings import Postings
from comper.memory.indexes.rows import Point, Rows, RowTable

Bounds = npt.NDArray[np.float32]

FIRST_COLUMNS = 5
COLUMNS_AT_ONCE = 3
FEW = 24
"""This many rows, or fewer, are checked exactly at once instead of being narrowed down further."""
MANY = 256
MOST_CHECKS = 1024
"""Rows checked at once; a distance found may make the rest unnecessary."""
CHECK_COST = 100
"""Cost of the exact distance of a frame: about as much as reading this many entries of the postings."""
SUM_ROUNDING = 1 + 2.0**-12
"""A sum of n float32 squares is off by less than n·2⁻²³ of itself; this allows n = 2,048 terms."""


class Search:
    """Narrows the rows down for one query. Lengths are in pixel steps, bounds are squared."""

    def __init__(self, query: Point, threshold: float, *, table: RowTable, codes: FrameCodes, postings: Postings) -> None:
        self._query, self._threshold = query, threshold
        self._table, self._codes, self._postings = table, codes, postings
        # Images and sketches are each off by at most relative_error·length: their differences by at most twice that.
        self._slack = 2 * codes.relative_error * max(table.reach, query.length)
        self._best_sq, self._best_set = math.inf, NO_MATCH
        self._dense: npt.NDArray[np.int32] | None = None  # y_q
        self._num_columns_done = 0
        self._set_radius(threshold * codes.scale * (1 + 2.0**-40))

    def _set_radius(self, radius: float) -> None:
        """A bound above `_sq_radius` means a distance above the radius, for certain."""
        self._sq_radius = (radius + self._slack) ** 2 * SUM_ROUNDING

    def nearest(self) -> int:
        """The set of the nearest representative within δ, the oldest of equally near ones, or NO_MATCH."""
        rows, bounds = self._by_first_columns()
        if len(rows) > self._table.end // 32:
            rows, bounds = self._check_likeliest(rows, bounds)
        rows, bounds = self._by_further_columns(rows, bounds)
        rows, bounds = self._check_likeliest(rows, bounds)
        if len(rows) > FEW:
            rows, bounds = self._by_images(rows)
        self._check_all(rows, bounds)
        return self._best_set

    def _within(self, rows: Rows, bounds: Bounds) -> tuple[Rows, Bounds]:
        keep = np.flatnonzero(bounds <= self._sq_radius)
        return (rows, bounds) if len(keep) == len(rows) else (rows[keep], bounds[keep])

    # Stage 1: sketches.

    def _by_first_columns(self) -> tuple[Rows, Bounds]:
        """All rows, by the most distinctive columns; and, if that is not enough, by postings or further columns."""
        n, sketch = self._table.end, self._query.sketch
        columns, (total, term) = self._table.sketches[:, :n], self._table.buffers[:, :n]
        np.subtract(columns[0], sketch[0], out=total)
        np.multiply(total, total, out=total)
        is_posted_done = False
        for j in range(1, min(FIRST_COLUMNS, len(columns))):
            np.subtract(columns[j], sketch[j], out=term)
            np.multiply(term, term, out=term)
            np.add(total, term, out=total)
            self._num_columns_done = j + 1
            if j == FIRST_COLUMNS // 2:
                is_near = total <= self._sq_radius
                is_posted_done = self._by_postings(is_near)
                if is_posted_done or np.count_nonzero(is_near) < n // 8:
                    break
        is_near = total <= self._sq_radius
        if is_posted_done:
            is_near &= ~self._table.is_posted[:n]
        rows = np.flatnonzero(is_near)
        return rows, total[rows]

    def _by_further_columns(self, rows: Rows, bounds: Bounds) -> tuple[Rows, Bounds]:
        """The rows left, a few columns at a time."""
        columns, sketch = self._table.sketches, self._query.sketch
        for start in range(self._num_columns_done, len(columns), COLUMNS_AT_ONCE):
            if len(rows) <= FEW:
                break
            for j in range(start, min(start + COLUMNS_AT_ONCE, len(columns))):
                delta = columns[j].take(rows)
                delta -= sketch[j]
                delta *= delta
                bounds += delta
            rows, bounds = self._within(rows, bounds)
        return rows, bounds

    # Stage 2: what is kept of each frame.

    def _by_postings(self, is_near: npt.NDArray[np.bool_]) -> bool:
        """Consider the exact distances of all near posted rows, if that is cheaper than checking each of them."""
        table, query, n = self._table, self._query, self._table.end
        if not table.num_posted or not self._codes.is_short[list(query.ids)].all():
            return False
        num_near = int(np.count_nonzero(is_near)) * table.num_posted // n
        most_work = num_near * len(query.ids) * CHECK_COST - n // 4
        dots = self._postings.dots([self._codes.difference(i) for i in query.ids], n, most_work=most_work)
        if dots is None:
            return False
        # |y_x|² - 2 y_x·y_q: the distance but for |y_q|² and the scalars, which are not negative.
        partial = np.multiply(dots, -2.0, out=dots)
        partial += table.sq_norms[:n]
        partial[~(is_near & table.is_posted[:n])] = np.inf
        for nearest_only in (True, False):  # the first is likely to shrink the radius for the others
            limit = self._sq_radius - query.sq_norm
            rows = np.array([partial.argmin()]) if nearest_only else np.flatnonzero(partial <= limit)
            if len(rows) and partial[rows[0]] <= limit:
                self._consider(rows, partial[rows] + query.sq_norm + self._sq_scalars(rows))
        return True

    def _by_images(self, rows: Rows) -> tuple[Rows, Bounds]:
        """The images of each frame, one frame after the other."""
        images = self._codes.images
        bounds = self._sq_scalars(rows).astype(np.float32)
        for j, i in enumerate(self._query.ids):
            delta = images[self._table.ids[rows, j]]
            delta -= images[i]
            bounds += np.einsum("ij,ij->i", delta, delta)
            rows, bounds = self._within(rows, bounds)
        return rows, bounds

    # Stage 3: exact distances.

    def _check_all(self, rows: Rows, bounds: Bounds) -> None:
        """Nearest bound first, few at first: a distance found shrinks the radius for the others."""
        order = np.argsort(bounds)
        rows, bounds = rows[order], bounds[order]
        start, size = 0, FEW
        while start < len(rows) and bounds[start] <= self._sq_radius:
            self._check(rows[start : start + size])
            start, size = start + size, min(2 * size, MOST_CHECKS)

    def _check_likeliest(self, rows: Rows, bounds: Bounds) -> tuple[Rows, Bounds]:
        """With many rows left, the exact distance of the likeliest may shrink the radius for the others."""
        if len(rows) <= MANY or bounds.min() > self._sq_radius / 4:
            return rows, bounds
        self._check(rows[np.array([bounds.argmin()])])
        return self._within(rows, bounds)

    def _check(self, rows: Rows) -> None:
        """Exact distances, from the differences where those are short and from the pixels otherwise."""
        codes, table, query = self._codes, self._table, self._query
        ids, sq_distances = table.ids[rows], self._sq_scalars(rows)
        is_short = codes.is_short[ids].all(axis=1) & codes.is_short[list(query.ids)].all()
        short, long = np.flatnonzero(is_short), np.flatnonzero(~is_short)
        if len(short):
            if self._dense is None:
                self._dense = codes.dense(query.ids)
            # |x - q|² = |y_x|² + |y_q|² - 2 y_x·y_q
            sq_distances[short] += table.sq_norms[rows[short]] + query.sq_norm - 2.0 * codes.dots(ids[short], self._dense)
        if len(long):
            limits = self._sq_radius - sq_distances[long]
            sq_distances[long] += codes.sq_distances_within(ids[long], query.ids, limits)
        self._consider(rows, sq_distances)

    def _sq_scalars(self, rows: Rows) -> npt.NDArray[np.float64]:
        """255²·(Δa² + Δr²)"""
        delta = self._table.scalars[rows]
        delta -= self._query.scalars
        delta *= delta
        return np.asarray((delta[:, 0] + delta[:, 1]) * self._codes.scale**2)

    def _consider(self, rows: Rows, sq_distances: npt.NDArray[np.float64]) -> None:
        smallest = float(sq_distances.min())
        if smallest > self._best_sq or math.sqrt(smallest) / self._codes.scale > self._threshold:
            return
        oldest = int(self._table.set_ids[rows[sq_distances == smallest]].min())
        self._best_set = min(oldest, self._best_set) if smallest == self._best_sq else oldest
        self._best_sq = smallest
        self._set_radius(math.sqrt(smallest))
