"""Every snippet of README and documents runs, and every command in them is one that `comper` understands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RECIPES = ROOT / "CONTRIBUTING.md"  # tests/test_recipes.py runs its blocks, each as the file that it is

USER_MODULE = """
import math
import gymnasium
import torch
from comper.agents.dqn import DQN as my_agent

def make_env():
    return gymnasium.make("CartPole-v1")

def make_network(state_shape, num_actions):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(state_shape), num_actions))
"""


MY_AGENT = (ROOT / "examples" / "my_agent.py").read_text(encoding="utf-8")


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text_of(path), flags=re.MULTILINE | re.DOTALL)


def commands(path: Path) -> list[str]:
    """The lines of code blocks that call `comper`, without their comments; not those of an earlier commit."""
    text = re.sub(r" \\\n +", " ", text_of(path))  # a command may go on in the next line
    text = re.sub(r"^    git checkout .*\n(?:    .+\n)*", "", text, flags=re.MULTILINE)
    lines = re.findall(r"^(?:    )?(comper .+)$", text, flags=re.MULTILINE)
    return [line.split("  #")[0].strip() for line in lines]


def mentioned_commands(path: Path) -> set[str]:
    """The first words of `comper ...` in running text."""
    return set(re.findall(r"`comper ([a-z][\w-]*)[^`]*`", text_of(path)))


WITH_SNIPPETS = [path for path in DOCUMENTS if path != RECIPES and python_blocks(path)]
ALL_COMMANDS = sorted({command for path in DOCUMENTS for command in commands(path)})


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_SNIPPETS, ids=[str(path.relative_to(ROOT)) for path in WITH_SNIPPETS])
def test_the_snippets_of_a_document_run_one_after_the_other(path: Path, tmp_path: Path) -> None:
    script = "\n".join(python_blocks(path))
    result = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_the_readme_has_the_snippets_that_a_newcomer_looks_for() -> None:
    snippets = "\n".join(python_blocks(ROOT / "README.md"))
    for use in ("train(", "evaluate(", "load(", ".predict(", ".q_values(", "train(lambda:", "CompactMemory("):
        assert use in snippets


@pytest.mark.parametrize("command", ALL_COMMANDS)
def test_every_command_of_the_documents_is_understood(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from comper.cli import _command_parser

    recipes = dict(re.findall(r"^# (\w+)\.py\n(.*?)^```", text_of(RECIPES), re.MULTILINE | re.DOTALL))
    for module, code in {"my_module": USER_MODULE, "my_network": USER_MODULE, "my_agent": MY_AGENT, **recipes}.items():
        (tmp_path / f"{module}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    _, name, *arguments = shlex.split(command)
    _command_parser(name, arguments).parse_args(arguments)


def test_every_command_mentioned_in_the_text_exists() -> None:
    from comper.cli import main

    for command in sorted(set().union(*(mentioned_commands(path) for path in DOCUMENTS))):
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0, command
