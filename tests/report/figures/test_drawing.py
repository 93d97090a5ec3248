"""How figures look and are saved: the same bytes, shapes beside colours, and a page that keeps its ids apart."""

from __future__ import annotations

import re
import sys
from typing import Any

import matplotlib
import pytest

from comper.errors import UsageError
from comper.report.figures.drawing import (  # fmt: skip
    COLOURS,
    HATCHES,
    INK,
    LINES,
    MARKERS,
    Drawn,
    Plot,
    bar_look,
    draw,
    label_outer,
    legend,
    line_handle,
    look,
    panels,
    patch_handle,
    style,
    titled_panels,
)


def drawn(name: str = "mine", title: str = "Mine") -> Drawn:
    with style():
        figure, [[axes]] = panels(1, 1, cell=(3, 2), margins=(0.5, 0.1, 0.4, 0.1))
        axes.plot([0, 1, 2], [3, 1, 2], **look(0))
        axes.bar([0], [1], color=COLOURS[1], hatch=HATCHES[1])
        return draw(Plot(name, title, "What it shows.", figure, "cost"))


def test_a_figure_is_the_same_in_every_byte_whatever_the_users_settings_are() -> None:
    first = drawn()
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "lines.linewidth": 9, "axes.facecolor": "red"}):
        again = drawn()
        assert matplotlib.rcParams["font.size"] == 30  # and they are left alone
    assert (first.svg, first.png) == (again.svg, again.png)
    assert b"date" not in first.svg
    assert first.png.startswith(b"\x89PNG")
    assert (first.name, first.title, first.sentence, first.section) == ("mine", "Mine", "What it shows.", "cost")


def test_on_the_page_ids_are_a_figures_own_and_colours_the_pages() -> None:
    one, two = drawn("one").inline, drawn("two", 'A <b> & "c"').inline
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for svg, known in zip((one, two), ids, strict=True):
        used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
        assert {a or b for a, b in used} <= known
        assert "--ink" in svg
        assert "--series-0" in svg
        assert not [colour for colour in (*COLOURS, INK) if colour in svg]
        assert svg.startswith("<svg ")
        assert "<metadata>" not in svg
    assert 'aria-label="A &lt;b&gt; &amp; &quot;c&quot;"' in two


def test_agents_differ_in_colour_marker_line_and_hatch_and_the_ninth_has_a_colour_again() -> None:
    for kinds in (COLOURS, MARKERS, LINES, HATCHES):
        assert len(set(kinds)) == 8
    looks = [look(index) for index in range(64)]
    assert all(looks.count(one) == 1 for one in looks), "told apart, however many there are"
    assert len({(one["marker"], str(one["linestyle"])) for one in looks[:8]}) == 8, "also without colour"
    bars = [bar_look(index) for index in range(64)]
    assert all(bars.count(one) == 1 for one in bars)
    assert line_handle("x", 1, linestyle="").get_marker() == MARKERS[1]
    assert line_handle("x", 1, linestyle="").get_linestyle() == "None"
    assert patch_handle("x", 9).get_hatch() == HATCHES[2]


def test_panels_have_the_size_asked_for_and_rows_from_the_top() -> None:
    figure, rows = panels(2, 3, cell=(2.0, 1.0), margins=(0.5, 0.1, 0.4, 0.3), gap=0.6)
    width, height = 0.5 + 0.1 + 3 * 2.0 + 2 * 0.45, 0.4 + 0.3 + 2 * 1.0 + 0.6
    assert figure.get_size_inches().tolist() == pytest.approx([width, height])
    boxes = [[axes.get_position() for axes in row] for row in rows]
    assert [len(row) for row in boxes] == [3, 3]
    for box in (box for row in boxes for box in row):
        assert (box.width * width, box.height * height) == pytest.approx((2.0, 1.0))
    assert boxes[0][0].y0 > boxes[1][0].y1
    assert boxes[0][0].x0 * width == pytest.approx(0.5)
    assert boxes[1][0].y0 * height == pytest.approx(0.4)
    assert (boxes[0][1].x0 - boxes[0][0].x1) * width == pytest.approx(0.45)


def test_titled_panels_leave_no_empty_ones_and_label_the_outer_edges() -> None:
    with style():
        figure, cells = titled_panels(list("abcdef"), [line_handle("x", 0)])
    assert [axes.get_title(loc="left") for axes in figure.axes] == list("abcdef")
    assert len(figure.legends) == 1
    label_outer(cells, "x", "y")
    assert [bool(axes.get_ylabel()) for axes in cells] == [True, False, False, False, True, False]
    assert [bool(axes.get_xlabel()) for axes in cells] == [False, False, True, True, True, True]
    assert titled_panels(["a"], [])[0].legends == []


@pytest.mark.parametrize(("name", "num_rows"), [("a", 2), ("a name of some length that is shown", 3), (200 * "long", 6)])
def test_a_legend_has_as_many_columns_as_fit_and_the_figure_grows_by_its_rows(name: str, num_rows: int) -> None:
    with style():
        figure, [axes] = titled_panels(["one"], [])
        width, height = figure.get_size_inches()
        below, high = axes.get_position().y0 * height, axes.get_position().height * height
        legend(figure, [line_handle(name, index) for index in range(6)])
        figure.draw_without_rendering()
        (drawn,) = figure.legends
        assert len({round(text.get_window_extent().y0) for text in drawn.get_texts()}) == num_rows
        assert figure.get_size_inches().tolist() == pytest.approx([width, height + 0.2 * num_rows], abs=0.15)
        now = figure.get_size_inches()[1]
        assert [axes.get_position().y0 * now, axes.get_position().height * now] == pytest.approx([below, high])
        assert drawn.get_window_extent().y0 >= axes.get_window_extent().y1, "above the axes"


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    def enter() -> Any:
        with style():
            pass

    with pytest.raises(UsageError, match=r'pip install "comper\[report\]"'):
        enter()
