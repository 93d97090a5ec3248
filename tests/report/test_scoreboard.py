"""The table at the end of `comper train`: each score beside the floor of its own decision period."""

from __future__ import annotations

from pathlib import Path

from comper.report.scoreboard import scoreboard

from .conftest import MakeRun


def test_a_score_stands_beside_its_floor(make_run: MakeRun) -> None:
    text = scoreboard([make_run("ours", "freeway", 0, [0.0, 20.0, 21.0, 22.0])])
    assert "21.0 (last 3)  21.2 (always UP)" in text


def test_a_floor_of_another_decision_period_is_not_shown(make_run: MakeRun) -> None:
    text = scoreboard([make_run("ours", "freeway", 0, frame_skip=3, observation="stacked")])
    assert "not measured with these settings" in text
    assert "21.2" not in text


def test_an_environment_without_a_floor_says_so(make_run: MakeRun) -> None:
    folder = make_run("ours", "gym:CartPole-v1", 0, frame_skip=1)
    assert "  not measured " in scoreboard([folder])
    assert "with these settings" not in scoreboard([folder])


def test_runs_of_a_study_are_told_apart_by_their_variants(make_run: MakeRun, tmp_path: Path) -> None:
    folders = [make_run("dqn", "freeway", 0, out=tmp_path / "study" / variant) for variant in ("huber", "discount=0.9")]
    header, *rows = scoreboard(folders, study=tmp_path / "study").splitlines()
    assert header.split()[:2] == ["variant", "game"]
    assert [row.split()[0] for row in rows[:2]] == ["huber", "discount=0.9"]


def test_a_narrow_terminal_has_the_run_folders_below_the_table(make_run: MakeRun) -> None:
    folders = [make_run("ours", "freeway", seed) for seed in range(2)]
    table, names, _ = scoreboard(folders, width=80).split("\n\n")
    assert names.splitlines() == ["run folders:", *map(str, folders)]
    assert max(map(len, table.splitlines())) <= 80
    assert "run folders:" not in scoreboard(folders, width=1000) + scoreboard(folders)
