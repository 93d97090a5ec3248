"""A study carried out: trials of a plan that are not finished, in processes here or elsewhere, and a report at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comper.errors import ComperError, DamagedFileError, OtherVersionError, UsageError, counted, explaining_os_errors
from comper.output import print_line
from comper.runs.files import digest, read_file, require_no_links, write_atomically
from comper.runs.folder import has_begun
from comper.runs.lock import RunLock
from comper.runs.manifest import Manifest
from comper.runs.recorder import check_is_free
from comper.settings import parse_settings
from comper.studies.live_table import study_table
from comper.studies.plan import Plan, PlannedTrial
from comper.training.continuing import ContinueJob, Refused, continue_job, done_or_left_out, layout_of, unfinished_jobs
from comper.training.display import Audience, TrialStatus
from comper.training.options import OwnCode, RunOptions, outside_modules, recorded_settings, resolve_settings
from comper.training.pool import Errors, Follow, Work, run_jobs
from comper.training.signals import StopRequest, stop_requests
from comper.training.start import begin
from comper.training.train import find_environments

if TYPE_CHECKING:
    import torch

PLAN_FILE = "plan.toml"
REPORT_FOLDER = "report"


class Runner(Protocol):
    """Carries jobs out, as `comper.training.pool.run_jobs` does."""

    def __call__(
        self, work: Work, jobs: Sequence[Any], *, num_processes: int, request: StopRequest, follow: Follow
    ) -> Errors: ...


@dataclass(frozen=True)
class StudyJob:
    """Trials of a study that advance together: plain data, so that any process, here or elsewhere, can carry it out."""

    variant: str
    agent: str
    settings: str
    """Every setting, as TOML."""
    trials: tuple[TrialStatus, ...]
    paths: tuple[Path, ...]
    out: Path
    """The variant's folder."""
    options: RunOptions
    trusted: tuple[str, ...] = ()


def carry_out(job: StudyJob, audience: Audience) -> None:
    """Begin those trials of a job that have no folder, and run all to their end."""
    specs = {status.environment: find_environments([status.environment], trusted=job.trusted)[0] for status in job.trials}
    values = parse_settings(job.settings.encode(), where=job.variant)
    settings = resolve_settings(job.agent, list(specs.values()), values, where=job.variant, trusted=job.trusted)
    pairs = [(specs[status.environment], status.seed) for status in job.trials]
    new = [pair for pair, path in zip(pairs, job.paths, strict=True) if not has_begun(path)]
    if new:
        begin(new, settings, out=job.out, options=job.options, population=pairs)
    continue_job(ContinueJob(job.paths, job.trials, job.options, job.trusted), audience)


