"""Settings: what is allowed, what they are called, and the same values in Python, in TOML and as flags."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from comper.errors import UsageError
from comper.settings import (
    MAX_TOML_BYTES,
    Settings,
    add_flags,
    changed_settings,
    flag_values,
    parse_settings,
    read_settings,
    to_toml,
    whole_number,
    with_settings,
)
from comper.settings import setting as field


@dataclass(frozen=True, kw_only=True)
class Kitchen(Settings):
    """One setting of each kind."""

    eggs: int = field(3, "own", "eggs, 100 % fresh")
    spare_eggs: int = field(0, "own", "may be none", least=0, most=12)
    salt: float = field(0.5, "own", "grams", most=5)
    heat: float = field(180.0, "own", "degrees", above=0, below=300, synonyms=("temperature", "oven_heat"))
    dish: str = field("omelette", "own", "what is made", ("omelette", "soufflé"))
    cook: str = field("me", "own", "anyone")
    is_vegan: bool = field(False, "own", "without eggs")


@dataclass(frozen=True, kw_only=True)
class Guests(Settings):
    guests: int = field(2, "own", "how many")


PARTS = (Kitchen(), Guests())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"eggs": 0}, r"eggs = 0: must be greater than 0\."),
        ({"eggs": 10**12 + 1}, r"at most 1,000,000,000,000\."),
        ({"spare_eggs": -1}, r"0 or more\."),
        ({"spare_eggs": 13}, r"at most 12\."),
        ({"salt": -0.1}, r"salt = -0\.1: must be 0 or more\."),
        ({"salt": 5.1}, r"at most 5\."),
        ({"salt": math.nan}, r"nan.*must be a number\."),
        ({"salt": math.inf}, r"a huge number'?: must be at most 5\."),
        ({"heat": 0.0}, r"greater than 0\."),
        ({"heat": 300.0}, r"less than 300\."),
        ({"dish": "soup"}, r"one of omelette, soufflé\."),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_rule(change: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Kitchen(**change)
    with pytest.raises(UsageError, match=rf"^here: .*{rule}"):
        with_settings(PARTS, change, where="here")


@pytest.mark.parametrize(
    "change", [{"eggs": 1}, {"spare_eggs": 0}, {"spare_eggs": 12}, {"salt": 0}, {"salt": 5}, {"heat": 299.9}, {"cook": ""}]
)
def test_the_bounds_themselves_are_allowed_but_for_above_and_below(change: dict[str, Any]) -> None:
    changed, _ = with_settings(PARTS, change, where="here")
    assert changed == Kitchen(**change)


def test_each_setting_reaches_the_part_that_has_it_and_whole_numbers_become_floats() -> None:
    kitchen, guests = with_settings(PARTS, {"guests": 5, "salt": 2}, where="here")
    assert (kitchen, guests) == (Kitchen(salt=2.0), Guests(guests=5))
    assert type(kitchen.salt) is float
    assert (Kitchen(), Guests()) == PARTS


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"eggs": "3"}, "eggs = '3' must be of type int"),
        ({"eggs": 3.5}, "must be of type int"),
        ({"eggs": True}, "eggs = True must be of type int"),
        ({"salt": True}, "must be of type float"),
        ({"is_vegan": 1}, "must be of type bool"),
        ({"cook": 1}, "must be of type str"),
        ({"salt": 10**400}, "salt is too large for a number"),
    ],
)
def test_a_value_of_another_type_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"^here: .*{says}"):
        with_settings(PARTS, values, where="here")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("egs", r"Did you mean eggs.*\?"),
        ("guest", r"Did you mean guests\?"),
        ("temprature", r"Did you mean heat\?"),  # by a name that people try
        ("xyzzy", r"Known settings: eggs, spare_eggs, salt, heat, dish, cook, is_vegan, guests\."),
    ],
)
def test_an_unknown_name_gets_a_suggestion(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=rf"^here: unknown setting '{name}'\. {says}$"):
        with_settings(PARTS, {name: 1}, where="here")


def test_an_argument_that_was_meant_is_suggested_too() -> None:
    with pytest.raises(UsageError, match=r"^train\(\): unknown setting 'oven'\. Did you mean over or heat\?$"):
        with_settings(PARTS, {"oven": 1}, where="train()", arguments=["over", "out"])


def test_only_what_differs_is_a_change() -> None:
    changed = (Kitchen(eggs=4, cook="you"), Guests())
    assert changed_settings(changed, PARTS) == {"eggs": [4, 3], "cook": ["you", "me"]}
    assert changed_settings(PARTS, PARTS) == {}


def test_toml_holds_every_setting_and_reads_back(tmp_path: Path) -> None:
    parts = (Kitchen(cook='a "quoted" \\ name\nε', is_vegan=True, salt=1e-10, dish="soufflé", eggs=10**12), Guests())
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(parts), encoding="utf-8")
    assert list(read_settings(path)) == ["eggs", "spare_eggs", "salt", "heat", "dish", "cook", "is_vegan", "guests"]
    assert with_settings(PARTS, read_settings(path), where="here") == parts


def test_a_file_that_is_none_or_too_large_or_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    with pytest.raises(UsageError, match=r"cannot be read \(No such file"):
        read_settings(path)
    with pytest.raises(UsageError, match=r"cannot be read \(not an ordinary file\)"):
        read_settings(tmp_path)
    path.write_bytes(b"#" * MAX_TOML_BYTES)
    assert read_settings(path) == {}
    path.write_bytes(b"#" * (MAX_TOML_BYTES + 1))
    with pytest.raises(UsageError, match="larger than 64 kB"):
        read_settings(path)
    for content in (b"x = ", b"\xff", b"a = " + b"[" * 5_000):
        with pytest.raises(UsageError, match=r"^here: not a TOML file"):
            parse_settings(content, where="here")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--cook", default="the command's own")
    add_flags(made, "kitchen", Kitchen())
    return made


def test_only_flags_that_were_given_are_values() -> None:
    assert flag_values(parser().parse_args([])) == {}
    words = ["--eggs", "1e3", "--spare-eggs", "0", "--salt", "2", "--is-vegan", "False", "--dish", "soup"]
    expected = {"eggs": 1_000, "spare_eggs": 0, "salt": 2.0, "is_vegan": False, "dish": "soup"}
    assert flag_values(parser().parse_args(words)) == expected


def test_synonyms_are_flags_too_and_a_flag_of_the_command_stays_its_own() -> None:
    for flag in ("--heat", "--temperature", "--oven-heat"):
        assert flag_values(parser().parse_args([flag, "200"])) == {"heat": 200.0}
    args = parser().parse_args(["--cook", "you"])
    assert (args.cook, flag_values(args)) == ("you", {})


def test_help_says_what_a_setting_is_its_source_and_its_default() -> None:
    text = " ".join(parser().format_help().split())
    assert "eggs, 100 % fresh (own; default: 3)" in text
    assert "--dish omelette|soufflé" in text
    assert "--is-vegan true|false" in text


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("100_000", 100_000), ("1e5", 100_000), ("2.0", 2), ("-3", -3)])
def test_whole_numbers_are_read_as_people_write_them(text: str, number: int) -> None:
    assert whole_number(text) == number
    assert type(whole_number(text)) is int


@pytest.mark.parametrize("text", ["1.5", "many", "", "inf", "nan", "1e-3"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)


@pytest.mark.parametrize(("words", "says"), [(["--eggs", "1.5"], "invalid whole number value: '1.5'"),
                                             (["--is-vegan", "yes"], "invalid true or false value: 'yes'")])  # fmt: skip
def test_a_flag_that_cannot_be_read_is_said_in_words(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(words)
    assert says in capsys.readouterr().err
