"""One live table of all trials of a study: progress, score, time left; plain lines where no terminal is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from comper.output import UnbreakableOutput, print_line
from comper.progress import Progress, duration, has_rich, percentage, show_progress
from comper.training.display import PoolProgress, TrialStatus

MAX_ROWS = 20
COLUMNS = ("variant", "environment", "seed", "progress", "episodes", "last score", "left")


class StudyTable:
    """How far every trial is: a row each, those at work first."""

    def __init__(self, progress: Progress, variants: Sequence[str], trials: Sequence[Sequence[TrialStatus]]) -> None:
        self._variants = variants
        self._pool = PoolProgress(progress, trials)
        self._trials = [{(status.environment, status.seed): status for status in statuses} for statuses in trials]
        self._began: dict[tuple[int, str, int], tuple[float, int]] = {}

    def update(self, job: int, statuses: Sequence[TrialStatus]) -> None:
        """Take in what a process says of its job."""
        now = time.monotonic()
        for status in statuses:
            self._began.setdefault((job, status.environment, status.seed), (now, status.frames))
            before = self._trials[job].get((status.environment, status.seed))
            self._trials[job][status.environment, status.seed] = status
            if not status.is_running and (before is None or before.is_running):
                self._say_done(job, status)
        self._pool.update(job, statuses)

    def rows(self) -> list[tuple[str, ...]]:
        """The table's rows: trials at work, those that wait, those that are done."""
        found = [
            (self._order(job, status), self._row(job, status))
            for job, trials in enumerate(self._trials)
            for status in trials.values()
        ]
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]

    def _order(self, job: int, status: TrialStatus) -> int:
        return 2 if not status.is_running else 0 if (job, status.environment, status.seed) in self._began else 1

    def _row(self, job: int, status: TrialStatus) -> tuple[str, ...]:
        score = "" if status.last_score is None else f"{status.last_score:g}"
        return (
            self._variants[job],
            status.environment,
            str(status.seed),
            percentage(status.frames, status.budget),
            f"{status.num_episodes:,}",
            score,
            self._left(job, status),
        )

    def _left(self, job: int, status: TrialStatus) -> str:
        if not status.is_running:
            return "done"
        began, first = self._began.get((job, status.environment, status.seed), (0.0, 0))
        new = status.frames - first
        return duration((time.monotonic() - began) * (status.budget - status.frames) / new) if new > 0 else ""

    def _say_done(self, job: int, status: TrialStatus) -> None:
        """Nothing: a terminal shows it."""


class _SpokenTable(StudyTable):
    """For logs and pipes: a line for every trial that is done."""

    def _say_done(self, job: int, status: TrialStatus) -> None:
        score = "" if status.last_score is None else f", last score {status.last_score:g}"
        print_line(f"done: {self._variants[job]}, {status.environment}, seed {status.seed}{score}")


@contextmanager
def study_table(variants: Sequence[str], trials: Sequence[Sequence[TrialStatus]], *, is_watched: bool) -> Iterator[StudyTable]:
    """A table on a terminal, lines elsewhere."""
    output = UnbreakableOutput(sys.stderr) if sys.stderr is not None else None
    if not is_watched or output is None or not output.isatty() or not has_rich():
        with show_progress(unit="frames", wanted=is_watched) as progress:
            yield (_SpokenTable if is_watched else StudyTable)(progress, variants, trials)
        return
    with show_progress(wanted=False) as nothing:
        table = StudyTable(nothing, variants, trials)
        with _live(table, output):
            yield table


def _live(table: StudyTable, output: Any) -> Any:
    from rich.console import Console
    from rich.live import Live

    class _Drawn:
        def __rich__(self) -> Any:
            return draw(table.rows())

    return Live(_Drawn(), console=Console(file=output), refresh_per_second=2, transient=False)


def draw(rows: Sequence[tuple[str, ...]]) -> Any:
    """The rows that fit on a screen, and how many more there are."""
    from rich.table import Table

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        drawn.add_column(column, justify="left" if column in COLUMNS[:2] else "right", no_wrap=True, overflow="ellipsis")
    for row in rows[:MAX_ROWS]:
        drawn.add_row(*row)
    if len(rows) > MAX_ROWS:
        num_done = sum(row[-1] == "done" for row in rows)
        drawn.caption = f"and {len(rows) - MAX_ROWS} more; {num_done} of {len(rows)} done"
        drawn.caption_justify = "left"
    return drawn
