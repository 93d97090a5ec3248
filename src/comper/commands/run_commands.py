"""`comper train` and `comper resume`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comper import native
from comper.commands.arguments import (
    Parser,
    add_number,
    add_run_options,
    add_threads,
    add_trust,
    example,
    folder,
    run_options,
    tracking_hooks,
)
from comper.errors import LeftOutError, UsageError
from comper.importing import require_extras
from comper.output import print_line
from comper.settings import add_flags, flag_values, read_settings


def add_train(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper train`."""
    from comper.agents.registry import DEFAULT_AGENT
    from comper.environments.families import family_settings

    example(
        parser,
        "comper train freeway --frames 20000",
        "comper train gym:CartPole-v1 --agent ddqn --frames 20000",
        "comper train paper --agent dqn --trials 5 --out runs",
        "comper train asterix --agent comper-single --config my.toml --alignment max",
    )
    parser.usage = "comper train ENV [ENV ...] [--agent A] [--frames N] [--out DIR] [option ...]"
    parser.set_defaults(run=_train)
    text = "a game (see `comper games`), gym:ID, minatar:GAME, minigrid:TASK, or my_module:make_env; `paper`: the eight games"
    parser.add_argument("environments", nargs="+", metavar="ENV", help=text)
    text = "see `comper agents`, or my_module:my_agent (default: %(default)s)"
    parser.add_argument("--agent", default=DEFAULT_AGENT, metavar="A", help=text)
    add_number(parser, "--seed", 0, "seed of the first trial")
    add_number(parser, "--trials", 1, "trials of each environment, with seeds N, N+1, ...", metavar="T")
    text = "where run folders go (default: %(default)s)"
    parser.add_argument("--out", type=folder, default=Path("runs"), metavar="DIR", help=text)
    add_run_options(parser)
    add_threads(parser)
    text = "settings from a TOML file; a flag wins over the file"
    parser.add_argument("--config", type=folder, metavar="FILE", help=text)
    parser.add_argument("--floors", type=folder, metavar="FILE", help="floors that `comper floors --out FILE` measured")
    agent = _agent_in(argv)
    add_flags(parser, f"settings of {agent.name} (another --agent has others)", agent.config, agent.in_family)
    for family, settings in family_settings().items():
        add_flags(parser, f"settings of the environment: {family}", settings)


def _agent_in(argv: list[str]) -> Any:
    """The agent whose settings are flags; it must be known before the other flags can be read."""
    from comper.agents.registry import DEFAULT_AGENT, find_agent

    parser = Parser(prog="comper train", add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", default=DEFAULT_AGENT)
    return find_agent(parser.parse_known_args(argv)[0].agent)


def _train(args: argparse.Namespace) -> int:
    from comper.environments.families import needed_extras

    require_extras("train", *needed_extras(args.environments))  # before torch and its company are imported
    from comper.training.options import resolve_settings
    from comper.training.train import find_environments, train_population

    environments = find_environments(args.environments)
    from_file = read_settings(args.config) if args.config is not None else {}
    # The file is checked by itself first, so that an error names the place it is in.
    try:
        resolve_settings(args.agent, environments, from_file, where=str(args.config or "train"))
    except UsageError:
        _refuse_plan(args.config, from_file)
        raise
    settings = resolve_settings(args.agent, environments, from_file | flag_values(args), where="train")
    options = run_options(args, floors=args.floors)
    if (loops := native.loops()).compiled is None:
        print_line(f"loops in C {loops.status}; a CPU takes longer, for the same results")
    return print_all_scores(
        lambda: train_population(environments, settings, seed=args.seed, trials=args.trials, out=args.out, options=options),
        args.floors,
    )


def _refuse_plan(path: Path, content: Mapping[str, Any]) -> None:
    """Say so where what was given as settings is a plan, whose keys no setting is near to."""
    from comper.studies.plan import SEARCH, TOP_KEYS

    if found := [key for key in content if key in (*TOP_KEYS, SEARCH) and key != "agent"]:
        command = "search" if SEARCH in found else "study"
        runs_it = f"`comper {command} {shlex.quote(str(path))}` runs it"
        raise UsageError(f"{path}: holds {', '.join(found)}: a plan, not the settings of one run. {runs_it}.")


def print_all_scores(run: Callable[[], list[Path]], floors: Path | None = None, study: Path | None = None) -> int:
    """Print the scores of what was done, also where some runs could not be."""
    try:
        return _print_scores(run(), floors, study)
    except LeftOutError as error:
        _print_scores(error.done, floors, study)
        raise


def _print_scores(folders: Sequence[Path], floors: Path | None = None, study: Path | None = None) -> int:
    from comper.report.scoreboard import scoreboard

    if folders:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print(scoreboard(folders, floors, study=study, width=width))
    return 0


def add_resume(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    """The arguments of `comper resume`."""
    example(parser, "comper resume runs", "comper resume runs/dqn/pong/seed-0 --weights-only --out new-runs")
    parser.set_defaults(run=_resume)
    parser.add_argument("folders", nargs="+", type=folder, metavar="DIR", help="a run folder, or a folder above runs")
    add_run_options(parser)
    text = "begin new runs from the saved weights: memories, optimisers and budget start anew"
    parser.add_argument("--weights-only", action="store_true", help=text)
    parser.add_argument("--out", type=folder, metavar="DIR", help="where the new runs of --weights-only go")
    add_trust(parser)


def _resume(args: argparse.Namespace) -> int:
    require_extras("train")
    from comper.training.resume import resume, resume_weights_only

    if args.weights_only != (args.out is not None):
        raise UsageError("--weights-only begins new runs, and --out says where: give both or neither.")
    options: dict[str, Any] = {
        "device": args.device,
        "workers": args.workers,
        "processes": args.processes,
        "checkpoint_period_steps": args.checkpoint_period_steps,
        "trust": args.trust,
        "hooks": tracking_hooks(args),
    }
    if args.weights_only:
        return _print_scores(resume_weights_only(args.folders, out=args.out, **options))
    return print_all_scores(lambda: resume(args.folders, **options))
