"""What a reader of a report must know before believing it: damage, gaps and coincidences, each with its place."""

from __future__ import annotations

from dataclasses import dataclass

from comper.errors import printable

ERROR = "error"
"""A run was left out because its numbers would be wrong: the command ends with exit code 3."""
WARNING = "warning"
"""The numbers are what the logs say, but they may not mean what they seem to mean."""
NOTE = "note"
"""Worth knowing."""

SEVERITIES = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Finding:
    """One sentence of "Read this first"."""

    severity: str
    kind: str
    """One word: damaged, duplicate, incomplete, misplaced, coinciding, floor, missing, settings, overshoot, remark."""
    text: str
    where: str = ""
    """The file, with its line where there is one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", printable(self.where))  # a file's name may hold anything


def by_severity(findings: list[Finding]) -> list[Finding]:
    """The gravest first; otherwise in the order they were found."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
