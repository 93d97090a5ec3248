"""The index that the paper used: faiss IndexFlatL2 (Section 5.1), a scan over float32 vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from comper.errors import import_library
from comper.memory.frames import FrameStore
from comper.memory.indexes.exact import NO_MATCH, Representatives, TransitionKey


class FaissIndex:
    """Finds the nearest of [s/255, a, r, s'/255] in float32 within δ (equal in float32 when δ = 0).

    One query at a time: for batches of 20 and more faiss expands the square, whose rounding error exceeds small
    thresholds. Distances are rounded to float32; of equally near representatives the oldest set is the answer.
    """

    def __init__(self, frames: FrameStore, threshold: float) -> None:
        if not (threshold >= 0 and math.isfinite(threshold)):
            raise ValueError(f"threshold = {threshold}: must be 0 or more.")
        self._faiss = import_library("faiss", "index = faiss needs faiss, which is not installed", extra="faiss")
        self._frames = frames
        self.threshold = float(threshold)
        self._representatives = Representatives(frames)
        self._index: Any = None

    def _vector(self, key: TransitionKey) -> npt.NDArray[np.float32]:
        scale = np.float32(255 if self._frames.dtype == np.uint8 else 1)
        s, s_next = (self._frames.gather(ids).reshape(-1).astype(np.float32) / scale for ids in (key.s, key.s_next))
        return np.concatenate([s, np.array([key.a, key.r], np.float32), s_next])[None]

    def get_index(self, key: TransitionKey) -> int:
        if not len(self):
            return NO_MATCH
        vector = self._vector(key)
        sq_distances, _ = self._index.search(vector, 1)
        sq_distance = float(sq_distances[0, 0])
        # faiss METRIC_L2 is squared. The root, not δ², is compared: √18 squared is less than 18 in floats, and δ is inclusive.
        if math.sqrt(sq_distance) > self.threshold:
            return NO_MATCH
        return self._oldest_within(vector, sq_distance)

    def _oldest_within(self, vector: npt.NDArray[np.float32], sq_distance: float) -> int:
        # range_search is exclusive: ask for a little more and keep what is as near as the nearest.
        limits, sq_distances, set_ids = self._index.range_search(vector, float(np.nextafter(np.float32(sq_distance), np.inf)))
        return int(set_ids[: limits[1]][sq_distances[: limits[1]] <= sq_distance].min())

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        if set_id in self._representatives:
            self._forget_vector(set_id)
        self._representatives.put(set_id, key)
        self._add_vector(set_id, key)

    def forget(self, set_id: int) -> None:
        self._representatives.remove(set_id)
        self._forget_vector(set_id)

    def _add_vector(self, set_id: int, key: TransitionKey) -> None:
        vector = self._vector(key)
        if self._index is None:
            self._index = self._faiss.IndexIDMap(self._faiss.IndexFlatL2(vector.shape[1]))
        self._index.add_with_ids(vector, np.array([set_id], np.int64))

    def _forget_vector(self, set_id: int) -> None:
        self._index.remove_ids(np.array([set_id], np.int64))

    def __len__(self) -> int:
        return len(self._representatives)

    @property
    def nbytes(self) -> int:
        return 0 if self._index is None else int(self._index.ntotal) * (4 * int(self._index.d) + 8)

    def state_dict(self) -> dict[str, Any]:
        return self._representatives.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._representatives.load_state_dict(state)
        self._index = None
        for set_id in self._representatives:
            self._add_vector(set_id, self._representatives[set_id])

    def check_valid(self) -> tuple[bool, str]:
        stored = [] if self._index is None else self._faiss.vector_to_array(self._index.id_map).tolist()
        if sorted(stored) != sorted(self._representatives):
            return False, "faiss holds other sets than those that have a representative"
        return self._representatives.check_valid()
