"""How figures look and are saved: colours for all eyes, shapes for black-and-white print, the same bytes every time."""

from __future__ import annotations

import html
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from comper.errors import UsageError, is_memory_error

INK = "#20262d"
MUTED = "#6b7480"
GRID = "#dde1e6"
PAPER = "#ffffff"
# Okabe and Ito's palette without its black and yellow, which vanish on a dark or a white page.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#8c564b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), (0, (7, 2, 2, 2)))
LEGEND_COLUMNS = 4
HATCHES = ("", "///", "..", "xx", "\\\\\\", "---", "++", "oo")

_SETTINGS = {
    "svg.hashsalt": "comper", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.titley": 1.0, "axes.labelsize": 8.5, "axes.labelcolor": MUTED, "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.6, "text.color": INK, "axes.titlecolor": INK, "xtick.color": MUTED,
    "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "xtick.major.size": 2.5, "ytick.major.size": 0, "lines.linewidth": 1.3, "lines.markersize": 4, "legend.frameon": False,
    "legend.fontsize": 8, "hatch.linewidth": 0.5, "hatch.color": PAPER, "patch.linewidth": 0.6, "figure.facecolor": PAPER,
    "path.simplify_threshold": 0.3,
}  # fmt: skip


_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
_VARIABLES |= {colour: f"--series-{index}" for index, colour in enumerate(COLOURS)}
"""The page's name for each colour, so that a dark page can brighten it."""


@dataclass(frozen=True)
class Plot:
    """A figure with its name (of the files), title and the sentence that says what it shows."""

    name: str
    title: str
    sentence: str
    figure: Any
    section: str


@dataclass(frozen=True)
class Drawn:
    """A figure in the formats of a report."""

    name: str
    title: str
    sentence: str
    section: str
    svg: bytes
    png: bytes

    @property
    def inline(self) -> str:
        """The figure as a part of the page: it takes the page's colours and keeps its ids to itself."""
        return _inlined(self.svg.decode(), self.name, self.title)


@contextmanager
def style() -> Iterator[None]:
    """The settings under which figures are made and saved, whatever the user's own matplotlib settings are."""
    matplotlib = _matplotlib()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def panels(
    rows: int, columns: int, *, cell: tuple[float, float], margins: tuple[float, float, float, float], gap: float = 0.6
) -> Any:
    """A figure of rows x columns axes of `cell` inches, with margins (left, right, bottom, top), and its axes by row."""
    _matplotlib()
    from matplotlib.figure import Figure

    left, right, bottom, top = margins
    gaps = (0.45 if columns > 1 else 0.0, gap if rows > 1 else 0.0)
    width = left + right + columns * cell[0] + (columns - 1) * gaps[0]
    height = bottom + top + rows * cell[1] + (rows - 1) * gaps[1]
    figure = Figure(figsize=(width, height))
    axes = [
        [
            figure.add_axes((
                (left + c * (cell[0] + gaps[0])) / width, (bottom + (rows - 1 - r) * (cell[1] + gaps[1])) / height,
                cell[0] / width, cell[1] / height,
            ))
            for c in range(columns)
        ]
        for r in range(rows)
    ]  # fmt: skip
    return figure, axes


