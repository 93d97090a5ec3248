"""The command lines of the fuzz reach every command and every flag, also those that are added later."""

from __future__ import annotations

import argparse
import random

import pytest

from comper import cli
from tests.faults.commands import CommandLines, parser_of


def test_every_command_and_every_flag_is_tried() -> None:
    lines = CommandLines(random.Random(0))
    words = {(line[0], word) for line in (lines.make() for _ in range(15_000)) if line for word in line}
    for command in cli.COMMANDS:
        if command == "train":  # its settings have a test of their own below
            continue
        flags = {action.option_strings[-1] for action in parser_of(command)._actions if action.option_strings}
        assert {flag for flag in flags if (command, flag) not in words} == set(), command


def test_most_settings_of_all_agents_are_tried() -> None:
    lines = CommandLines(random.Random(0))
    words = {word for line in (lines.make() for _ in range(6000)) for word in line}
    assert len(lines._settings) > 30
    assert [flag for flag in lines._settings if flag not in words] == []


def test_a_command_that_is_added_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def add_arguments(parser: argparse.ArgumentParser, argv: list[str]) -> None:
        actions = parser.add_subparsers(required=True)
        actions.add_parser("draw").add_argument("--colour", choices=["red", "green"])
        actions.add_parser("erase").add_argument("place", metavar="DIR", nargs="+")

    monkeypatch.setitem(cli.COMMANDS, "paint", ("paint a picture", add_arguments))
    lines = CommandLines(random.Random(0))
    made = [line for line in (lines.make() for _ in range(4_000)) if line and line[0] == "paint"]
    words = {word for line in made for word in line}
    assert len(made) > 20
    assert {"draw", "erase", "--colour", "red", "green", "whole"} <= words
