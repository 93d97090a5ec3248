"""What the rest of a study takes on this machine: each variant is played for some hundred steps, learning included."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from comper.progress import show_progress
from comper.runs.files import read_json_lines
from comper.runs.folder import METRICS_FILE
from comper.runs.manifest import Manifest
from comper.settings import parse_settings
from comper.studies.study import Study, StudyJob
from comper.training.options import RunOptions, resolve_settings
from comper.training.train import find_environments, start_runs

STEPS = 300
QUICK = {"replay_start_steps": 50, "log_period_steps": 50}
"""A trial learns from its first steps on, or the steps before would make it look quick."""


def estimate_seconds(study: Study, options: RunOptions) -> float:
    """Seconds for what is not finished, if every job of a variant is as quick as its first."""
    device = options.torch_device()
    jobs = study.jobs(options, device)
    firsts = {job.variant: job for job in reversed(jobs)}
    rates: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="comper-estimate-") as folder,
        show_progress("Variants tried", wanted=options.show_progress) as progress,
    ):
        for done, (variant, job) in enumerate(firsts.items(), start=1):
            rates[variant] = _frames_per_second(job, Path(folder, variant))
            progress.update(done, len(firsts))
    seconds = sum(job.trials[0].budget / rates[job.variant] for job in jobs)
    return seconds / max(1, min(len(jobs), study.num_processes(options, device)))


def _frames_per_second(job: StudyJob, out: Path) -> float:
    """Frames a second of each trial of a job."""
    specs = [find_environments([status.environment], trusted=job.trusted)[0] for status in job.trials]
    values = parse_settings(job.settings.encode(), where=job.variant)
    full = resolve_settings(job.agent, specs, values, where=job.variant, trusted=job.trusted)
    frames = STEPS * full.environment.frames_per_observation * full.config.observations_per_step
    short = {**QUICK, "frames": frames, "episode_cap_frames": frames}
    values |= {name: value for name, value in short.items() if name in values}
    settings = resolve_settings(job.agent, specs, values, where=job.variant, trusted=job.trusted)
    pairs = [(spec, status.seed) for spec, status in zip(specs, job.trials, strict=True)]
    options = replace(job.options, checkpoint_period_steps=0)
    run = start_runs(pairs, settings, out=out, options=options)[0]
    rates = [float(record["steps_per_second"]) for _, record in read_json_lines(run / METRICS_FILE)]
    learning = rates[len(rates) // 2 :]
    manifest = Manifest.read(run)
    if not learning or not manifest.steps or not manifest.total_frames:
        raise ValueError(f"{run}: no line of metrics.")
    return len(learning) / sum(1 / rate for rate in learning) * manifest.total_frames / manifest.steps
