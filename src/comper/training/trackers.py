"""Curves in TensorBoard and in Weights & Biases, both drawn by hooks. Their x axis is the frames of the game.

A run that is resumed goes on with its curves: what was drawn after the checkpoint it goes on from is not there twice.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comper.errors import DamagedFileError, UsageError, explaining_os_errors
from comper.runs.files import read_file, write_atomically
from comper.training.hooks import CheckpointEvent, EndEvent, EpisodeEvent, Event, Hook, StartEvent, UpdateEvent

MAX_MARK_BYTES = 32


@dataclass(frozen=True)
class TensorBoard:
    """Writes event files below a folder, for `tensorboard --logdir`."""

    folder: str

    def check(self) -> None:
        """Refuse what is not installed, and a folder that cannot be made."""
        _require("tensorboardX", needed_for="TensorBoard curves need", extra="tensorboard")
        with explaining_os_errors(self.folder, is_typed=True):
            Path(self.folder).mkdir(parents=True, exist_ok=True)

    def make(self) -> Hook:
        """The hook that writes them."""
        return _TensorBoardHook(Path(self.folder))


@dataclass(frozen=True)
class WeightsAndBiases:
    """Sends curves to a project of Weights & Biases, or keeps them here: WANDB_MODE=offline, then `wandb sync`."""

    project: str

    def check(self) -> None:
        """Refuse what is not installed, and a project without a name."""
        if not self.project:
            raise UsageError("Weights & Biases: the project needs a name.")
        _require("wandb", needed_for="Weights & Biases needs", extra="wandb")

    def make(self) -> Hook:
        """The hook that sends them."""
        return _WandbHook(self.project)


def _require(module: str, *, needed_for: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise UsageError(f'{needed_for} {module}: pip install "comper[{extra}]"')


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Metrics that can be drawn, by the name of their curve."""
    drawn = {name: value for name, value in metrics.items() if name not in ("steps", "total_frames")}
    return {f"train/{name}": value for name, value in drawn.items() if isinstance(value, int | float) and math.isfinite(value)}


def _scores(event: EpisodeEvent) -> dict[str, float]:
    return {"episode/score": event.episode.score, "episode/frames": event.episode.frames, "episode/steps": event.episode.steps}


class _TensorBoardHook(Hook):
    """One folder of event files for each run."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def on_start(self, event: StartEvent) -> None:
        writing: Any = importlib.import_module("tensorboardX")
        trial = event.trial
        # The last letters keep apart what other runs of the same name, perhaps of another study, have left in this folder.
        *above, name = trial.run.absolute().parts[-4:]
        place = self._folder.joinpath(*above, f"{name}-{trial.id[:6]}")
        # TensorBoard hides what earlier files, by their names, say of this frame and later ones. Left alone, a name tells
        # seconds only: a run that is resumed within one would write over what it wrote before.
        self._writers[trial.id] = writing.SummaryWriter(
            str(place), purge_step=event.total_frames + 1, filename_suffix=f".{time.time_ns()}"
        )

    def on_update(self, event: UpdateEvent) -> None:
        self._add(event, _numbers(event.metrics))

    def on_episode(self, event: EpisodeEvent) -> None:
        self._add(event, _scores(event))

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        self._writers[event.trial.id].flush()  # what comes later will be written again if this run dies

    def on_end(self, event: EndEvent) -> None:
        self._writers.pop(event.trial.id).close()

    def _add(self, event: Event, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writers[event.trial.id].add_scalar(name, value, event.total_frames)


class _WandbHook(Hook):
    """One run of Weights & Biases for each run, with the same id when it is resumed."""

    def __init__(self, project: str):
        self._project = project
        self._runs: dict[str, tuple[Any, Path, int]] = {}

    def on_start(self, event: StartEvent) -> None:
        wandb: Any = importlib.import_module("wandb")
        trial = event.trial
        run = wandb.init(
            project=self._project,
            id=trial.id,
            name=f"{trial.agent} {trial.environment} seed {trial.seed}",
            group=f"{trial.agent} {trial.environment}",
            config={
                "run": str(trial.run),
                "agent": trial.agent,
                "environment": trial.environment,
                "seed": trial.seed,
                **event.settings,
            },
            resume="allow",
            reinit="create_new",  # trials of one process are runs beside each other
        )
        # What was logged after the checkpoint comes again; offline, nobody but this file knows how far that went.
        mark = Path(run.dir).parents[1] / f"{trial.id}.frames"
        self._runs[trial.id] = run, mark, _frames_in(mark)

    def on_update(self, event: UpdateEvent) -> None:
        self._log(event, _numbers(event.metrics))

    def on_episode(self, event: EpisodeEvent) -> None:
        self._log(event, _scores(event))

    def on_end(self, event: EndEvent) -> None:
        run, _, _ = self._runs.pop(event.trial.id)
        run.finish(exit_code=0 if event.is_finished else 1)

    def _log(self, event: Event, numbers: Mapping[str, float]) -> None:
        run, mark, logged_frames = self._runs[event.trial.id]
        if event.total_frames > logged_frames:
            run.log(numbers, step=event.total_frames)
            write_atomically(mark, str(event.total_frames).encode())


def _frames_in(mark: Path) -> int:
    """How far a run was logged; where nothing says so, nothing of it."""
    try:
        return int(read_file(mark, max_bytes=MAX_MARK_BYTES))
    except (DamagedFileError, ValueError):
        return -1
