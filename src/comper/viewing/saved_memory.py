"""The memory in a run's checkpoint: its transitions, their frames, and which of them a screen is most like."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import EnvironmentInfo
from comper.errors import DamagedFileError
from comper.memory.frame_archive import FrameArchive
from comper.memory.frames import FrameStore
from comper.memory.remembered import Remembered, read_remembered
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.states import PARSING_ERRORS, unpack
from comper.training.weights import checkpoint_at, whole_checkpoints
from comper.viewing.nearest import NearestRows

MAX_VISITS = 10**12
WHY_NONE = "This run keeps no memory of transitions."


@dataclass(frozen=True)
class SavedMemory:
    """What a run remembered at a step."""

    step: int
    remembered: Remembered
    frames: FrameStore

    @functools.cached_property
    def largest(self) -> float | None:
        """The largest value of remembered vectors, so that bars of one length always mean one value; None of pictures."""
        if len(self.frames.shape) > 1:
            return None
        ids, _ = self.frames.held()
        return float(np.abs(self.frames.gather(ids).astype(np.float64)).max(initial=0)) or None

    def state(self, number: int) -> NDArray[Any]:
        """The frames of s of a transition, oldest first."""
        return self.frames.gather(self.remembered.transitions.s[number])

    def pictures(self, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The newest frames of s and s' of a transition."""
        t = self.remembered.transitions
        before, after = self.frames.gather(np.array([t.s[number, -1], t.s_next[number, -1]]))
        return before, after


def newest_checkpoint(run: Path, step: int | None = None) -> Checkpoint | None:
    """The checkpoint of a step, or the newest; None: the run has none."""
    if step is not None:
        return checkpoint_at(run, step)
    found = whole_checkpoints(run)
    for checkpoint in reversed(found):
        with contextlib.suppress(DamagedFileError):
            checkpoint.check()
            return checkpoint
    return found[-1] if found else None  # reading it tells what is wrong


def read_memory(checkpoint: Checkpoint, info: EnvironmentInfo) -> SavedMemory | None:
    """The memory of a checkpoint; None: its agent keeps none."""
    files = checkpoint.read()
    state = unpack(files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE])
    try:
        found = [read_remembered(part) for part in state.get("agent", {}).values() if isinstance(part, dict)]
        remembered = next((memory for memory in found if memory is not None), None)
        if remembered is None:
            return None
        frames = FrameStore(info.observation_shape, info.observation_dtype)
        FrameArchive(frames).load_state_dict({**state["frames"], "coding": {}}, files[checkpoints.FRAMES_FILE])
        _check(remembered, frames, info.num_actions)
    except PARSING_ERRORS as error:
        raise DamagedFileError(
            f"{checkpoint.path}: not a memory of this environment ({type(error).__name__}: {error})."
        ) from None
    return SavedMemory(checkpoint.step, remembered, frames)


def _check(remembered: Remembered, frames: FrameStore, num_actions: int) -> None:
    """Refuse transitions whose columns do not fit each other, or whose frames or actions are not there."""
    t, n = remembered.transitions, len(remembered)
    columns: list[NDArray[Any]] = [t.a, t.r, t.continues, *([] if remembered.visits is None else [remembered.visits])]
    if t.s.ndim != 2 or not t.s.shape[1] or t.s.shape != t.s_next.shape or any(c.shape != (n,) for c in columns):
        raise ValueError("the columns of the transitions differ in form")
    if (
        remembered.visits is not None
        and not 1 <= remembered.visits.min(initial=1) <= remembered.visits.max(initial=1) <= MAX_VISITS
    ):
        raise ValueError("a set that was met less than once, or more often than anyone can count")
    if remembered.q is not None and (remembered.q.ndim != 2 or not np.isfinite(remembered.q[:, -1:]).all()):
        raise ValueError("Q-values that are none")
    if not (t.a.min(initial=0) >= 0 and t.a.max(initial=0) < num_actions):
        raise ValueError("an action that the environment does not have")
    frames.check_references(np.unique(np.concatenate([t.s.ravel(), t.s_next.ravel()])))  # a graph's nodes share theirs


@dataclass(frozen=True)
class Match:
    """The remembered transition that is most like what is seen now."""

    number: int
    distance: float
    """Euclidean, between the newest frame of its s and the observation."""


class MemorySearch:
    """Finds the remembered transition whose s is most like an observation."""

    def __init__(self, memory: SavedMemory):
        self.memory = memory
        t, visits = memory.remembered.transitions, memory.remembered.visits
        frame_ids, self._frame_of = np.unique(t.s[:, -1], return_inverse=True)
        self._nearest = NearestRows(memory.frames.gather(frame_ids))
        self._visits = np.ones(len(t.a), np.int64) if visits is None else visits

    def find(self, observation: NDArray[Any], action: int) -> Match:
        """Among equally near ones that with the same action, then the most visited."""
        row, distance = self._nearest.find(observation)
        candidates = np.flatnonzero(self._frame_of == row)
        rank = (self.memory.remembered.transitions.a[candidates] == action) * (self._visits.max() + 1) + self._visits[
            candidates
        ]
        return Match(int(candidates[rank.argmax()]), distance)
