"""The command `comper`: wiring only. Heavy libraries are imported by the command that needs them, so that help is quick."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from comper import __version__
from comper.errors import ComperError, DamagedFileError, UsageError
from comper.protocol import PRESETS, AnyConfig

EXIT_CODES = "exit codes: 0 done, 2 wrong use, 3 damaged file, 4 disk or memory, 5 diverged, 6 locked, 130 interrupted"
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a problem is told in a sentence or two on stderr, with an exit code, never as a traceback."""
    # Threads that wait should sleep: spinning ones starve each other as soon as a machine is busy (docs/performance.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except ComperError as error:
        print(f"comper: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("comper: interrupted.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`comper games | head`): not an error. Keep Python from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Parser(argparse.ArgumentParser):
    """argparse with one-sentence errors that come back as UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")


def _dispatch(argv: list[str]) -> int:
    parser = _Parser(prog="comper", description="Compact Experience Replay: train, inspect and compare.", epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"comper {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _add_train(commands, argv)
    _add_resume(commands)
    _add_verify(commands)
    _add_describe(commands)
    _add_results(commands)
    _add_floors(commands)
    _add_command(commands, "games", "list the games that can be played", _games, "comper games")
    _add_command(commands, "agents", "list the agents that can be trained", _agents, "comper agents")
    if not argv:
        parser.print_help()
        return 0
    _check_command(argv[0], commands.choices)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        _refuse_unknown(unknown[0], commands.choices[args.command])
    run: Any = args.run
    return int(run(args))


def _check_command(word: str, commands: Any) -> None:
    if not word.startswith("-") and word not in commands:
        near = difflib.get_close_matches(word, commands, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"unknown command {word!r}.{hint} Commands: {', '.join(commands)}.")


def _refuse_unknown(word: str, command: argparse.ArgumentParser) -> NoReturn:
    flag = word.split("=")[0]
    near = difflib.get_close_matches(flag, [s for action in command._actions for s in action.option_strings], n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"unknown argument {flag!r}.{hint} See `{command.prog} --help`.")


def _add_command(commands: Any, name: str, summary: str, run: Any, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


# comper train


def _add_train(commands: Any, argv: list[str]) -> None:
    example = (
        "comper train freeway --frames 20000\n"
        "  comper train paper --agent dqn --trials 5 --out runs\n"
        "  comper train asterix --config my.toml --alignment max"
    )
    parser = _add_command(commands, "train", "train an agent on one or more games", _train, example)
    parser.usage = "comper train GAME [GAME ...] [--agent A] [--frames N] [--seed N] [--trials T] [--out DIR] [option ...]"
    parser.add_argument("games", nargs="+", metavar="GAME", help="a game (see `comper games`); `paper` stands for the eight")
    parser.add_argument("--agent", default="comper-single", metavar="A", help="see `comper agents` (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the first trial (default: %(default)s)")
    parser.add_argument(
        "--trials", type=int, default=1, metavar="T", help="trials of each game, with seeds N, N+1, ... (default: 1)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go (default: %(default)s)"
    )
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes for the emulators; 0: none (default: by cores)")
    _add_checkpoint_period(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="hyper-parameters from a TOML file; flags go before it")
    agent = _agent_of(argv)
    group = parser.add_argument_group(f"hyper-parameters of {agent}", "with --agent B before --help: those of B")
    for f in dataclasses.fields(PRESETS[agent].config):
        default = getattr(PRESETS[agent].config, f.name)
        kind: Any = {"int": int, "float": float, "str": str}[str(f.type)]
        flag = f"--{f.name.replace('_', '-')}"
        text = f"{f.metadata['help']} ({f.metadata['source']}; default: {default})".replace("%", "%%")
        group.add_argument(flag, dest=f"set_{f.name}", type=kind, metavar="X", help=text)


def _agent_of(argv: list[str]) -> str:
    """The agent named in the arguments, whose hyper-parameters are then known; a wrong name is told later."""
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        name = following if word == "--agent" else word.removeprefix("--agent=")
        if word.startswith("--agent") and name in PRESETS:
            return name
    return "comper-single"


def _train(args: argparse.Namespace) -> int:
    from comper.report.scoreboard import scoreboard
    from comper.training.train import RunOptions, preset_config, resolve_games, train_population

    config = _config(preset_config(args.agent), args)
    games = resolve_games(args.games)
    options = RunOptions(args.device, args.workers, args.checkpoint_period_steps)
    folders = train_population(games, args.agent, config, seed=args.seed, trials=args.trials, out=args.out, options=options)
    print(scoreboard(folders))
    return 0


def _config(config: AnyConfig, args: argparse.Namespace) -> AnyConfig:
    """The preset, changed by the TOML file and then by the flags."""
    from comper.settings import read_settings, with_settings

    if args.config is not None:
        config = with_settings(config, read_settings(args.config), where=str(args.config))
    flags = {k.removeprefix("set_"): v for k, v in vars(args).items() if k.startswith("set_") and v is not None}
    return with_settings(config, flags, where="comper train")


def _add_checkpoint_period(parser: argparse.ArgumentParser) -> None:
    text = "agent steps between checkpoints; 0: never (default: 5,000 steps or 2 minutes, under 1 %% of the time)"
    parser.add_argument("--checkpoint-period-steps", type=int, metavar="N", help=text)


# comper resume, verify


def _add_resume(commands: Any) -> None:
    example = "comper resume runs\n  comper resume runs/dqn/pong/seed-0 --weights-only --out new-runs"
    parser = _add_command(commands, "resume", "continue unfinished runs to the same bits", _resume, example)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a run folder, or a folder above runs")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or cuda: the one the run began on")
    parser.add_argument("--workers", type=int, metavar="N", help="processes for the emulators (default: by cores)")
    _add_checkpoint_period(parser)
    text = "begin new runs from the saved weights: memories, optimisers and budget start anew"
    parser.add_argument("--weights-only", action="store_true", help=text)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the new runs of --weights-only go")


def _resume(args: argparse.Namespace) -> int:
    from comper.training.resume import resume, resume_weights_only

    if args.weights_only != (args.out is not None):
        raise UsageError("--weights-only begins new runs, and --out says where: give both or neither.")
    options = {"device": args.device, "workers": args.workers, "checkpoint_period_steps": args.checkpoint_period_steps}
    if args.weights_only:
        folders = resume_weights_only(args.folders, out=args.out, **options)
    else:
        folders = resume(args.folders, **options)
    if folders:
        from comper.report.scoreboard import scoreboard

        print(scoreboard(folders))
    return 0


def _add_verify(commands: Any) -> None:
    summary = "check every file of a run, and say what is damaged and what is still usable"
    parser = _add_command(commands, "verify", summary, _verify, "comper verify runs")
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


# comper report, import-release, floors


def _add_results(commands: Any) -> None:
    from comper.report.commands import COMMANDS

    for name, command in COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=command.summary,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(parser)
        parser.set_defaults(run=command.run)


def _add_floors(commands: Any) -> None:
    summary = "measure what a random policy and each constant action score"
    parser = _add_command(commands, "floors", summary, _floors, "comper floors freeway asterix")
    parser.add_argument("games", nargs="*", default=["paper"], metavar="GAME", help="games (default: the paper's eight)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the measurement (default: %(default)s)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")
    out = "where all floors, with the new ones, are written (default: %(default)s)"
    parser.add_argument("--out", type=Path, default=Path("floors.json"), metavar="FILE", help=out)


def _floors(args: argparse.Namespace) -> int:
    from comper.environments.floors import load_floors, measure_floor, save_floors
    from comper.environments.registry import find_environment
    from comper.training.train import resolve_games

    if args.seed < 0 or (args.workers is not None and args.workers < 1):
        raise UsageError("--seed must be 0 or more, and --workers 1 or more.")
    floors = load_floors()
    for name in resolve_games(args.games):
        spec = find_environment(name)
        frames, floor = measure_floor(
            spec, seed=args.seed, workers=args.workers, say=lambda line: print(line, file=sys.stderr)
        )
        floors = floors.with_measured(spec.name, frames, floor)
        best = f"always {floor.best_constant}" if floor.constant >= floor.random.mean else "random policy"
        print(f"{spec.name:<24}random {floor.random.mean:>10,.1f}  best constant {floor.constant:>10,.1f}  floor: {best}")
    save_floors(floors, args.out)
    print(f"written to {args.out}")
    return 0


# comper describe, games, agents


def _add_describe(commands: Any) -> None:
    parser = _add_command(
        commands,
        "describe",
        "show an agent's layers, hyper-parameters and where the paper states them",
        _describe,
        "comper describe comper-single --json",
    )
    parser.add_argument("agent", metavar="A", help="an agent (see `comper agents`)")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _describe(args: argparse.Namespace) -> int:
    from comper.describe import as_text, describe
    from comper.training.train import preset_config

    config = preset_config(args.agent)
    print(json.dumps(describe(config), indent=2) if args.json else as_text(args.agent, config))
    return 0


def _games(args: argparse.Namespace) -> int:
    from comper.environments.games import available_games
    from comper.protocol import PAPER_GAMES

    for game in available_games():
        print(f"{game:<24}in the paper" if game in PAPER_GAMES else game)
    return 0


def _agents(args: argparse.Namespace) -> int:
    for preset in PRESETS.values():
        print(f"{preset.name:<18}{preset.summary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
