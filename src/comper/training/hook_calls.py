"""Calls the hooks of a population, between two steps."""

from __future__ import annotations

import hashlib
import os
import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from comper.errors import ComperError, OutsideCodeError
from comper.output import print_line
from comper.runs.folder import EpisodeRecord
from comper.runs.manifest import Manifest
from comper.training.checkpointing import Checkpointer, SavedTrial
from comper.training.hooks import (
    METHODS,
    AnyHook,
    CheckpointEvent,
    EndEvent,
    EpisodeEvent,
    Event,
    Hook,
    StartEvent,
    StepEvent,
    TrialIdentity,
    UpdateEvent,
)
from comper.training.loop import Record, Trial


class HookCaller:
    """Calls the hooks of a population: one more observer of the loop, which also listens to the trials' records."""

    def __init__(
        self,
        hooks: Sequence[AnyHook],
        trials: Sequence[SavedTrial],
        checkpointer: Checkpointer,
        *,
        step: int,
        settings: Mapping[str, Any],
    ):
        self._hooks = [hook if isinstance(hook, Hook) else hook.make() for hook in hooks]
        self._checkpointer = checkpointer
        self._trials = [_HookedTrial(saved, step) for saved in trials]
        self._failed: Hook | None = None
        self._wants_steps = any(type(hook).on_step is not Hook.on_step for hook in self._hooks)
        for trial in self._trials:
            self._tell(StartEvent(trial.identity, step, trial.total_frames, settings))

    def after_step(self, trials: Sequence[Trial], step: int) -> None:
        """Tell the hooks what came of a step, trial by trial."""
        for trial in self._trials:
            for event in trial.events(step, with_steps=self._wants_steps):
                self._tell(event)
        self._trials = [trial for trial in self._trials if not trial.is_over]

    def after_trial(self, trial: Trial) -> None:
        """Nothing: `after_step` tells of the step that ended it first."""

    def close(self) -> None:
        """Tell the hooks of trials that were stopped before their end; a hook that fails now does not hide why they were."""
        for trial in self._trials:
            for event in trial.last_events():
                for hook in self._hooks:
                    if hook is not self._failed:
                        try:
                            _call(hook, event)
                        except Exception as error:  # the code of others
                            print_line(_sentence(hook, event, error))

    def _tell(self, event: Event) -> None:
        for hook in self._hooks:
            try:
                _call(hook, event)
            except ComperError:
                self._failed = hook
                raise
            except Exception as error:  # the code of others
                self._failed = hook
                runs = shlex.join(str(trial.identity.run) for trial in self._trials if not trial.is_over)
                saved = self._checkpointer.save_now(event.step) if runs else False
                hint = f" Mend it and continue with `comper resume {runs}{self._checkpointer.resume_flags}`" if runs else ""
                place = f", saved at step {event.step:,}." if saved else "." if hint else ""
                raise OutsideCodeError(_sentence(hook, event, error) + hint + place) from error


def _call(hook: Hook, event: Event) -> None:
    getattr(hook, METHODS[type(event)])(event)


def _sentence(hook: Hook, event: Event, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{type(error).__name__}: {error} ({os.path.basename(last.filename)}, line {last.lineno})"
    return f"The hook {type(hook).__name__}.{METHODS[type(event)]} failed at step {event.step:,}: {reason}."


class _HookedTrial:
    """A trial whose records are also kept here until the step that made them is over."""

    def __init__(self, saved: SavedTrial, step: int):
        self._saved, self._trial = saved, saved.trial
        self._heard = _HeardRecord(saved.trial.record)
        self._trial.record = self._heard
        self._step = self._checkpoint_step = step
        manifest = saved.record.manifest
        self.identity = TrialIdentity(
            saved.record.path, manifest.agent, manifest.game, manifest.seed, _id(manifest, saved.record.path)
        )
        self.is_over = False

    @property
    def total_frames(self) -> int:
        return self._trial.total_frames

    def events(self, step: int, *, with_steps: bool) -> Iterator[Event]:
        """What happened since the last call, in the order in which it did: a checkpoint is written after its step is told."""
        yield from self._new_checkpoint()
        self._step = step
        here = (self.identity, step, self.total_frames)
        if with_steps and (latest := self._trial.latest_step) is not None:
            yield StepEvent(*here, self._trial.latest_action, latest.reward, latest.is_last)
        yield from (EpisodeEvent(*here, episode) for episode in self._heard.take_episodes())
        yield from (UpdateEvent(*here, metrics) for metrics in self._heard.take_metrics())
        if not self._trial.is_running:
            self.is_over = True
            yield EndEvent(*here, is_finished=True)

    def last_events(self) -> Iterator[Event]:
        """What is left to be told when the run stops."""
        yield from self._new_checkpoint()
        yield EndEvent(self.identity, self._step, self.total_frames, is_finished=False)

    def _new_checkpoint(self) -> Iterator[Event]:
        newest = self._saved.checkpoints[-1] if self._saved.checkpoints else None
        if newest is not None and newest.step > self._checkpoint_step:
            self._checkpoint_step = newest.step
            yield CheckpointEvent(self.identity, newest.step, newest.about["total_frames"], newest.path)


class _HeardRecord:
    """A record that also keeps what it was given, until it is taken."""

    def __init__(self, record: Record):
        self._record = record
        self._episodes: list[EpisodeRecord] = []
        self._metrics: list[dict[str, Any]] = []

    def episode(self, record: EpisodeRecord) -> None:
        self._record.episode(record)
        self._episodes.append(record)

    def metrics(self, record: dict[str, Any]) -> None:
        self._record.metrics(record)
        self._metrics.append(record)

    def finish(self, totals: dict[str, Any], weights: Mapping[str, Any]) -> None:
        self._record.finish(totals, weights)

    def take_episodes(self) -> list[EpisodeRecord]:
        taken, self._episodes = self._episodes, []
        return taken

    def take_metrics(self) -> list[dict[str, Any]]:
        taken, self._metrics = self._metrics, []
        return taken


def _id(manifest: Manifest, run: Path) -> str:
    made = (manifest.created, manifest.trial, manifest.agent, manifest.config_sha256, run.name)
    return hashlib.blake2b(repr(made).encode(), digest_size=8).hexdigest()
