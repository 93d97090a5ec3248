"""Progress of a report: a bar on a terminal, a few plain lines elsewhere, nothing when not wanted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from comper.errors import UsageError

Advance = Callable[[int, int], None]
Stage = Callable[[str], Advance]


@contextmanager
def showing_progress(wanted: bool) -> Iterator[Stage]:
    """Yield a function that starts a stage and returns how to advance it: `advance(done, total)`."""
    if not wanted:
        yield lambda title: lambda done, total: None
    elif sys.stderr.isatty():
        with _bars() as stage:
            yield stage
    else:
        yield _plain


def _plain(title: str) -> Advance:
    def advance(done: int, total: int) -> None:
        if done == total:
            print(f"{title}: {done} of {total}", file=sys.stderr)

    return advance


@contextmanager
def _bars() -> Iterator[Stage]:
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        raise UsageError('Showing progress needs rich: pip install "comper[report]", or --no-progress.') from None
    with Progress(console=Console(stderr=True), transient=True) as bars:

        def stage(title: str) -> Advance:
            task = bars.add_task(title, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield stage
