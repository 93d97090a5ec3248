"""Findings: the gravest first, and nothing in a file's name that a page or terminal would obey."""

from __future__ import annotations

from comper.report.findings import ERROR, NOTE, WARNING, Finding, by_severity


def test_the_gravest_come_first_and_otherwise_the_first_found() -> None:
    found = [Finding(severity, "remark", text) for severity, text in
             [(NOTE, "a"), (ERROR, "b"), (WARNING, "c"), (NOTE, "d"), (ERROR, "e"), (WARNING, "f")]]  # fmt: skip
    assert "".join(finding.text for finding in by_severity(found)) == "becfad"
    assert "".join(finding.text for finding in found) == "abcdef"


def test_the_name_of_a_file_is_escaped() -> None:
    assert Finding(NOTE, "remark", "x", "runs/\x1b[2J/\udc80.jsonl").where == r"runs/\x1b[2J/\udc80.jsonl"
    assert Finding(NOTE, "remark", "x", "runs/ε/a b.jsonl").where == "runs/ε/a b.jsonl"
