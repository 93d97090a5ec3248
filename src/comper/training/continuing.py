"""Unfinished runs continued from their newest whole checkpoints, to the bits of runs never stopped: here, or in processes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comper.environments.environment import EnvironmentInfo, EnvironmentSpec
from comper.environments.families import find_environment
from comper.errors import (
    ComperError,
    DamagedFileError,
    LeftOutError,
    ResourceError,
    StoppedError,
    UnusableStateError,
    UsageError,
    counted,
)
from comper.output import print_line
from comper.progress import show_progress
from comper.runs.checkpoints import Checkpoint
from comper.runs.folder import CHECKPOINTS_FOLDER, CONFIG_FILE, MANIFEST_FILE
from comper.runs.lock import RunLock
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.verify import verify_run
from comper.training import preflight
from comper.training.conditions import check_conditions
from comper.training.display import Audience, PoolProgress, TrialStatus
from comper.training.options import NO_OWN_CODE, OwnCode, RunOptions, RunSettings, recorded_environment, recorded_settings
from comper.training.pool import Errors, run_jobs
from comper.training.population import Member, make_stepper, run_population
from comper.training.signals import StopRequest, stop_requests
from comper.training.weights import saved_weights

if TYPE_CHECKING:
    import torch

Refused = dict[Path, ComperError]
"""Runs that cannot be continued, and why."""


@dataclass
class UnfinishedRun:
    """A run that can continue: locked, checked, and with what it continues from."""

    path: Path
    lock: RunLock
    manifest: Manifest
    environment: EnvironmentSpec
    settings: RunSettings
    checkpoints: list[Checkpoint]
    """Whole ones whose logs are whole too, oldest first; none: the run starts again from its seed."""
    notes: list[str] = field(default_factory=list)
    """What was skipped, and why."""
    unusable: tuple[Path, ...] = ()
    """Checkpoints that are whole, and that could not be taken over."""

    @property
    def step(self) -> int:
        return self.checkpoints[-1].step if self.checkpoints else 0

    @property
    def total_frames(self) -> int:
        return int(self.checkpoints[-1].about.get("total_frames", 0)) if self.checkpoints else 0

    def go_back_to(self, step: int) -> None:
        """Drop what is newer than a step."""
        self.checkpoints = [checkpoint for checkpoint in self.checkpoints if checkpoint.step <= step]

    def set_aside(self, unusable: tuple[Path, ...]) -> None:
        """Go back behind checkpoints that cannot be taken over; where no other is left, it is not the run's fault."""
        self.unusable = unusable
        self.checkpoints = [checkpoint for checkpoint in self.checkpoints if checkpoint.path not in unusable]
        if unusable and not self.checkpoints:
            raise DamagedFileError(
                f"{self.path}: no checkpoint can be taken over, though every file is as it was written: perhaps this version"
                f" of comper is not the one that wrote them. Nothing was changed. Move {self.path / CHECKPOINTS_FOLDER} away"
                " to begin again, to the same results."
            )


@contextmanager
def noting_refusals(refused: Refused, paths: Sequence[Path]) -> Iterator[None]:
    """Go on with other runs after what one of them cannot do; a signal to stop stops all."""
    try:
        yield
    except StoppedError:
        raise
    except ComperError as error:
        refused.update(dict.fromkeys(paths, error))


def done_or_left_out(done: list[Path], refused: Refused, what: str = "continued") -> list[Path]:
    """What was done; where some runs were left out, an error that names them, with the exit code of the first."""
    if not refused:
        return done
    errors = list(dict.fromkeys(refused.values()))
    if len(errors) == 1 and not done:
        raise errors[0]
    text = f"{len(refused)} of {counted(len(refused) + len(done), 'run')} could not be {what}:"
    raise LeftOutError("\n  ".join([text, *map(str, errors)]), exit_code=errors[0].exit_code, done=done)


def open_all(paths: Sequence[Path], own: OwnCode, stack: ExitStack, refused: Refused) -> list[UnfinishedRun]:
    """Lock and check the unfinished runs; one that is locked, damaged or read-only does not keep the others."""
    runs = []
    for path in paths:
        with noting_refusals(refused, [path]):
            run = open_unfinished(path, own)
            if run is not None:
                stack.callback(run.lock.release)
                runs.append(run)
    return runs