@dataclass(frozen=True)
class Study:
    """A plan, and what of it is done already."""

    plan: Plan
    out: Path
    finished: tuple[PlannedTrial, ...]
    unfinished: tuple[PlannedTrial, ...]
    """Begun or not."""

    @property
    def frames(self) -> int:
        """Of the trials that are not finished."""
        return sum(trial.frames for trial in self.unfinished)

    def jobs(self, options: RunOptions, device: torch.device) -> list[StudyJob]:
        """What is left to do: on a CPU a job is one trial; on a GPU, trials of a variant that can advance together."""
        num_processes = self.num_processes(options, device)
        size = -(-len(self.unfinished) // max(1, num_processes))
        groups = [[trial] for trial in self.unfinished] if device.type == "cpu" else self._populations(size)
        return [self._job(group, options.shared_by(num_processes, len(group))) for group in groups]

    def num_processes(self, options: RunOptions, device: torch.device) -> int:
        """Processes for what is left to do."""
        return options.num_processes(len(self.unfinished), device) if self.unfinished else 0

    def _populations(self, size: int) -> list[list[PlannedTrial]]:
        """Trials that share a variant and its arithmetic, so many at most; once begun, the population they had."""
        begun: dict[Any, list[PlannedTrial]] = {}
        new: dict[Any, list[PlannedTrial]] = {}
        for trial in self.unfinished:
            path = trial.path(self.out)
            if has_begun(path):
                begun.setdefault((trial.variant, _population_of(path)), []).append(trial)
            else:
                key = (trial.variant, trial.settings.parts, layout_of(trial.environment.name))
                new.setdefault(key, []).append(trial)
        parts = [(group, -(-len(group) // size)) for group in new.values()]
        return [*begun.values(), *(group[number::count] for group, count in parts for number in range(count))]

    def _job(self, group: Sequence[PlannedTrial], options: RunOptions) -> StudyJob:
        first = group[0]
        trials = tuple(TrialStatus.waiting(trial.environment.name, trial.seed, budget=trial.frames) for trial in group)
        return StudyJob(
            first.variant,
            first.settings.agent_name,
            first.settings.to_toml(),
            trials,
            tuple(trial.path(self.out).absolute() for trial in group),
            (self.out / first.variant).absolute(),
            options,
            tuple(outside_modules(first.settings, (trial.environment.name for trial in group))),
        )


def _population_of(path: Path) -> tuple[str, ...]:
    """The trials that a begun one advances with; of a damaged one only itself: carrying it out tells what is wrong."""
    try:
        return tuple(Manifest.read(path).population)
    except DamagedFileError:
        return (str(path),)


def open_study(plan: Plan, out: Path) -> Study:
    """Look what of a plan is done; a folder that holds another run than the plan wants is refused."""
    for variant in plan.variants:
        for spec, settings in {type(spec.settings): (spec, settings) for spec, settings in variant.environments}.values():
            settings.check(spec.info(settings.environment))
    require_no_links(out, [out / REPORT_FOLDER, *(trial.path(out) for trial in plan.trials)])
    finished: list[PlannedTrial] = []
    unfinished: list[PlannedTrial] = []
    for trial in plan.trials:
        (finished if _is_finished(trial, trial.path(out)) else unfinished).append(trial)
    return Study(plan, out, tuple(finished), tuple(unfinished))


def _is_finished(trial: PlannedTrial, path: Path) -> bool:
    if not has_begun(path):
        check_is_free(path)
        return False
    try:
        manifest = Manifest.read(path)
    except DamagedFileError:
        return False  # its checkpoints may hold another copy; resuming it tells
    if (manifest.agent, manifest.game, manifest.seed) != (trial.settings.agent_name, trial.environment.name, trial.seed):
        raise UsageError(
            f"{path}: holds a run of {manifest.agent} in {manifest.game}, seed {manifest.seed}, not the one that the plan has"
            " there. Move it away, or choose another --out."
        )
    if not _has_settings_of(trial, path, manifest):
        raise UsageError(f"{path}: holds a run of other settings than the plan has now. Rename the variant, or choose --out.")
    return manifest.is_finished


def _has_settings_of(trial: PlannedTrial, path: Path, manifest: Manifest) -> bool:
    """Whether a run was made with a trial's settings; one made before some of them were there is asked what it did."""
    if manifest.config_sha256 == digest(trial.settings.to_toml().encode())["sha256"]:
        return True
    own = OwnCode(trusted=tuple(outside_modules(trial.settings, [trial.environment.name])))
    try:
        return recorded_settings(path, manifest, own).parts == trial.settings.parts
    except OtherVersionError:
        raise
    except UsageError:
        return False


def run_study(study: Study, options: RunOptions, *, command: str, run: Runner = run_jobs, place: str = "") -> list[Path]:
    """Run what is not finished, report on everything, and return all run folders.

    `command` goes on after an interruption; `place` says where jobs are carried out, if not in processes here.
    """
    with explaining_os_errors(study.out, hint="Choose another --out.", is_typed=True):
        study.out.mkdir(parents=True, exist_ok=True)
    with RunLock(study.out, "study"):
        _keep_plan(study.out / PLAN_FILE, study.plan.text)
        refused = run_trials(study, options, command=command, run=run, place=place)
        return _reported(study, options, refused)


def _reported(study: Study, options: RunOptions, refused: Refused) -> list[Path]:
    paths = [trial.path(study.out) for trial in study.plan.trials]
    try:
        _report(study.out, options.show_progress)
    except ComperError as error:
        if not refused:
            raise
        print_line(str(error))  # why trials could not be finished says more
    missing = {path.absolute() for path in refused}
    return done_or_left_out([path for path in paths if path.absolute() not in missing], refused, "finished")


def run_trials(study: Study, options: RunOptions, *, command: str, run: Runner = run_jobs, place: str = "") -> Refused:
    """Run the trials that are not finished; return those that could not be, and why."""
    device = options.torch_device()
    jobs = study.jobs(options, device)
    if not jobs:
        return {}
    if options.show_progress:
        print_line(summary(study, len(jobs), study.num_processes(options, device), place))
    variants, trials = [job.variant for job in jobs], [job.trials for job in jobs]
    with study_table(variants, trials, is_watched=options.show_progress) as table, stop_requests() as request:
        num_processes = min(len(jobs), study.num_processes(options, device))
        errors = run(carry_out, jobs, num_processes=num_processes, request=request, follow=table.update)
    return unfinished_jobs(jobs, errors, request, hint=f"the same command goes on with it: `{command}`")


def summary(study: Study, num_jobs: int, num_processes: int, place: str = "") -> str:
    """What there is to do, in one line."""
    done = f", {len(study.finished)} of them finished" if study.finished else ""
    place = place or f"in {counted(num_processes, 'process', 'processes')}"
    trials, jobs = counted(len(study.plan.trials), "trial"), counted(num_jobs, "job")
    return f"{study.plan.name}: {trials}{done}; {jobs} {place}, {study.frames:,} frames to go"


def _keep_plan(kept: Path, text: bytes) -> None:
    """Keep the plan beside its runs; another one that is there, of an earlier study or the user's own, is not lost."""
    with explaining_os_errors(kept, hint="Choose another --out.", is_typed=True):
        if os.path.lexists(kept) and not _holds(kept, text):
            os.rename(kept, next(p for n in count(1) if not os.path.lexists(p := kept.with_name(f"plan-{n}.toml"))))
        write_atomically(kept, text)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_file(path, max_bytes=len(content)) == content
    except DamagedFileError:
        return False


def _report(out: Path, is_watched: bool) -> None:
    from comper.report.report import report

    result = report([out], out / REPORT_FOLDER, progress=is_watched)
    if is_watched:
        print_line(f"report: {result.page}")
