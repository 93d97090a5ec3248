"""Saves trials while they run: when it is time, when a signal asks to stop, and never what has diverged."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from comper.agents.interface import Agent, TrialSetup
from comper.environments.stepper import Stepper
from comper.errors import DamagedFileError, StoppedError
from comper.memory.frame_archive import FrameArchive
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.recorder import Recorder
from comper.runs.states import PARSING_ERRORS, pack, unpack
from comper.training.loop import Trial
from comper.training.randomness import generator_state, set_generator_state
from comper.training.signals import StopRequest

PERIOD_STEPS = 5_000
PERIOD_SECONDS = 120.0
MIN_COST_RATIO = 100
"""Left to itself, a run waits at least so many times as long as its last checkpoint took: saving stays under 1 %."""

COUNTERS = ("total_frames", "num_episodes", "episode_score", "episode_frames", "episode_steps", "last_score")


class Schedule:
    """When a checkpoint is due: every `period_steps` steps exactly, or, left to itself (None), by the defaults above."""

    def __init__(self, period_steps: int | None, step: int) -> None:
        self._period = period_steps
        self._step = step
        self._time = time.monotonic()
        self._cost = 0.0

    @property
    def is_off(self) -> bool:
        return self._period == 0

    def is_due(self, step: int) -> bool:
        if self._period is not None:
            return self._period > 0 and step % self._period == 0
        waited = time.monotonic() - self._time
        return (step - self._step >= PERIOD_STEPS or waited >= PERIOD_SECONDS) and waited >= MIN_COST_RATIO * self._cost

    def note(self, step: int, cost: float) -> None:
        self._step, self._time, self._cost = step, time.monotonic(), cost


@dataclass
class Saved:
    """A trial's way to disk and back."""

    trial: Trial
    setup: TrialSetup
    record: Recorder
    archive: FrameArchive
    good: list[Checkpoint] = field(default_factory=list)
    """The checkpoints known to be whole, oldest first."""


class Keeper:
    """Writes and reads the checkpoints of the trials of one loop."""

    def __init__(
        self,
        agent: Agent,
        environments: Stepper,
        kept: Sequence[Saved],
        *,
        frames: int,
        request: StopRequest,
        period_steps: int | None = None,
        step: int = 0,
    ):
        self._agent, self._environments, self._kept = agent, environments, kept
        self._frames = frames
        self._request = request
        self._schedule = Schedule(period_steps, step)
        self._began = time.monotonic()
        self.num_written, self.num_bytes, self.seconds = 0, 0, 0.0

    def after_step(self, step: int) -> None:
        """Save if it is time to; stop if a signal asked for it."""
        if self._request.name is not None:
            self._stop(step, self._request.name)
        elif self._schedule.is_due(step):
            self.save(step)

    def save(self, step: int) -> None:
        """Write a checkpoint of every running trial."""
        began = time.monotonic()
        running = [kept for kept in self._kept if kept.trial.is_running]
        states = [self._state(kept) for kept in running]
        with ThreadPoolExecutor(min(len(running), os.cpu_count() or 1) or 1) as pool:
            list(pool.map(self._write, running, states, [step] * len(running)))
        cost = time.monotonic() - began
        self._schedule.note(step, cost)
        self.num_written += 1
        self.num_bytes = sum(kept.good[-1].num_bytes for kept in running)
        self.seconds += cost

    def _stop(self, step: int, name: str) -> None:
        folders = " ".join(str(kept.record.path) for kept in self._kept if kept.trial.is_running)
        if not folders:
            return
        if self._schedule.is_off:
            text = f"checkpoints are off, so `comper resume {folders}` starts again from the beginning"
        else:
            self.save(step)
            text = f"saved at step {step:,}; continue with `comper resume {folders}`"
        raise StoppedError(f"stopped by {name}: {text}.")

    def _state(self, kept: Saved) -> dict[str, Any]:
        trial, setup = kept.trial, kept.setup
        return {
            "trial": {name: getattr(trial, name) for name in COUNTERS},
            "history": trial.history.state_dict(),
            "agent": self._agent.state_dict(trial.number),
            "environment": self._environments.state_dict(trial.number),
            "exploration": generator_state(setup.exploration),
            "sampling": generator_state(setup.sampling),
        }

    def _write(self, kept: Saved, state: dict[str, Any], step: int) -> None:
        kept.archive.take_in()
        tensors, values = pack(state | {"frames": kept.archive.state_dict()})
        names = (checkpoints.TENSORS_FILE, checkpoints.VALUES_FILE, checkpoints.FRAMES_FILE)
        files = dict(zip(names, (tensors, values, kept.archive.content), strict=True))
        about = {"total_frames": kept.trial.total_frames, "run": kept.record.manifest.to_json(), **kept.record.position()}
        kept.good.append(checkpoints.write(kept.record.path, step=step, files=files, about=about))
        kept.good = checkpoints.prune(kept.record.path, kept.good, budget_frames=self._frames)

    def load(self, kept: Saved, files: dict[str, bytes]) -> None:
        """Give a trial the state of a checkpoint, whose files have been checked."""
        trial, setup = kept.trial, kept.setup
        state = unpack(files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE])
        try:
            kept.archive.load_state_dict(state["frames"], files[checkpoints.FRAMES_FILE])
            for name in COUNTERS:
                setattr(trial, name, state["trial"][name])
            trial.history.load_state_dict(state["history"])
            self._agent.load_state_dict(trial.number, state["agent"])
            self._environments.load_state_dict(trial.number, state["environment"])
            set_generator_state(setup.exploration, state["exploration"])
            set_generator_state(setup.sampling, state["sampling"])
        except (RuntimeError, *PARSING_ERRORS) as error:  # RuntimeError: torch, when shapes differ
            raise DamagedFileError(
                f"{kept.record.path}: the checkpoint is not of this configuration ({type(error).__name__}: {error})."
            ) from None

    def finish(self, trial: Trial) -> None:
        """A finished trial keeps the checkpoints at its thirds and drops the latest, which nobody needs any more."""
        kept = next(kept for kept in self._kept if kept.trial is trial)
        kept.good = checkpoints.prune(kept.record.path, kept.good, budget_frames=self._frames, num_latest=0)

    def summary(self) -> str:
        """How much was saved, in one sentence."""
        if not self.num_written:
            return "checkpoints: none written"
        share = 100 * self.seconds / max(time.monotonic() - self._began, 1e-9)
        return (
            f"checkpoints: {self.num_written} written, {self.num_bytes / 1e6:,.0f} MB each,"
            f" {self.seconds:.1f} s in all ({share:.1f} % of the time)"
        )