def open_unfinished(path: Path, own: OwnCode = NO_OWN_CODE) -> UnfinishedRun | None:
    """Lock a run and find what it can continue from; None when it is finished."""
    lock = RunLock(path)
    try:
        verdict = verify_run(path)
        if verdict.manifest is None:
            raise DamagedFileError(verdict.damaged[MANIFEST_FILE])
        if verdict.manifest.is_finished:
            lock.release()
            return None
        verdict.manifest.require_this_format(path)
        if verdict.config is None:
            raise DamagedFileError(verdict.damaged[CONFIG_FILE])
        spec = recorded_environment(verdict.manifest, own)
        settings = recorded_settings(path, verdict.manifest, own)
        notes = list(verdict.damaged.values())
        return UnfinishedRun(path, lock, verdict.manifest, spec, settings, verdict.checkpoints, notes)
    except BaseException:
        lock.release()
        raise


def groups_of(runs: Sequence[UnfinishedRun], device: torch.device) -> list[list[UnfinishedRun]]:
    """Runs that advance together: same agent, settings, step and kind of environment; on a GPU, a population as it was."""
    is_cpu = device.type == "cpu"
    groups: dict[Any, list[UnfinishedRun]] = {}
    for run in runs:
        beside = (run.step, layout_of(run.manifest.game), run.manifest.threads) if is_cpu else tuple(run.manifest.population)
        groups.setdefault((run.manifest.agent, run.settings.parts, beside), []).append(run)
    if not is_cpu:
        for group in groups.values():
            common = set.intersection(*({0} | {checkpoint.step for checkpoint in run.checkpoints} for run in group))
            for run in group:
                run.go_back_to(max(common))
    return list(groups.values())


def continue_group(
    group: Sequence[UnfinishedRun],
    device: torch.device,
    options: RunOptions,
    own: OwnCode,
    refused: Refused,
    audience: Audience | None = None,
) -> None:
    """Run a group to its end, with the threads it had; those that cannot go on are noted.

    Nothing runs on a state that was taken over in part: all is made anew, from the checkpoint before the one that failed.
    """
    try:
        with options.torch_threads(device, recorded=group[0].manifest.threads):
            return _continue(group, device, options, own, refused, audience)
    except UnusableStateError as error:
        text, checkpoint = str(error), error.checkpoint  # the error itself keeps half a population in memory
    with ExitStack() as stack:
        runs = _gone_back(group, checkpoint, own, stack, refused)
        if options.show_progress:
            places = [f" {run.path} goes on from step {run.step:,}." for run in runs if checkpoint in run.unusable]
            print_line("".join([text, *places]))
        for again in groups_of(runs, device):
            with noting_refusals(refused, [run.path for run in again]):
                continue_group(again, device, options, own, refused, audience)


def _gone_back(
    group: Sequence[UnfinishedRun], checkpoint: Path, own: OwnCode, stack: ExitStack, refused: Refused
) -> list[UnfinishedRun]:
    """The runs of a group once more, as they are on disk, without a checkpoint that cannot be taken over."""
    unusable = {run.path: run.unusable for run in group if run.path not in refused}
    runs = []
    for run in open_all(list(unusable), own, stack, refused):
        with noting_refusals(refused, [run.path]):
            run.set_aside((*unusable[run.path], *([checkpoint] if checkpoint.is_relative_to(run.path) else [])))
            runs.append(run)
    return runs


def _continue(
    group: Sequence[UnfinishedRun],
    device: torch.device,
    options: RunOptions,
    own: OwnCode,
    refused: Refused,
    audience: Audience | None,
) -> None:
    settings = group[0].settings
    infos: dict[str, EnvironmentInfo] = {}
    for run in group:
        with noting_refusals(refused, [run.path]):
            name = run.environment.name
            infos[name] = infos.get(name) or run.environment.info(settings.environment)
            run.settings.check_recorded(run.path, infos[name])
            check_conditions(run.manifest, infos[name], device)
            _require_resumable(run, infos[name])
    group = [run for run in group if run.path not in refused]
    if not group:
        return
    places = _places(group, device, own, refused)
    with_checkpoints, info = options.with_checkpoints, next(iter(infos.values()))
    preflight.check(settings, info, trials=len(places), out=group[0].path, with_checkpoints=with_checkpoints)
    preflight.allow_open_files(len(places), options.num_workers(len(places)))
    with make_stepper([(spec, seed) for spec, seed, _ in places], settings, options) as environments:
        members = [_member(spec, seed, run) for spec, seed, run in places]
        run_population(members, settings, environments, device, options=options, step=group[0].step, audience=audience)


