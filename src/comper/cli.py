"""The command `comper`: wiring only. Heavy libraries are imported by the command that needs them, so that help is quick."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from comper import __version__
from comper.errors import (
    ComperError,
    DamagedFileError,
    LeftOutError,
    OutsideCodeError,
    StoppedError,
    UsageError,
    explained_memory_error,
    explained_os_error,
    is_memory_error,
    printable,
)
from comper.output import unbreakable_streams
from comper.settings import add_flags, flag_values, read_settings, whole_number

EXIT_CODES = (
    "exit codes: 0 done, 1 a defect, 2 wrong use, 3 damaged file, 4 disk or memory, 5 diverged, 6 locked, 130 interrupted"
)
PRINTING_COMMANDS = ("evaluate", "verify", "describe", "agents", "games", "floors")
"""What they print is what they were called for: where it is lost they fail. The others leave files, and keep their code."""

Run = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a problem is printed in a sentence or two on stderr, with an exit code, never as a traceback."""
    # Threads that wait should sleep: spinning ones starve each other as soon as a machine is busy (docs/performance.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = [_with_hyphens(word) for word in (sys.argv[1:] if argv is None else argv)]
    with unbreakable_streams() as out:
        code = _exit_code(words)
        out.flush()
        if code == 0 and out.failure is not None and words[0] in PRINTING_COMMANDS:
            return _complain(explained_os_error(out.failure, "Standard output: cannot be written"))
        return code


def _with_hyphens(word: str) -> str:
    """--batch_size is --batch-size."""
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value if word.startswith("--") else word


def _exit_code(argv: list[str]) -> int:
    try:
        return _dispatch(argv)
    except ComperError as error:
        return _complain(error)
    except KeyboardInterrupt:
        print("comper: interrupted.", file=sys.stderr)
        return StoppedError.exit_code
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev -m comper ...
            raise
        return _complain(_explained(error))


def _explained(error: Exception) -> ComperError:
    """What went wrong as a sentence: memory, a missing package, the system, or a place in code."""
    if is_memory_error(error):
        return explained_memory_error(error)
    if isinstance(error, ImportError):
        return UsageError(f"{error}. Install what is missing: {_extras_for(error.name)}")
    if isinstance(error, OSError):
        return explained_os_error(error, str(error.filename or "The system refuses what is needed"), is_typed=True)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    if is_own_file(last.filename):
        return ComperError(f"{place}. The whole traceback: python -X dev -m comper ...")
    return OutsideCodeError(f"code from outside comper failed: {place}.")


def is_own_file(filename: str) -> bool:
    """Whether a file is part of this package, or of what it is built on."""
    folders = (os.path.dirname(__file__), sys.prefix, sys.base_prefix)
    return any(os.path.realpath(filename).startswith(os.path.realpath(folder) + os.sep) for folder in folders)


def _complain(error: ComperError) -> int:
    print(f"comper: {error}", file=sys.stderr)
    return error.exit_code


