"""The nearest of many arrays, exactly, behind a bound that is cheap to compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_GROUPS = 256
ROWS_AT_A_TIME = 256
SLACK = 1e-4
"""Relative, for the rounding of the bound, which is computed in single precision."""


class NearestRows:
    """Rows (n, ...) to search in. By Cauchy and Schwarz, sums over groups of values are never further apart, each divided by
    the root of its size, than the values themselves: rows are compared in full in the order of this bound, until it exceeds
    the smallest distance found."""

    def __init__(self, rows: NDArray[Any]):
        self._rows = rows.reshape(len(rows), -1)
        num_values = self._rows.shape[1]
        self._starts = np.unique(np.linspace(0, num_values, min(NUM_GROUPS, num_values), endpoint=False).astype(np.int64))
        self._scale = 1 / np.sqrt(np.diff(self._starts, append=num_values), dtype=np.float32)
        parts = [self._sums(part) for part in np.array_split(self._rows, max(1, len(rows) // ROWS_AT_A_TIME))]
        self._bounds_of = np.concatenate(parts)

    def _sums(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        sums = np.add.reduceat(rows.astype(np.float32), self._starts, axis=1)
        return np.asarray(sums * self._scale, np.float32)

    def find(self, wanted: NDArray[Any]) -> tuple[int, float]:
        """The nearest row, the first of equally near ones, and its Euclidean distance."""
        values = wanted.reshape(1, -1)
        bounds = ((self._bounds_of - self._sums(values)) ** 2).sum(axis=1) * (1 - SLACK)
        order = np.argsort(bounds, kind="stable")
        best, nearest = np.inf, -1
        for first in range(0, len(order), ROWS_AT_A_TIME):
            some = order[first : first + ROWS_AT_A_TIME]
            if bounds[some[0]] > best:
                break
            squares = ((self._rows[some].astype(np.float64) - values.astype(np.float64)) ** 2).sum(axis=1)
            low = squares.min()
            candidate = int(some[squares == low].min())
            if low < best or (low == best and candidate < nearest):
                best, nearest = float(low), candidate
        return nearest, float(np.sqrt(best))
