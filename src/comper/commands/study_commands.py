"""`comper study`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from comper.commands.arguments import add_run_options, add_threads, add_trust, example, folder, tracking_hooks
from comper.errors import printable


def add_study(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper study`."""
    example(parser, "comper study paper --dry-run", "comper study my_plan.toml --out studies/my_plan")
    parser.set_defaults(run=_study)
    text = "a TOML file (see examples/plans), or `paper`: the paper's 120 trials"
    parser.add_argument("plan", metavar="PLAN", help=text)
    text = "where the study goes, a folder for each variant (default: studies/PLAN)"
    parser.add_argument("--out", type=folder, metavar="DIR", help=text)
    text = "check the plan, and say what would be run and how long it would take; runs nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)
    text = "run the jobs on a Ray cluster: at ADDRESS, or the one that is found (else one is started on this machine)"
    parser.add_argument("--ray", nargs="?", const="auto", metavar="ADDRESS", help=text)
    add_run_options(parser)
    add_threads(parser)
    add_trust(parser)


def _study(args: argparse.Namespace) -> int:
    from comper.commands.run_commands import print_all_scores
    from comper.studies.plan import read_plan
    from comper.studies.ray_cluster import RayRunner
    from comper.studies.study import open_study, run_study
    from comper.training.hooks import checked_hooks
    from comper.training.options import RunOptions
    from comper.training.pool import run_jobs

    options = RunOptions(
        args.device,
        args.workers,
        args.checkpoint_period_steps,
        processes=args.processes,
        threads=args.threads,
        hooks=checked_hooks(tracking_hooks(args)),
    )
    plan = read_plan(args.plan, trusted=args.trust)
    study = open_study(plan, args.out or Path("studies", plan.name))
    if args.dry_run:
        return _print_jobs(study, options)
    words = ["comper", "study", args.plan, "--out", str(study.out), *(word for m in args.trust for word in ("--trust", m))]
    command = shlex.join([*words, *(["--ray", args.ray] if args.ray else [])])
    return print_all_scores(
        lambda: run_study(study, options, command=command, run=RayRunner(args.ray) if args.ray else run_jobs)
    )


def _print_jobs(study: object, options: object) -> int:
    from comper.progress import duration
    from comper.studies.estimate import estimate_seconds
    from comper.studies.study import Study, summary
    from comper.training.options import RunOptions

    assert isinstance(study, Study)
    assert isinstance(options, RunOptions)
    device = options.torch_device()
    jobs = study.jobs(options, device)
    for job in jobs:
        trials = ", ".join(f"{status.environment} seed {status.seed}" for status in job.trials)
        print(f"{job.variant}: {job.agent} on {trials}, {sum(status.budget for status in job.trials):,} frames")
    print(printable(summary(study, len(jobs), study.num_processes(options, device))))
    if jobs:
        print(f"about {duration(estimate_seconds(study, options))} on this machine (hours:minutes:seconds)")
    return 0
