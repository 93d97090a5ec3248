"""What a run will need: estimated high enough, and refused where it is not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from comper.agents.registry import AGENTS
from comper.environments.families import find_environment
from comper.errors import ResourceError
from comper.runs import checkpoints
from comper.training import preflight
from comper.training.options import resolve_settings
from tests.training.small_runs import RUN, SMALL, start


def needs_of(agent: str, *, trials: int, with_checkpoints: bool = True, **changes: Any) -> preflight.Needs:
    spec = find_environment("asterix")
    settings = resolve_settings(agent, [spec], changes, where="test")
    info = spec.info(settings.environment)
    return preflight.needs_of(settings, info, trials=trials, with_checkpoints=with_checkpoints)


def test_the_estimate_covers_what_a_run_really_takes(tmp_path: Path) -> None:
    folder = start(tmp_path)
    size = sum(path.stat().st_size for path in checkpoints.paths(folder)[0].iterdir())
    assert size <= needs_of("comper-single", trials=1, **SMALL).checkpoint <= 3 * size


@pytest.mark.parametrize("agent", AGENTS)
def test_more_trials_need_more_and_no_checkpoints_less(agent: str) -> None:
    one, five = needs_of(agent, trials=1), needs_of(agent, trials=5)
    assert five.disk == 5 * one.disk
    assert one.memory < five.memory
    assert needs_of(agent, trials=1, with_checkpoints=False).disk <= one.disk


def test_too_little_disk_or_memory_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_disk", lambda folder: 60_000_000)
    with pytest.raises(ResourceError, match=r"needs up to .* of disk, and 10 MB are free") as error:
        start(tmp_path, frames=100_000)
    assert error.value.exit_code == 4
    monkeypatch.undo()
    monkeypatch.setattr(preflight, "available_memory", lambda: 100_000_000)
    with pytest.raises(ResourceError, match=r"needs up to .* of memory, and 0.1 GB are there"):
        start(tmp_path)
    assert not tmp_path.joinpath(RUN).exists()


def test_less_memory_is_asked_for() -> None:
    assert needs_of("dqn", trials=1, frame_compression="zlib").memory < needs_of("dqn", trials=1).memory


def test_the_disk_holds_the_latest_checkpoints_the_thirds_and_one_being_written() -> None:
    without = needs_of("dqn", trials=1, with_checkpoints=False)
    needs = needs_of("dqn", trials=1)
    assert without.checkpoint == 0
    assert needs.disk - without.disk == (checkpoints.NUM_LATEST + 3) * needs.checkpoint
    assert without.memory < needs.memory


def test_a_trial_holds_all_it_will_see_or_all_its_memory_has_room_for() -> None:
    spec = find_environment("asterix")

    def most(agent: str, **changes: Any) -> int:
        settings = resolve_settings(agent, [spec], changes, where="test")
        return preflight.max_frames(settings, spec.info(settings.environment))

    # (frames + the longest last episode) / frame skip of 5, and a margin
    assert most("dqn", frames=1_000, episode_cap_frames=500) == 1_500 // 5 + 256
    # 10 transitions and one on its way, two states of four frames each
    assert most("dqn", frames=10**6, replay_capacity=10) == 11 * 2 * 4 + 256
    assert most("dqn", frames=10**6, replay_capacity=10, observation="single") == 11 * 2 + 256


def test_memory_is_the_least_of_all_limits_and_unknown_limits_limit_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_machine_memory", "_container_memory", "_own_limit"):
        monkeypatch.setattr(preflight, name, list)
    assert preflight.available_memory() is None
    monkeypatch.setattr(preflight, "_machine_memory", lambda: [700])
    monkeypatch.setattr(preflight, "_container_memory", lambda: [300])
    assert preflight.available_memory() == 300


def test_free_disk_is_asked_where_the_folder_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []

    def usage(folder: Path) -> Any:
        asked.append(folder)
        return shutil._ntuple_diskusage(3, 2, 1)

    monkeypatch.setattr("comper.training.preflight.shutil.disk_usage", usage)
    assert preflight.available_disk(tmp_path / "not" / "yet" / "there") == 1
    assert asked == [tmp_path]


def test_needs_are_said_in_units_a_person_reads() -> None:
    needs = preflight.Needs(memory=2_340_000_000, disk=50_000_000, checkpoint=7_000_000)
    assert str(needs) == "up to 2.3 GB of memory and 50 MB of disk, 7 MB of it for each checkpoint"
