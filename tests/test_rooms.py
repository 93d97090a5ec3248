"""The rooms of the code and their one-way arrows; the memory alone, without torch and without an emulator."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "comper"

GROUND = {"errors", "protocol", "settings"}
"""What every room may stand on."""

ARROWS = {
    "environments": set(),
    "memory": set(),
    "networks": set(),
    "learners": {"memory", "networks"},
    "agents": {"memory", "learners", "networks"},
    "runs": set(),
    "training": {"environments", "agents", "memory", "networks", "runs"},
    "report": {"runs", "environments"},
}
"""Room -> rooms it may import, besides the ground."""


def imported_rooms(path: Path) -> set[str]:
    """The rooms (or ground modules) of ours that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "comper" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("comper.")}
    return found - {"__version__"}


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_its_arrows_allow(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        foreign = imported_rooms(path) - ARROWS[room] - GROUND - {room}
        assert not foreign, f"{path.name} imports {foreign}"


def test_every_room_has_its_arrows_listed() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert rooms == set(ARROWS)


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("comper", ["numpy", "torch", "ale_py"]),
        ("comper.memory.replay", ["torch", "ale_py", "faiss", "cv2"]),
        ("comper.memory.reduced", ["torch", "ale_py", "faiss", "cv2"]),
        ("comper.memory.indexes", ["torch", "ale_py", "faiss", "cv2"]),
        ("comper.environments", ["torch", "ale_py", "cv2", "gymnasium"]),
        ("comper.training.train", ["torch", "ale_py", "rich"]),
        ("comper.report.commands", ["torch", "ale_py", "matplotlib", "jinja2"]),
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
from comper import FrameStore, ReducedTransitionMemory, Transition, TransitionMemory, make_index
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
