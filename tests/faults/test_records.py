"""Sittings of the torture add up for the same code, and for no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.faults import records


def sitting(**changes: Any) -> dict[str, Any]:
    counted = {"title": "t", "name": "n", "tried": 10, "losses": 0, "notes": {"kills": 3, "slowest seconds": 1.0}}
    return {**counted, "problems": [], "seconds": 2.0, "asked": 30, "commit": "a", "seed": 0, "jobs": 1, **changes}


def test_sittings_with_the_same_code_add_up() -> None:
    record = records.added({}, sitting(), code="x")
    notes = {"kills": 4, "slowest seconds": 0.5}
    record = records.added(record, sitting(tried=5, losses=1, problems=["p"], commit="b", seed=1, notes=notes), code="x")
    assert (record["tried"], record["losses"], record["seconds"], record["asked"]) == (15, 1, 4.0, 30)
    assert record["notes"] == {"kills": 7, "slowest seconds": 1.0}
    assert record["problems"] == ["p"]
    assert [(part["commit"], part["seed"], part["tried"]) for part in record["sittings"]] == [("a", 0, 10), ("b", 1, 5)]
    assert records.tried(record, "x") == 15
    assert records.tried(record, "y") == 0


def test_what_other_code_was_tried_with_is_kept_apart() -> None:
    record = records.added({"tried": 300, "losses": 0}, sitting(), code="x")
    assert (record["tried"], record["earlier"]) == (10, {"tried": 300, "losses": 0, "commits": []})
    record = records.added(record, sitting(tried=7), code="y")
    assert (record["tried"], record["earlier"]) == (7, {"tried": 310, "losses": 0, "commits": ["a"]})
    record = records.added(record, sitting(tried=1), code="y")
    assert (record["tried"], record["earlier"]["tried"], len(record["sittings"])) == (8, 310, 2)


def test_the_digest_is_of_the_code_and_of_nothing_else(tmp_path: Path) -> None:
    code = tmp_path / "src" / "comper" / "a.py"
    code.parent.mkdir(parents=True)
    code.write_text("1")
    (tmp_path / "tests" / "faults").mkdir(parents=True)
    before = records.code_digest(tmp_path)
    (tmp_path / "docs.md").write_text("x")
    assert records.code_digest(tmp_path) == before
    code.write_text("2")
    assert records.code_digest(tmp_path) != before
