"""`comper resume`: continues unfinished runs from their newest whole checkpoints, to the bits of a run never stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from comper.agents.agent import AgentSpec
from comper.environments.environment import EnvironmentSpec
from comper.errors import UsageError
from comper.output import print_line
from comper.runs.folder import find_runs, has_begun
from comper.runs.manifest import Manifest
from comper.training import preflight
from comper.training.continuing import (
    Refused,
    UnfinishedRun,
    continue_group,
    continue_in_processes,
    done_or_left_out,
    groups_of,
    jobs_of,
    layout_of,
    noting_refusals,
    open_all,
)
from comper.training.evaluation import Policy
from comper.training.hooks import AnyHook, checked_hooks
from comper.training.missing import MissingMember, described, make_missing, missing_members, require_plausible
from comper.training.options import (
    NetworkMaker,
    OwnCode,
    RunOptions,
    RunSettings,
    can_be_sent,
    recorded_environment,
    recorded_settings,
)
from comper.training.start import StartingPoint
from comper.training.train import start_runs
from comper.training.weights import naming, saved_weights

Folders = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def resume(
    folders: Folders,
    *,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
    processes: int | None = None,
    agent: AgentSpec | None = None,
    environment: Callable[[], Any] | None = None,
    network: NetworkMaker | None = None,
    trust: Sequence[str] = (),
    hooks: Sequence[AnyHook] = (),
) -> list[Path]:
    """Continue every unfinished run in the folders and below them; return the run folders.

    `processes` run them; None: on a CPU one per core. `agent`, `environment` and `network` are needed where a run was given
    them as Python objects; `trust` names modules from outside comper that a run needs and that may be imported.
    `hooks` are those of `train`.

        resume("runs/comper-single/freeway/seed-0")
    """
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress, processes, hooks=checked_hooks(hooks))
    own = OwnCode(agent, environment, network, tuple(trust))
    refused: Refused = {}
    with ExitStack() as stack:
        torch_device = options.torch_device()
        paths = _runs_in(folders)
        preflight.allow_open_files(len(paths), 0)
        runs = open_all(paths, own, stack, refused)
        missing = missing_members(runs, _given(folders))
        unbegun = [member for member in missing if member.can_be_made]
        with noting_refusals(refused, [member.path for member in unbegun]):
            require_plausible(unbegun)
        if show_progress:
            _print_plan(runs, refused, missing)
        for member in unbegun:
            if member.path not in refused:
                with noting_refusals(refused, [member.path]):
                    make_missing(member, torch_device, own)
                    runs += open_all([member.path], own, stack, refused)
        groups = groups_of(runs, torch_device)
        jobs = jobs_of(groups, torch_device, options, own, refused)
        num_processes = options.num_processes(len(jobs), torch_device) if _can_be_sent(runs) else 1
        if num_processes <= 1:
            for group in groups:
                with noting_refusals(refused, [run.path for run in group]):
                    continue_group(group, torch_device, options, own, refused)
    # Now that the locks are free, others may take them.
    if num_processes > 1:
        refused |= continue_in_processes(jobs, num_processes=num_processes, is_watched=show_progress)
    return done_or_left_out([run.path for run in runs if run.path not in refused], refused)


def _can_be_sent(runs: Sequence[UnfinishedRun]) -> bool:
    return all(can_be_sent(run.settings, [run.environment]) for run in runs)


def _given(folders: Folders) -> list[Path]:
    return [Path(folders)] if isinstance(folders, str | os.PathLike) else [Path(folder) for folder in folders]


def _runs_in(folders: Folders) -> list[Path]:
    given = _given(folders)
    paths = [path for path in find_runs(given) if has_begun(path)]
    if not paths:
        raise UsageError(f"No run in {', '.join(map(str, given))}.")
    return paths


def _print_plan(runs: Sequence[UnfinishedRun], refused: Refused, missing: Sequence[MissingMember]) -> None:
    if not runs and not refused:
        print_line("nothing to resume: every run here is finished.")
    for error in dict.fromkeys(refused.values()):
        print_line(f"left out: {error}")
    for can_be_made in (True, False):
        named = [member for member in missing if member.can_be_made is can_be_made and member.path not in refused]
        for line in described(named):
            print_line(line)
    for run in runs:
        for note in run.notes:
            print_line(note)
        place = (
            f"continues from step {run.step:,}"
            if run.checkpoints
            else "has no checkpoint and starts again, to the same results"
        )
        print_line(f"{run.path} {place}")


def resume_weights_only(
    folders: Folders,
    *,
    out: Path,
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
    processes: int | None = None,
    trust: Sequence[str] = (),
    hooks: Sequence[AnyHook] = (),
) -> list[Path]:
    """Begin new runs from the weights of others: memories, optimisers, random streams and budget all start anew."""
    own = OwnCode(trusted=tuple(trust))
    refused: Refused = {}
    groups: dict[Any, list[tuple[Path, RunSettings, tuple[EnvironmentSpec, int], StartingPoint]]] = {}
    for path in _runs_in(folders):
        with noting_refusals(refused, [path]):
            manifest = Manifest.read(path)
            manifest.require_this_format(path)
            settings, spec = recorded_settings(path, manifest, own), recorded_environment(manifest, own)
            point = StartingPoint(*saved_weights(path, manifest))
            info = spec.info(settings.environment)
            settings.check_recorded(path, info)
            with naming(path):  # before any folder is made: an agent that cannot take them stops no other
                Policy(settings, info, point.weights, seed=0, device="cpu")
            key = (manifest.agent, settings.parts, layout_of(manifest.game))
            groups.setdefault(key, []).append((path, settings, (spec, manifest.seed), point))
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress, processes, hooks=checked_hooks(hooks))
    new: list[Path] = []
    for members in groups.values():
        pairs, points = [pair for _, _, pair, _ in members], [point for _, _, _, point in members]
        with noting_refusals(refused, [path for path, _, _, _ in members]):
            new += start_runs(pairs, members[0][1], out=out, options=options, starting_points=points)
    return done_or_left_out(new, refused)
