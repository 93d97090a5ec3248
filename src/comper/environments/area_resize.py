"""From two screens to an observation in one pass: pool and resize by area in compiled code, with OpenCV's own bits.

OpenCV's area resize is a sum of products of single precision in a fixed order: first across a row, then down. The same order
gives the same bits, ties included. Where it does not (a size that OpenCV treats in another way), `compiled_picture` says so.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from comper import native

Picture = Callable[[NDArray[np.uint8], NDArray[np.uint8]], NDArray[np.uint8]]
"""(previous screen, current screen) -> observation."""


class Share(NamedTuple):
    """How much of a source pixel is in a target pixel."""

    target: int
    source: int
    weight: float


def area_shares(num_sources: int, num_targets: int) -> list[Share]:
    """The shares along one axis, in the order in which OpenCV adds them up."""
    scale = 1 / (num_targets / num_sources)  # so rounded in OpenCV
    shares = []
    for target in range(num_targets):
        start = target * scale
        end, width = start + scale, min(scale, num_sources - start)
        last = min(math.floor(end), num_sources - 1)
        first = min(math.ceil(start), last)
        if first - start > 1e-3:
            shares.append(Share(target, first - 1, (first - start) / width))
        shares += [Share(target, source, 1 / width) for source in range(first, last)]
        if end - last > 1e-3:
            shares.append(Share(target, last, min(end - last, 1.0, width) / width))
    return shares


class _Picture(ctypes.Structure):
    """The arguments of `comper_picture`, as native.c declares them."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("rows", "columns", "size", "taps")),
        *((name, ctypes.c_void_p) for name in ("source", "weight")),
        ("num_steps", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("source_row", "target_row", "row_weight")),
    )


class CompiledPicture:
    """Pools two screens by a table (256, 256) and resizes the result by area to a square."""

    def __init__(self, library: ctypes.CDLL, table: NDArray[np.uint8], screen: tuple[int, int], size: int) -> None:
        rows, columns = screen
        source, weight = _by_target(area_shares(columns, size), size)
        down = area_shares(rows, size)
        self._size = size
        self._arrays: dict[str, NDArray[Any]] = {  # kept: the structure holds their addresses
            "table": np.ascontiguousarray(table),
            "source": source,
            "weight": weight,
            "source_row": np.array([share.source for share in down], np.int32),
            "target_row": np.array([share.target for share in down], np.int32),
            "row_weight": np.array([share.weight for share in down], np.float32),
        }
        addresses = {name: array.ctypes.data for name, array in self._arrays.items()}
        sizes = {"rows": rows, "columns": columns, "size": size, "taps": len(source), "num_steps": len(down)}
        self._picture = _Picture(**addresses, **sizes)
        function = library.comper_picture
        function.argtypes = [ctypes.c_void_p] * 4
        self.draw = partial(function, ctypes.addressof(self._picture))
        """Draws to an address what the screens at two others show; returns 0."""

    def __call__(self, previous: NDArray[np.uint8], current: NDArray[np.uint8]) -> NDArray[np.uint8]:
        out = np.empty((self._size, self._size), np.uint8)
        assert self.draw(previous.ctypes.data, current.ctypes.data, out.ctypes.data) == 0, self._size
        return out


def _by_target(shares: Sequence[Share], size: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Sources and weights (most shares of a target, targets); a target with fewer has its last one again, with weight 0."""
    own = [[share for share in shares if share.target == target] for target in range(size)]
    shape = (max(map(len, own)), size)
    source, weight = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for target, list_ in enumerate(own):
        source[:, target] = list_[-1].source
        for row, share in enumerate(list_):
            source[row, target], weight[row, target] = share.source, share.weight
    return source, weight


MAX_SIDE = 512
"""Rows and columns that native.c has room for."""


def compiled_picture(table: NDArray[np.uint8], screen: tuple[int, int], size: int, plain: Picture) -> CompiledPicture | None:
    """The compiled function where it gives what the plain one gives for screens of noise."""
    library = native.compiled()
    if library is None or size > min(screen) or max(screen) > MAX_SIDE:
        return None
    compiled = CompiledPicture(library, table, screen, size)
    rng: Any = np.random.default_rng(0)
    previous, current = rng.integers(0, 256, (2, *screen), np.uint8)
    return compiled if np.array_equal(compiled(previous, current), plain(previous, current)) else None
