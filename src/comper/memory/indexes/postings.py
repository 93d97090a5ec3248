"""For every pixel, the transitions that differ there from the background, and by how much.

Where transitions are near duplicates, each different from the background in a few pixels of its own, no projection
can distinguish them; but then the products y_x·y_q come from a few short lists, and exact distances to all of them
are cheap.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

Difference = tuple[npt.NDArray[Any], npt.NDArray[Any]]

MAX_PIXELS = 256
"""Transitions that differ from the background in more pixels are not listed: projections distinguish those."""


class Postings:
    """pixel of the transition -> packed (row, difference), for the rows with few differences."""

    def __init__(self, num_pixels: int) -> None:
        self._num_pixels = num_pixels  # of a frame
        self._lists: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))

    def add(self, row: int, differences: list[Difference]) -> bool:
        """List the row, unless it differs in too many pixels."""
        if sum(len(pixels) for pixels, _ in differences) > MAX_PIXELS:
            return False
        for j, (pixels, values) in enumerate(differences):
            packed = (row << 16) + (values.astype(np.int64) + 2**15)
            for pixel, entry in zip((pixels.astype(np.int64) + j * self._num_pixels).tolist(), packed.tolist(), strict=True):
                self._lists[pixel].append(entry)
        return True

    def dots(self, differences: list[Difference], num_rows: int, *, most_work: int) -> npt.NDArray[np.float64] | None:
        """y_x·y_q for each of the rows, or None if that would read more than `most_work` entries.

        Exact, because all numbers are integers below 2⁵³. Only right for listed rows.
        """
        if most_work <= 0:
            return None
        lists, values = self._matching(differences)
        lengths = [len(entries) for entries in lists]
        if sum(lengths) > most_work:
            return None
        if not lists:
            return np.zeros(num_rows)
        entries = np.concatenate([np.frombuffer(entries, np.int64) for entries in lists])
        weights = np.repeat(np.array(values, np.float64), lengths) * ((entries & 0xFFFF) - 2**15)
        return np.asarray(np.bincount(entries >> 16, weights, minlength=num_rows), np.float64)

    def _matching(self, differences: list[Difference]) -> tuple[list[array[int]], list[int]]:
        """The lists of the pixels in which the query differs, and its differences there."""
        lists, values = [], []
        for j, (pixels, differ_by) in enumerate(differences):
            for pixel, value in zip(pixels.tolist(), differ_by.tolist(), strict=True):
                entries = self._lists.get(pixel + j * self._num_pixels)
                if entries:
                    lists.append(entries)
                    values.append(value)
        return lists, values

    def renumber(self, new_rows: npt.NDArray[np.int64]) -> None:
        """Row i becomes new_rows[i]; rows that become negative are dropped."""
        for pixel, packed in self._lists.items():
            entries = np.frombuffer(packed, np.int64)
            rows = new_rows[entries >> 16]
            kept = (rows << 16 | entries & 0xFFFF)[rows >= 0]
            self._lists[pixel] = array("q", kept.tobytes())

    @property
    def nbytes(self) -> int:
        """Bytes of the lists, approximately."""
        return sum(64 + 8 * len(entries) for entries in self._lists.values())
