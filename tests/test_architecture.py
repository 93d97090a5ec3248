"""The architecture page shows the code as it is: picture, table and walks follow from the source."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKED_FILES = {"DQN": 12, "COMPER": 15}
COMMAND = "out of date: run `python docs/draw_architecture.py`"


@pytest.fixture(scope="module")
def drawing() -> ModuleType:
    """The script, imported from its file."""
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "docs" / "draw_architecture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["draw_architecture"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_drawn_from_the_present_source(drawing: ModuleType) -> None:
    assert (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8") == drawing.draw(drawing.read_rooms()), COMMAND


def test_the_table_is_made_from_the_present_source(drawing: ModuleType) -> None:
    assert drawing.with_table(PAGE, drawing.table(drawing.read_rooms(), exact=False)) == PAGE, COMMAND


def test_rooms_do_not_import_each_other_in_a_circle(drawing: ModuleType) -> None:
    assert drawing.find_cycle({name: room.imports for name, room in drawing.read_rooms().items()}) == []


def test_modules_do_not_import_each_other_in_a_circle(drawing: ModuleType) -> None:
    assert drawing.find_cycle(drawing.read_modules()) == []


def test_every_import_counts_wherever_it_stands(drawing: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "import comper.errors\n"
        "from comper import __version__, settings\n"
        "if TYPE_CHECKING:\n    from comper.memory.frames import FrameStore\n"
        "def use():\n    from comper.runs import folder\n    import numpy, comperish\n"
    )
    assert drawing.imported_modules(path) == {"errors", "settings", "memory.frames.FrameStore", "runs.folder"}


def test_a_circle_is_found_and_named(drawing: ModuleType) -> None:
    assert drawing.find_cycle({"a": ["b"], "b": ["c"], "c": ["b"], "d": []}) == ["b", "c", "b"]
    assert drawing.find_cycle({"a": ["b", "c"], "b": ["c"], "c": []}) == []
    with pytest.raises(ValueError, match="b -> c -> b"):
        drawing.layers({"a": ["b"], "b": ["c"], "c": ["b"]})


def test_arrows_that_follow_from_others_are_left_out(drawing: ModuleType) -> None:
    arrows = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert drawing.needed_arrows(arrows) == {"a": {"b"}, "b": {"c"}, "c": set()}
    assert drawing.layers(arrows) == {"a": 2, "b": 1, "c": 0}


def walked_files() -> dict[str, list[str]]:
    """The files of both walks, in the page's order; COMPER's own agent takes the place of DQN's."""
    dqn_part, comper_part = PAGE.split("## The way of one frame")[1].split("## ")[0].split("COMPER takes the same way")
    dqn, more = (re.findall(r"^\| \d+ \| `([\w/]+\.py)` \|", part, flags=re.MULTILINE) for part in (dqn_part, comper_part))
    return {"DQN": dqn, "COMPER": [file.replace("agents/dqn", "agents/comper") for file in dqn] + more}


@pytest.mark.parametrize("agent", WALKED_FILES)
def test_the_walk_of_a_frame_names_files_that_exist(agent: str) -> None:
    files = walked_files()[agent]
    assert len(files) == len(set(files)) == WALKED_FILES[agent]
    assert [file for file in files if not (ROOT / "src" / "comper" / file).is_file()] == []