def _require_resumable(run: UnfinishedRun, info: EnvironmentInfo) -> None:
    if info.resume and run.checkpoints:
        raise UsageError(f"{run.path}: cannot be continued exactly: {info.resume} Begin a new run.")


def layout_of(environment: str) -> str:
    """What environments must share to be stepped together: Atari games are alike, others may not be."""
    return environment if ":" in environment else "Atari"


Place = tuple[EnvironmentSpec, int, UnfinishedRun | None]


def _places(group: Sequence[UnfinishedRun], device: torch.device, own: OwnCode, refused: Refused) -> list[Place]:
    """The trials of a group; on a GPU also those that do not run any more, because the arithmetic depends on their number."""
    if device.type == "cpu":
        return [(run.environment, run.manifest.seed, run) for run in group]
    by_name = {run.manifest.trial: run for run in group}
    places: list[Place] = []
    for trial in group[0].manifest.population:
        name, _, seed = trial.rpartition("/seed-")
        run = by_name.get(trial)
        if run is None:
            _require_at_rest(group[0], trial, refused)
        places.append((run.environment if run else _finished_environment(group, name, own), int(seed), run))
    return places


def _finished_environment(group: Sequence[UnfinishedRun], name: str, own: OwnCode) -> EnvironmentSpec:
    """The environment of a trial that has finished: often that of one that has not, and then found already."""
    known = {run.manifest.game: run.environment for run in group}
    return known[name] if name in known else find_environment(name, trusted=own.trusted)


def _require_at_rest(run: UnfinishedRun, trial: str, refused: Refused) -> None:
    """Refuse to leave behind a trial of the same population that could go on too."""
    path = run.manifest.siblings(run.path).get(trial)
    if path is None or path in {place.resolve() for place in refused} or not path.is_dir():
        return
    verdict = verify_run(path, with_states=False)
    if verdict.manifest is not None and not verdict.manifest.is_finished:
        raise UsageError(
            f"{path} was trained together with {run.path} on a GPU, where a trial continues exactly only with the others"
            " of its population. Resume the folder above all of them."
        )


def _member(spec: EnvironmentSpec, seed: int, run: UnfinishedRun | None) -> Member:
    if run is None:
        return Member(spec.name, seed, None)
    newest = run.checkpoints[-1] if run.checkpoints else None
    weights = None if newest else _first_weights(run)
    record = Recorder.reopen(run.path, run.manifest, run.lock, newest.about if newest else {})
    files = newest.read() if newest else None
    return Member(spec.name, seed, record, files=files, checkpoints=list(run.checkpoints), weights=weights)


def _first_weights(run: UnfinishedRun) -> dict[str, Any] | None:
    """The weights that a run began with, if not its own; without a checkpoint it begins with them again."""
    about = run.manifest.started_from
    if about is None:
        return None
    source = Path(str(about.get("run")))
    weights, found = saved_weights(source, Manifest.read(source))
    if found["sha256"] != about.get("sha256"):
        raise DamagedFileError(f"{run.path}: began with weights of {source}, which has others now. Begin a new run.")
    return weights


# In several processes.


class SentJob(Protocol):
    """A job for another process."""

    @property
    def paths(self) -> tuple[Path, ...]: ...

    @property
    def options(self) -> RunOptions: ...


@dataclass(frozen=True)
class ContinueJob:
    """Unfinished runs that advance together in one process: plain data, so that it can be sent there."""

    paths: tuple[Path, ...]
    trials: tuple[TrialStatus, ...]
    """How far they are."""
    options: RunOptions
    trusted: tuple[str, ...]
    left_out: tuple[Path, ...] = ()
    """Runs that cannot be continued, which is known already."""


