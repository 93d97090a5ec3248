"""`comper study` and `comper search`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.commands.arguments import add_number, add_run_options, add_threads, add_trust, example, folder, run_options
from comper.errors import UsageError, printable
from comper.importing import require_extras
from comper.settings import whole_number

if TYPE_CHECKING:
    from comper.studies.study import Runner, Study
    from comper.training.options import RunOptions

MAX_TRIES = 20
"""In the table at the end of a search."""
SLURM_FLAGS = ("--slurm-partition", "--slurm-time", "--slurm-memory")


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
    _add_clusters(parser)
    add_run_options(parser)
    add_threads(parser)
    add_trust(parser)


def add_search(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper search`."""
    example(parser, "comper search examples/plans/search.toml --tries 20")
    parser.set_defaults(run=_search)
    text = "a TOML file with a [search] (see examples/plans/search.toml)"
    parser.add_argument("plan", metavar="PLAN", help=text)
    add_number(parser, "--tries", 20, "combinations of settings to try, with those of an earlier command")
    text = "where the search goes, a folder for each try (default: searches/PLAN)"
    parser.add_argument("--out", type=folder, metavar="DIR", help=text)
    parser.add_argument("--floors", type=folder, metavar="FILE", help="floors that `comper floors --out FILE` measured")
    _add_clusters(parser)
    add_run_options(parser)
    add_threads(parser)
    add_trust(parser)


def _add_clusters(parser: argparse.ArgumentParser) -> None:
    clusters = parser.add_mutually_exclusive_group()
    text = "run the jobs on a Ray cluster: at ADDRESS, or the one that is found (else one is started on this machine)"
    clusters.add_argument("--ray", nargs="?", const="auto", type=_address, metavar="ADDRESS", help=text)
    text = "run the jobs on a Slurm cluster, at most --processes at once (default: 256); all nodes must see --out"
    clusters.add_argument("--slurm", action="store_true", help=text)
    parser.add_argument("--slurm-partition", metavar="NAME", help="Slurm's partition (default: the cluster's own)")
    text = "time limit of a job; one that runs into it goes on from its checkpoint (default: 60)"
    parser.add_argument("--slurm-time", type=whole_number, metavar="MINUTES", help=text)
    text = "memory of a job (default: the cluster's own)"
    parser.add_argument("--slurm-memory", type=whole_number, metavar="GB", help=text)


def _address(text: str) -> str:
    """What follows --ray: "$HEAD" of a shell that does not know it must not mean "not on a cluster"."""
    if not text:
        raise argparse.ArgumentTypeError("an address is HOST:PORT, as `ray start --head` prints it")
    return text


def _study(args: argparse.Namespace) -> int:
    require_extras("train", "report", *_cluster_extras(args))  # before torch is imported, and not after hours of training
    from comper.commands.run_commands import print_all_scores
    from comper.studies.plan import read_plan
    from comper.studies.study import open_study, run_study

    options = run_options(args)
    plan = read_plan(args.plan, trusted=args.trust)
    study = open_study(plan, args.out or Path("studies", plan.name))
    run = _runner(args, study.out)
    if args.dry_run:
        return _print_jobs(study, options)
    command = _command(args, "study", study.out)
    return print_all_scores(lambda: run_study(study, options, command=command, run=run, place=_place(args)), study=study.out)


def _search(args: argparse.Namespace) -> int:
    require_extras("train", "optuna", *_cluster_extras(args))
    from comper.report.scoreboard import aligned
    from comper.studies.settings_search import SCORE, import_optuna, read_search, require_scored, run_search

    import_optuna()
    options, search = run_options(args), read_search(args.plan, trusted=args.trust)
    out = args.out or Path("searches", search.plan.name)
    command = _command(args, "search", out, "--tries", str(args.tries))
    if args.floors is not None:
        command += shlex.join(["", "--floors", str(args.floors)])
    tries = run_search(
        search, out, args.tries, options, command=command, run=_runner(args, out), place=_place(args), floors=args.floors
    )
    names = list(search.ranges)
    rows = [[t.name, _shown(t.score), *(_shown(t.settings.get(name)) for name in names)] for t in tries[:MAX_TRIES]]
    print(printable(aligned([["try", "score", *names], *rows])))
    if len(tries) > MAX_TRIES:
        print(f"and {len(tries) - MAX_TRIES} more")
    best = require_scored(tries)
    print(
        printable(f"\n{SCORE}\nThe best of them, with new seeds and on what the search has not seen if it is to be reported:")
    )
    print(printable(f"  {search.train_command(best.settings)}"))
    return 0


def _cluster_extras(args: argparse.Namespace) -> list[str]:
    return [name for name in ("ray", "slurm") if getattr(args, name)]


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _command(args: argparse.Namespace, name: str, out: Path, *more: str) -> str:
    """The command that goes on with the same."""
    trust = [word for module in args.trust for word in ("--trust", module)]
    return shlex.join(["comper", name, args.plan, "--out", str(out), *more, *trust, *_cluster_words(args)])


def _place(args: argparse.Namespace) -> str:
    return "on a Ray cluster" if args.ray else "on a Slurm cluster" if args.slurm else ""


def _runner(args: argparse.Namespace, out: Path) -> Runner:
    """Who carries the jobs out: processes here, or a cluster."""
    from comper.studies.ray_cluster import RayRunner
    from comper.studies.slurm_cluster import SlurmRunner
    from comper.training.pool import run_jobs

    if not args.slurm:
        for flag in SLURM_FLAGS:
            if _value(args, flag) is not None:
                raise UsageError(f"{flag} goes with --slurm.")
        return RayRunner(args.ray) if args.ray else run_jobs
    given = {"minutes": args.slurm_time, "at_once": args.processes}
    known = {name: value for name, value in given.items() if value is not None}
    runner = SlurmRunner(out, args.slurm_partition, memory_gb=args.slurm_memory, **known)
    runner.check()
    return runner


def _cluster_words(args: argparse.Namespace) -> list[str]:
    """The flags that choose the same cluster again."""
    words = ["--ray", args.ray] if args.ray else ["--slurm"] if args.slurm else []
    return words + [word for flag in SLURM_FLAGS if (value := _value(args, flag)) is not None for word in (flag, str(value))]


def _value(args: argparse.Namespace, flag: str) -> Any:
    return getattr(args, flag[2:].replace("-", "_"))


def _print_jobs(study: Study, options: RunOptions) -> int:
    from comper.progress import duration
    from comper.studies.estimate import estimate_seconds
    from comper.studies.study import summary

    device = options.torch_device()
    jobs = study.jobs(options, device)
    for job in jobs:
        trials = ", ".join(f"{status.environment} seed {status.seed}" for status in job.trials)
        print(f"{job.variant}: {job.agent} on {trials}, {sum(status.budget for status in job.trials):,} frames")
    print(printable(summary(study, len(jobs), study.num_processes(options, device))))
    if jobs:
        time = duration(estimate_seconds(study, options))
        print(f"about {time} on this machine ({'hours:minutes:seconds' if time.count(':') > 1 else 'minutes:seconds'})")
    return 0
