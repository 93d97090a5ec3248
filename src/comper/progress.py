"""How far long work has come: a bar on a terminal, plain lines elsewhere (logs, pipes, clusters).

    with show_progress("Figures drawn") as progress:
        for done, figure in enumerate(figures, start=1):
            draw(figure)
            progress.update(done, len(figures))

What is over within a second shows no bar. An output that breaks (a closed pipe, a full disk) never ends the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from comper.output import UnbreakableOutput

QUIET_SECONDS = 1.0
"""No bar before the work has taken this long."""
BAR_PERIOD_SECONDS = 0.25
LINE_PERIOD_SECONDS = 15.0
BAR_WIDTH = 20

Details = str | Callable[[], str]
"""What else to say, most important first, as it is cut to fit; a function is called only when it is shown."""


class Progress(Protocol):
    """What work tells about itself."""

    def update(self, done: int, total: int, details: Details = "") -> None:
        """Say how much is done; cheap enough to be called at every step."""
        ...


@contextmanager
def show_progress(title: str = "", *, unit: str = "", wanted: bool = True, stream: TextIO | None = None) -> Iterator[Progress]:
    """Yield what to update: a bar where the stream (standard error) is a terminal and rich is installed, else lines."""
    stream = stream or sys.stderr
    if not wanted or stream is None:  # sys.stderr is None when it was closed before Python started
        yield _Nothing()
        return
    output = UnbreakableOutput(stream)
    if not output.isatty() or not has_rich():
        yield _Lines(title, unit, output)
        return
    bar = _Bar(title, unit, output)
    try:
        yield bar
    finally:
        bar.close()


class _Nothing:
    def update(self, done: int, total: int, details: Details = "") -> None:
        pass


class _Pace:
    """When to show something again, and how long the rest will take."""

    def __init__(self, period_seconds: float):
        self._began = self._shown = time.monotonic()
        self._period = period_seconds
        self._first_done: int | None = None

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def is_due(self, done: int) -> bool:
        """Whether to show it again, at an update: the first one may find work already done (a resumed run)."""
        if self._first_done is None:
            self._first_done = done
        now = time.monotonic()
        if now - self._shown < self._period:
            return False
        self._shown = now
        return True

    def time_left(self, done: int, total: int) -> str:
        """From the speed since the first update."""
        new = done - (self._first_done or 0)
        return f"{duration(self.seconds() * (total - done) / new)} left" if new > 0 and done < total else ""


class _Lines:
    """One line every 15 seconds, and one when everything is done."""

    def __init__(self, title: str, unit: str, output: UnbreakableOutput):
        self._title, self._unit, self._output = title, unit, output
        self._pace = _Pace(LINE_PERIOD_SECONDS)
        self._was_complete = False

    def update(self, done: int, total: int, details: Details = "") -> None:
        is_complete = done >= total
        if self._pace.is_due(done) or (is_complete and not self._was_complete):
            self._was_complete = is_complete
            left = self._pace.time_left(done, total)
            parts = (f"{self._count(done, total)} ({percentage(done, total)})", _text(details), left)
            title = f"{self._title}: " if self._title else ""
            self._output.write(title + ", ".join(part for part in parts if part) + "\n")
            self._output.flush()

    def _count(self, done: int, total: int) -> str:
        return f"{done:,} of {total:,} {self._unit}".strip()


class _Bar:
    """One line at the foot of the terminal, redrawn four times a second: bar and time left always fit, details are cut."""

    def __init__(self, title: str, unit: str, output: UnbreakableOutput):
        self._title, self._unit, self._output = title, unit, output
        self._pace = _Pace(BAR_PERIOD_SECONDS)
        self._bar: Any = None

    def update(self, done: int, total: int, details: Details = "") -> None:
        is_due = self._pace.is_due(done)
        if self._bar is None and self._pace.seconds() < QUIET_SECONDS:
            return
        if is_due or done >= total or self._bar is None:
            words = f"{self._title} {done:,}/{total:,} {self._unit}".strip()
            left = self._pace.time_left(done, total)
            fields = {"share": percentage(done, total), "left": left, "details": _joined(words, _text(details))}
            if self._bar is None:
                self._bar = _rich_bar(self._output)
                self._bar.start()
                self._bar.add_task("", total=total, completed=done, **fields)
            self._bar.update(0, total=total, completed=done, **fields)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def percentage(done: int, total: int) -> str:
    """How much is done, as `45 %`; 100 only when all is."""
    return f"{100 * done // total if total else 100} %"


def duration(seconds: float) -> str:
    """Seconds as `m:ss` or `h:mm:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _text(details: Details) -> str:
    return details if isinstance(details, str) else details()


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def has_rich() -> bool:
    """Whether bars can be drawn: rich comes with the extras, the training core runs without it."""
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        return False
    return True


def _rich_bar(output: UnbreakableOutput) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    # The last column takes what the others leave, so that a narrow terminal cuts details, never bar or time.
    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    return RichProgress(
        BarColumn(bar_width=BAR_WIDTH),
        TextColumn("{task.fields[share]}", markup=False, justify="right", table_column=Column(width=5, no_wrap=True)),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(width=12, no_wrap=True)),
        TextColumn("{task.fields[details]}", markup=False, style="dim", table_column=rest),
        console=Console(file=output),  # type: ignore[arg-type]
        expand=True,
        transient=True,
    )
