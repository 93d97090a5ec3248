"""Floors: as data, and as they are measured."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.environments import floors as module
from comper.environments.environment import EnvironmentInfo, Step
from comper.environments.families import find_environment
from comper.environments.floors import (
    FLOORS_FILE,
    RANDOM,
    ConstantFloor,
    Floor,
    Floors,
    RandomFloor,
    Series,
    _play_all,
    all_floors,
    floor_for,
    known_floor,
    load_floors,
    measure_floor,
    save_floors,
)
from comper.errors import ComperError, DamagedFileError, UsageError
from comper.protocol import PAPER_GAMES

FLOOR = load_floors().value("freeway")


class Bandit:
    """Two steps per episode; action `good` pays 1, `bad` nothing."""

    def __init__(self) -> None:
        self.info = EnvironmentInfo(
            name="bandit",
            observation_shape=(1,),
            observation_dtype=np.dtype(np.uint8),
            observation_kind="vector",
            action_names=("bad", "good"),
            identity={"bandit": "1.0"},
        )
        self.observations_per_step = 1
        self._steps = 0

    def reset(self) -> Any:
        self._steps = 0
        return np.zeros(1, np.uint8)

    def step(self, action: int) -> Step:
        self._steps += 1
        return Step(np.zeros((1, 1), np.uint8), float(action), self._steps == 2, False, 1)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Endless(Bandit):
    """Episodes that never end."""

    def step(self, action: int) -> Step:
        return Step(np.zeros((1, 1), np.uint8), 0.0, False, False, 1)


# Data


def test_every_game_of_the_paper_has_a_floor_at_a_decision_every_five_frames() -> None:
    floors = load_floors()
    assert set(floors.games) >= set(PAPER_GAMES)
    for name in PAPER_GAMES:
        floor = floors.find(name, 5)
        assert floor is not None
        assert floor.value == max(floor.random.mean, floor.constant) == known_floor(name, 5)
        assert set(floor.constants) == set(find_environment(name).factory(seed=np.random.SeedSequence(0))().info.action_names)


def floor_of(mean: float) -> Floor:
    return Floor(
        RandomFloor(1.5, 0.5, 2, (1.0, 2.0)), {"UP": ConstantFloor(mean, 30)}, "UP", "2026-01-01", {"ale_py": "0.12.1"}
    )


def test_floors_survive_the_file(tmp_path: Path) -> None:
    floors = Floors({"freeway": {5: floor_of(3.0), 20: floor_of(4.0)}, "gym:CartPole-v1": {1: floor_of(1.0)}}, "a test")
    save_floors(floors, tmp_path / "floors.json")
    assert load_floors(tmp_path / "floors.json") == floors
    assert [path.name for path in tmp_path.iterdir()] == ["floors.json"]


def test_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="folder: cannot be written"):
        save_floors(Floors({}), tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_users_floors_join_those_of_the_package(tmp_path: Path) -> None:
    own = replace(floor_of(3.0), settings={"episode_cap_frames": 0})
    save_floors(Floors({}).with_measured("gym:Own-v0", 1, own), tmp_path / "floors.json")
    floors = all_floors(tmp_path / "floors.json")
    assert floors.value("freeway") == FLOOR
    assert floors.find("gym:Own-v0", 1) == own
    assert floor_for(floors, "gym:Own-v0", 1, {"episode_cap_frames": 0, "other": 1}) == own
    assert floor_for(floors, "gym:Own-v0", 1, {"episode_cap_frames": 9}) is None
    assert floor_for(floors, "gym:Own-v0", 4, {"episode_cap_frames": 0}) is None


def test_floor_depends_on_the_decision_period() -> None:
    floors = Floors({"freeway": {20: floor_of(4.0), 5: floor_of(3.0)}})
    assert (floors.value("freeway", 5), floors.value("freeway", 20)) == (3.0, 4.0)
    assert floors.value("freeway") == floors.games["freeway"].value == 3.0
    assert math.isnan(floors.value("freeway", 10))
    assert math.isnan(floors.value("pong"))


def test_new_measurement_replaces_the_old_one_and_no_other() -> None:
    floors = Floors({"freeway": {5: floor_of(3.0), 20: floor_of(4.0)}})
    changed = floors.with_measured("freeway", 5, floor_of(9.0)).with_measured("pong", 5, floor_of(2.0))
    assert (changed.value("freeway", 5), changed.value("freeway", 20), changed.value("pong", 5)) == (9.0, 4.0, 2.0)
    assert floors.value("freeway", 5) == 3.0


@pytest.mark.parametrize(
    ("old", "new"), [('"format": 2', '"format": 1'), (f'"floor": {FLOOR}', '"floor": 999.0'), ('"UP"', '"SIT"'), ("{", "[")]
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


# Measurement


def test_floor_is_the_best_of_random_and_constant_policies() -> None:
    lines: list[str] = []
    frames, floor = measure_floor(find_environment(Bandit), seed=1, say=lines.append)
    assert frames == 1
    assert (floor.best_constant, floor.constant, floor.value) == ("good", 2.0, 2.0)
    assert floor.random.episodes == len(floor.random.scores) == 30
    assert 0.5 < floor.random.mean < 1.5
    assert floor.versions["bandit"] == "1.0"
    assert lines[-1].startswith("python:Bandit, 9 of 9: ")


def test_workers_and_one_process_measure_the_same() -> None:
    spec = find_environment("gym:FrozenLake-v1")
    assert measure_floor(spec, workers=2)[1] == measure_floor(spec, workers=0)[1]


def test_frames_per_decision_count_the_held_action() -> None:
    assert measure_floor(find_environment(Bandit), observations_per_step=2)[0] == 2


def scores(name: str, tasks: Sequence[Series], *, observations_per_step: int = 1) -> dict[str, list[float]]:
    spec = find_environment(name)
    return _play_all(spec, tasks, observations_per_step=observations_per_step, workers=0, say=lambda line: None)


def test_recorded_scores_come_out_again() -> None:
    recorded = load_floors().environments["asterix"][5].random.scores
    assert tuple(scores("asterix", [Series(RANDOM, 2, seed=1)])[RANDOM]) == recorded[:2]


def test_episode_that_never_ends_has_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EPISODE_STEPS", 100)
    with pytest.raises(UsageError, match=r"an episode of 'bad' did not end within 100 steps.*time limit"):
        measure_floor(find_environment(Endless))


PARENT = """
import os
from comper.environments.floors import measure_floor
from comper.environments.families import find_environment

