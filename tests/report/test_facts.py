"""What a report takes from a run's own record, and what it assumes where an old record is silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comper.report.facts import (
    changed_settings,
    decision_frames,
    floor_at,
    from_manifest,
    learns,
    load_floors,
    num_scored_episodes,
)
from comper.report.reading import Trial, read_runs

from .conftest import MakeRun, write_manifest


def trial(folder: Path, **manifest: Any) -> Trial:
    write_manifest(folder, **manifest)
    (read,) = read_runs([folder]).trials
    return read


def test_the_record_says_how_many_episodes_are_scored_and_else_the_paper(make_run: MakeRun) -> None:
    assert num_scored_episodes(trial(make_run(seed=0))) == 10
    assert num_scored_episodes(trial(make_run(seed=1), num_scored_episodes=4)) == 4


def test_the_papers_games_with_few_episodes_are_scored_on_three(make_run: MakeRun) -> None:
    assert num_scored_episodes(trial(make_run(game="freeway"))) == 3


@pytest.mark.parametrize(
    ("game", "config", "expected"),
    [
        ("freeway", {}, 5),
        ("freeway", {"frame_skip": 4}, 4),
        ("freeway", {"frame_skip": 4, "observation": "stacked"}, 16),
        ("freeway", {"observation": "rolling"}, 5),
        ("gym:CartPole-v1", {"frame_skip": None, "observation": "stacked"}, 4),
        ("gym:CartPole-v1", {"frame_skip": None}, 1),
        ("freeway", {"frame_skip": None}, 5),
    ],
)
def test_decisions_are_a_frame_skip_apart_times_the_observations_held(
    game: str, config: dict[str, Any], expected: int, make_run: MakeRun
) -> None:
    given = {key: value for key, value in config.items() if value is not None}
    folder = make_run(game=game, **given)
    if config.get("frame_skip", 0) is None:  # a family without that setting
        text = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(text.replace("frame_skip = 5\n", ""))
    assert decision_frames(trial(folder)) == expected


@pytest.mark.parametrize(
    ("metrics", "recorded", "expected"),
    [
        ({"epsilon": 0.5}, {}, True),
        ({"my_loss": 0.5}, {}, True),
        ({"steps_per_second": 9.0}, {}, False),
        ({"steps_per_second": 9.0}, {"learns": True}, True),
        ({"epsilon": 0.5}, {"learns": False}, False),
    ],
)
def test_an_agent_learns_where_its_record_or_its_log_says_so(
    metrics: dict[str, Any], recorded: dict[str, Any], expected: bool, make_run: MakeRun
) -> None:
    assert learns(trial(make_run(metrics=metrics), **recorded)) is expected


def test_changes_are_read_from_the_record_and_the_budget_from_the_configuration(make_run: MakeRun) -> None:
    papers = {"scores": [1.0] * 10, "length": 10_000}
    assert changed_settings(trial(make_run(seed=0, **papers))) == {}
    recorded = {"discount": [0.5, 0.99], "nonsense": 7, "three": [1, 2, 3]}
    assert changed_settings(trial(make_run(seed=1, **papers), changed=recorded)) == {"discount": (0.5, 0.99)}
    assert changed_settings(trial(make_run(seed=2))) == {"frames": (1_200, 100_000)}
    assert changed_settings(trial(make_run(game="gym:CartPole-v1"))) == {}  # the paper has no budget for it


def test_keys_that_a_manifest_lacks_are_none(make_run: MakeRun) -> None:
    read = trial(make_run(), remark="by hand")
    assert (from_manifest(read, "agent"), from_manifest(read, "remark"), from_manifest(read, "colour")) == (
        "comper-single", "by hand", None,
    )  # fmt: skip


def test_a_floor_is_that_of_its_decision_period() -> None:
    floors = load_floors()
    found = floor_at(floors, "freeway", 5)
    assert found is not None
    assert found.value == floors.value("freeway")
    assert floor_at(floors, "freeway", 7) is None
    assert floor_at(floors, "nogame", 5) is None
