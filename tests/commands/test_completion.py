"""The completion scripts, in the shells they are for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from comper.agents.registry import AGENTS
from comper.cli import COMMANDS, main
from comper.commands.completion import SHELLS, command_words


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of a shell, as `comper completion` prints it."""
    assert main(["completion", request.param]) == 0
    path = tmp_path / "script"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def completions(shell: str, code: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    result = subprocess.run([shell, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert result.stderr == ""
    return [line.split("\t")[0] for line in result.stdout.splitlines()]


LINES = [
    ("", {"train", "report", "completion"}, set(COMMANDS) | {"--help", "--version"}),
    ("tra", {"train"}, {"train"}),
    ("train --align", {"--alignment"}, {"--alignment"}),
    ("train --num-st", {"--num-steps"}, {"--num-steps"}),  # a setting of another agent than the default one
    ("train --agent d", {"dqn", "ddqn"}, {"dqn", "ddqn"}),
    ("train --device ", {"auto", "cpu", "cuda"}, {"auto", "cpu", "cuda"}),
    ("train freewa", {"freeway"}, {"freeway"}),
    ("report --op", {"--open"}, {"--open"}),
    ("completion ", {"bash", "zsh", "fish"}, {"--help", "bash", "zsh", "fish"}),
]


@pytest.mark.parametrize(("line", "least", "most"), LINES, ids=[line for line, *_ in LINES])
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes(script: Path, line: str, least: set[str], most: set[str]) -> None:
    words = ["comper", *line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _comper; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    found = set(completions("bash", code))
    assert least <= found <= most


@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_files_where_a_flag_takes_one(script: Path) -> None:
    code = f"source {script}; COMP_WORDS=(comper train --config x); COMP_CWORD=3; _comper; "
    code += "echo ${#COMPREPLY[@]}; complete -p comper"
    assert completions("bash", code) == ["0", "complete -o default -F _comper comper"]


@pytest.mark.parametrize(("line", "least", "most"), LINES, ids=[line for line, *_ in LINES])
@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes(script: Path, line: str, least: set[str], most: set[str]) -> None:
    found = {word for word in completions("fish", f"source {script}; complete -C 'comper {line}'") if word}
    assert least <= found
    assert {word for word in found if word in COMMANDS} <= most


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_offers_commands_flags_and_values(script: Path) -> None:
    stubs = "compdef() {}; _describe() { print $1; print -rl -- ${(P)2} }; "
    stubs += "compadd() { print -rl -- $@ }; _files() { print FILES }; "
    code = stubs + f"source {script}; words=(comper %s); CURRENT=%d; PREFIX=%s; _comper"
    assert f"train:{COMMANDS['train'][0]}" in completions("zsh", code % ("''", 2, "''"))
    assert completions("zsh", code % ("train --agent ''", 4, "''")) == ["--", *AGENTS]
    assert any(line.startswith("--alignment:") for line in completions("zsh", code % ("train --al", 3, "--al")))
    assert completions("zsh", code % ("report --out ''", 4, "''")) == ["FILES"]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_flag_of_every_command_is_in_the_script(shell: str) -> None:
    words = command_words(COMMANDS)
    script = SHELLS[shell](words)
    prefix = "-l " if shell == "fish" else "--"
    for command in words.values():
        for flag in command.flags:
            assert all(prefix + name[2:] in script for name in flag.names if name.startswith("--"))
