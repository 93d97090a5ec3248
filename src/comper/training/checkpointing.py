"""Writes checkpoints while trials run: when it is time, when a signal asks to stop, and never of what has diverged."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comper.agents.agent import Agent, TrialSetup
from comper.environments.stepper import Stepper
from comper.errors import DamagedFileError, StoppedError, UnusableStateError, is_memory_error
from comper.memory.frame_archive import FrameArchive
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.recorder import Recorder
from comper.runs.states import PARSING_ERRORS, first_difference, pack, unpack
from comper.training.loop import Trial
from comper.training.randomness import generator_state, set_generator_state
from comper.training.signals import StopRequest

PERIOD_STEPS = 5_000
PERIOD_SECONDS = 120.0
MIN_COST_RATIO = 100
"""Left to itself, a run waits at least so many times as long as its last checkpoint took: saving stays under 1 %."""


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_score(value: Any) -> bool:
    return type(value) in (int, float) and -sys.float_info.max <= value <= sys.float_info.max


COUNTERS: dict[str, Callable[[Any], bool]] = {
    "total_frames": _is_count,
    "num_episodes": _is_count,
    "episode_score": _is_score,
    "episode_frames": _is_count,
    "episode_steps": _is_count,
    "last_score": lambda value: value is None or _is_score(value),
}
"""A trial's counters in a checkpoint, and what each may be."""


_OWN_FORM = ("emulator", "game")
"""Of an environment's state: what the emulator or the game itself writes, perhaps in other words the second time."""


def _comparable(state: dict[str, Any]) -> dict[str, Any]:
    environment = {name: value for name, value in state["environment"].items() if name not in _OWN_FORM}
    return {**state, "environment": environment}


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
class SavedTrial:
    """A trial with all that its checkpoints are made of."""

    trial: Trial
    setup: TrialSetup
    record: Recorder
    archive: FrameArchive
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """Those known to be whole, oldest first."""


