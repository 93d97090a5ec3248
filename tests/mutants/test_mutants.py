"""The list of mutants fits the source, and the runner tells a mutant that a test notices from one that none does."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.mutants.listed import MUTANTS
from tests.mutants.run import Mutant, Outcome, problems, run, verdict

ADDS = Mutant("subtracts", "sums.py", "a + b", "a - b", ("test_sums.py",))
COMMENT = Mutant("another comment", "sums.py", "# a sum", "# the sum", ("test_sums.py",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one function and one test."""
    for folder in ("src/comper", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/comper/__init__.py").touch()
    (tmp_path / "src/comper/sums.py").write_text("def add(a, b):\n    return a + b  # a sum\n")
    (tmp_path / "tests/test_sums.py").write_text(
        "from comper.sums import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-q"\n')
    return tmp_path


def test_the_list_fits_the_source() -> None:
    assert problems(MUTANTS) == []
    assert len(MUTANTS) >= 60
    rooms = {mutant.file.split("/")[0] for mutant in MUTANTS}
    assert rooms == {"agents", "learners", "networks", "memory", "training", "environments", "progress.py", "settings.py"}


def test_a_mutant_that_a_test_notices_is_killed_and_the_source_stays_as_it_is(tree: Path) -> None:
    shown: list[str] = []
    outcomes = run([ADDS, COMMENT], jobs=2, root=tree, imported_once=(), show=shown.append)
    assert (outcomes[ADDS.name].status, outcomes[ADDS.name].by) == ("killed", "test_sums.py::test_sum")
    assert outcomes[COMMENT.name].status == "survived"
    assert len(shown) == 2
    assert "a + b  # a sum" in (tree / "src/comper/sums.py").read_text()


def test_a_source_that_fails_without_mutants_is_refused(tree: Path) -> None:
    (tree / "src/comper/sums.py").write_text("def add(a, b):\n    return a + b + 1\n")
    with pytest.raises(SystemExit, match="fails without any mutant"):
        run([ADDS], jobs=1, root=tree, imported_once=())


def test_only_an_explained_mutant_may_survive() -> None:
    survived, killed = Outcome("survived", "", 1.0), Outcome("killed", "test_sums.py::test_sum", 1.0)
    explained = dataclasses.replace(COMMENT, survives_because="comments do nothing")
    assert verdict([ADDS, explained], {ADDS.name: killed, explained.name: survived}) == []
    assert verdict([COMMENT], {COMMENT.name: survived}) == [f"{COMMENT.name}: survived, not killed"]
    assert verdict([explained], {explained.name: killed}) == [f"{explained.name}: killed, not survived ({killed.by})"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"old": "a"}, "the old text is there 4 times, not once"),
        ({"old": "a * b"}, "the old text is there 0 times, not once"),
        ({"file": "products.py"}, "the old text is there 0 times, not once"),
        ({"new": "a +"}, "the new text is no other program"),
        ({"new": "a + b"}, "the new text is no other program"),
        ({"tests": ("test_products.py",)}, "no tests/test_products.py"),
        ({"tests": ()}, "no tests are named"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error(change: dict[str, str], problem: str, tree: Path) -> None:
    mutant = dataclasses.replace(ADDS, **change)  # type: ignore[arg-type]
    assert problems([mutant], tree) == [f"{mutant.name}: {problem}"]


def test_a_mutant_is_listed_once(tree: Path) -> None:
    assert problems([ADDS, ADDS], tree) == [f"{ADDS.name}: listed twice"]
