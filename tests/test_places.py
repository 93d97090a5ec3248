"""Tests are where one looks for them: those of src/comper/ROOM/MODULE.py are in tests/ROOM/test_MODULE.py."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "comper", ROOT / "tests"
MODULES = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if not path.name.startswith("__"))

EXCEPTIONS = {
    "memory/indexes/search.py": ("memory/indexes/test_l2.py", "a lookup means nothing without the index that fills its table"),
}
"""Module -> where its tests are instead, and why."""


def place(module: str) -> Path:
    """Where the tests of a module are."""
    if module in EXCEPTIONS:
        return TESTS / EXCEPTIONS[module][0]
    path = Path(module)
    own = TESTS / path.parent / f"test_{path.name}"
    # Commands are wiring: they are tested by what they call, and all together through `comper.cli.main`.
    return TESTS / "test_cli.py" if path.parent.name == "commands" and not own.exists() else own


def is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_tests_in_their_place(module: str) -> None:
    path = place(module)
    assert path.is_file(), f"the tests of {module} belong in {path.relative_to(ROOT)}"
    assert any(map(is_test, ast.parse(path.read_text(encoding="utf-8")).body))


def test_an_exception_is_a_module_that_has_no_tests_of_its_own() -> None:
    for module in EXCEPTIONS:
        assert module in MODULES
        path = Path(module)
        assert not (TESTS / path.parent / f"test_{path.name}").exists()


def test_a_room_of_tests_is_a_room_of_the_package() -> None:
    rooms = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")} - {Path(), Path("faults"), Path("mutants")}
    assert {room for room in rooms if not (SOURCE / room).is_dir()} == set()