def titled_panels(titles: list[str], handles: list[Any], *, columns: int = 4, height: float = 1.25) -> tuple[Any, list[Any]]:
    """Panels of `height` inches under one legend, at most `columns` in a row, each with its title."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    cell = (min(6.4, 8.35 / columns - 0.45), height if columns > 1 else 1.5 * height)
    figure, grid = panels(rows, columns, cell=cell, margins=(0.6, 0.1, 0.45, 0.3), gap=0.5)
    cells = [axes for row in grid for axes in row]
    for axes in cells[len(titles) :]:
        axes.remove()
    for axes, title in zip(cells, titles, strict=False):
        axes.set_title(title)
        axes.yaxis.get_offset_text().set_ha("right")  # a power of ten stands beside the title, not over it
    if handles:
        legend(figure, handles)
    return figure, cells[: len(titles)]


def label_outer(cells: list[Any], x_label: str, y_label: str, *, columns: int = 4) -> None:
    """Label the axes at the left and the bottom edge of the panels."""
    columns = min(columns, len(cells))
    for index, axes in enumerate(cells):
        if index % columns == 0:
            axes.set_ylabel(y_label)
        if index + columns >= len(cells):
            axes.set_xlabel(x_label)


def look(index: int) -> dict[str, Any]:
    """Colour, marker and line of the agent or game with this number; told apart without colour too.

    From the ninth on colours come again, with other markers and lines.
    """
    again = index // 8
    return {"color": colour(index), "marker": MARKERS[(index + again) % 8], "linestyle": LINES[(index + 3 * again) % 8]}


def colour(index: int) -> str:
    """The colour of the agent or game with this number."""
    return COLOURS[index % 8]


def bar_look(index: int) -> dict[str, Any]:
    """The same for a bar: colour, hatch and edge."""
    return {"facecolor": colour(index), "hatch": HATCHES[(index + index // 8) % 8], "edgecolor": PAPER}


def line_handle(label: str, index: int, **changes: Any) -> Any:
    """An agent's or a game's entry in a legend of lines."""
    return handle(label, **look(index) | changes)


def handle(label: str, **appearance: Any) -> Any:
    """An entry in a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **appearance)


def patch_handle(label: str, index: int) -> Any:
    """An entry in a legend of bars."""
    from matplotlib.patches import Patch

    return Patch(label=label, **bar_look(index))


def legend(figure: Any, handles: list[Any]) -> None:
    """One legend for the whole figure, above it, in as many columns as fit: the figure grows by its height."""
    place = {"loc": "upper left", "bbox_to_anchor": (0.005, 1.0), "borderaxespad": 0.3, "handlelength": 2.6}
    for columns in range(LEGEND_COLUMNS, 0, -1):
        drawn = figure.legend(handles=handles, ncols=columns, **place)
        extent = drawn.get_window_extent()
        if extent.x1 <= figure.bbox.x1:
            break
        if columns > 1:
            drawn.remove()
    _grow_above(figure, extent.height / figure.dpi)


def _grow_above(figure: Any, inches: float) -> None:
    """Make a figure higher and leave its axes as they are, measured from below."""
    width, height = figure.get_size_inches()
    share = height / (height + inches)
    figure.set_size_inches(width, height + inches)
    for axes in figure.axes:
        left, bottom, wide, high = axes.get_position().bounds
        axes.set_position((left, bottom * share, wide, high * share))


def draw(plot: Plot) -> Drawn:
    """Save a figure as SVG and PNG; call it under `style()`."""
    svg, png = io.BytesIO(), io.BytesIO()
    plot.figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    plot.figure.savefig(png, format="png", dpi=120, metadata={"Software": None})
    return Drawn(plot.name, plot.title, plot.sentence, plot.section, svg.getvalue(), png.getvalue())


def _matplotlib() -> Any:
    before = os.environ.pop("MPLBACKEND", None)  # figures go into files, and a wrong name would be an error of the import
    try:
        import matplotlib
    except ImportError as error:
        if is_memory_error(error):
            raise
        raise UsageError('A report needs matplotlib: pip install "comper[report]".') from None
    finally:
        if before is not None:
            os.environ["MPLBACKEND"] = before
    return matplotlib


def _inlined(svg: str, name: str, title: str) -> str:
    svg = svg[svg.index("<svg") :]
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    names = {first or second for first, second in used}
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in names else "", svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    width = float(svg.split('viewBox="0 0 ', 1)[1].split(" ", 1)[0]) * 4 / 3
    frame = f'role="img" aria-label="{html.escape(title)}" style="max-width:{1.25 * width:.0f}px;min-width:{_least(width)}px"'
    svg = re.sub(r"<svg ([^>]*?)>", lambda m: f"<svg {_without_size(m[1])} {frame}>", svg, count=1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg


def _least(width: float) -> int:
    """Below this width a figure scrolls inside its box instead of shrinking further."""
    return round(min(width, max(330, 0.8 * width)))


def _without_size(attributes: str) -> str:
    return re.sub(r'\b(width|height|version|xmlns:xlink|xmlns)="[^"]*"\s*', "", attributes).strip()
