"""What a person sees while trials run: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TextIO

from comper.training.loop import Trial, Watcher

BAR_PERIOD_SECONDS = 0.25
LINE_PERIOD_SECONDS = 15.0


@contextmanager
def progress(trials: Sequence[Trial], frames: int, *, stream: TextIO | None = None) -> Iterator[Watcher]:
    """A watcher that shows how far the trials are: frames, episodes, last scores, speed, memories, time left."""
    stream = stream or sys.stderr
    rich_progress = _rich_progress() if stream.isatty() else None
    if rich_progress is None:
        watcher: Watcher = PlainLines(trials, frames, stream)
        yield watcher
    else:
        with _bar(rich_progress, stream) as bar:
            yield Bar(bar, trials, frames)


class _Pace:
    """Frames done of all trials, speed since the start, and when it is time to show them again."""

    def __init__(self, trials: Sequence[Trial], frames: int, period_seconds: float):
        self.total = frames * len(trials)
        self._frames = frames
        self._began = self._shown = time.monotonic()
        self._period = period_seconds

    def is_due(self) -> bool:
        if time.monotonic() - self._shown < self._period:
            return False
        self._shown = time.monotonic()
        return True

    def done(self, trials: Sequence[Trial]) -> int:
        """Frames used, none counted past a trial's budget."""
        return sum(min(trial.total_frames, self._frames) if trial.is_running else self._frames for trial in trials)

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def seconds_left(self, done: int) -> float | None:
        return self.seconds() * (self.total - done) / done if done else None


class PlainLines:
    """One line every 15 seconds: for logs, pipes and clusters."""

    def __init__(self, trials: Sequence[Trial], frames: int, stream: TextIO):
        self._pace = _Pace(trials, frames, LINE_PERIOD_SECONDS)
        self._stream = stream

    def update(self, trials: Sequence[Trial], t: int) -> None:
        """Print a line if it is time to."""
        if not self._pace.is_due():
            return
        done = self._pace.done(trials)
        left = self._pace.seconds_left(done)
        share = f"{done:,} of {self._pace.total:,} frames ({100 * done // self._pace.total} %)"
        rest = f"{_duration(left)} left" if left else "the last episode is played out" if done else "time left unknown"
        print(f"{share}, {describe(trials, t, self._pace.seconds())}, {rest}", file=self._stream, flush=True)


class Bar:
    """A progress bar, drawn four times a second."""

    def __init__(self, bar: Any, trials: Sequence[Trial], frames: int):
        self._pace = _Pace(trials, frames, BAR_PERIOD_SECONDS)
        self._bar = bar
        self._task = bar.add_task("", total=self._pace.total, details="starting")

    def update(self, trials: Sequence[Trial], t: int) -> None:
        """Redraw if it is time to, and at the end."""
        is_over = not any(trial.is_running for trial in trials)
        if self._pace.is_due() or is_over:
            done = self._pace.done(trials)
            rest = "" if is_over or done < self._pace.total else ", the last episode is played out"
            self._bar.update(self._task, completed=done, details=describe(trials, t, self._pace.seconds()) + rest)


def describe(trials: Sequence[Trial], t: int, seconds: float) -> str:
    """Episodes, last scores, speed, and the sizes of the memories, in one short line."""
    running = [trial for trial in trials if trial.is_running]
    scores = [trial.last_score for trial in trials if trial.last_score is not None]
    num_episodes = sum(trial.num_episodes for trial in trials)
    parts = [f"{num_episodes} {'episode' if num_episodes == 1 else 'episodes'}"]
    if scores:
        shown = ", ".join(f"{score:g}" for score in scores[:5]) + (", ..." if len(scores) > 5 else "")
        parts.append(f"last {'scores' if len(scores) > 1 else 'score'} {shown}")
    parts.append(f"{t * len(trials) / max(seconds, 1e-9):,.0f} steps/s")
    metrics = [trial.latest_metrics for trial in trials if trial.latest_metrics]
    for key, name in (("tm_sets", "TM"), ("rtm_sets", "RTM"), ("replay_size", "replay")):
        sizes = [record[key] for record in metrics if key in record]
        if sizes:
            parts.append(f"{name} {sum(sizes) / len(sizes):,.0f}")
    if 0 < len(running) < len(trials):
        parts.append(f"{len(running)} of {len(trials)} trials running")
    return ", ".join(parts)


def _rich_progress() -> ModuleType | None:
    """rich's progress module; the training core runs without it, in plain lines."""
    try:
        import rich.progress
    except ImportError:
        return None
    return rich.progress


def _bar(module: Any, stream: TextIO) -> Any:
    from rich.console import Console

    return module.Progress(
        module.BarColumn(bar_width=24),
        module.TaskProgressColumn(),
        module.TextColumn("{task.completed:,.0f}/{task.total:,.0f} frames"),
        module.TextColumn("{task.fields[details]}", style="dim"),
        module.TimeRemainingColumn(),
        console=Console(file=stream),
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
