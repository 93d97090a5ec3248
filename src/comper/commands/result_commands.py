"""`comper evaluate`, `verify`, `report` and `import-release`: what is done with runs."""

from __future__ import annotations

import argparse
import json
from typing import Any

from comper.commands.arguments import add_checkpoint, add_device, add_number, add_trust, example, folder
from comper.errors import DamagedFileError, DivergedError, OtherVersionError, UsageError, printable
from comper.importing import require_extras
from comper.output import print_line


def add_evaluate(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper evaluate`."""
    example(
        parser,
        "comper evaluate runs/dqn/pong/seed-0 --episodes 30",
        "comper evaluate runs/dqn/pong/seed-0 --checkpoint 5000 --json",
        "comper evaluate runs",
    )
    parser.set_defaults(run=_evaluate)
    parser.add_argument("folders", nargs="+", type=folder, metavar="RUN", help="a run folder, or a folder above runs")
    add_checkpoint(parser)
    add_number(parser, "--episodes", 10, "episodes to play")
    add_number(parser, "--epsilon", 0.001, "share of random actions")
    add_number(parser, "--seed", 0, "seed of the episodes")
    parser.add_argument("--floors", type=folder, metavar="FILE", help="floors that `comper floors --out FILE` measured")
    add_device(parser)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each run")
    add_trust(parser)


def _evaluate(args: argparse.Namespace) -> int:
    require_extras("train")
    from comper.runs.folder import find_runs
    from comper.training.evaluation import evaluate

    runs = find_runs(args.folders)
    if not runs:
        raise UsageError(f"No run in {', '.join(map(str, args.folders))}. One is called like runs/dqn/freeway/seed-0.")
    unknown: set[str] = set()
    exit_code = 0
    for run in runs:
        try:
            result = evaluate(
                run,
                episodes=args.episodes,
                epsilon=args.epsilon,
                checkpoint=args.checkpoint,
                seed=args.seed,
                device=args.device,
                trust=args.trust,
                floors=args.floors,
            )
        except (DamagedFileError, DivergedError, OtherVersionError) as error:
            if len(runs) == 1:
                raise
            print_line(f"{run}: left out. {error}")  # it says nothing of the others
            exit_code = exit_code or error.exit_code
            continue
        unknown |= {result.environment} if result.floor is None else set()
        name = f"{run}: " if len(runs) > 1 else ""
        print(json.dumps(result.to_json()) if args.json else printable(f"{name}{result}"), flush=True)
    if unknown and not args.json:
        names = " ".join(sorted(unknown))
        print_line(f"to measure a score without learning: `comper floors {names} --out floors.json`, then --floors")
    return exit_code


def add_verify(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper verify`."""
    example(parser, "comper verify runs")
    parser.set_defaults(run=_verify)
    parser.add_argument("folder", type=folder, metavar="DIR", help="a run folder, or a folder above runs")


def _verify(args: argparse.Namespace) -> int:
    from comper.runs.verify import verify

    verdicts = []
    for verdict in verify(args.folder):
        print(verdict, flush=True)
        verdicts.append(verdict)
    if not verdicts:
        raise UsageError(f"No run in {args.folder}.")
    return DamagedFileError.exit_code if any(verdict.damaged for verdict in verdicts) else 0


def add_report(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper report`."""
    from comper.report.commands import COMMANDS as REPORT_COMMANDS

    _add_foreign(parser, REPORT_COMMANDS["report"])


def add_import(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper import-release`."""
    from comper.report.commands import COMMANDS as REPORT_COMMANDS

    _add_foreign(parser, REPORT_COMMANDS["import-release"])


def _add_foreign(parser: argparse.ArgumentParser, command: Any) -> None:
    parser.description = command.description
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)
