"""A sheet to draw on: text, pictures with their pixels enlarged, bars and lines. Drawn by Pillow, with the font it brings."""

from __future__ import annotations

import functools
import importlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.errors import import_library

Colour = tuple[int, int, int]

PAPER: Colour = (18, 20, 25)
PANEL: Colour = (28, 31, 38)
LINE: Colour = (62, 68, 80)
INK: Colour = (236, 238, 241)
MUTED: Colour = (150, 157, 168)
BLUE: Colour = (86, 142, 224)
ORANGE: Colour = (244, 170, 66)


def import_pillow() -> Any:
    """Import Pillow, or say how to install it."""
    parts = ("ImageDraw", "ImageFont", "Image")
    *_, image = (import_library(f"PIL.{part}", "Pictures need Pillow", extra="watch") for part in parts)
    return image


@functools.cache
def _font(size: int) -> Any:
    return importlib.import_module("PIL.ImageFont").load_default(size)


def text_width(text: str, size: int) -> float:
    """Pixels that a text takes."""
    width: float = _font(size).getlength(text)
    return width


class Canvas:
    """Pixels with the origin in the upper left; sizes are in pixels."""

    def __init__(self, width: int, height: int):
        self._pillow = import_pillow()
        self._image = self._pillow.new("RGB", (width, height), PAPER)
        self._draw = importlib.import_module("PIL.ImageDraw").Draw(self._image)

    def text(
        self, x: float, y: float, text: str, *, size: int = 15, colour: Colour = INK, anchor: str = "ls", width: float = 0
    ) -> None:
        """Write on the base line y, from x on (`ls`), up to it (`rs`) or around it (`ms`); cut to a width, if one is given."""
        while width and len(text) > 1 and text_width(text, size) > width:
            text = text.removesuffix("…")[:-1] + "…"
        self._draw.text((x, y), text, fill=colour, font=_font(size), anchor=anchor)

    def box(self, x: float, y: float, width: float, height: float, *, colour: Colour = PANEL, radius: int = 0) -> None:
        """A filled rectangle of a pixel at least; without any width, nothing."""
        if width > 0 and height > 0:
            self._draw.rounded_rectangle((x, y, x + max(width, 1) - 1, y + max(height, 1) - 1), radius, fill=colour)

    def line(self, points: Sequence[tuple[float, float]], *, colour: Colour = LINE, width: int = 1) -> None:
        """Straight lines from point to point."""
        self._draw.line(list(points), fill=colour, width=width)

    def dot(self, x: float, y: float, *, colour: Colour = BLUE, radius: float = 3) -> None:
        """A small disc."""
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def arrow(self, x: float, y: float, *, length: float = 16, colour: Colour = MUTED) -> None:
        """An arrow to the right that begins at a point."""
        self.line([(x, y), (x + length, y)], colour=colour, width=2)
        self.line([(x + length - 5, y - 5), (x + length, y), (x + length - 5, y + 5)], colour=colour, width=2)

    def picture(self, x: int, y: int, picture: NDArray[np.uint8], *, width: int, height: int) -> None:
        """A picture in the middle of a panel: small ones enlarged by a whole number, large ones reduced."""
        self.box(x, y, width, height)
        rows, columns = picture.shape[:2]
        factor = min(width // columns, height // rows)
        share = factor or min(width / columns, height / rows)
        size = (max(1, round(columns * share)), max(1, round(rows * share)))
        method = self._pillow.Resampling.NEAREST if factor else self._pillow.Resampling.LANCZOS
        image = self._pillow.fromarray(np.ascontiguousarray(picture)).resize(size, method)
        self._image.paste(image, (x + (width - size[0]) // 2, y + (height - size[1]) // 2))

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """What was drawn: (rows, columns, 3)."""
        return np.asarray(self._image)

    def png(self) -> bytes:
        """What was drawn, as a PNG."""
        file = io.BytesIO()
        self._image.save(file, format="PNG", optimize=True)
        return file.getvalue()


def number(value: float) -> str:
    """A number with as many digits as help: 12,345 or 3.14 or 0.0012."""
    if value == round(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    size = abs(value)
    digits = 0 if size >= 1_000 else 1 if size >= 100 else 2 if size >= 0.1 else 4
    return f"{value:,.{digits}f}"
