"""`comper evaluate`, `verify`, `report` and `import-release`: what is done with runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from comper.commands.arguments import add_device, add_trust, example
from comper.errors import DamagedFileError, UsageError
from comper.settings import whole_number


def add_evaluate(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper evaluate`."""
    example(parser, "comper evaluate runs/dqn/pong/seed-0 --episodes 30")
    parser.set_defaults(run=_evaluate)
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run folder with saved weights")
    parser.add_argument(
        "--episodes", type=whole_number, default=10, metavar="N", help="episodes to play (default: %(default)s)"
    )
    text = "share of random actions (default: %(default)s)"
    parser.add_argument("--epsilon", type=float, default=0.001, metavar="X", help=text)
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="seed of the episodes (default: %(default)s)"
    )
    add_device(parser)
    add_trust(parser)


def _evaluate(args: argparse.Namespace) -> int:
    from comper.training.evaluation import evaluate

    result = evaluate(
        args.folder, episodes=args.episodes, epsilon=args.epsilon, seed=args.seed, device=args.device, trust=args.trust
    )
    print(result)
    return 0


def add_verify(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper verify`."""
    example(parser, "comper verify runs")
    parser.set_defaults(run=_verify)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a run folder, or a folder above runs")


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
