"""The representatives of the l2 index as rows of arrays, so that a lookup compares with many of them at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from comper.memory.indexes.exact import NO_MATCH

Rows = npt.NDArray[np.int64]


class Point(NamedTuple):
    """A transition and what the l2 index computes from it. Lengths are in pixel steps (`FrameCodes.scale`)."""

    ids: tuple[int, ...]
    """Frames of s, then of s'."""
    scalars: tuple[float, float]
    """Action and reward, unscaled."""
    sq_norm: float
    """|y|² of its differences from the background, all frames together."""
    sketch: npt.NDArray[np.float32]
    """Numbers whose Euclidean distance to another point's is never more than the distance of the two."""
    length: float
    """Rounding errors of the sketch are relative to this."""


class RowTable:
    """Rows are only appended. That of a replaced or forgotten representative is dead until the table is compacted."""

    def __init__(self, capacity: int, *, num_frames: int, num_columns: int) -> None:
        self.end = 0
        self.row_of: dict[int, int] = {}
        self.set_ids = np.full(capacity, NO_MATCH, np.int64)
        self.ids = np.zeros((capacity, num_frames), np.int64)
        self.scalars = np.zeros((capacity, 2))
        self.sq_norms = np.zeros(capacity)
        self.sketches = np.zeros((num_columns, capacity), np.float32)  # a column of the sketch is contiguous
        self.is_posted = np.zeros(capacity, np.bool_)
        self.num_posted = 0
        self.buffers = np.empty((2, capacity), np.float32)
        self.reach = 0.0  # the largest length of a point, ever

    @property
    def is_full(self) -> bool:
        return self.end == len(self.set_ids)

    def append(self, set_id: int, point: Point) -> int:
        row = self.end
        self.end += 1
        self.row_of[set_id] = row
        self.set_ids[row] = set_id
        self.ids[row] = point.ids
        self.scalars[row] = point.scalars
        self.sq_norms[row] = point.sq_norm
        self.sketches[:, row] = point.sketch
        self.reach = max(self.reach, point.length)
        return row

    def mark_posted(self, row: int) -> None:
        self.is_posted[row] = True
        self.num_posted += 1

    def kill(self, set_id: int) -> None:
        row = self.row_of.pop(set_id)
        self.set_ids[row] = NO_MATCH
        self.num_posted -= int(self.is_posted[row])
        self.is_posted[row] = False
        self.sketches[0, row] = np.inf  # infinitely far from every query

    def compacted(self) -> tuple[RowTable, npt.NDArray[np.int64]]:
        """A table of the living rows with room for as many again, and the new row of each old one (-1: dead)."""
        living = np.fromiter(self.row_of.values(), np.int64, len(self.row_of))
        n = len(living)
        table = RowTable(max(1024, 2 * n), num_frames=self.ids.shape[1], num_columns=len(self.sketches))
        for name in ("set_ids", "ids", "scalars", "sq_norms", "is_posted"):
            getattr(table, name)[:n] = getattr(self, name)[living]
        table.sketches[:, :n] = self.sketches[:, living]
        table.end, table.reach, table.num_posted = n, self.reach, self.num_posted
        table.row_of = dict(zip(self.row_of, range(n), strict=True))
        new_rows = np.full(self.end, -1, np.int64)
        new_rows[living] = np.arange(n)
        return table, new_rows

    @property
    def nbytes(self) -> int:
        arrays = (self.set_ids, self.ids, self.scalars, self.sq_norms, self.sketches, self.is_posted, self.buffers)
        return sum(array.nbytes for array in arrays)
