"""Scores of trials, normalised; settings that differ from the preset's; floors of the right decision period."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comper.report.facts import load_floors
from comper.report.summary import Summary

from .conftest import MakeRun, summary_of, write_manifest


def test_normalised_scores_are_0_at_the_floor_and_1_at_the_reference(summary: Summary) -> None:
    low, high = summary.scale("freeway", "floor-normalised")
    assert (low, high) == (load_floors().value("freeway"), 25.8)
    assert summary.scale("freeway", "human-normalised") == (0.0, 29.6)
    assert np.isnan(summary.scale("breakout", "human-normalised")).all()
    assert summary.common_games("floor-normalised") == ["freeway"]


def test_settings_that_differ_from_the_preset_are_kept_with_the_number_of_trials(make_run: MakeRun, tmp_path: Path) -> None:
    papers = {"scores": [1.0] * 10, "length": 10_000}
    write_manifest(make_run(seed=0, **papers), changed={"discount": [0.5, 0.99]})
    make_run(seed=1, **papers)
    make_run("other", seed=0, scores=[1.0] * 12)
    summary = summary_of(tmp_path)
    assert summary.changes == {
        "comper-single": ["discount = 0.5 instead of 0.99 (in 1 of 2 trials)"],
        "other": ["frames = 1,200 instead of 100,000"],
    }
    assert not summary.has_paper_settings("comper-single")


@pytest.mark.parametrize("changed", [7, [], {"discount": 0.5}, {"discount": [1]}])
def test_a_manifest_that_says_nonsense_about_changes_is_survived(make_run: MakeRun, tmp_path: Path, changed: object) -> None:
    write_manifest(make_run(scores=[1.0] * 10, length=10_000), changed=changed)
    assert summary_of(tmp_path).changes == {}


def test_a_floor_holds_for_its_own_decision_period(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("often", "freeway")
    make_run("seldom", "freeway", frame_skip=3, observation="stacked")
    summary = summary_of(tmp_path)
    assert (summary.decision_frames("often", "freeway"), summary.decision_frames("seldom", "freeway")) == (5, 12)
    assert summary.floor("often", "freeway") == load_floors().value("freeway")
    assert np.isnan(summary.floor("seldom", "freeway"))
    assert summary.scale("freeway", "floor-normalised")[0] == load_floors().value("freeway"), "one yardstick for all"


def test_an_environment_says_how_many_episodes_are_scored(make_run: MakeRun, tmp_path: Path) -> None:
    write_manifest(make_run("ours", "gym:CartPole-v1", scores=[float(i) for i in range(12)]), num_scored_episodes=2)
    assert summary_of(tmp_path).final["ours", "gym:CartPole-v1"].tolist() == [10.5]


def test_aggregates_leave_out_agents_without_atari_games(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "freeway")
    make_run("other", "gym:CartPole-v1")
    summary = summary_of(tmp_path)
    assert (summary.atari_agents, summary.common_games("floor-normalised")) == (["ours"], ["freeway"])
    assert summary.families == {"atari": ["freeway"], "gym": ["gym:CartPole-v1"]}
