"""The floors as data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comper.errors import DamagedFileError
from comper.protocol import PAPER_GAMES
from comper.report.floors import FLOORS_FILE, ConstantFloor, Floor, Floors, RandomFloor, load_floors, save_floors

FLOOR = load_floors().value("freeway")


def test_every_game_of_the_paper_has_a_floor() -> None:
    floors = load_floors()
    assert set(floors.games) == set(PAPER_GAMES)
    for floor in floors.games.values():
        assert floor.value == max(floor.random.mean, floor.constant)


def test_floors_survive_the_file(tmp_path: Path) -> None:
    floor = Floor(
        RandomFloor(1.5, 0.5, 2, (1.0, 2.0)), {"UP": ConstantFloor(3.0, 30)}, "UP", "2026-01-01", {"ale_py": "0.12.1"}
    )
    floors = Floors({"freeway": floor}, interim=False, about="a test")
    save_floors(floors, tmp_path / "floors.json")
    assert load_floors(tmp_path / "floors.json") == floors
    assert floors.value("freeway") == 3.0


@pytest.mark.parametrize(
    ("old", "new"), [('"format": 1', '"format": 2'), (f'"floor": {FLOOR}', '"floor": 999.0'), ('"UP"', '"SIT"'), ("{", "[")]
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = tmp_path / "floors.json"
    path.write_text(FLOORS_FILE.read_text().replace(old, new, 1))
    with pytest.raises(DamagedFileError, match=r"floors\.json"):
        load_floors(path)


def test_the_best_constant_must_be_one_of_the_measured() -> None:
    with pytest.raises(ValueError, match="best_constant"):
        Floor(RandomFloor(0, 0, 1), {}, "UP", "", {})


def test_the_data_file_is_as_save_floors_writes_it(tmp_path: Path) -> None:
    save_floors(load_floors(), tmp_path / "floors.json")
    assert json.loads((tmp_path / "floors.json").read_bytes()) == json.loads(FLOORS_FILE.read_bytes())
