"""Configurations as TOML: read strictly, written completely."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comper.errors import UsageError
from comper.protocol import AnyConfig

MAX_BYTES = 64 * 1024
TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "str": (str,)}


def read_settings(path: Path) -> dict[str, Any]:
    """The key = value pairs of a TOML file; what they mean is for `with_settings` to check."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES // 1024} kB, which no configuration is.")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    return parse_settings(content, where=str(path))


def parse_settings(content: bytes, *, where: str) -> dict[str, Any]:
    """The key = value pairs of a TOML file's content."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(f"{where}: not a TOML file ({error}).") from None


def with_settings(config: AnyConfig, settings: Mapping[str, Any], *, where: str) -> AnyConfig:
    """The configuration with some settings changed; a wrong key, type or value is an error that says what would be right."""
    fields = {f.name: f for f in dataclasses.fields(config)}
    checked = {name: _checked(fields, name, value, where) for name, value in settings.items()}
    try:
        return dataclasses.replace(config, **checked)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def to_toml(config: AnyConfig) -> str:
    """Every setting, in order, as TOML."""
    return "".join(f"{name} = {_value(value)}\n" for name, value in dataclasses.asdict(config).items())


def _checked(fields: Mapping[str, dataclasses.Field[Any]], name: str, value: Any, where: str) -> Any:
    if name not in fields:
        near = difflib.get_close_matches(name, fields, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" Known keys: {', '.join(fields)}."
        raise UsageError(f"{where}: unknown key {name!r}.{hint}")
    kind = str(fields[name].type)
    is_right = isinstance(value, TYPES[kind]) and not isinstance(value, bool)
    if not is_right:
        raise UsageError(f"{where}: {name} = {value!r} must be of type {kind}.")
    try:
        return float(value) if kind == "float" else value
    except OverflowError:
        raise UsageError(f"{where}: {name} is too large for a number.") from None


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
