"""Reading the logs of a run as arrays, strictly: a line that is missing, repeated or changed is noticed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.errors import DamagedFileError
from comper.runs.files import file_digest, read_json_lines
from comper.runs.folder import LOG_FILES

Array = NDArray[np.float64]

_COUNTERS = ("steps", "total_frames", "episodes")


@dataclass(frozen=True)
class Episodes:
    """What episodes.jsonl says, one row per episode."""

    scores: Array
    """Undiscounted raw score of each episode."""
    frames: Array
    """Emulator frames of the trial at the end of each episode."""
    steps: Array
    """Agent steps of the trial at the end of each episode."""


def read_episodes(path: Path) -> Episodes:
    """Read episodes.jsonl; episodes and frames must count without a gap."""
    scores, frames, steps = [], [], []
    total_frames = total_steps = 0
    for line, record in read_json_lines(path):
        where = f"{path}, line {line}"
        scores.append(_number(record, "score", where))
        total_frames += _count(record, "frames", where)
        total_steps += _count(record, "steps", where)
        _expect(record, "episode", len(scores), where)
        _expect(record, "total_frames", total_frames, where)
        frames.append(total_frames)
        steps.append(total_steps)
    return Episodes(np.array(scores, float), np.array(frames, float), np.array(steps, float))


def read_metrics(path: Path) -> dict[str, Array]:
    """Read metrics.jsonl as columns, NaN where a line has no number; counters must never fall."""
    columns: dict[str, list[float]] = defaultdict(list)
    last = dict.fromkeys(_COUNTERS, 0.0)
    num_lines = 0
    for line, record in read_json_lines(path):
        where = f"{path}, line {line}"
        for name in _COUNTERS:
            value = _number(record, name, where)
            if not last[name] <= value < 2**53:
                raise DamagedFileError(f"{where}: {name} is {value:g} after {last[name]:g}.")
            last[name] = value
        for name, value in record.items():
            column = columns[name]
            column += [math.nan] * (num_lines - len(column))
            column.append(_number_or_nan(value, name, where))
        num_lines += 1
    return {name: np.array(column + [math.nan] * (num_lines - len(column))) for name, column in columns.items()}


def check_log_starts(folder: Path, positions: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse logs that no longer begin with what they held when a checkpoint was written."""
    for name in LOG_FILES:
        expected = positions[name]
        if file_digest(folder / name, num_bytes=expected["bytes"]) != expected:
            raise DamagedFileError(f"{folder / name}: its first {expected['bytes']:,} bytes are not those that were saved.")


def _number(record: Mapping[str, Any], key: str, where: str) -> float:
    value = _finite(record.get(key))
    if value is None:
        raise DamagedFileError(f"{where}: {key} is {_shown(record.get(key))}, expected a number.")
    return value


def _number_or_nan(value: Any, name: str, where: str) -> float:
    number = math.nan if value is None else _finite(value)
    if number is None or not name.isprintable():
        raise DamagedFileError(f"{where}: {_shown(name)} is {_shown(value)}, expected a number or null.")
    return number


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(record: Mapping[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise DamagedFileError(f"{where}: {key} is {_shown(value)}, expected a whole number.")
    return value


def _expect(record: Mapping[str, Any], key: str, expected: int, where: str) -> None:
    if _count(record, key, where) != expected:
        raise DamagedFileError(
            f"{where}: {key} is {record[key]}, expected {expected}: a line is missing, repeated or changed."
        )


def _shown(value: Any) -> str:
    return repr(value)[:40]
