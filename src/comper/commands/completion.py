"""`comper completion SHELL`: a script that completes commands, flags and values, generated from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from comper.commands.arguments import example

AddArguments = Callable[[argparse.ArgumentParser, list[str]], None]
Commands = Mapping[str, tuple[str, AddArguments]]


@dataclass(frozen=True)
class Flag:
    """A flag with its other names, the words that may follow it, and whether something must."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    words: tuple[str, ...]


@dataclass(frozen=True)
class CommandWords:
    """All that can be completed after a command."""

    summary: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    """What may stand without a flag, besides files."""


def add_completion(parser: argparse.ArgumentParser, commands: Commands) -> None:
    """The arguments of `comper completion`, which completes these commands."""
    example(
        parser,
        "comper completion bash >> ~/.bashrc",
        "comper completion zsh > ~/.zfunc/_comper         # a folder of fpath",
        "comper completion fish > ~/.config/fish/completions/comper.fish",
    )
    parser.set_defaults(run=partial(_print_script, commands))
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="|".join(SHELLS), help="the shell to complete in")


def _print_script(commands: Commands, args: argparse.Namespace) -> int:
    print(SHELLS[args.shell](command_words(commands)), end="")
    return 0


def command_words(commands: Commands) -> dict[str, CommandWords]:
    """What each command takes; `train` has the settings of every agent."""
    return {name: _words_of(summary, add_arguments) for name, (summary, add_arguments) in commands.items()}


def _words_of(summary: str, add_arguments: AddArguments) -> CommandWords:
    from comper.agents.registry import AGENTS

    flags: dict[tuple[str, ...], Flag] = {}
    words: dict[str, None] = {}
    for agent in AGENTS:
        parser = argparse.ArgumentParser()
        add_arguments(parser, ["--agent", agent])
        for action in parser._actions:
            if action.option_strings:
                flags.setdefault(tuple(action.option_strings), _flag(action))
            else:
                words |= dict.fromkeys(_values(action))
    return CommandWords(summary, tuple(flags.values()), tuple(words))


def _flag(action: argparse.Action) -> Flag:
    text = (action.help or "").replace("%%", "%").partition(" (")[0].partition(";")[0]
    return Flag(tuple(action.option_strings), text, action.nargs != 0, _values(action))


def _values(action: argparse.Action) -> tuple[str, ...]:
    """The words that an argument may be: its choices, or what it names."""
    from comper.agents.registry import AGENTS

    if action.dest == "agent":
        return tuple(AGENTS)
    if action.dest in ("environment", "environments"):
        return _games()
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return tuple(metavar.split("|")) if "|" in metavar else ()


def _games() -> tuple[str, ...]:
    from comper.environments.games import available_games
    from comper.errors import UsageError

    try:
        return ("paper", *available_games())
    except UsageError:  # ale-py is not installed
        return ("paper",)


def _valued(commands: Mapping[str, CommandWords]) -> dict[str, tuple[str, ...]]:
    """Every flag name after which something must follow, with the words it may be; a file where there are none."""
    flags = [flag for command in commands.values() for flag in command.flags if flag.takes_value]
    words: dict[str, tuple[str, ...]] = {}
    for flag in flags:  # two commands may describe one flag differently: the one that lists its words is followed
        words |= {name: words.get(name) or flag.words for name in flag.names}
    return words


# Bash


def bash_script(commands: Mapping[str, CommandWords]) -> str:
    """A completion function for bash."""
    values = "\n".join(_bash_case(name, words) for name, words in _valued(commands).items())
    own = "\n".join(_bash_case(name, (*_flag_names(command), *command.words)) for name, command in commands.items())
    return f"""\
# Completion of `comper` in bash, made by `comper completion bash`.
_comper() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
    *) case "${{COMP_WORDS[1]}}" in
{own}
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _comper comper
"""


def _bash_case(name: str, words: tuple[str, ...]) -> str:
    return f'    {name}) words="{" ".join(words)}" ;;'


def _flag_names(command: CommandWords) -> tuple[str, ...]:
    return tuple(name for flag in command.flags for name in flag.names if name.startswith("--"))


# Zsh


def zsh_script(commands: Mapping[str, CommandWords]) -> str:
    """A completion function for zsh."""
    summaries = "\n".join(f"    {_quoted(f'{name}:{command.summary}')}" for name, command in commands.items())
    values = "\n".join(_zsh_value(name, words) for name, words in _valued(commands).items())
    own = "\n".join(_zsh_command(name, command) for name, command in commands.items())
    return f"""\
#compdef comper
# Completion of `comper` in zsh, made by `comper completion zsh`.
_comper() {{
  local -a commands flags
  commands=(
{summaries}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case ${{words[CURRENT-1]}} in
{values}
  esac
  case ${{words[2]}} in
{own}
  esac
}}
if [ "$funcstack[1]" = _comper ]; then _comper "$@"; else compdef _comper comper; fi
"""


def _zsh_value(name: str, words: tuple[str, ...]) -> str:
    known = " ".join(words)
    return f"    {name}) {f'compadd -- {known}' if words else '_files'}; return ;;"


def _zsh_command(name: str, command: CommandWords) -> str:
    described = [f"{flag_name}:{flag.help}" for flag in command.flags for flag_name in flag.names if flag_name[:2] == "--"]
    flags = " ".join(map(_quoted, described))
    words = f"compadd -- {' '.join(command.words)}; " if command.words else ""
    return f"    {name}) if [[ $PREFIX == -* ]]; then flags=({flags}); _describe flag flags; else {words}_files; fi ;;"


# Fish


def fish_script(commands: Mapping[str, CommandWords]) -> str:
    """Completions for fish."""
    lines = ["# Completion of `comper` in fish, made by `comper completion fish`."]
    for name, command in commands.items():
        lines.append(f"complete -c comper -n __fish_use_subcommand -f -a {name} -d {_quoted(command.summary)}")
        condition = f'-n "__fish_seen_subcommand_from {name}"'
        if command.words:
            lines.append(f"complete -c comper {condition} -a {_quoted(' '.join(command.words))}")
        lines += [f"complete -c comper {condition} {_fish_flag(flag)}" for flag in command.flags]
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Flag) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
    value = f" -x -a {_quoted(' '.join(flag.words))}" if flag.words else " -r" if flag.takes_value else ""
    return f"{names}{value} -d {_quoted(flag.help)}"


def _quoted(text: str) -> str:
    """Text in single quotes; a quote in it becomes a typographic one, which no shell minds."""
    return "'" + text.replace("'", "’") + "'"


SHELLS: dict[str, Callable[[Mapping[str, CommandWords]], str]] = {
    "bash": bash_script, "zsh": zsh_script, "fish": fish_script,
}  # fmt: skip
