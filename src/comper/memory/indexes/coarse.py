"""Between equal pixels and a distance: transitions are alike when their shrunk pictures are.

A distance counts every pixel that differs, so one that joins a small enemy's two places joins all else of that size. Cells of
a few pixels with a few greys forget what is small and keep where things are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore
from comper.memory.indexes.exact import ExactIndex, TransitionKey, packed

GREYS = 16


class CoarseIndex(ExactIndex):
    """Finds the representative with equal action, reward, and pictures of `cells` x `cells` mean values in 16 steps."""

    def __init__(self, frames: FrameStore, cells: int) -> None:
        height, width, *_ = (*frames.shape, 0, 0)
        if len(frames.shape) < 2 or frames.dtype != np.uint8 or not 0 < cells <= min(height, width):
            raise ValueError(f"cells = {cells}: pictures of {frames.shape} pixels cannot be shrunk to as many cells each way.")
        super().__init__(frames)
        self._frames = frames
        self._starts = [np.arange(cells) * side // cells for side in (height, width)]
        sizes = [np.diff(starts, append=side) for starts, side in zip(self._starts, (height, width), strict=True)]
        self._areas = np.multiply.outer(*sizes).reshape(cells, cells, *[1] * (len(frames.shape) - 2))

    def _content(self, key: TransitionKey) -> bytes:
        coarse = [self._shrunk(i).tobytes() for i in key.s + key.s_next]
        return b"".join([*coarse, packed(TransitionKey((), key.a, key.r, ()))])

    def _content_of(self, set_id: int) -> bytes:
        return self._content(self._representatives[set_id])

    def _shrunk(self, frame: int) -> NDArray[np.uint8]:
        [pixels] = self._frames.gather([frame])
        rows = np.add.reduceat(pixels, self._starts[0], axis=0, dtype=np.int32)
        sums = np.add.reduceat(rows, self._starts[1], axis=1)
        shrunk: NDArray[np.uint8] = (sums * GREYS // (256 * self._areas)).astype(np.uint8)
        return shrunk
