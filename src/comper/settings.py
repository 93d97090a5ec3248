"""Settings: what a hyper-parameter is, may be, and is called, in Python, as a flag, in TOML and in the documentation.

A configuration is a frozen dataclass of `setting(...)` fields. A run has two of them, the agent's and the environment's; on
disk and as flags they are one flat list of names.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import json
import math
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from comper.errors import UsageError

MAX_COUNT = 10**12
"""More than any machine could count to in a run: a larger number is a slip."""

MAX_BITS = 4_096
"""Of a whole number in a TOML file: far more than any setting takes, and fewer than Python can print."""
MAX_TOML_BYTES = 64 * 1024


def setting(
    default: Any,
    source: str,
    help: str,
    choices: tuple[str, ...] = (),
    *,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    above: float | None = None,
    synonyms: tuple[str, ...] = (),
    before: Any = None,
) -> Any:
    """A hyper-parameter: its default, where the paper states it, what it is with its unit, and what it may be.

    Unless stated otherwise a whole number is at least 1 and any other number at least 0. `synonyms` are other names that
    people try. `before` is, of a setting that was added later, the value with which agents do what they did before: runs
    recorded without the setting go on with it, whatever the default is now. Without `before` they are refused.
    """
    bounds = {"least": least, "most": most, "below": below, "above": above}
    return field(
        default=default,
        metadata={"source": source, "help": help, "choices": choices, "synonyms": synonyms, "before": before, **bounds},
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all configurations: every value is checked when one is made."""

    taken_out: ClassVar[Mapping[str, Any]] = {}
    """Settings that there were once, each with the value that switched it off: where that is given, nothing is missing."""

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            require(*_rule(f, getattr(self, f.name)))


def require(holds: bool, name: str, value: object, rule: str) -> None:
    """Raise ValueError that names the setting, its value and the rule it breaks."""
    if not holds:
        raise ValueError(f"{name} = {value!r}: must be {rule}.")


def kind_of(f: dataclasses.Field[Any]) -> str:
    """The type of a setting by name: int, float, bool or str."""
    return f.type if isinstance(f.type, str) else f.type.__name__


def _rule(f: dataclasses.Field[Any], value: Any) -> tuple[bool, str, object, str]:
    """Whether a value is allowed, and, if not, the rule it breaks."""
    kind, rules = kind_of(f), f.metadata
    if kind in ("str", "bool"):
        choices = rules["choices"]
        return not choices or value in choices, f.name, value, f"one of {', '.join(choices)}"
    least = rules["least"] if rules["least"] is not None else int(kind == "int")
    most = rules["most"] if rules["most"] is not None else MAX_COUNT
    if value != value:
        return False, f.name, "nan", "a number"
    shown = value if abs(value) < 1e30 else "a huge number"
    if value > most:
        return False, f.name, shown, f"at most {most:,}"
    if rules["below"] is not None and value >= rules["below"]:
        return False, f.name, shown, f"less than {rules['below']:g}"
    if rules["above"] is not None:
        return value > rules["above"], f.name, shown, f"greater than {rules['above']:g}"
    return value >= least, f.name, shown, "greater than 0" if least == 1 else f"{least:g} or more"


# Changed by name.


def with_settings(
    parts: Sequence[Settings], values: Mapping[str, Any], *, where: str, arguments: Sequence[str] = ()
) -> tuple[Any, ...]:
    """The configurations with some settings changed; a wrong name, type or value is an error that says what is right.

    `arguments` are other names that a user may have meant: those of the function that takes the settings.
    """
    owners = {f.name: number for number, part in enumerate(parts) for f in dataclasses.fields(part)}
    synonyms = {word: f.name for _, f in fields_of(parts) for word in f.metadata["synonyms"]}
    changes: list[dict[str, Any]] = [{} for _ in parts]
    needless = switched_off(parts, values)
    for given, value in values.items():
        if given in needless:
            continue
        name = given if given in owners else synonyms.get(given, given)
        if name not in owners:
            raise UsageError(f"{where}: unknown setting {name!r}.{_suggestion(name, parts, arguments)}")
        number = owners[name]
        changes[number][name] = _typed(_field(parts[number], name), value, where)
    try:
        return tuple(dataclasses.replace(part, **change) for part, change in zip(parts, changes, strict=True))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def switched_off(parts: Sequence[Settings], values: Mapping[str, Any]) -> set[str]:
    """Settings that there are no more, and whose given values ask for nothing."""
    return {name for part in parts for name, off in part.taken_out.items() if name in values and values[name] == off}


def changed_settings(parts: Sequence[Settings], defaults: Sequence[Settings]) -> dict[str, list[Any]]:
    """Settings that differ from their defaults: name -> [value, default]."""
    pairs = [(part, default, f.name) for part, default in zip(parts, defaults, strict=True) for f in dataclasses.fields(part)]
    return {
        name: [getattr(part, name), getattr(default, name)]
        for part, default, name in pairs
        if getattr(part, name) != getattr(default, name)
    }


