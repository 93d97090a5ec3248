"""The recipes of CONTRIBUTING.md work as they stand there: each block becomes the file that its first line names."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from comper import train

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL))

Recipe = Callable[[str], ModuleType]


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """Write a recipe's file into an empty working folder and import it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write_and_import(name: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(BLOCKS[name])
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return write_and_import


def manifest(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "manifest.json").read_text())
    return content


def test_every_recipe_has_a_test() -> None:
    assert set(BLOCKS) == {"bandit", "corridor", "rewardless", "episode_lengths"}
    assert len(re.findall(r"^## Add ", TEXT, flags=re.MULTILINE)) == len(BLOCKS)


def test_the_agent_of_the_recipe_trains_and_is_recorded(recipe: Recipe) -> None:
    recipe("bandit")
    [folder] = train("asterix", "bandit:BANDIT", frames=500, exploration=0.2)
    assert manifest(folder)["status"] == "finished"
    assert "exploration = 0.2" in (folder / "config.toml").read_text()
    assert (folder / "episodes.jsonl").read_text().count("\n") >= 1


def test_one_line_in_the_registry_gives_the_agent_a_name(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    from comper.agents.registry import AGENTS

    recipe("bandit")
    [name, place] = re.findall(r'`"(\w+)": "comper\.agents\.(\w+:\w+)"`', TEXT)[0]
    monkeypatch.setitem(AGENTS, name, place)
    [folder] = train("asterix", name, frames=500)
    assert manifest(folder)["agent"] == name


def test_the_environment_of_the_recipe_can_be_trained_in_by_name_and_as_a_callable(recipe: Recipe) -> None:
    corridor = recipe("corridor")
    [by_name] = train("corridor:make_corridor", "dqn", frames=300)
    [by_callable] = train(corridor.Corridor, "dqn", frames=300)
    assert manifest(by_name)["status"] == manifest(by_callable)["status"] == "finished"


def test_the_index_of_the_recipe_finds_transitions_whatever_their_reward(recipe: Recipe) -> None:
    from comper.memory.frames import FrameStore
    from comper.memory.transition_memory import TransitionMemory
    from comper.memory.transitions import Transition

    frames = FrameStore((2, 2))
    tm = TransitionMemory(frames, recipe("rewardless").RewardlessIndex(frames))
    s, s_next = (frames.intern(np.full((2, 2), value, np.uint8)) for value in (1, 2))
    first = tm.store_transition(Transition((s,), 0, 0.0, (s_next,), False), 0.5)
    assert tm.store_transition(Transition((s,), 0, 1.0, (s_next,), False), 0.5) == first
    assert tm.store_transition(Transition((s,), 1, 0.0, (s_next,), False), 0.5) != first
    assert tm.check_valid()[0]


def test_the_figure_of_the_recipe_is_put_on_the_page_by_one_word(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comper.report import figures
    from comper.report.report import report

    train("asterix", "random", frames=500, trials=2, out=tmp_path / "runs")
    monkeypatch.setattr(figures, "FIGURES", (recipe("episode_lengths").episode_lengths,))
    result = report([tmp_path / "runs"], tmp_path / "report", progress=False)
    assert result.figures == ["episode_lengths"]
    assert (tmp_path / "report" / "figures" / "episode_lengths.svg").stat().st_size > 1_000
    assert "Mean frames per episode." in result.page.read_text()


def test_the_table_of_an_agents_methods_has_all_of_them() -> None:
    from comper.agents.agent import Agent

    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)", " ".join(rows)))
    methods = {name for name, member in vars(Agent).items() if callable(member) or isinstance(member, classmethod)}
    assert {name for name in methods if not name.startswith("_")} | {"__init__"} == named
