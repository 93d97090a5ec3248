"""Scores of others, kept with their sources: the paper's printed tables, DQN at 10 million frames, BBF, human players."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

PRINTED_COLUMNS = {
    "comper-single": "COMPER single, printed",
    "comper-stacked": "COMPER stacked, printed",
    "dqn": "DQN, printed",
}
"""The columns of the paper's tables at 100,000 frames, and how a report calls them."""
PRINTED_DECISION_FRAMES = {"comper-single": 5, "comper-stacked": 20, "dqn": 5}
"""Frames between decisions in these columns: as the published logs show; for DQN, of which there are none, Table 8."""


@dataclass(frozen=True)
class PrintedCell:
    """A cell of a printed table, with its digits as they stand there."""

    mean_text: str
    sd_text: str

    @property
    def mean(self) -> float:
        """The printed mean as a number."""
        return printed_number(self.mean_text)

    @property
    def sd(self) -> float:
        """The printed standard deviation as a number."""
        return printed_number(self.sd_text)


def printed_number(text: str) -> float:
    """Read a printed figure, forgiving one point too many (`256.0.0`)."""
    match = re.match(r"\d+(\.\d*)?", text)
    return float(match.group()) if match else math.nan


def table_1(game: str, column: str) -> PrintedCell | None:
    """The printed mean of the last episodes, or None for a game the paper does not have."""
    entry = _load("printed.json")["table_1"].get(game)
    return None if entry is None else _cell(entry[column])


def table_2(game: str, column: str) -> list[PrintedCell] | None:
    """The printed means at the end of each third."""
    entry = _load("printed.json")["table_2"].get(game)
    return None if entry is None else [_cell(cell) for cell in entry[column]]


def score(game: str, column: str) -> float:
    """A published mean score (`dqn_10m`, `bbf_20k`, `bbf_100k`, `random_dm`, `human`); NaN where there is none."""
    value = _load("references.json")["games"].get(game, {}).get(column)
    return math.nan if value is None else float(value)


def sources() -> dict[str, dict[str, Any]]:
    """Label and source of each published column."""
    columns: dict[str, dict[str, Any]] = _load("references.json")["sources"]
    return columns


def printed_source() -> str:
    """Where the printed tables stand."""
    return str(_load("printed.json")["source"])


def _cell(entry: dict[str, Any]) -> PrintedCell:
    return PrintedCell(entry["mean"], entry["sd"])


@cache
def _load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / name).read_bytes())
    return document
