"""The command `comper`: wiring only. Heavy libraries are imported by the command that needs them, so that help is quick."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from comper import __version__
from comper.commands import catalogue_commands, completion, result_commands, run_commands, study_commands, viewing_commands
from comper.commands.arguments import Parser
from comper.errors import ComperError, StoppedError, UsageError, explained, explained_os_error
from comper.output import unbreakable_streams

EXIT_CODES = (
    "exit codes: 0 done, 1 a defect, 2 wrong use, 3 damaged file, 4 disk or memory,\n5 diverged, 6 locked, 130 interrupted"
)
PRINTING_COMMANDS = ("evaluate", "verify", "describe", "agents", "games", "floors", "completion")
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
        if code == 0 and out.failure is not None and words and words[0] in PRINTING_COMMANDS:
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
        return _complain(explained(error))


def _complain(error: ComperError) -> int:
    print(f"comper: {error}", file=sys.stderr)
    return error.exit_code


def _dispatch(argv: list[str]) -> int:
    _require_working_folder()
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


def _require_working_folder() -> None:
    """Refuse to begin in a folder that was deleted: the libraries below would end the process with words of their own."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(f"The working folder is gone ({error.strerror}): change to another.") from None


class _MainParser(Parser):
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


def _command_parser(name: str, argv: list[str]) -> Parser:
    summary, add_arguments = COMMANDS[name]
    parser = Parser(
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
    hint = _owner_hint(flag, args) or (f" Did you mean {near[0]}?" if near else "")
    raise UsageError(f"unknown argument {flag!r}.{hint} See `{parser.prog} --help`.")


def _owner_hint(flag: str, args: argparse.Namespace) -> str:
    """Which agents have the setting that this one has not; a plan says itself what it is run with."""
    from comper.agents.registry import AGENTS, find_agent
    from comper.settings import fields_of

    name = flag.removeprefix("--").replace("-", "_")
    if not hasattr(args, "agent"):
        return _plan_hint(name) if hasattr(args, "plan") else ""
    owners = [
        agent
        for agent in AGENTS
        if any(name in (f.name, *f.metadata["synonyms"]) for _, f in fields_of([find_agent(agent).config]))
    ]
    if not owners:
        return ""
    other = "which `comper train` takes" if args.agent in owners else f"not of {args.agent}"
    return f" It is a setting of {', '.join(owners)}, {other}."


def _plan_hint(name: str) -> str:
    """Where a plan says what `comper train` is told by flags."""
    from comper.agents.registry import AGENTS, find_agent
    from comper.environments.families import family_settings
    from comper.settings import fields_of

    keys = {"agent": "agents", "seed": "seeds", "trials": "seeds", "env": "environments"}
    if key := keys.get(name, name if name in keys.values() else ""):
        return f" The plan says that: `{key}`."
    parts = [*(find_agent(agent).config for agent in AGENTS), *family_settings().values()]
    known = {word: f.name for _, f in fields_of(parts) for word in (f.name, *f.metadata["synonyms"])}
    return f" The plan has the settings: write `settings = {{ {known[name]} = ... }}` there." if name in known else ""


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser, list[str]], None]]] = {
    "train": ("train an agent in one or more environments", run_commands.add_train),
    "resume": ("continue unfinished runs to the same bits", run_commands.add_resume),
    "study": ("run a plan: environments x agents x seeds x settings", study_commands.add_study),
    "search": ("try settings from ranges in a plan, and find the best (Optuna)", study_commands.add_search),
    "evaluate": ("play episodes with the weights of a run, without learning", result_commands.add_evaluate),
    "watch": ("film a run's agent, its Q-values and what it remembers", viewing_commands.add_watch),
    "memory": ("draw the most visited sets of similar transitions of a run", viewing_commands.add_memory),
    "report": ("tables, figures and one page from run folders", result_commands.add_report),
    "verify": ("check every file of a run, and say what is damaged", result_commands.add_verify),
    "describe": ("show an agent's layers, settings and their sources", catalogue_commands.add_describe),
    "agents": ("list the agents that can be trained", catalogue_commands.add_agents),
    "games": ("list the Atari games that can be played", catalogue_commands.add_games),
    "floors": ("measure what a random policy and each constant action score", catalogue_commands.add_floors),
    "import-release": ("turn the logs published with the paper into run folders", result_commands.add_import),
    "completion": (
        "print a script that completes commands and flags in a shell",
        lambda parser, _: completion.add_completion(parser, COMMANDS),
    ),
}

if __name__ == "__main__":
    sys.exit(main())
