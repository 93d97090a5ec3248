"""Hooks: your own code, called while trials run, in the process that runs them.

    class Print(Hook):
        def on_episode(self, event):
            print(event.trial.seed, event.episode.score)

    train("freeway", hooks=[Print()])

Everything is called between two steps, when all of the step is recorded. A hook that fails stops the run in good order: a
checkpoint is written first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from comper.errors import UsageError
from comper.runs.folder import EpisodeRecord


@dataclass(frozen=True, slots=True)
class TrialIdentity:
    """Which trial an event is of."""

    run: Path
    """The run folder."""
    agent: str
    environment: str
    seed: int
    id: str
    """The same for a run and for its continuations, another for every other run."""


@dataclass(frozen=True, slots=True)
class Event:
    """What all events tell."""

    trial: TrialIdentity
    step: int
    """Agent steps of the trial so far."""
    total_frames: int
    """Frames of the game so far."""


@dataclass(frozen=True, slots=True)
class StartEvent(Event):
    """A trial starts, or goes on from a checkpoint: step and frames are then those of the checkpoint."""

    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepEvent(Event):
    """One step was made."""

    action: int
    reward: float
    is_last: bool
    """Whether the episode ended there."""


@dataclass(frozen=True, slots=True)
class UpdateEvent(Event):
    """A line of metrics.jsonl was written: mean losses, ε, sizes of the memories since the line before."""

    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EpisodeEvent(Event):
    """An episode ended."""

    episode: EpisodeRecord


@dataclass(frozen=True, slots=True)
class CheckpointEvent(Event):
    """A checkpoint was written; `evaluate(event.trial.run, checkpoint=event.step)` plays with its weights."""

    path: Path


@dataclass(frozen=True, slots=True)
class EndEvent(Event):
    """A trial is over, or the run was stopped before its end."""

    is_finished: bool


METHODS: dict[type[Event], str] = {
    StartEvent: "on_start",
    StepEvent: "on_step",
    UpdateEvent: "on_update",
    EpisodeEvent: "on_episode",
    CheckpointEvent: "on_checkpoint",
    EndEvent: "on_end",
}


class Hook:
    """Base of hooks: override what you need. One hook hears of all trials that run together; `event.trial` says which."""

    def on_start(self, event: StartEvent) -> None:
        """Before the first step."""

    def on_step(self, event: StepEvent) -> None:
        """After every agent step."""

    def on_update(self, event: UpdateEvent) -> None:
        """After every line of metrics: every `log_period_steps` steps, 100 unless set otherwise."""

    def on_episode(self, event: EpisodeEvent) -> None:
        """After every episode."""

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        """After every checkpoint."""

    def on_end(self, event: EndEvent) -> None:
        """When the trial has finished or was stopped; always the last call for a trial."""


class HookMaker(Protocol):
    """Makes a hook in whatever process a trial runs; unlike a hook it can be sent there, being a name with arguments."""

    def check(self) -> None:
        """Raise UsageError where the hook could not be made."""

    def make(self) -> Hook:
        """Make the hook."""


AnyHook = Hook | HookMaker


def checked_hooks(hooks: Sequence[Any]) -> tuple[AnyHook, ...]:
    """Hooks as `train` takes them; whatever is none, or could not be made, is refused."""
    for hook in hooks:
        if isinstance(hook, type) or not (isinstance(hook, Hook) or hasattr(hook, "make")):
            name = hook.__name__ if isinstance(hook, type) else type(hook).__name__
            raise UsageError(f"hooks: {name} is not a hook: give objects whose class is derived from comper.Hook.")
        if not isinstance(hook, Hook):
            hook.check()
    return tuple(hooks)
