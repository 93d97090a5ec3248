"""The rooms of the code and their one-way arrows; the memory alone, without torch and without an emulator."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "comper"

ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "native": set(),
    "output": {"errors"},
    "processes": set(),
    "progress": {"output"},
    "settings": {"errors"},
    "importing": {"errors"},
    "protocol": {"settings"},
    "environments": {"errors", "native", "settings", "importing", "processes", "protocol"},
    "memory": {"errors", "native"},
    "integrations": {"errors", "memory"},
    "networks": {"native"},
    "learners": {"memory", "native", "networks", "protocol"},
    "agents": {"errors", "settings", "importing", "protocol", "memory", "networks", "learners"},
    "runs": {"errors"},
    "training": {
        "errors", "output", "processes", "progress", "settings", "importing", "protocol", "environments", "memory", "networks",
        "agents", "runs",
    },
    "studies": {"errors", "output", "processes", "progress", "settings", "environments", "runs", "training", "report"},
    "report": {"errors", "progress", "protocol", "environments", "runs"},
    "viewing": {"errors", "progress", "environments", "memory", "agents", "runs", "training"},
}  # fmt: skip
"""Room, or module on the ground floor -> what it may import. `cli` and `commands` wire all of them."""

HEAVY = ("learners.", "networks.", "report.report.")
"""They import torch or draw, which takes a second: whoever need not is imported without them."""


def modules(room: str) -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py")) if (SOURCE / room).is_dir() else [SOURCE / f"{room}.py"]


def imports(tree: ast.AST) -> set[str]:
    """Modules of ours that are imported anywhere in a tree, as `room.module...`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("comper.") for name in found if name.startswith("comper.")} - {"__version__"}


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_its_arrows_allow(room: str) -> None:
    for path in modules(room):
        foreign = {name.split(".")[0] for name in imports(parsed(path))} - ARROWS[room] - {room}
        assert not foreign, f"{path.name} imports {foreign}"


def test_every_room_has_its_arrows_listed_and_there_is_no_cycle() -> None:
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__", "cli", "commands"} == set(ARROWS)
    assert list(TopologicalSorter(ARROWS).static_order())


def test_no_arrow_is_listed_that_is_not_there() -> None:
    for room, allowed in ARROWS.items():
        used = {name.split(".")[0] for path in modules(room) for name in imports(parsed(path))}
        assert allowed <= used, f"{room} does not import {allowed - used}"


@pytest.mark.parametrize("room", ARROWS)
def test_an_import_is_late_only_because_a_library_is_heavy(room: str) -> None:
    for path in modules(room):
        functions = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)]
        late = {name for function in functions for name in imports(function)}
        assert all(name.startswith(HEAVY) for name in late), f"{path.name} imports {late} late"


def test_only_the_registry_knows_agents_by_name() -> None:
    agents = {f"agents.{path.stem}" for path in modules("agents")} - {"agents.agent", "agents.registry", "agents.__init__"}
    for path in SOURCE.rglob("*.py"):
        known = {name for name in imports(parsed(path)) if name.rpartition(".")[0] in agents or name in agents}
        assert not known, f"{path.name} imports {known}"


def test_a_report_takes_from_the_environments_their_floors_alone() -> None:
    for path in modules("report"):
        names = {name for name in imports(parsed(path)) if name.startswith("environments")}
        assert all(name.startswith("environments.floors") for name in names), f"{path.name} imports {names}"


def test_no_two_modules_and_no_two_classes_have_one_name() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    classes = [node.name for path in paths for node in parsed(path).body if isinstance(node, ast.ClassDef)]
    for names in ([path.stem for path in paths], [name for name in classes if not name.startswith("_")]):
        twice = {name for name, count in Counter(names).items() if count > 1}
        assert not twice, twice


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("comper", ["numpy", "torch", "ale_py"]),
        ("comper.memory", ["torch", "ale_py", "faiss", "cv2"]),
        ("comper.integrations", ["torch", "gymnasium", "stable_baselines3", "torchrl"]),
        ("comper.environments", ["torch", "ale_py", "cv2", "gymnasium"]),
        ("comper.agents.comper", ["torch", "ale_py", "cv2", "gymnasium"]),
        ("comper.training.train", ["torch", "ale_py", "rich"]),
        ("comper.training.resume", ["torch", "ale_py", "rich"]),
        ("comper.runs.verify", ["torch", "ale_py", "rich", "safetensors"]),
        ("comper.report.commands", ["torch", "ale_py", "matplotlib", "jinja2"]),
        ("comper.training.trackers", ["torch", "tensorboardX", "wandb"]),
        ("comper.viewing.watching", ["torch", "ale_py", "cv2", "PIL", "matplotlib"]),
        ("comper.viewing.memory_picture", ["torch", "ale_py", "cv2", "PIL", "matplotlib"]),
    ],
)
def test_importing_a_room_brings_nothing_heavy(module: str, forbidden: list[str]) -> None:
    script = f"import sys, {module}; print([name for name in {forbidden} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_memory_works_where_torch_and_the_emulator_are_missing() -> None:
    script = """
import sys
for name in ("torch", "ale_py", "cv2", "gymnasium", "faiss", "rich"):
    sys.modules[name] = None                      # importing it now fails
import numpy as np
from comper.memory import FrameStore, ReducedTransitionMemory, Transition, TransitionMemory, make_index
frames = FrameStore((84, 84))
tm = TransitionMemory(frames, make_index("l2", frames, 0.5))
rtm = ReducedTransitionMemory(tm)
ids = [frames.intern(np.full((84, 84), value, np.uint8)) for value in (1, 2)]
tm.store_transition(Transition((ids[0],), 3, 1.0, (ids[1],), False), 0.5)
rtm.absorb(tm.take(1000))
print(tm.gather(rtm.sample(4, np.random.default_rng(0))).a.tolist())
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[3, 3, 3, 3]"
