"""What a person sees of long work, on a terminal of 80 columns and in a log file."""

from __future__ import annotations

import io
import re
import sys

import pytest

from comper.output import UnbreakableOutput
from comper.progress import duration, percentage, show_progress

DETAILS = "48 episodes, last score 1,250, 312 steps/s, TM 812, RTM 4,512, replay 10,000, 3 of 5 trials running"


class Terminal(io.StringIO):
    """A stream with a person in front of it."""

    def isatty(self) -> bool:
        return True


class Broken(io.StringIO):
    """A pipe whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


class Clock:
    """A clock that goes as far as a test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def _screen(monkeypatch: pytest.MonkeyPatch, clock: Clock, columns: int) -> str:
    """What a terminal of so many columns shows halfway: 50,000 of 100,000 frames after an hour and a half."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    with show_progress(unit="frames", stream=stream) as progress:
        progress.update(0, 100_000, DETAILS)
        clock.now = 5400.0
        progress.update(50_000, 100_000, DETAILS)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n").splitlines()
    return next(line for line in reversed(lines) if "%" in line)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_bar_and_time_left_always_fit_and_details_are_cut(monkeypatch: pytest.MonkeyPatch, clock: Clock, columns: int) -> None:
    line = _screen(monkeypatch, clock, columns)
    assert len(line) <= columns
    assert re.search(r"━{10}.* 50 % +1:30:00 left +50,000/100,00", line)
    assert ("…" in line) == (columns < 200), "details give way, and say so"


def test_80_columns_also_hold_the_count(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    assert "50,000/100,000 frames, 48 episodes" in _screen(monkeypatch, clock, 80)


def test_what_is_over_within_a_second_shows_no_bar(clock: Clock) -> None:
    stream = Terminal()
    with show_progress("Runs read", stream=stream) as progress:
        clock.now = 0.9
        progress.update(1, 1)
    assert stream.getvalue() == ""


def test_lines_come_every_15_seconds_and_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    with show_progress("Figures drawn", stream=stream) as progress:
        for done in range(41):
            clock.now = float(done)
            progress.update(done, 40, f"figure {done}")
        progress.update(40, 40)
    assert stream.getvalue().splitlines() == [
        "Figures drawn: 15 of 40 (37 %), figure 15, 0:25 left",
        "Figures drawn: 30 of 40 (75 %), figure 30, 0:10 left",
        "Figures drawn: 40 of 40 (100 %), figure 40",
    ]


def test_time_left_counts_from_where_the_work_began(clock: Clock) -> None:
    stream = io.StringIO()
    with show_progress(unit="frames", stream=stream) as progress:
        progress.update(800, 1_000)
        clock.now = 20.0
        progress.update(900, 1_000)
    assert stream.getvalue() == "900 of 1,000 frames (90 %), 0:20 left\n"


def test_details_are_only_computed_when_they_are_shown(clock: Clock) -> None:
    def fail() -> str:
        raise AssertionError("computed, but not shown")

    with show_progress(stream=io.StringIO()) as progress:
        for done in range(10):
            progress.update(done, 10, fail)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_broken_output_never_ends_the_work(clock: Clock, is_terminal: bool) -> None:
    stream = Broken()
    stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
    with show_progress(stream=stream) as progress:
        clock.now = 20.0
        progress.update(1, 2)
        progress.update(2, 2)


def test_a_closed_standard_error_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with show_progress() as progress:
        progress.update(1, 1)


def test_characters_the_stream_cannot_encode_become_question_marks() -> None:
    raw = io.BytesIO()
    output = UnbreakableOutput(io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    output.write("δ = 0\n")
    assert raw.getvalue() == b"? = 0\n"


def test_without_rich_a_terminal_gets_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    stream = Terminal()
    with show_progress("Runs read", stream=stream) as progress:
        progress.update(3, 3)
    assert stream.getvalue() == "Runs read: 3 of 3 (100 %)\n"


def test_nothing_is_shown_when_not_wanted(clock: Clock) -> None:
    stream = io.StringIO()
    with show_progress(wanted=False, stream=stream) as progress:
        progress.update(1, 1)
    assert stream.getvalue() == ""


def test_durations_and_percentages() -> None:
    assert (duration(59.6), duration(3_725)) == ("1:00", "1:02:05")
    assert (percentage(999, 1_000), percentage(0, 0)) == ("99 %", "100 %")
