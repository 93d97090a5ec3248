"""`comper resume`: continues unfinished runs from their newest whole checkpoints, to the bits of a run never stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.agents.agent import AgentSpec
from comper.environments.environment import EnvironmentInfo, EnvironmentSpec
from comper.environments.families import find_environment
from comper.errors import ComperError, DamagedFileError, LeftOutError, StoppedError, UsageError, printable
from comper.output import print_line
from comper.runs.checkpoints import Checkpoint
from comper.runs.folder import CHECKPOINTS_FOLDER, CONFIG_FILE, MANIFEST_FILE, find_runs
from comper.runs.lock import RunLock
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.verify import verify_run
from comper.training import preflight
from comper.training.conditions import check_conditions
from comper.training.hooks import AnyHook, checked_hooks
from comper.training.missing import MissingMember, make_missing, missing_members
from comper.training.options import (
    NO_OWN_CODE,
    NetworkMaker,
    OwnCode,
    RunOptions,
    RunSettings,
    recorded_environment,
    recorded_settings,
)
from comper.training.population import Member, make_stepper, run_population
from comper.training.train import StartingPoint, start_runs
from comper.training.weights import saved_weights

if TYPE_CHECKING:
    import torch

Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
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

    @property
    def step(self) -> int:
        return self.checkpoints[-1].step if self.checkpoints else 0

    def go_back_to(self, step: int) -> None:
        """Drop what is newer than a step."""
        self.checkpoints = [checkpoint for checkpoint in self.checkpoints if checkpoint.step <= step]


def resume(
    folders: Folders,
    *,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
    agent: AgentSpec | None = None,
    environment: Callable[[], Any] | None = None,
    network: NetworkMaker | None = None,
    trust: Sequence[str] = (),
    hooks: Sequence[AnyHook] = (),
) -> list[Path]:
    """Continue every unfinished run in the folders and below them; return the run folders.

    `agent`, `environment` and `network` are needed where a run was given them as Python objects; `trust` names modules from
    outside comper that a run needs and that may be imported; `hooks` are those of `train`.

        resume("runs/comper-single/freeway/seed-0")
    """
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress, checked_hooks(hooks))
    own = OwnCode(agent, environment, network, tuple(trust))
    refused: Refused = {}
    with ExitStack() as stack:
        torch_device = options.torch_device()
        paths = _runs_in(folders)
        preflight.allow_open_files(len(paths), 0)
        runs = _open_all(paths, own, stack, refused)
        missing = missing_members(runs, _given(folders))
        if show_progress:
            _print_plan(runs, refused, missing)
        for member in missing:
            if member.can_be_made:
                with _noting_refusals(refused, [member.path]):
                    make_missing(member, torch_device, own)
                    runs += _open_all([member.path], own, stack, refused)
        for group in _groups(runs, torch_device):
            with _noting_refusals(refused, [run.path for run in group]):
                _continue(group, torch_device, options, own, refused)
    return _done([run.path for run in runs if run.path not in refused], refused)


@contextmanager
def _noting_refusals(refused: Refused, paths: Sequence[Path]) -> Iterator[None]:
    """Go on with other runs after what one of them cannot do; a signal to stop stops all."""
    try:
        yield
    except StoppedError:
        raise
    except ComperError as error:
        refused.update(dict.fromkeys(paths, error))


def _done(done: list[Path], refused: Refused) -> list[Path]:
    """What was done; where some runs were left out, an error that names them, with the exit code of the first."""
    if not refused:
        return done
    errors = list(dict.fromkeys(refused.values()))
    if len(errors) == 1 and not done:
        raise errors[0]
    text = f"{len(refused)} of {len(refused) + len(done)} runs could not be continued:"
    raise LeftOutError("\n  ".join([text, *map(str, errors)]), exit_code=errors[0].exit_code, done=done)


def _open_all(paths: Sequence[Path], own: OwnCode, stack: ExitStack, refused: Refused) -> list[UnfinishedRun]:
    """Lock and check the unfinished runs; one that is locked, damaged or read-only does not keep the others."""
    runs = []
    for path in paths:
        with _noting_refusals(refused, [path]):
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


def _given(folders: Folders) -> list[Path]:
    return [Path(folders)] if isinstance(folders, str | os.PathLike) else [Path(folder) for folder in folders]


def _runs_in(folders: Folders) -> list[Path]:
    given = _given(folders)
    paths = [path for path in find_runs(given) if _has_begun(path)]
    if not paths:
        raise UsageError(f"No run in {', '.join(map(str, given))}.")
    return paths


def _has_begun(path: Path) -> bool:
    """Whether a folder holds anything that a run could continue from; one that was emptied does not."""
    return os.path.lexists(path / MANIFEST_FILE) or (path / CHECKPOINTS_FOLDER).is_dir()


def _print_plan(runs: Sequence[UnfinishedRun], refused: Refused, missing: Sequence[MissingMember]) -> None:
    if not runs and not refused:
        print_line("nothing to resume: every run here is finished.")
    for error in refused.values():
        print_line(f"left out: {error}")
    for member in missing:
        print_line(printable(str(member)))
    for run in runs:
        for note in run.notes:
            print_line(printable(note))
        place = (
            f"continues from step {run.step:,}"
            if run.checkpoints
            else "has no checkpoint and starts again, to the same results"
        )
        print_line(printable(f"{run.path} {place}"))


def _groups(runs: Sequence[UnfinishedRun], device: torch.device) -> list[list[UnfinishedRun]]:
    """Runs that advance together: same agent, settings, step and kind of environment; on a GPU, a population as it was."""
    is_cpu = device.type == "cpu"
    groups: dict[Any, list[UnfinishedRun]] = {}
    for run in runs:
        beside = (run.step, _layout(run.manifest)) if is_cpu else tuple(run.manifest.population)
        groups.setdefault((run.manifest.agent, run.settings.parts, beside), []).append(run)
    if not is_cpu:
        for group in groups.values():
            common = set.intersection(*({0} | {checkpoint.step for checkpoint in run.checkpoints} for run in group))
            for run in group:
                run.go_back_to(max(common))
    return list(groups.values())


def _continue(
    group: Sequence[UnfinishedRun], device: torch.device, options: RunOptions, own: OwnCode, refused: Refused
) -> None:
    settings = group[0].settings
    infos: dict[str, EnvironmentInfo] = {}
    for run in group:
        with _noting_refusals(refused, [run.path]):
            name = run.environment.name
            infos[name] = infos.get(name) or run.environment.info(settings.environment)
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
        run_population(members, settings, environments, device, options=options, step=group[0].step)


def _require_resumable(run: UnfinishedRun, info: EnvironmentInfo) -> None:
    if info.resume and run.checkpoints:
        raise UsageError(f"{run.path}: cannot be continued exactly: {info.resume} Begin a new run.")


def _layout(manifest: Manifest) -> str:
    """What environments must share to be stepped together: Atari games are alike, others may not be."""
    return manifest.game if ":" in manifest.game else "Atari"


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
    record = Recorder.reopen(run.path, run.manifest, run.lock, newest.about if newest else {})
    return Member(spec.name, seed, record, files=newest.read() if newest else None, checkpoints=list(run.checkpoints))


def resume_weights_only(
    folders: Folders,
    *,
    out: Path,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
    trust: Sequence[str] = (),
    hooks: Sequence[AnyHook] = (),
) -> list[Path]:
    """Begin new runs from the weights of others: memories, optimisers, random streams and budget all start anew."""
    own = OwnCode(trusted=tuple(trust))
    refused: Refused = {}
    groups: dict[Any, list[tuple[Path, RunSettings, tuple[EnvironmentSpec, int], StartingPoint]]] = {}
    for path in _runs_in(folders):
        with _noting_refusals(refused, [path]):
            manifest = Manifest.read(path)
            manifest.require_this_format(path)
            settings, spec = recorded_settings(path, manifest, own), recorded_environment(manifest, own)
            point = StartingPoint(*saved_weights(path, manifest))
            key = (manifest.agent, settings.parts, _layout(manifest))
            groups.setdefault(key, []).append((path, settings, (spec, manifest.seed), point))
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress, checked_hooks(hooks))
    new: list[Path] = []
    for members in groups.values():
        pairs, points = [pair for _, _, pair, _ in members], [point for _, _, _, point in members]
        with _noting_refusals(refused, [path for path, _, _, _ in members]):
            new += start_runs(pairs, members[0][1], out=out, options=options, starting_points=points)
    return _done(new, refused)
