"""Who follows trials while they run, and what a person sees: how far they are, scores, speed, memories."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from comper.output import print_line
from comper.progress import Progress, show_progress
from comper.training.loop import Observer, Trial
from comper.training.signals import StopRequest, stop_requests

MAX_SCORES = 5


class Audience(Protocol):
    """Who follows a population while it runs, and may ask it to stop."""

    def say(self, text: str) -> None: ...

    def requests(self) -> AbstractContextManager[StopRequest]: ...

    def watching(self, frames: int, metric_labels: Mapping[str, str]) -> AbstractContextManager[Observer]: ...


class Terminal:
    """The person who has started the run, at a terminal or reading a log."""

    def __init__(self, is_watched: bool) -> None:
        self._is_watched = is_watched

    def say(self, text: str) -> None:
        """Print a line."""
        if self._is_watched:
            print_line(text)

    def requests(self) -> AbstractContextManager[StopRequest]:
        """Listen to signals."""
        return stop_requests()

    @contextmanager
    def watching(self, frames: int, metric_labels: Mapping[str, str]) -> Iterator[Observer]:
        """Show a bar."""
        with show_progress(unit="frames", wanted=self._is_watched) as bar:
            yield TrainingProgress(bar, frames, metric_labels)


@dataclass(frozen=True)
class TrialStatus:
    """How far a trial is, as plain data that another process can be told."""

    environment: str
    seed: int
    frames: int
    """Of its budget: frames past it do not count."""
    budget: int
    steps: int
    num_episodes: int
    last_score: float | None
    latest_metrics: dict[str, Any] | None
    """The sizes of its memories, by what a person calls them."""
    is_running: bool

    @classmethod
    def waiting(cls, environment: str, seed: int, *, budget: int, frames: int = 0) -> TrialStatus:
        """A trial that does not run yet."""
        return cls(environment, seed, frames, budget, 0, 0, None, None, True)


def status_of(trial: Trial, step: int, *, frames: int, metric_labels: Mapping[str, str]) -> TrialStatus:
    """How far a trial of a loop is."""
    latest = trial.latest_metrics or {}
    metrics = {label: latest[key] for key, label in metric_labels.items() if key in latest}
    done = min(trial.total_frames, frames) if trial.is_running else frames
    return TrialStatus(
        trial.environment, trial.seed, done, frames, step, trial.num_episodes, trial.last_score, metrics, trial.is_running
    )


class Described(Protocol):
    """A trial, here or in another process."""

    @property
    def num_episodes(self) -> int: ...
    @property
    def last_score(self) -> float | None: ...
    @property
    def latest_metrics(self) -> dict[str, Any] | None: ...
    @property
    def is_running(self) -> bool: ...


class TrainingProgress:
    """Shows the progress of a loop's trials."""

    def __init__(self, progress: Progress, frames: int, metric_labels: Mapping[str, str]):
        self._progress = progress
        self._frames = frames
        self._labels = metric_labels
        self._began = time.monotonic()
        self._first_step: int | None = None

    def after_step(self, trials: Sequence[Trial], step: int) -> None:
        """Show how far the trials are; frames past a trial's budget do not count."""
        if self._first_step is None:
            self._first_step = step - 1
        done = sum(min(trial.total_frames, self._frames) if trial.is_running else self._frames for trial in trials)
        self._progress.update(done, self._frames * len(trials), lambda: self._details(trials, step))

    def after_trial(self, trial: Trial) -> None:
        """Nothing: the next step shows it."""

    def _details(self, trials: Sequence[Trial], step: int) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        speed = (step - (self._first_step or 0)) * len(trials) / seconds
        text = describe(trials, speed=speed, metric_labels=self._labels)
        is_overtime = all(trial.total_frames >= self._frames for trial in trials) and any(t.is_running for t in trials)
        return f"the last episode is played out, {text}" if is_overtime else text


class PoolProgress:
    """Shows the progress of trials in other processes, each of which tells how far its own are."""

    def __init__(self, progress: Progress, trials: Sequence[Sequence[TrialStatus]]) -> None:
        self._progress = progress
        self._trials = [list(statuses) for statuses in trials]
        self._began = time.monotonic()
        self._first_steps: dict[tuple[int, int], int] = {}

    def update(self, job: int, statuses: Sequence[TrialStatus]) -> None:
        """Take in what a process says of its job; those that finished long ago are no longer among them."""
        known = {(status.environment, status.seed): status for status in self._trials[job]}
        known |= {(status.environment, status.seed): status for status in statuses}
        self._trials[job] = list(known.values())
        for place, status in enumerate(self._trials[job]):
            self._first_steps.setdefault((job, place), max(0, status.steps - 1))
        self._show()

    def _show(self) -> None:
        trials = [status for statuses in self._trials for status in statuses]
        done, total = sum(status.frames for status in trials), sum(status.budget for status in trials)
        self._progress.update(done, total, lambda: self._details(trials))

    def _details(self, trials: Sequence[TrialStatus]) -> str:
        seconds = max(time.monotonic() - self._began, 1e-9)
        steps = sum(self._trials[job][place].steps - first for (job, place), first in self._first_steps.items())
        labels = {label: label for status in trials for label in status.latest_metrics or {}}
        return describe(trials, speed=max(0, steps) / seconds, metric_labels=labels)


def describe(trials: Sequence[Described], *, speed: float, metric_labels: Mapping[str, str]) -> str:
    """Last scores, speed, episodes, and the sizes of the memories, in one short line; a narrow terminal shows the first."""
    parts = []
    scores = [trial.last_score for trial in trials if trial.last_score is not None]
    if scores:
        shown = ", ".join(f"{score:g}" for score in scores[:MAX_SCORES]) + (", ..." if len(scores) > MAX_SCORES else "")
        parts.append(f"last {'scores' if len(scores) > 1 else 'score'} {shown}")
    num_episodes = sum(trial.num_episodes for trial in trials)
    parts += [f"{speed:,.0f} steps/s", f"{num_episodes} {'episode' if num_episodes == 1 else 'episodes'}"]
    metrics = [trial.latest_metrics for trial in trials if trial.latest_metrics]
    for key, name in metric_labels.items():
        sizes = [record[key] for record in metrics if key in record]
        if sizes:
            parts.append(f"{name} {sum(sizes) / len(sizes):,.0f}")
    num_done = sum(not trial.is_running for trial in trials)
    if num_done and len(trials) > 1:
        parts.append(f"{num_done} of {len(trials)} trials done")
    return ", ".join(parts)
