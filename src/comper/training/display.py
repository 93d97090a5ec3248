"""What a person sees while trials run: how far they are, scores, speed, memories."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from comper.progress import Progress
from comper.training.loop import Trial

MAX_SCORES = 5


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


def describe(trials: Sequence[Trial], *, speed: float, metric_labels: Mapping[str, str]) -> str:
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