def continue_job(job: ContinueJob, audience: Audience) -> None:
    """Run the runs of a job to their end, in whatever process this is."""
    own, device = OwnCode(trusted=job.trusted), job.options.torch_device()
    known: Refused = {path: UsageError("left out") for path in job.left_out}
    refused = dict(known)
    with ExitStack() as stack:
        runs = open_all(job.paths, own, stack, refused)
        for run in runs:
            with noting_refusals(refused, [run.path]):
                _require_trial(run, job.trials[job.paths.index(run.path)])
        for group in groups_of([run for run in runs if run.path not in refused], device):
            with noting_refusals(refused, [run.path for run in group]):
                continue_group(group, device, job.options, own, refused, audience)
    new = {path: error for path, error in refused.items() if path not in known}
    done_or_left_out([path for path in job.paths if path not in new], new)


def _require_trial(run: UnfinishedRun, trial: TrialStatus) -> None:
    """Refuse a run that was put where another is expected: its manifest may have come from a checkpoint just now."""
    if (run.manifest.game, run.manifest.seed) != (trial.environment, trial.seed):
        raise DamagedFileError(f"{run.path}: holds {run.manifest.trial}, not {trial.environment}/seed-{trial.seed}.")


def jobs_of(
    groups: Sequence[Sequence[UnfinishedRun]], device: torch.device, options: RunOptions, own: OwnCode, refused: Refused
) -> list[ContinueJob]:
    """The groups as jobs; on a CPU each run is one, because a process is as quick with one trial as with several."""
    if device.type == "cpu":
        groups = [[run] for group in groups for run in group]
    num_processes = options.num_processes(len(groups), device)
    return [
        ContinueJob(
            tuple(run.path for run in group),
            tuple(
                TrialStatus.waiting(
                    run.manifest.game, run.manifest.seed, budget=run.settings.config.frames, frames=run.total_frames
                )
                for run in group
            ),
            options.shared_by(num_processes, len(group)),
            own.trusted,
            tuple(refused),
        )
        for group in groups
    ]


def continue_in_processes(jobs: Sequence[ContinueJob], *, num_processes: int, is_watched: bool) -> Refused:
    """Carry jobs out in so many processes; return what could not be finished, and why."""
    with show_progress(unit="frames", wanted=is_watched) as bar, stop_requests() as request:
        shown = PoolProgress(bar, [job.trials for job in jobs])
        errors = run_jobs(continue_job, jobs, num_processes=num_processes, request=request, follow=shown.update)
    flags = "".join(f" --trust {module}" for module in dict.fromkeys(m for job in jobs for m in job.trusted))
    paths = [path for number in sorted(errors) for path in jobs[number].paths]
    return unfinished_jobs(jobs, errors, request, hint=f"continue with `comper resume {_named(paths)}{flags}`")


def unfinished_jobs(jobs: Sequence[SentJob], errors: Errors, request: StopRequest, *, hint: str) -> Refused:
    """Runs that were not finished, and why; where all were stopped, by a signal or a want of room, that is raised."""
    is_saved = all(jobs[number].options.with_checkpoints for number in errors)
    if request.name is not None and any(isinstance(error, StoppedError) for error in errors.values()):
        kept = "every trial was saved" if is_saved else "checkpoints are off, so trials start again from the beginning"
        raise StoppedError(f"stopped by {request.name}: {kept}; {hint}.")
    for error in errors.values():
        if isinstance(error, ResourceError):
            kept = " and saved" if is_saved else ", and start again from the beginning, since checkpoints are off"
            raise ResourceError(f"{_sentence(error)} The other trials were stopped{kept}: {hint}.")
    return {
        path: error
        for number, error in errors.items()
        for path in jobs[number].paths
        if not (isinstance(error, LeftOutError) and path in error.done)
    }


MAX_NAMED = 8


def _named(paths: Sequence[Path]) -> str:
    """The folders of runs, or the one above all of them where they are many."""
    return shlex.join(map(str, paths) if len(paths) <= MAX_NAMED else [os.path.commonpath(paths)])


def _sentence(error: ComperError) -> str:
    """An error without its own advice on how to go on, which speaks of one trial alone."""
    return str(error).partition(" What was saved before is untouched")[0]
