"""What the l2 index keeps of a frame so that it need not read its pixels again.

A frame x is kept as its difference y = x - b from a background b: in a game few pixels differ from the background, so
y is short, and distances follow from it exactly: |x - q|² = |y_x|² + |y_q|² - 2 y_x·y_q, in integers. Where many
pixels differ (or pixels are not small integers) distances are computed from the pixels, block by block until they
exceed a limit. For a lower bound y is projected: with directions V, ‖V‖ ≤ 1, the image z = Vᵀy and the rest ρ =
√(|y|² - |z|²) satisfy |z_x - z_q|² + (ρ_x - ρ_q)² ≤ |x - q|², because I - VVᵀ is positive semi-definite and norms
obey the triangle inequality.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from comper.memory.frames import FrameStore

Floats = npt.NDArray[np.floating[Any]]
NUM_DIRECTIONS = 64
NUM_SAMPLES = 512
SHORT = 256
BLOCK = 512
NO_PIXELS, NO_VALUES = np.empty(0, np.uint16), np.empty(0, np.int16)
NUM_ITERATIONS = 4


class FrameCodes:
    """Differences from the background, their projections and norms, for the frames of a store; computed once per frame.

    Lengths are in pixel steps: 255 of them are a distance of 1 when frames are 8-bit, `scale` in general.
    """

    def __init__(self, frames: FrameStore) -> None:
        self.frames = frames
        self.num_pixels = math.prod(frames.shape)
        self.is_integral = frames.dtype in (np.dtype(np.uint8), np.dtype(np.int8), np.dtype(np.bool_))
        self.scale = 255.0 if frames.dtype == np.uint8 else 1.0
        self._background: npt.NDArray[Any] = np.zeros(self.num_pixels, np.int16 if self.is_integral else np.float64)
        self._directions = np.zeros((self.num_pixels, 0))
        self._reset()

    def _reset(self) -> None:
        capacity, k = self.frames.capacity, self._directions.shape[1]
        self._serials = np.full(capacity, -2, np.int64)  # of the frame that was encoded; no frame has -2
        self.is_short = np.zeros(capacity, np.bool_)  # whether y is kept as a list of pixels
        self.sq_norms = np.zeros(capacity)  # |y|²
        self.images = np.zeros((capacity, k + 1), np.float32)  # z and ρ
        self.coordinates = np.zeros((capacity, k))  # z in float64
        self._pixels: list[npt.NDArray[Any]] = [NO_PIXELS] * capacity
        self._values: list[npt.NDArray[Any]] = [NO_VALUES] * capacity

    # Background and directions.

    def train(self, ids: npt.NDArray[np.int64]) -> None:
        """Take background (the median) and directions (the principal axes) from these frames, or a sample of them."""
        ids = np.unique(ids)
        ids = ids[np.linspace(0, len(ids) - 1, min(len(ids), NUM_SAMPLES)).astype(np.int64)]
        sample = self.frames.gather(ids).reshape(len(ids), -1)
        self._background = np.partition(sample, len(ids) // 2, axis=0)[len(ids) // 2].astype(self._background.dtype)
        self._directions = principal_axes(sample.astype(np.float64), min(NUM_DIRECTIONS, self.num_pixels))
        self._reset()

    @property
    def num_directions(self) -> int:
        return self._directions.shape[1]

    @property
    def relative_error(self) -> float:
        """How far a computed (z, ρ) may be from the true one, in units of |y|; see `_error` for the proof."""
        return _error(self.num_pixels, self._directions.shape[1])

    # Codes.

    def ensure(self, ids: tuple[int, ...]) -> None:
        """Encode those of the frames that are not encoded yet."""
        if self.frames.capacity > len(self._serials):
            self._grow()
        for i in ids:
            if self._serials[i] != self.frames.serials[i]:
                self._encode(i)

    def _grow(self) -> None:
        more = self.frames.capacity - len(self._serials)
        self._serials = np.concatenate([self._serials, np.full(more, -2, np.int64)])
        self.is_short = np.concatenate([self.is_short, np.zeros(more, np.bool_)])
        self.sq_norms = np.concatenate([self.sq_norms, np.zeros(more)])
        self.images = np.concatenate([self.images, np.zeros((more, self.images.shape[1]), np.float32)])
        self.coordinates = np.concatenate([self.coordinates, np.zeros((more, self.coordinates.shape[1]))])
        self._pixels += [NO_PIXELS] * more
        self._values += [NO_VALUES] * more

    def _encode(self, i: int) -> None:
        frame: npt.NDArray[Any] = self.frames.gather([i]).reshape(-1)
        pixels = np.flatnonzero(frame != self._background)
        y = frame[pixels].astype(np.float64) - self._background[pixels]
        if len(pixels) < self.num_pixels // 2:
            z = y @ self._directions[pixels]
        else:
            z = (frame.astype(np.float64) - self._background) @ self._directions
        sq_norm = float(y @ y)
        self._serials[i] = self.frames.serials[i]
        self.is_short[i] = self.is_integral and len(pixels) <= max(SHORT, self.num_pixels // 8)
        self._pixels[i] = pixels.astype(np.uint16 if self.num_pixels <= 2**16 else np.int64) if self.is_short[i] else NO_PIXELS
        self._values[i] = y.astype(np.int16) if self.is_short[i] else NO_VALUES
        self.sq_norms[i] = sq_norm
        self.images[i, :-1] = z
        self.coordinates[i] = z
        self.images[i, -1] = math.sqrt(max(0.0, sq_norm - float(z @ z)))

    def difference(self, i: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The pixels in which frame i differs from the background, and by how much, if it is short."""
        return self._pixels[i], self._values[i]

    def dense(self, ids: tuple[int, ...]) -> npt.NDArray[np.int32]:
        """y of a whole transition, frame after frame."""
        y = np.zeros((len(ids), self.num_pixels), np.int32)
        for row, i in zip(y, ids, strict=True):
            row[self._pixels[i]] = self._values[i]
        return y.reshape(-1)

    def dots(self, ids: npt.NDArray[np.int64], y: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """y_x·y for transitions x, given by the ids of their frames (one transition per row), all short, and a dense y."""
        frames = ids.ravel().tolist()
        lengths = np.array([len(self._pixels[i]) for i in frames])
        starts = np.tile(np.arange(ids.shape[1]) * self.num_pixels, len(ids))
        products = y[np.concatenate([self._pixels[i] for i in frames]) + np.repeat(starts, lengths)]
        products *= np.concatenate([self._values[i] for i in frames])
        sums = np.zeros(len(products) + 1, np.int64)
        np.cumsum(products, out=sums[1:])
        ends = np.cumsum(lengths.reshape(ids.shape).sum(axis=1))
        dots = sums[ends]
        dots[1:] -= sums[ends[:-1]]
        return np.asarray(dots)

    def sq_distances_within(
        self, ids: npt.NDArray[np.int64], query: tuple[int, ...], limits: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """|x - q|² from the pixels, for transitions x, or infinity where it exceeds the transition's limit."""
        dtype = np.int32 if self.is_integral else np.float64
        total, left = np.zeros(len(ids)), np.arange(len(ids))
        for column, q in zip(ids.T, query, strict=True):
            frames, rows = self.frames.array_and_rows(np.append(column, q))
            frames = frames.reshape(len(frames), -1)
            for start in range(0, self.num_pixels, BLOCK):
                block = slice(start, start + BLOCK)
                delta: npt.NDArray[Any] = frames[rows[left], block].astype(dtype)
                delta -= frames[rows[-1], block]
                total[left] += np.einsum("ij,ij->i", delta, delta)  # 512 squares of 255 are less than 2³¹
                left = left[total[left] <= limits[left]]
        is_far = np.ones(len(ids), np.bool_)
        is_far[left] = False
        total[is_far] = np.inf
        return total

    @property
    def nbytes(self) -> int:
        lists = sum(p.nbytes + v.nbytes for p, v in zip(self._pixels, self._values, strict=True))
        return lists + self.images.nbytes + self.sq_norms.nbytes + self.coordinates.nbytes + self._directions.nbytes


def principal_axes(sample: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.float64]:
    """At most k directions (columns) along which the rows vary most, approximately, with ‖V‖ ≤ 1 in spite of rounding.

    Subspace iteration: matrix products and eigenvalues of k by k matrices only. Any directions give right answers, good ones
    give them fast.
    """
    centred = sample - sample.mean(axis=0)
    gram = centred @ centred.T
    weights = np.random.default_rng(0).standard_normal((len(sample), min(k, len(sample))))
    for _ in range(NUM_ITERATIONS):
        weights = _orthonormal(gram @ weights)
    v = _orthonormal(_orthonormal(centred.T @ weights))
    along = centred @ v
    v = v @ np.linalg.eigh(along.T @ along)[1][:, ::-1]  # the same space, its longest axis first
    # ‖V‖² = ‖VᵀV‖₂ ≤ ‖VᵀV‖_∞, the largest row sum; the second term is more than the rounding error of the sums.
    sq_norm_bound = np.abs(v.T @ v).sum(axis=1).max(initial=1.0) + v.size * 2.0**-52
    return np.ascontiguousarray(v / (math.sqrt(sq_norm_bound) * (1 + 2.0**-50)))


def _orthonormal(columns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """An approximately orthonormal basis of what the columns span, longest direction first, without negligible ones."""
    eigenvalues, eigenvectors = np.linalg.eigh(columns.T @ columns)
    order = [j for j in reversed(range(len(eigenvalues))) if eigenvalues[j] > 1e-12 * max(eigenvalues[-1], 1e-200)]
    return np.asarray(columns @ (eigenvectors[:, order] / np.sqrt(eigenvalues[order])))


def _error(d: int, k: int) -> float:
    """Bound on |computed (z, ρ) - true (z, ρ)| / |y|.

    A float64 dot product of d terms is off by at most d·2⁻⁵²·|v||y| (with room for y's own rounding), so |Δz| ≤
    √k·d·2⁻⁵²·|y| and the error of ρ² = |y|² - |z|² is at most e = 4·(√k + 1)·d·2⁻⁵²·|y|²; then |Δρ| ≤ √e. Storing z
    and ρ as float32 adds 2⁻²⁴·|y|. Everything is rounded up, and d by so much that it covers the second projection,
    of the z of a transition's frames.
    """
    return math.sqrt(4 * (math.sqrt(k) + 1) * (d + 4096) * 2.0**-52) + 2.0**-22
