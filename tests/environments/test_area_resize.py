"""The compiled picture against OpenCV's, byte by byte, and the plain one where the two differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper import native
from comper.environments.area_resize import CompiledPicture, area_shares, compiled_picture
from comper.environments.palette import POOLINGS, pooling_table

cv2 = pytest.importorskip("cv2")
needs_compiler = pytest.mark.skipif(native.compiled() is None, reason=native.loops().status)


def plain(table: Any, size: int) -> Any:
    return lambda before, now: cv2.resize(table[before, now], (size, size), interpolation=cv2.INTER_AREA)


def test_shares_of_five_pixels_in_two_by_hand() -> None:
    # A target pixel is 2.5 wide: two whole pixels and a half, each divided by 2.5.
    expected = [(0, 0, 0.4), (0, 1, 0.4), (0, 2, 0.2), (1, 2, 0.2), (1, 3, 0.4), (1, 4, 0.4)]
    found = area_shares(5, 2)
    assert [share[:2] for share in found] == [share[:2] for share in expected]
    assert [share.weight for share in found] == pytest.approx([share[2] for share in expected])


@needs_compiler
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(("num_rows", "size"), [(210, 84), (250, 84), (210, 44), (210, 160), (250, 8), (210, 99)])
def test_the_compiled_picture_equals_opencvs(pooling: str, num_rows: int, size: int) -> None:
    table = pooling_table(pooling, num_rows)
    picture = compiled_picture(table, (num_rows, 160), size, plain(table, size))
    assert isinstance(picture, CompiledPicture)
    rng = np.random.default_rng(1)
    for num_colours in (2, 7, 256):
        for _ in range(5):
            before, now = rng.integers(0, num_colours, (2, num_rows, 160), np.uint8)
            now[20:90] = now[20]  # equal rows one after another take a shorter way
            before[20:60] = before[20]
            np.testing.assert_array_equal(picture(before, now), plain(table, size)(before, now))


@needs_compiler
def test_the_plain_picture_is_taken_where_the_compiled_one_would_differ() -> None:
    table = pooling_table("average", 210)
    for size in (200, 600):  # OpenCV enlarges in another way
        own = plain(table, size)
        assert compiled_picture(table, (210, 160), size, own) is None
    brighter: Any = lambda before, now: plain(table, 84)(before, now) | 1  # noqa: E731
    assert compiled_picture(table, (210, 160), 84, brighter) is None


def test_the_plain_picture_is_taken_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "compiled", lambda: None)
    table = pooling_table("average", 210)
    own = plain(table, 84)
    assert compiled_picture(table, (210, 160), 84, own) is None
