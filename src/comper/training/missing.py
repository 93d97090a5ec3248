"""Members of a population that have no folder: those that were never begun are made, the others are named."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from comper.environments.environment import EnvironmentSpec
from comper.environments.families import find_environment
from comper.errors import UsageError
from comper.runs.folder import CHECKPOINTS_FOLDER, LOG_FILES, MANIFEST_FILE, WEIGHTS_FILE
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.training import preflight
from comper.training.options import OwnCode, RunSettings
from comper.training.start import new_manifest

if TYPE_CHECKING:
    import torch


MAX_MADE = 1_000
"""Members that are made at a time."""
MAX_NAMED = 8
"""Members that are named one by one."""


class PresentMember(Protocol):
    """A run of a population that is there."""

    path: Path
    manifest: Manifest
    environment: EnvironmentSpec
    settings: RunSettings


@dataclass(frozen=True)
class MissingMember:
    """A trial that was to be started together with others and has no folder."""

    path: Path
    environment: str
    seed: int
    sibling: PresentMember
    can_be_made: bool
    """Whether its population was stopped while its folders were made, so that this trial never began."""

    def __str__(self) -> str:
        if self.can_be_made:
            return f"{self.path} was to be started together with {self.sibling.path}, and is made now"
        place = shlex.quote(str(self.path.parents[2]))
        return (
            f"{self.path} was started together with {self.sibling.path}, and its folder is gone: the same settings give it"
            f" again, with `comper train {self.environment} --agent {self.sibling.manifest.agent} --seed {self.seed}"
            f" --out {place} ...`"
        )


def missing_members(runs: Sequence[PresentMember], given: Sequence[Path]) -> list[MissingMember]:
    """The members without a folder; they can be made where no sibling has begun and they belong below a given folder."""
    above = [folder.resolve() for folder in given]
    found: dict[Path, MissingMember] = {}
    for run in runs:
        siblings = run.manifest.siblings(run.path)
        absent = {trial: path for trial, path in siblings.items() if not os.path.lexists(path)}
        is_new = bool(absent) and not any(_has_begun(path) for path in [run.path, *siblings.values()])
        for trial, path in absent.items():
            name, _, seed = trial.rpartition("/seed-")
            can_be_made = is_new and run.manifest.started_from is None and any(path.is_relative_to(top) for top in above)
            found.setdefault(path, MissingMember(path, name, int(seed), run, can_be_made))
    return list(found.values())


def require_plausible(missing: Sequence[MissingMember]) -> None:
    """Refuse to make thousands of runs because a file says so, or more than there is room for."""
    siblings = {member.sibling.path: member.sibling for member in missing}
    counts = Counter(member.sibling.path for member in missing)
    if len(missing) > MAX_MADE:
        path, count = counts.most_common(1)[0]
        raise UsageError(
            f"{path / MANIFEST_FILE}: names {count:,} trials that have no folder, and `comper resume` makes at most"
            f" {MAX_MADE:,}. If that is right, begin them with `comper train`; the runs that are there go on without them."
        )
    for path, count in counts.items():
        settings, environment = siblings[path].settings, siblings[path].environment
        preflight.check(settings, environment.info(settings.environment), trials=count, at_once=1, out=path)


def described(missing: Sequence[MissingMember]) -> list[str]:
    """What becomes of members without a folder: a line for each, or one for many."""
    if len(missing) <= MAX_NAMED:
        return list(map(str, missing))
    return [f"{missing[0]}; and so with {len(missing) - 1:,} others of such populations"]


def _has_begun(path: Path) -> bool:
    """Whether a trial has left anything: all folders of a population are made before its first frame."""
    is_saved = any((path / name).exists() for name in (CHECKPOINTS_FOLDER, WEIGHTS_FILE))
    return is_saved or any((path / name).is_file() and (path / name).stat().st_size > 0 for name in LOG_FILES)


def make_missing(member: MissingMember, device: torch.device, own: OwnCode) -> None:
    """Make the folder of a trial that never began."""
    sibling = member.sibling
    spec = sibling.environment
    if spec.name != member.environment:
        spec = find_environment(member.environment, trusted=own.trusted)
    info = spec.info(sibling.settings.environment)
    population = sibling.manifest.population
    manifest = new_manifest(sibling.settings, spec.name, member.seed, info=info, device=device, population=population)
    Recorder.create(member.path, sibling.settings.to_toml(), manifest).close()