class Checkpointer:
    """Writes and reads the checkpoints of the trials of one loop."""

    def __init__(
        self,
        agent: Agent,
        environments: Stepper,
        trials: Sequence[SavedTrial],
        *,
        frames: int,
        request: StopRequest,
        period_steps: int | None = None,
        step: int = 0,
        resume_flags: str = "",
    ):
        self._agent, self._environments, self._trials = agent, environments, trials
        self._frames = frames
        self._request = request
        self.resume_flags = resume_flags
        self._schedule = Schedule(period_steps, step)
        self._began = time.monotonic()
        self.num_written, self.num_bytes, self.seconds = 0, 0, 0.0

    def after_step(self, trials: Sequence[Trial], step: int) -> None:
        """Write checkpoints if it is time to; stop if a signal asked for it."""
        if self._request.name is not None:
            self._stop(step, self._request.name)
        elif self._schedule.is_due(step):
            self.write(step)

    def after_trial(self, trial: Trial) -> None:
        """A finished trial keeps the checkpoints at its thirds; nobody needs its latest any more."""
        saved = next(saved for saved in self._trials if saved.trial is trial)
        saved.checkpoints = checkpoints.prune(saved.record.path, saved.checkpoints, budget_frames=self._frames, num_latest=0)

    def write(self, step: int) -> None:
        """Write a checkpoint of every running trial."""
        began = time.monotonic()
        running = [saved for saved in self._trials if saved.trial.is_running]
        states = [self._state(saved) for saved in running]
        with ThreadPoolExecutor(min(len(running), os.cpu_count() or 1) or 1) as pool:
            list(pool.map(self._write, running, states, [step] * len(running)))
        cost = time.monotonic() - began
        self._schedule.note(step, cost)
        self.num_written += 1
        self.num_bytes = sum(saved.checkpoints[-1].num_bytes for saved in running)
        self.seconds += cost

    def save_now(self, step: int) -> bool:
        """Write a checkpoint, if they are on and there is none of this step yet; whether there is one now."""
        running = [saved for saved in self._trials if saved.trial.is_running]
        if self._schedule.is_off or not running:
            return False
        if not all(saved.checkpoints and saved.checkpoints[-1].step == step for saved in running):
            self.write(step)
        return True

    def _stop(self, step: int, name: str) -> None:
        folders = shlex.join(str(saved.record.path) for saved in self._trials if saved.trial.is_running)
        if not folders:
            return
        folders += self.resume_flags
        if self._schedule.is_off:
            text = f"checkpoints are off, so `comper resume {folders}` starts again from the beginning"
        else:
            self.write(step)
            text = f"saved at step {step:,}; continue with `comper resume {folders}`"
        raise StoppedError(f"stopped by {name}: {text}.")

    def _state(self, saved: SavedTrial) -> dict[str, Any]:
        trial, setup = saved.trial, saved.setup
        return {
            "trial": {name: getattr(trial, name) for name in COUNTERS},
            "history": trial.history.state_dict(),
            "agent": self._agent.state_dict(trial.number),
            "environment": self._environments.state_dict(trial.number),
            "exploration": generator_state(setup.exploration),
            "sampling": generator_state(setup.sampling),
        }

    def _write(self, saved: SavedTrial, state: dict[str, Any], step: int) -> None:
        saved.archive.take_in()
        tensors, values = pack(state | {"frames": saved.archive.state_dict()})
        names = (checkpoints.TENSORS_FILE, checkpoints.VALUES_FILE, checkpoints.FRAMES_FILE)
        files = dict(zip(names, (tensors, values, saved.archive.content), strict=True))
        about = {"total_frames": saved.trial.total_frames, "run": saved.record.manifest.to_json(), **saved.record.position()}
        saved.checkpoints.append(checkpoints.write(saved.record.path, step=step, files=files, about=about))
        saved.checkpoints = checkpoints.prune(saved.record.path, saved.checkpoints, budget_frames=self._frames)

    def load(self, saved: SavedTrial, files: dict[str, bytes]) -> None:
        """Give a trial the state of a checkpoint, whose files have been checked."""
        where = saved.checkpoints[-1].path if saved.checkpoints else saved.record.path
        try:
            state = unpack(files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE])
            self._load(saved, state, files)
            self._check(saved, state)
        except DamagedFileError as error:
            raise UnusableStateError(f"{where}: {error}", where) from None
        except (RuntimeError, *PARSING_ERRORS) as error:  # RuntimeError: torch, when shapes differ
            if is_memory_error(error):
                raise
            raise UnusableStateError(
                f"{where}: the checkpoint is damaged, or not of this configuration ({type(error).__name__}: {error}).", where
            ) from None

    def _check(self, saved: SavedTrial, state: dict[str, Any]) -> None:
        """Refuse a state that was taken over in part, or that speaks of frames and actions that are not there."""
        again = self._state(saved) | {"frames": saved.archive.state_dict()}
        if (path := first_difference(_comparable(state), _comparable(again))) is not None:
            raise ValueError(f"{path} is not what was saved")
        held = [part.held(saved.trial.number) for part in self._agent.parts.values() if hasattr(part, "held")]
        saved.setup.frames.check_references(
            np.concatenate([saved.trial.history.frame_references(), *(h.frames for h in held)])
        )
        actions = np.concatenate([np.zeros(1, np.int64), *(h.actions for h in held)])
        if not 0 <= actions.min() <= actions.max() < self._environments.info.num_actions:
            raise ValueError("a memory holds an action that the environment does not have")

    def _load(self, saved: SavedTrial, state: dict[str, Any], files: dict[str, bytes]) -> None:
        trial, setup = saved.trial, saved.setup
        saved.archive.load_state_dict(state["frames"], files[checkpoints.FRAMES_FILE])
        for name, is_right in COUNTERS.items():
            if not is_right(value := state["trial"][name]):
                raise ValueError(f"trial/{name} is {value!r:.40}")
            setattr(trial, name, value)
        trial.history.load_state_dict(state["history"])
        self._agent.load_state_dict(trial.number, state.get("agent", {}))
        if state["environment"].get("is_playing", 1) != 1:  # checkpoints are written within episodes
            raise ValueError("environment/is_playing is not 1")
        self._environments.load_state_dict(trial.number, state["environment"])
        set_generator_state(setup.exploration, state["exploration"])
        set_generator_state(setup.sampling, state["sampling"])

    def summary(self) -> str:
        """How much was saved, in one sentence."""
        if not self.num_written:
            return "checkpoints: none was due"
        share = 100 * self.seconds / max(time.monotonic() - self._began, 1e-9)
        return (
            f"checkpoints: {self.num_written} written, {self.num_bytes / 1e6:,.0f} MB each,"
            f" {self.seconds:.1f} s in all ({share:.1f} % of the time)"
        )
