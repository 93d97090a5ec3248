"""`comper describe`, `agents`, `games` and `floors`: what there is, before anything is trained."""

from __future__ import annotations

import argparse
import json
import os

from comper.commands.arguments import add_number, example, folder
from comper.errors import UsageError, printable
from comper.importing import require_extras
from comper.settings import whole_number


def add_describe(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper describe`."""
    example(parser, "comper describe comper-single --json", "comper describe ddqn minatar:breakout")
    parser.set_defaults(run=_describe)
    parser.add_argument("agent", metavar="A", help="an agent (see `comper agents`)")
    text = "the environment its networks are fitted to (default: %(default)s)"
    parser.add_argument("environment", nargs="?", default="freeway", metavar="ENV", help=text)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _describe(args: argparse.Namespace) -> int:
    from comper.environments.families import needed_extras

    require_extras("train", *needed_extras([args.environment]))  # before torch and its company are imported
    from comper.training.describe import as_text, describe, settings_of

    settings = settings_of(args.agent, args.environment)
    if args.json:
        print(json.dumps(describe(settings, args.environment), indent=2))
    else:
        print(as_text(settings, args.environment))
    return 0


def add_games(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper games`."""
    example(parser, "comper games")
    parser.set_defaults(run=_games)


def _games(args: argparse.Namespace) -> int:
    from comper.environments.games import available_games
    from comper.protocol import PAPER_GAMES

    for game in available_games():
        print(f"{game:<24}in the paper" if game in PAPER_GAMES else game)
    return 0


def add_agents(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper agents`."""
    example(parser, "comper agents")
    parser.set_defaults(run=_agents)


def _agents(args: argparse.Namespace) -> int:
    from comper.agents.registry import AGENTS, find_agent

    for name in AGENTS:
        print(f"{name:<18}{find_agent(name).summary}")
    return 0


def add_floors(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper floors`."""
    example(parser, "comper floors freeway asterix --out floors.json", "comper floors gym:CartPole-v1")
    parser.set_defaults(run=_floors)
    text = "environments (default: the paper's eight games)"
    parser.add_argument("environments", nargs="*", default=["paper"], metavar="ENV", help=text)
    add_number(parser, "--seed", 0, "seed of the measurement")
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes (default: one per core)")
    text = "observations an action is held for: 4 for a stacked agent's decision period"
    add_number(parser, "--observations-per-step", 1, text)
    parser.add_argument("--out", type=folder, metavar="FILE", help="a JSON file to write, or to add to")


def _floors(args: argparse.Namespace) -> int:
    from comper.environments.families import needed_extras

    require_extras("train", *needed_extras(args.environments))
    from comper.environments.floors import Floors, load_floors, measure_floor, save_floors
    from comper.output import print_line
    from comper.training.train import find_environments

    if args.seed < 0 or (args.workers is not None and args.workers < 0) or not 1 <= args.observations_per_step <= 64:
        raise UsageError("--seed and --workers must be 0 or more, and --observations-per-step 1 to 64.")
    floors = load_floors(args.out) if args.out is not None and os.path.lexists(args.out) else Floors({})
    environments = find_environments(args.environments)
    if args.out is not None:
        save_floors(floors, args.out)  # a place that cannot be written to is refused before minutes of measuring
    for spec in environments:
        frames, floor = measure_floor(
            spec,
            observations_per_step=args.observations_per_step,
            seed=args.seed,
            workers=args.workers,
            say=print_line,
        )
        floors = floors.with_measured(spec.name, frames, floor)
        best = f"always {floor.best_constant}" if floor.constant >= floor.random.mean else "random policy"
        means = f"random {floor.random.mean:>10,.1f}  best constant {floor.constant:>10,.1f}"
        print(f"{spec.name:<24}{means}\n{'':<24}score without learning: {best}")
        if args.out is not None:
            save_floors(floors, args.out)
    if args.out is not None:
        print(printable(f"written to {args.out}"))
    return 0
