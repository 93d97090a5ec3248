"""Errors a user can mend: one sentence that any terminal can show, and an exit code of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from comper import errors
from comper.cli import EXIT_CODES
from comper.errors import ComperError, DamagedFileError, OutsideCodeError, UsageError, printable

CODES = {
    "ComperError": 1,
    "UsageError": 2,
    "OutsideCodeError": 2,
    "OtherVersionError": 2,
    "DamagedFileError": 3,
    "UnusableStateError": 3,
    "ResourceError": 4,
    "WorkerDiedError": 4,
    "DivergedError": 5,
    "LockedError": 6,
    "StoppedError": 130,
    "LeftOutError": 1,  # each has the code of what was left out
}


def test_every_error_has_its_exit_code() -> None:
    found = {name: thing for name, thing in vars(errors).items() if isinstance(thing, type) and issubclass(thing, ComperError)}
    assert {name: kind.exit_code for name, kind in found.items()} == CODES
    assert issubclass(OutsideCodeError, UsageError)


def test_the_help_and_the_documentation_list_the_same_codes() -> None:
    codes = {str(code) for code in CODES.values()}
    assert set(re.findall(r"\d+", EXIT_CODES)) == codes | {"0"}
    table = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text().split("| exit code |", 1)[1]
    assert codes <= set(re.findall(r"^\| *(\d+) *\|", table, flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ε and \n a line", "plain, with ε and \n a line"),
        ("a\x1b[31mred", r"a\x1b[31mred"),
        ("bell\a, tab\t, return\r", r"bell\x07, tab\t, return\r"),
        ("broken \udc80 name", r"broken \udc80 name"),
        ("right\u202eto left", r"right\u202eto left"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert str(DamagedFileError(text)) == shown
