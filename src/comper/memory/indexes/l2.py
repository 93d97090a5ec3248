"""δ > 0, exactly: Euclidean distance over [s/255, a, r, s'/255], behind lower bounds that discard only what is too far.

A lookup (`search.py`) has three stages, each cheaper than the next, and none of them discards a right answer:
1. a sketch of each transition, a few numbers (action, reward, principal coordinates of its frames), column by column;
2. for those left, the images of each frame (`codes.py`), or, where transitions differ from the background in a few
   pixels only and no projection could distinguish them, exact distances from the lists of those pixels (`postings.py`);
3. for those left, nearest bound first, the exact distance. A distance found shrinks the radius for all others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from comper.memory.frames import FrameStore
from comper.memory.indexes.codes import FrameCodes, principal_axes
from comper.memory.indexes.exact import NO_MATCH, Representatives, TransitionKey
from comper.memory.indexes.postings import Postings
from comper.memory.indexes.rows import Point, RowTable
from comper.memory.indexes.search import Search

NUM_COORDINATES = 32
"""Principal coordinates in the sketch of a transition."""
NUM_OTHERS = 3
"""The other numbers in it: action, reward, and the norm of the rest."""
TRAINING_SIZES = (16, 128, 1024, 8192)
"""Numbers of updates at which background and directions are computed again from the representatives."""
MAX_THRESHOLD = 1e12
"""Far beyond any use; its square still fits in a float32."""


class L2Index:
    """Finds the nearest representative with D(τ, τ') = √(Σ(Δpixel/255)² + Δa² + Δr²) ≤ δ (1 for 255 unless 8-bit).

    D is computed as √(Σ Δpixel² + 255²·(Δa² + Δr²)) / 255, in integers under the root where the rewards are integers: a
    distance that is a whole number of 255ths is exact, so that the inclusive threshold means what it says.
    """

    def __init__(self, frames: FrameStore, threshold: float) -> None:
        if not 0 <= threshold <= MAX_THRESHOLD:
            raise ValueError(f"threshold = {threshold}: must be from 0 to {MAX_THRESHOLD:g}.")
        self.threshold = float(threshold)
        self._representatives = Representatives(frames)
        self._codes = FrameCodes(frames)
        self._num_updates = 0
        self._start(num_frames=0)

    def _start(self, *, num_frames: int) -> None:
        """Start without rows. The number of frames per transition is known from the first one on."""
        self._num_frames = num_frames
        self._directions = np.zeros((num_frames * self._codes.num_directions, 0))  # of a transition, from those of its frames
        self._column_order = np.arange(NUM_OTHERS)
        self._empty(1024)

    def _empty(self, capacity: int) -> None:
        self._table = RowTable(capacity, num_frames=self._num_frames, num_columns=len(self._column_order))
        self._postings = Postings(self._codes.num_pixels)

    # The three verbs.

    def get_index(self, key: TransitionKey) -> int:
        if not len(self):
            return NO_MATCH
        query = self._point(key)
        search = Search(query, self.threshold, table=self._table, codes=self._codes, postings=self._postings)
        return search.nearest()

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        point = self._point(key)
        if set_id in self._representatives:
            self._table.kill(set_id)
        self._representatives.put(set_id, key)
        self._num_updates += 1
        if self._num_updates in TRAINING_SIZES:
            self._train()
            return
        if self._table.is_full:
            self._table, new_rows = self._table.compacted()
            self._postings.renumber(new_rows)
        self._append(set_id, point)

    def forget(self, set_id: int) -> None:
        self._representatives.remove(set_id)
        self._table.kill(set_id)

    # Points and rows.

    def _point(self, key: TransitionKey) -> Point:
        ids = key.s + key.s_next
        if not self._num_frames:
            self._start(num_frames=len(ids))
        if len(ids) != self._num_frames:
            raise ValueError(f"transition of {len(ids)} frames: the others in the index have {self._num_frames}.")
        self._codes.ensure(ids)
        frames, scale = list(ids), self._codes.scale
        sq_norm = float(self._codes.sq_norms[frames].sum())
        z = self._codes.coordinates[frames].reshape(-1) @ self._directions
        rho = math.sqrt(max(0.0, sq_norm - float(z @ z)))
        sketch = np.array([key.a * scale, key.r * scale, rho, *z.tolist()], np.float32)[self._column_order]
        length = math.sqrt(sq_norm + (key.a**2 + key.r**2) * scale**2)
        return Point(ids, (float(key.a), float(key.r)), sq_norm, sketch, length)

    def _append(self, set_id: int, point: Point) -> None:
        row = self._table.append(set_id, point)
        is_short = self._codes.is_short[list(point.ids)].all()
        if is_short and self._postings.add(row, [self._codes.difference(i) for i in point.ids]):
            self._table.mark_posted(row)

    def _train(self) -> None:
        """Compute background, directions and order of columns from the representatives, and make their rows again."""
        keys = {set_id: self._representatives[set_id] for set_id in self._representatives}
        self._codes.train(np.array([key.s + key.s_next for key in keys.values()], np.int64))
        self._start(num_frames=self._num_frames)
        sample = list(keys.values())[:: 1 + len(keys) // 512]
        for key in sample:
            self._codes.ensure(key.s + key.s_next)
        coordinates = self._codes.coordinates[[key.s + key.s_next for key in sample]].reshape(len(sample), -1)
        self._directions = principal_axes(coordinates, NUM_COORDINATES)
        self._column_order = np.arange(NUM_OTHERS + self._directions.shape[1])
        # The most distinctive columns come first.
        self._column_order = np.argsort(-np.var([self._point(key).sketch for key in sample], axis=0), kind="stable")
        self._empty(max(1024, 2 * len(keys)))
        for set_id, key in keys.items():
            self._append(set_id, self._point(key))

    # State.

    def __len__(self) -> int:
        return len(self._representatives)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._codes.nbytes + self._postings.nbytes

    def state_dict(self) -> dict[str, Any]:
        """The representatives and the number of updates. The rest is computed again: no answer depends on it."""
        return {**self._representatives.state_dict(), "num_updates": self._num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._representatives.load_state_dict(state)
        self._num_updates = int(state["num_updates"])
        self._codes = FrameCodes(self._representatives.frames)
        self._start(num_frames=0)
        if len(self):
            first = self._representatives[next(iter(self._representatives))]
            self._start(num_frames=len(first.s + first.s_next))
            self._train()

    def check_valid(self) -> tuple[bool, str]:
        table = self._table
        alive = {int(table.set_ids[row]): row for row in range(table.end) if np.isfinite(table.sketches[0, row])}
        if alive != table.row_of or sorted(alive) != sorted(self._representatives):
            return False, "the living rows are not those of the sets that have a representative"
        if any(tuple(table.ids[row]) != (k := self._representatives[i]).s + k.s_next for i, row in alive.items()):
            return False, "a row holds other frames than its representative"
        return self._representatives.check_valid()
