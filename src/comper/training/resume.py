"""`comper resume`: continues unfinished runs from their newest whole checkpoints, to the bits of a run never stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from comper.errors import DamagedFileError, UsageError, printable
from comper.protocol import AnyConfig
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.files import digest, read_file
from comper.runs.folder import CHECKPOINTS_FOLDER, CONFIG_FILE, MANIFEST_FILE, WEIGHTS_FILE, find_runs, run_path
from comper.runs.lock import RunLock
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.states import Nested, unpack, unpack_weights, weights_of
from comper.runs.verify import Verdict, verify_run
from comper.settings import with_settings
from comper.training import preflight
from comper.training.conditions import check_conditions
from comper.training.population import Member, run_population
from comper.training.train import RunOptions, choose_device, make_agent, make_stepper, preset_config, train_pairs


@dataclass
class UnfinishedRun:
    """A run that can go on: locked, checked, and with what it goes on from."""

    path: Path
    lock: RunLock
    manifest: Manifest
    config: AnyConfig
    found: list[Checkpoint]
    """Whole checkpoints whose logs are whole too, oldest first; none: the run starts again from its seed."""
    notes: list[str] = field(default_factory=list)
    """What was skipped, and why."""

    @property
    def name(self) -> str:
        return self.manifest.trial

    @property
    def step(self) -> int:
        return self.found[-1].step if self.found else 0

    def go_back_to(self, step: int) -> None:
        """Drop what is newer than a step."""
        self.found = [checkpoint for checkpoint in self.found if checkpoint.step <= step]


@dataclass(frozen=True)
class StartingPoint:
    """Weights of another run, and where they are from."""

    weights: Nested
    about: dict[str, Any]


def resume(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
) -> list[Path]:
    """Continue every unfinished run in the folders and below them; return the run folders.

    >>> resume("runs/comper-single/freeway/seed-0")
    """
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress)
    paths = _runs_in(folders)
    with ExitStack() as stack:
        runs = []
        for path in paths:
            run = open_unfinished(path)
            if run is not None:
                stack.callback(run.lock.release)
                runs.append(run)
        torch_device = choose_device(device)
        for run in runs:
            check_conditions(run.manifest, torch_device)
            if show_progress:
                _tell(run)
        if not runs and show_progress:
            print("nothing to resume: every run here is finished.", file=sys.stderr)
        for group in _groups(runs, torch_device):
            _continue(group, torch_device, options)
    return [run.path for run in runs]


def open_unfinished(path: Path) -> UnfinishedRun | None:
    """Lock a run and find what it can go on from; None when it is finished."""
    lock = RunLock(path)
    try:
        verdict = verify_run(path)
        manifest = _manifest(verdict)
        if manifest.is_finished:
            lock.release()
            return None
        manifest.require_this_format(path)
        return UnfinishedRun(path, lock, manifest, _config(verdict), verdict.checkpoints, list(verdict.damaged.values()))
    except BaseException:
        lock.release()
        raise


def _runs_in(folders: Any) -> list[Path]:
    given = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    paths = [path for path in find_runs(Path(folder) for folder in given) if _has_begun(path)]
    if not paths:
        raise UsageError(f"No run in {', '.join(map(str, given))}.")
    return paths


def _has_begun(path: Path) -> bool:
    """Whether a folder holds anything that a run could continue from; one that was emptied does not."""
    return os.path.lexists(path / MANIFEST_FILE) or (path / CHECKPOINTS_FOLDER).is_dir()


def _manifest(verdict: Verdict) -> Manifest:
    if verdict.manifest is None:
        raise DamagedFileError(verdict.damaged[MANIFEST_FILE])
    return verdict.manifest


def _config(verdict: Verdict) -> AnyConfig:
    """The configuration, which must be the one the run was started with."""
    if verdict.config is None:
        raise DamagedFileError(verdict.damaged[CONFIG_FILE])
    try:
        return with_settings(preset_config(_manifest(verdict).agent), verdict.config, where=str(verdict.path / CONFIG_FILE))
    except UsageError as error:
        raise DamagedFileError(str(error)) from None


def _tell(run: UnfinishedRun) -> None:
    for note in run.notes:
        print(note, file=sys.stderr)
    place = f"continues from step {run.step:,}" if run.found else "has no checkpoint and starts again, to the same results"
    print(printable(f"{run.path} {place}"), file=sys.stderr)


def _groups(runs: Sequence[UnfinishedRun], device: torch.device) -> list[list[UnfinishedRun]]:
    """Runs that advance together: same agent, configuration and step; on a GPU, a population as it was."""
    if device.type == "cpu":
        groups: dict[Any, list[UnfinishedRun]] = {}
        for run in runs:
            groups.setdefault((run.manifest.agent, run.config, run.step), []).append(run)
        return list(groups.values())
    populations: dict[Any, list[UnfinishedRun]] = {}
    for run in runs:
        populations.setdefault((run.manifest.agent, run.config, tuple(run.manifest.population)), []).append(run)
    for group in populations.values():
        common = set.intersection(*({0} | {checkpoint.step for checkpoint in run.found} for run in group))
        for run in group:
            run.go_back_to(max(common))
    return list(populations.values())


def _members(group: Sequence[UnfinishedRun], device: torch.device) -> list[Member]:
    """The trials of a group; on a GPU also those that have finished, because the arithmetic depends on their number."""
    by_name = {run.name: run for run in group}
    if device.type == "cpu":
        return [_member(run) for run in group]
    members = []
    for name in group[0].manifest.population:
        game, _, seed = name.rpartition("/seed-")
        run = by_name.get(name)
        if run is None:
            _require_finished(group[0], game, int(seed))
        members.append(_member(run) if run else Member(game, int(seed), None))
    return members


def _require_finished(sibling: UnfinishedRun, game: str, seed: int) -> None:
    path = run_path(sibling.path.parents[2], agent=sibling.manifest.agent, game=game, seed=seed)
    if not path.is_dir() or not Manifest.read(path).is_finished:
        raise UsageError(
            f"{path} was trained together with {sibling.path} on a GPU, where a trial continues exactly only with the others"
            " of its population. Resume the folder above all of them."
        )


def _member(run: UnfinishedRun) -> Member:
    newest = run.found[-1] if run.found else None
    record = Recorder.reopen(run.path, run.manifest, run.lock, newest.about if newest else {})
    return Member(run.manifest.game, run.manifest.seed, record, files=newest.read() if newest else None, good=list(run.found))


def _continue(group: Sequence[UnfinishedRun], device: torch.device, options: RunOptions) -> None:
    config = group[0].config
    preflight.check(config, trials=len(group), out=group[0].path, with_checkpoints=options.with_checkpoints)
    members = _members(group, device)
    pairs = [(member.game, member.seed) for member in members]
    with make_stepper(pairs, config, options.num_workers(len(pairs))) as environments:
        run_population(members, config, make_agent, environments, device, options=options, step=group[0].step)


# --weights-only


def resume_weights_only(
    folders: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    out: Path,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
) -> list[Path]:
    """Begin new runs from the weights of others: memories, optimisers, random streams and budget all start anew."""
    groups: dict[Any, list[tuple[tuple[str, int], StartingPoint]]] = {}
    for path in _runs_in(folders):
        verdict = verify_run(path, with_states=False)
        manifest = _manifest(verdict)
        manifest.require_this_format(path)
        key = (manifest.agent, _config(verdict))
        groups.setdefault(key, []).append(((manifest.game, manifest.seed), starting_point(path, manifest)))
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress)
    paths = []
    for (agent, config), runs in groups.items():
        pairs, points = zip(*runs, strict=True)
        paths += train_pairs(pairs, agent, config, out=out, options=options, starting_points=points)
    return paths


def starting_point(path: Path, manifest: Manifest) -> StartingPoint:
    """The final weights of a finished run, or those of an unfinished one's newest whole checkpoint."""
    if manifest.is_finished:
        expected = manifest.files.get(WEIGHTS_FILE)
        if expected is None:
            raise UsageError(f"{path}: this agent has no weights.")
        content = read_file(path / WEIGHTS_FILE, max_bytes=int(expected["bytes"]))
        if digest(content) != expected:
            raise DamagedFileError(f"{path / WEIGHTS_FILE}: not the file its manifest describes.")
        return StartingPoint(unpack_weights(content), {"run": str(path), "step": manifest.steps, **expected})
    skipped: list[str] = []
    for place in checkpoints.paths(path):
        try:
            checkpoint = checkpoints.open_checkpoint(place)
            files = checkpoint.read()
        except DamagedFileError as error:
            skipped.append(str(error))
            continue
        state = unpack(files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE])
        about = {"run": str(path), "step": checkpoint.step, **checkpoint.about["files"][checkpoints.TENSORS_FILE]}
        return StartingPoint(weights_of(state["agent"]), about)
    raise DamagedFileError(f"{path}: no whole checkpoint to take weights from. {' '.join(skipped)}")