def _extras_for(package: str | None) -> str:
    root = (package or "").partition(".")[0]
    extra = {"torch": "train", "safetensors": "train", "matplotlib": "report", "jinja2": "report"}.get(root, "all")
    return f'pip install "comper[{extra}]"'


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("a folder needs a name")
    return Path(text)


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors that come back as UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0].startswith("-"):
        return _main_parser().parse_and_help(argv)
    if argv[0] not in COMMANDS:
        near = difflib.get_close_matches(argv[0], COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown command {argv[0]!r}.{hint} Commands: {', '.join(COMMANDS)}.")
    parser = _command_parser(argv[0], argv[1:])
    args, unknown = parser.parse_known_args(argv[1:])
    if unknown:
        _refuse_unknown(unknown[0], parser, args)
    run: Run = args.run
    return run(args)


class _MainParser(_Parser):
    def parse_and_help(self, argv: list[str]) -> int:
        """`comper`, `comper --help` and `comper --version`."""
        self.parse_args(argv)
        self.print_help()
        return 0


def _main_parser() -> _MainParser:
    summaries = "\n".join(f"  {name:<16}{summary}" for name, (summary, _) in COMMANDS.items())
    parser = _MainParser(
        prog="comper",
        usage="comper COMMAND ...",
        description=f"Compact Experience Replay: train, inspect and compare.\n\ncommands:\n{summaries}",
        epilog=f"`comper COMMAND --help` explains a command.\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"comper {__version__}")
    return parser


def _command_parser(name: str, argv: list[str]) -> _Parser:
    summary, add_arguments = COMMANDS[name]
    parser = _Parser(
        prog=f"comper {name}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_arguments(parser, argv)
    return parser


def _refuse_unknown(word: str, parser: argparse.ArgumentParser, args: argparse.Namespace) -> NoReturn:
    flag = word.split("=")[0]
    near = difflib.get_close_matches(flag, list(parser._option_string_actions), n=1)
    hint = f" Did you mean {near[0]}?" if near else _owner_hint(flag, args)
    raise UsageError(f"unknown argument {flag!r}.{hint} See `{parser.prog} --help`.")


def _owner_hint(flag: str, args: argparse.Namespace) -> str:
    """Which agents have the setting that this one has not."""
    import dataclasses

    from comper.agents.registry import AGENTS, find_agent

    name = flag.removeprefix("--").replace("-", "_")
    owners = [agent for agent in AGENTS if name in {f.name for f in dataclasses.fields(find_agent(agent).config)}]
    return f" It is a setting of {', '.join(owners)}, not of {getattr(args, 'agent', 'this')}." if owners else ""


def _example(parser: argparse.ArgumentParser, *lines: str) -> None:
    parser.epilog = ("examples:\n" if len(lines) > 1 else "example:\n") + "\n".join(f"  {line}" for line in lines)


# comper train


def _add_train(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    from comper.agents.registry import DEFAULT_AGENT
    from comper.environments.families import family_settings

    _example(
        parser,
        "comper train freeway --frames 20000",
        "comper train gym:CartPole-v1 --agent ddqn --frames 20000",
        "comper train paper --agent dqn --trials 5 --out runs",
        "comper train asterix --config my.toml --alignment max",
    )
    parser.usage = "comper train ENV [ENV ...] [--agent A] [--frames N] [--seed N] [--trials T] [--out DIR] [option ...]"
    parser.set_defaults(run=_train)
    text = "a game (see `comper games`), gym:ID, minatar:GAME, minigrid:TASK, or my_module:make_env; `paper`: the eight games"
    parser.add_argument("environments", nargs="+", metavar="ENV", help=text)
    text = "see `comper agents`, or my_module:my_agent (default: %(default)s)"
    parser.add_argument("--agent", default=DEFAULT_AGENT, metavar="A", help=text)
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="seed of the first trial (default: %(default)s)"
    )
    text = "trials of each environment, with seeds N, N+1, ... (default: 1)"
    parser.add_argument("--trials", type=whole_number, default=1, metavar="T", help=text)
    text = "where run folders go (default: %(default)s)"
    parser.add_argument("--out", type=_folder, default=Path("runs"), metavar="DIR", help=text)
    _add_run_options(parser)
    text = "settings from a TOML file; a flag wins over the file"
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)
    agent = _agent_in(argv)
    add_flags(parser, f"settings of {agent.name} (with --agent B: those of B)", agent.config)
    for family, settings in family_settings().items():
        add_flags(parser, f"settings of the environment: {family}", settings)


def _agent_in(argv: list[str]) -> Any:
    """The agent whose settings are flags; it must be known before the other flags can be read."""
    from comper.agents.registry import DEFAULT_AGENT, find_agent

    parser = _Parser(prog="comper train", add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", default=DEFAULT_AGENT)
    return find_agent(parser.parse_known_args(argv)[0].agent)


def _train(args: argparse.Namespace) -> int:
    from comper.training.options import RunOptions, resolve_settings
    from comper.training.train import find_environments, train_population

    environments = find_environments(args.environments)
    from_file = read_settings(args.config) if args.config is not None else {}
    # The file is checked by itself first, so that an error names the place it is in.
    resolve_settings(args.agent, environments, from_file, where=str(args.config or "train"))
    settings = resolve_settings(args.agent, environments, from_file | flag_values(args), where="train")
    options = RunOptions(args.device, args.workers, args.checkpoint_period_steps)
    folders = train_population(environments, settings, seed=args.seed, trials=args.trials, out=args.out, options=options)
    return _print_scores(folders)


def _print_scores(folders: Sequence[Path]) -> int:
    from comper.report.scoreboard import scoreboard

    if folders:
        print(scoreboard(folders))
    return 0


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    text = "processes for the environments; 0: none (default: by cores)"
    parser.add_argument("--workers", type=whole_number, metavar="N", help=text)
    text = "agent steps between checkpoints; 0: never (default: 5,000 steps or 2 minutes, under 1 %% of the time)"
    parser.add_argument("--checkpoint-period-steps", type=whole_number, metavar="N", help=text)


# comper resume, verify, evaluate


def _add_resume(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper resume runs", "comper resume runs/dqn/pong/seed-0 --weights-only --out new-runs")
    parser.set_defaults(run=_resume)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a run folder, or a folder above runs")
    _add_run_options(parser)
    text = "begin new runs from the saved weights: memories, optimisers and budget start anew"
    parser.add_argument("--weights-only", action="store_true", help=text)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the new runs of --weights-only go")
    _add_trust(parser)


def _add_trust(parser: argparse.ArgumentParser) -> None:
    text = "a module from outside comper that the run needs and that may be imported; may be repeated"
    parser.add_argument("--trust", action="append", default=[], metavar="MODULE", help=text)


def _resume(args: argparse.Namespace) -> int:
    from comper.training.resume import resume, resume_weights_only

    if args.weights_only != (args.out is not None):
        raise UsageError("--weights-only begins new runs, and --out says where: give both or neither.")
    options: dict[str, Any] = {
        "device": args.device,
        "workers": args.workers,
        "checkpoint_period_steps": args.checkpoint_period_steps,
        "trust": args.trust,
    }
    if args.weights_only:
        return _print_scores(resume_weights_only(args.folders, out=args.out, **options))
    try:
        return _print_scores(resume(args.folders, **options))
    except LeftOutError as error:
        _print_scores(error.done)
        raise


def _add_verify(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper verify runs")
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


def _add_evaluate(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper evaluate runs/dqn/pong/seed-0 --episodes 30")
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
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    _add_trust(parser)


def _evaluate(args: argparse.Namespace) -> int:
    from comper.training.evaluation import evaluate

    result = evaluate(
        args.folder, episodes=args.episodes, epsilon=args.epsilon, seed=args.seed, device=args.device, trust=args.trust
    )
    print(result)
    return 0


# comper floors


def _add_floors(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper floors freeway asterix --out floors.json", "comper floors gym:CartPole-v1")
    parser.set_defaults(run=_floors)
    text = "environments (default: the paper's eight games)"
    parser.add_argument("environments", nargs="*", default=["paper"], metavar="ENV", help=text)
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="seed of the measurement (default: %(default)s)"
    )
    parser.add_argument("--workers", type=whole_number, metavar="N", help="processes (default: one per core)")
    text = "observations an action is held for: 4 for a stacked agent's decision period (default: %(default)s)"
    parser.add_argument("--observations-per-step", type=whole_number, default=1, metavar="N", help=text)
    parser.add_argument("--out", type=Path, metavar="FILE", help="a JSON file to write, or to add to")


def _floors(args: argparse.Namespace) -> int:
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
        print(f"{spec.name:<24}{means}  score without learning: {best}")
        if args.out is not None:
            save_floors(floors, args.out)
    if args.out is not None:
        print(printable(f"written to {args.out}"))
    return 0


# comper report, import-release


def _add_report(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    from comper.report.commands import COMMANDS as REPORT_COMMANDS

    _add_foreign(parser, REPORT_COMMANDS["report"])


def _add_import(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    from comper.report.commands import COMMANDS as REPORT_COMMANDS

    _add_foreign(parser, REPORT_COMMANDS["import-release"])


def _add_foreign(parser: argparse.ArgumentParser, command: Any) -> None:
    parser.description = command.description
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


# comper describe, games, agents


def _add_describe(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper describe comper-single --json", "comper describe ddqn minatar:breakout")
    parser.set_defaults(run=_describe)
    parser.add_argument("agent", metavar="A", help="an agent (see `comper agents`)")
    text = "the environment its networks are fitted to (default: %(default)s)"
    parser.add_argument("environment", nargs="?", default="freeway", metavar="ENV", help=text)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _describe(args: argparse.Namespace) -> int:
    from comper.training.describe import as_text, describe, settings_of

    settings = settings_of(args.agent, args.environment)
    if args.json:
        print(json.dumps(describe(settings, args.environment), indent=2))
    else:
        print(as_text(settings, args.environment))
    return 0


def _add_games(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper games")
    parser.set_defaults(run=_games)


def _games(args: argparse.Namespace) -> int:
    from comper.environments.games import available_games
    from comper.protocol import PAPER_GAMES

    for game in available_games():
        print(f"{game:<24}in the paper" if game in PAPER_GAMES else game)
    return 0


def _add_agents(parser: argparse.ArgumentParser, argv: list[str]) -> None:
    _example(parser, "comper agents")
    parser.set_defaults(run=_agents)


def _agents(args: argparse.Namespace) -> int:
    from comper.agents.registry import AGENTS, find_agent

    for name in AGENTS:
        print(f"{name:<18}{find_agent(name).summary}")
    return 0


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser, list[str]], None]]] = {
    "train": ("train an agent in one or more environments", _add_train),
    "resume": ("continue unfinished runs to the same bits", _add_resume),
    "evaluate": ("play episodes with the weights of a run, without learning", _add_evaluate),
    "report": ("tables, figures and one page from run folders", _add_report),
    "verify": ("check every file of a run, and say what is damaged and what is still usable", _add_verify),
    "describe": ("show an agent's layers, settings and where the paper states them", _add_describe),
    "agents": ("list the agents that can be trained", _add_agents),
    "games": ("list the Atari games that can be played", _add_games),
    "floors": ("measure what a random policy and each constant action score", _add_floors),
    "import-release": ("turn the logs published with the paper into run folders", _add_import),
}

if __name__ == "__main__":
    sys.exit(main())
