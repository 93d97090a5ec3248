"""Intervals of each game, and whether they clear the floor."""

from __future__ import annotations

from pathlib import Path

from comper.report.facts import load_floors
from comper.report.reading import read_runs
from comper.report.summary import Summary
from comper.report.tables.intervals import difference_table, per_game_table

from ..conftest import MakeRun, only, row_of, summary_of


def test_the_per_game_table_says_whether_the_interval_clears_the_floor(summary: Summary) -> None:
    assert row_of(only(per_game_table(summary)), "Freeway*", "ours")["above floor"] == "unclear"
    assert row_of(only(per_game_table(summary)), "Freeway*", "other")["above floor"] == "no"


def test_one_trial_leaves_open_whether_it_is_above_the_floor(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("lone", "freeway", 0, [30.0] * 3)
    summary = Summary(read_runs([tmp_path / "runs" / "lone"]), load_floors(), seed=0)
    row = row_of(only(per_game_table(summary)), "Freeway*", "lone")
    assert (row["mean"], row["95 % low"], row["95 % high"], row["above floor"]) == ("30.00", "", "", "unclear")


def test_two_agents_are_set_against_each_other_on_the_games_they_share(summary: Summary) -> None:
    table = only(difference_table(summary))
    row = row_of(table, "Freeway*")
    assert (row["other"], row["difference value"], row["trials"], row["higher"]) == ("0.00", "-21.33", "3 and 3", "ours")
    assert float(row["difference low"]) <= float(row["difference value"]) <= float(row["difference high"]) < 0
    assert len(table.rows) == 1  # "other" has not played Breakout


def test_one_trial_each_leaves_open_who_is_higher_and_three_agents_are_no_pair(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("a", "freeway", 0, [30.0] * 3)
    make_run("b", "freeway", 0, [10.0] * 3)
    row = row_of(only(difference_table(summary_of(tmp_path))), "Freeway*")
    assert (row["difference value"], row["difference low"], row["higher"]) == ("20.00", "", "unclear")
    make_run("c", "freeway", 0, [10.0] * 3)
    assert list(difference_table(summary_of(tmp_path))) == []
