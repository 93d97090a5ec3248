"""The table of a study."""

from __future__ import annotations

import io

import pytest

from comper.studies.live_table import StudyTable, draw, study_table
from comper.training.display import TrialStatus


class Nothing:
    def update(self, done: int, total: int, details: object = "") -> None:
        pass


def status(seed: int, frames: int, *, score: float | None = None, is_running: bool = True) -> TrialStatus:
    return TrialStatus("pong", seed, frames, 100, frames, 2, score, None, is_running)


def test_trials_at_work_come_first_and_those_that_are_done_last(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [10.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    made = StudyTable(Nothing(), ["a", "b", "c"], [[status(seed, 0)] for seed in range(3)])
    made.update(2, [status(2, 20)])
    clock[0] = 14.0
    made.update(2, [status(2, 40, score=-21.0)])
    made.update(0, [status(0, 100, score=3.5, is_running=False)])
    assert made.rows() == [
        ("c", "pong", "2", "40 %", "2", "-21", "0:12"),
        ("b", "pong", "1", "0 %", "2", "", ""),
        ("a", "pong", "0", "100 %", "2", "3.5", "done"),
    ]


def test_a_long_table_names_how_many_more_there_are() -> None:
    rich = pytest.importorskip("rich.console")
    stream = io.StringIO()
    rows = [("a", "pong", str(seed), "0 %", "0", "", "done" if seed % 2 else "") for seed in range(30)]
    rich.Console(file=stream, width=100).print(draw(rows))
    assert "and 10 more; 15 of 30 done" in stream.getvalue()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Screen])
def test_a_terminal_shows_the_table_and_a_log_gets_lines(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich.live")
    stream = kind()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with study_table(["a"], [[status(7, 0)]], is_watched=True) as made:
        made.update(0, [status(7, 100, score=3.5, is_running=False)])
    said = stream.getvalue()
    assert ("last score" in said, "done: a, pong, seed 7, last score 3.5" in said) == (True, kind is io.StringIO)
    assert ("variant" in said) == (kind is Screen)


def test_nobody_is_told_anything_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with study_table(["a"], [[status(7, 0)]], is_watched=False) as made:
        made.update(0, [status(7, 100, is_running=False)])
    assert capsys.readouterr().err == ""
