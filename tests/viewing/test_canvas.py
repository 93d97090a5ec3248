"""Drawing: text that fits, pixels enlarged by whole numbers, numbers with as many digits as help."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from comper.errors import UsageError
from comper.viewing.canvas import INK, PANEL, PAPER, Canvas, import_pillow, number, text_width


def test_a_small_picture_is_enlarged_by_a_whole_number_in_the_middle_of_its_panel() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (4, 3, 3), np.uint8)
    canvas = Canvas(40, 40)
    canvas.picture(5, 5, picture, width=30, height=30)
    factor = 7  # 30 // 4
    enlarged = picture.repeat(factor, axis=0).repeat(factor, axis=1)
    top, left = 5 + (30 - 28) // 2, 5 + (30 - 21) // 2
    assert np.array_equal(canvas.pixels[top : top + 28, left : left + 21], enlarged)
    assert tuple(canvas.pixels[5, 5]) == PANEL
    assert tuple(canvas.pixels[0, 0]) == PAPER


def test_a_large_picture_is_reduced_to_its_panel() -> None:
    canvas = Canvas(60, 60)
    canvas.picture(0, 0, np.full((400, 600, 3), 255, np.uint8), width=60, height=60)
    assert (canvas.pixels[10:50] == 255).all()  # 60 wide and 40 high
    assert tuple(canvas.pixels[5, 30]) == PANEL


def test_what_is_narrower_than_a_pixel_is_drawn_as_one_and_nothing_as_nothing() -> None:
    canvas = Canvas(20, 20)
    canvas.box(4, 4, 0.07, 12, colour=INK, radius=2)
    canvas.box(12, 4, 0, 12, colour=INK, radius=2)
    is_ink = (canvas.pixels == INK).all(axis=2)
    assert is_ink[:, 4].any()
    assert not is_ink[:, 5:].any()


def test_text_is_cut_to_its_width() -> None:
    canvas = Canvas(300, 30)
    canvas.text(0, 20, "a very long name of an action that has no room", width=80)
    inked = np.flatnonzero((canvas.pixels != PAPER).any(axis=(0, 2)))
    assert 40 < inked.max() <= 80
    assert text_width("long", 15) > text_width("l", 15)
    assert (canvas.pixels == INK).all(axis=2).any()


@pytest.mark.parametrize(
    ("value", "text"),
    [(5.0, "5"), (12345.0, "12,345"), (1234.5, "1,234"), (250.25, "250.2"), (0.456, "0.46"), (-0.0123, "-0.0123")],
)
def test_a_number_has_as_many_digits_as_help(value: float, text: str) -> None:
    assert number(value) == text


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UsageError, match=r'pip install "comper\[watch\]"'):
        import_pillow()