def fields_of(parts: Sequence[Settings]) -> Iterator[tuple[Settings, dataclasses.Field[Any]]]:
    """Every setting of several configurations, in order."""
    return ((part, f) for part in parts for f in dataclasses.fields(part))


def _field(part: Settings, name: str) -> dataclasses.Field[Any]:
    return next(f for f in dataclasses.fields(part) if f.name == name)


def _suggestion(name: str, parts: Sequence[Settings], arguments: Sequence[str]) -> str:
    known = {word: word for word in [*arguments, *(f.name for _, f in fields_of(parts))]}
    known |= {synonym: f.name for _, f in fields_of(parts) for synonym in f.metadata["synonyms"]}
    near = list(dict.fromkeys(known[word] for word in difflib.get_close_matches(name, known, n=3)))
    return (
        f" Did you mean {' or '.join(near)}?"
        if near
        else f" Known settings: {', '.join(f.name for _, f in fields_of(parts))}."
    )


TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,), "bool": (bool,)}


def _typed(f: dataclasses.Field[Any], value: Any, where: str) -> Any:
    kind, given = kind_of(f), value
    if kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e5
    if not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise UsageError(f"{where}: {f.name} = {value!r} must be of type {kind}.")
    try:
        return float(given) if kind == "float" else value
    except OverflowError:
        raise UsageError(f"{where}: {f.name} is too large for a number.") from None


# As TOML.


def to_toml(parts: Sequence[Settings]) -> str:
    """Every setting, in order, as TOML."""
    return "".join(f"{f.name} = {_toml_value(getattr(part, f.name))}\n" for part, f in fields_of(parts))


def _toml_value(value: Any) -> str:
    # JSON's strings and booleans are TOML's; its numbers are not quite.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a TOML file; `with_settings` checks what they mean."""
    return parse_settings(read_toml(path), where=str(path))


def read_toml(path: Path) -> bytes:
    """The content of a TOML file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path}: cannot be read (not an ordinary file).")
        if status.st_size > MAX_TOML_BYTES:
            raise UsageError(f"{path}: larger than {MAX_TOML_BYTES // 1024} kB, which no configuration is.")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None


def parse_settings(content: bytes, *, where: str) -> dict[str, Any]:
    """The settings in the content of a TOML file."""
    try:
        settings = tomllib.loads(content.decode("utf-8"))
        _require_printable(settings)
        return settings
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(f"{where}: not a TOML file ({error}).") from None


def _require_printable(value: Any) -> None:
    """Refuse whole numbers without end: written to base 16 they may have more digits than Python can print."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError(f"a whole number of more than {MAX_BITS:,} bits")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _require_printable(part)


# As flags.

_PREFIX = "setting_"
SOURCES = "tables and sections are the paper's; A and D, of docs/deviations.md"
"""What a setting's source names."""


def add_flags(
    parser: argparse.ArgumentParser, title: str, settings: Settings, in_family: Mapping[str, Settings] | None = None
) -> None:
    """A group of flags, one for every setting, with its synonyms; a flag that the parser has already stays as it is.

    `in_family` has settings with other defaults, by what they are called.
    """
    group = parser.add_argument_group(title, f"in brackets: {SOURCES}")
    others = {name: changed_settings([own], [settings]) for name, own in (in_family or {}).items()}
    for part, f in fields_of([settings]):
        if f"--{f.name.replace('_', '-')}" in parser._option_string_actions:
            continue
        flags = [f"--{name.replace('_', '-')}" for name in (f.name, *f.metadata["synonyms"])]
        elsewhere = [f"; {name}: {changes[f.name][0]}" for name, changes in others.items() if f.name in changes]
        default = f"{getattr(part, f.name)}{''.join(elsewhere)}"
        text = f"{f.metadata['help']} ({f.metadata['source']}; default: {default})".replace("%", "%%")
        metavar = (
            "|".join(f.metadata["choices"]) or {"int": "N", "float": "X", "str": "NAME", "bool": "true|false"}[kind_of(f)]
        )
        group.add_argument(*flags, dest=f"{_PREFIX}{f.name}", type=PARSERS[kind_of(f)], metavar=metavar, help=text)


def flag_values(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given as flags."""
    return {k.removeprefix(_PREFIX): v for k, v in vars(args).items() if k.startswith(_PREFIX) and v is not None}


def whole_number(text: str) -> int:
    """An int as people write it: 100000, 100_000, 1e5."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not math.isfinite(number) or number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


whole_number.__name__, _truth.__name__ = "whole number", "true or false"  # argparse prints these
PARSERS: dict[str, Any] = {"int": whole_number, "float": float, "str": str, "bool": _truth}
