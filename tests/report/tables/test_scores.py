"""The two tables of the paper, floors and references beside our agents; other environments in tables of their own."""

from __future__ import annotations

from pathlib import Path

from comper.report.facts import load_floors
from comper.report.reading import read_runs
from comper.report.summary import Summary
from comper.report.tables.scores import family_tables, last_episodes_table, thirds_table

from ..conftest import MakeRun, only, row_of, summary_of, write_manifest


def test_table_1_has_all_columns_side_by_side(summary: Summary) -> None:
    row = row_of(only(last_episodes_table(summary)), "Freeway*")
    # last three of each trial: (20 + 21 + 22 + seed) / 3 = 21, 21.33, 21.66; mean 21.33; population sd 0.272
    assert (row["ours mean"], row["ours sd"]) == ("21.33", "0.27")
    assert (row["COMPER stacked, printed mean"], row["COMPER stacked, printed sd"]) == ("22.33", "0.00")
    assert (row["DQN, 10M frames"], row["BBF, 20k steps"]) == ("13.80", "20.70")
    assert row["floor: constant"] == f"{load_floors().games['freeway'].constant:.2f}"
    assert row["best"] == "COMPER stacked, printed"


def test_a_game_the_paper_does_not_have_has_empty_cells(summary: Summary) -> None:
    row = row_of(only(last_episodes_table(summary)), "Breakout")
    assert row["ours mean"] == "2.00"
    assert row["other mean"] == row["DQN, printed mean"] == ""
    assert row["floor: random"] == "1.86"  # measured for the study of readings


def test_table_2_has_a_row_for_each_third(summary: Summary) -> None:
    # five episodes: thirds of 2, 2, 1
    assert row_of(only(thirds_table(summary)), "Freeway*", "first")["ours mean"] == "5.00"
    assert row_of(only(thirds_table(summary)), "Freeway*", "second")["ours mean"] == "20.50"
    last = row_of(only(thirds_table(summary)), "Freeway*", "third")
    assert (last["ours mean"], last["ours sd"]) == ("23.00", "1.00")  # sample form
    assert last["DQN, 10M frames"] == "13.80"
    assert row_of(only(thirds_table(summary)), "Freeway*", "first")["DQN, 10M frames"] == ""


def test_below_the_floor_is_marked(summary: Summary) -> None:
    table = only(last_episodes_table(summary))
    marks = dict(zip([column.title for column in table.columns], table.rows[0], strict=True))
    assert not marks["ours"].is_below_floor
    assert marks["other"].is_below_floor
    assert marks["COMPER single, printed"].is_below_floor


def test_only_columns_with_the_papers_budget_can_be_best(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("short", "freeway", 0, [30.0] * 3)
    make_run("whole", "freeway", 0, [29.0] * 10, length=10_000)
    table = only(last_episodes_table(Summary(read_runs([tmp_path]), load_floors(), seed=0)))
    assert row_of(table, "Freeway*")["best"] == "whole"


def test_changed_settings_are_named_at_the_table_and_cannot_be_best(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in range(2):
        folder = make_run("ours", "freeway", seed, [40.0] * 10, length=10_000)
        write_manifest(folder, changed={"screen_size": [36, 84], "sticky_probability": [0.0, 0.25]})
    summary = summary_of(tmp_path)
    for table in (only(last_episodes_table(summary)), only(thirds_table(summary))):
        assert [column.mark for column in table.columns if column.title == "ours"] == ["†"]
        assert "ours: screen_size = 36 instead of 84; sticky_probability = 0.0 instead of 0.25." in table.sentence
    assert row_of(only(last_episodes_table(summary)), "Freeway*")["best"] == "COMPER stacked, printed"


def test_a_floor_of_another_decision_period_marks_nothing(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("slow", "breakout", 0, [0.0] * 3, observation="stacked")
    make_run("slow", "freeway", 0, [0.0] * 3, observation="stacked", frame_skip=3)
    table = only(last_episodes_table(summary_of(tmp_path)))
    assert not any(row[1].is_below_floor for row in table.rows)


def test_other_environments_have_a_table_without_printed_columns(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "gym:CartPole-v1", 0, [100.0] * 12)
    make_run("ours", "minatar:breakout", 0, [3.0] * 12)
    summary = summary_of(tmp_path)
    assert list(last_episodes_table(summary)) == []
    minatar, gym = family_tables(summary)
    assert (gym.name, gym.section, minatar.section) == ("scores_gym", "family-gym", "family-minatar")
    assert gym.csv_rows() == [["environment", "ours mean", "ours sd", "floor"], ["gym:CartPole-v1", "100.00", "0.00", ""]]
