"""The floors: what a uniformly random policy and the best constant action score, measured once and kept as data.

`data/floors.json`, written by `save_floors` and read by `load_floors`:

    {"format": 1, "interim": false, "about": "how it was measured",
     "games": {"freeway": {"random": {"mean": 0.0, "sd": 0.0, "episodes": 30, "scores": [0.0, ...]},
                           "constants": {"UP": {"mean": 21.0, "episodes": 30}, "NOOP": {"mean": 0.0, "episodes": 3}, ...},
                           "best_constant": "UP", "floor": 21.0, "measured": "2026-11-15", "versions": {"ale_py": "0.12.1"}}}}
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comper.errors import DamagedFileError
from comper.runs.files import write_atomically

FORMAT = 1
FLOORS_FILE = Path(__file__).parent / "data" / "floors.json"


@dataclass(frozen=True)
class RandomFloor:
    """Scores of the uniformly random policy; `sd` is of the sample, over episodes."""

    mean: float
    sd: float
    episodes: int
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class ConstantFloor:
    """Scores of one action for ever; `episodes` is None where it was not recorded."""

    mean: float
    episodes: int | None


@dataclass(frozen=True)
class Floor:
    """What one game pays without learning."""

    random: RandomFloor
    constants: dict[str, ConstantFloor]
    best_constant: str
    measured: str
    versions: dict[str, str]

    def __post_init__(self) -> None:
        if self.best_constant not in self.constants:
            raise ValueError(f"best_constant = {self.best_constant!r}: must be one of {', '.join(self.constants)}.")

    @property
    def constant(self) -> float:
        """Mean score of the best constant action."""
        return self.constants[self.best_constant].mean

    @property
    def value(self) -> float:
        """The larger of the two floors: what an agent must beat to have learned anything."""
        return max(self.random.mean, self.constant)


@dataclass(frozen=True)
class Floors:
    """The floors of all measured games."""

    games: dict[str, Floor]
    interim: bool
    """Whether they are first measurements on few episodes, to be replaced."""
    about: str

    def value(self, game: str) -> float:
        """A game's floor, or NaN where it was never measured."""
        return self.games[game].value if game in self.games else math.nan


def load_floors(path: Path = FLOORS_FILE) -> Floors:
    """Read the floors; a file that is not what `save_floors` writes is refused."""
    try:
        return floors_from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(f"{path}: cannot be read as floors ({type(error).__name__}: {error}).") from None


def save_floors(floors: Floors, path: Path = FLOORS_FILE) -> None:
    """Write the floors, replacing the file in one step."""
    games = {game: asdict(floor) | {"floor": floor.value} for game, floor in floors.games.items()}
    document = {"format": FORMAT, "interim": floors.interim, "about": floors.about, "games": games}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def floors_from_json(document: Any) -> Floors:
    """The floors of a parsed file; ValueError, KeyError or TypeError where it does not fit."""
    if document["format"] != FORMAT:
        raise ValueError(f"format is {document['format']!r}, this version reads {FORMAT}")
    games = {game: _floor(game, entry) for game, entry in document["games"].items()}
    return Floors(games, bool(document["interim"]), str(document["about"]))


def _floor(game: str, entry: Any) -> Floor:
    random = entry["random"]
    floor = Floor(
        RandomFloor(
            _number(random["mean"]), _number(random["sd"]), int(random["episodes"]), tuple(map(_number, random["scores"]))
        ),
        {action: ConstantFloor(_number(c["mean"]), c["episodes"]) for action, c in entry["constants"].items()},
        entry["best_constant"],
        str(entry["measured"]),
        dict(entry["versions"]),
    )
    if _number(entry["floor"]) != floor.value:
        raise ValueError(f"{game}: floor is {entry['floor']}, but the larger of its floors is {floor.value}")
    return floor


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a number")
    return number