if __name__ == "__main__":
    measure_floor(find_environment("freeway"), workers=2)
"""


def children(pid: int) -> list[int]:
    """The processes below a process, with their own below them."""
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return below + [grandchild for child in below for grandchild in children(child)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path(f"/proc/{os.getpid()}/task").is_dir(), reason="needs /proc")
def test_measurement_that_is_stopped_leaves_no_process_and_no_traceback(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True) as parent:
        deadline = time.monotonic() + 60
        while len(children(parent.pid)) < 4:  # the fork server, the resource tracker and two workers
            assert time.monotonic() < deadline
            time.sleep(0.1)
        below = children(parent.pid)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(10) == -signal.SIGTERM
        deadline = time.monotonic() + 10
        while any(is_alive(pid) for pid in below):
            assert time.monotonic() < deadline, "orphans"
            time.sleep(0.05)
        assert parent.stderr is not None
        assert parent.stderr.read() == ""


@pytest.mark.skipif(not Path(f"/proc/{os.getpid()}/task").is_dir(), reason="needs /proc")
def test_worker_that_is_killed_is_one_sentence() -> None:
    def kill_one(line: str) -> None:
        workers = [pid for pid in children(os.getpid()) if pid not in before]
        os.kill(max(workers), signal.SIGKILL)

    before = set(children(os.getpid()))
    with pytest.raises(ComperError, match=r"worker process of trials .* was killed \(SIGKILL\)"):
        measure_floor(find_environment("gym:CartPole-v1"), workers=2, say=kill_one)
