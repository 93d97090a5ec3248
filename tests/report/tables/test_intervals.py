"""Intervals of each game, and whether they clear the floor."""

from __future__ import annotations

from pathlib import Path

from comper.report.facts import load_floors
from comper.report.reading import read_runs
from comper.report.summary import Summary
from comper.report.tables.intervals import per_game_table

from ..conftest import MakeRun, only, row_of


def test_the_per_game_table_says_whether_the_interval_clears_the_floor(summary: Summary) -> None:
    assert row_of(only(per_game_table(summary)), "Freeway*", "ours")["above floor"] == "unclear"
    assert row_of(only(per_game_table(summary)), "Freeway*", "other")["above floor"] == "no"


def test_one_trial_leaves_open_whether_it_is_above_the_floor(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("lone", "freeway", 0, [30.0] * 3)
    summary = Summary(read_runs([tmp_path / "runs" / "lone"]), load_floors(), seed=0)
    row = row_of(only(per_game_table(summary)), "Freeway*", "lone")
    assert (row["mean"], row["95 % low"], row["95 % high"], row["above floor"]) == ("30.00", "", "", "unclear")
