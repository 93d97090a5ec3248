"""The nearest rows, against a search that compares everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.viewing.nearest import NearestRows


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((84, 84), np.uint8), ((10, 10, 4), np.bool_), ((4,), np.float32), ((1000,), np.int64), ((1,), np.uint8)],
)
def test_it_finds_what_comparing_everything_finds(shape: tuple[int, ...], dtype: type) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2 if dtype is np.bool_ else 200, (700, *shape))
    rows: Any = (values * (0.37 if dtype is np.float32 else 1)).astype(dtype)
    search = NearestRows(rows)
    flat = rows.reshape(700, -1).astype(np.float64)
    for number in range(20):
        wanted = rows[number] if number < 3 else rng.permuted(rows[number].ravel()).reshape(shape)
        squares = ((flat - wanted.ravel().astype(np.float64)) ** 2).sum(axis=1)
        row, distance = search.find(wanted)
        assert row == int(squares.argmin())
        assert distance == pytest.approx(np.sqrt(squares.min()))


def test_of_equally_near_rows_it_finds_the_first() -> None:
    rows = np.array([[5, 5], [1, 1], [3, 3], [1, 1]], np.uint8)
    assert NearestRows(rows).find(np.array([1, 1], np.uint8)) == (1, 0.0)
    assert NearestRows(rows).find(np.array([2, 2], np.uint8))[0] == 1


def test_bytes_do_not_wrap_around() -> None:
    rows = np.array([[255] * 100, [100] * 100], np.uint8)
    assert NearestRows(rows).find(np.zeros(100, np.uint8)) == (1, 1000.0)
