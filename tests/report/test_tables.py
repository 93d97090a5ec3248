"""Tables: the same text in CSV, LaTeX and page; best per row with ties; floors and references beside our agents."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from comper.report import reference
from comper.report.floors import load_floors
from comper.report.paper_tables import build_tables, game_title, last_episodes_table, per_game_table, thirds_table
from comper.report.reading import read_runs
from comper.report.summary import Summary
from comper.report.tables import Cell, Column, Table, cut_cell, mark_best, number_cell, text_cell

from .conftest import MakeRun


@pytest.fixture
def summary(make_run: MakeRun, tmp_path: Path) -> Summary:
    for seed in range(3):
        make_run("ours", "freeway", seed, [0.0, 10.0, 20.0, 21.0, 22.0 + seed])
        make_run("other", "freeway", seed, [0.0] * 5)
    make_run("ours", "breakout", 0, [1.0, 2.0, 3.0])
    return Summary(read_runs([tmp_path]), load_floors(), seed=0)


def _row(table: Table, *words: str) -> dict[str, str]:
    header, *rows = table.csv_rows()
    (row,) = [row for row in rows if tuple(row[: len(words)]) == words]
    return dict(zip(header, row, strict=True))


def test_table_1_has_all_columns_side_by_side(summary: Summary) -> None:
    row = _row(last_episodes_table(summary), "Freeway*")
    # last three of each trial: (20 + 21 + 22 + seed) / 3 = 21, 21.33, 21.66; mean 21.33; population sd 0.272
    assert (row["ours mean"], row["ours sd"]) == ("21.33", "0.27")
    assert (row["COMPER stacked, printed mean"], row["COMPER stacked, printed sd"]) == ("22.33", "0.00")
    assert (row["DQN, 10M frames"], row["BBF, 20k steps"]) == ("13.80", "20.70")
    assert row["floor: constant"] == f"{load_floors().games['freeway'].constant:.2f}"
    assert row["best"] == "COMPER stacked, printed"


def test_a_game_the_paper_does_not_have_has_empty_cells(summary: Summary) -> None:
    row = _row(last_episodes_table(summary), "Breakout")
    assert row["ours mean"] == "2.00"
    assert row["other mean"] == row["DQN, printed mean"] == row["floor: random"] == ""


def test_table_2_has_a_row_for_each_third(summary: Summary) -> None:
    # five episodes: thirds of 2, 2, 1
    assert _row(thirds_table(summary), "Freeway*", "first")["ours mean"] == "5.00"
    assert _row(thirds_table(summary), "Freeway*", "second")["ours mean"] == "20.50"
    last = _row(thirds_table(summary), "Freeway*", "third")
    assert (last["ours mean"], last["ours sd"]) == ("23.00", "1.00")  # sample form
    assert last["DQN, 10M frames"] == "13.80"
    assert _row(thirds_table(summary), "Freeway*", "first")["DQN, 10M frames"] == ""


def test_below_the_floor_is_marked(summary: Summary) -> None:
    table = last_episodes_table(summary)
    marks = dict(zip([column.title for column in table.columns], table.rows[0], strict=True))
    assert not marks["ours"].is_below_floor
    assert marks["other"].is_below_floor
    assert marks["COMPER single, printed"].is_below_floor


def test_the_per_game_table_says_whether_the_interval_clears_the_floor(summary: Summary) -> None:
    assert _row(per_game_table(summary), "Freeway*", "ours")["above floor"] == "unclear"
    assert _row(per_game_table(summary), "Freeway*", "other")["above floor"] == "no"


def test_one_trial_leaves_open_whether_it_is_above_the_floor(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("lone", "freeway", 0, [30.0] * 3)
    summary = Summary(read_runs([tmp_path / "runs" / "lone"]), load_floors(), seed=0)
    row = _row(per_game_table(summary), "Freeway*", "lone")
    assert (row["mean"], row["95 % low"], row["95 % high"], row["above floor"]) == ("30.00", "", "", "unclear")


def test_every_csv_reads_back_and_every_tex_is_balanced(summary: Summary) -> None:
    for table in build_tables(summary):
        rows = list(csv.reader(io.StringIO(table.to_csv())))
        assert rows == table.csv_rows()
        assert len({len(row) for row in rows}) == 1
        tex = table.to_tex()
        assert tex.count("{") == tex.count("}")
        body = tex.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
        assert all(line.count(" & ") == len(table.columns) - 1 for line in body)


def test_all_that_tie_are_best() -> None:
    row = [text_cell("x"), cut_cell(1.239), cut_cell(1.231), cut_cell(1.22), cut_cell(9.0)]
    assert [cell.is_best for cell in mark_best(row, [1, 2, 3])] == [False, True, True, False, False]


def test_only_columns_with_the_papers_budget_can_be_best(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("short", "freeway", 0, [30.0] * 3)
    make_run("whole", "freeway", 0, [29.0] * 10, length=10_000)
    table = last_episodes_table(Summary(read_runs([tmp_path]), load_floors(), seed=0))
    assert _row(table, "Freeway*")["best"] == "whole"


def test_a_row_without_numbers_has_no_best() -> None:
    assert not any(cell.is_best for cell in mark_best([Cell(("",)), Cell(("", ""))], [0, 1]))


def test_tex_is_escaped() -> None:
    tex = Table("t", "A_B", "", [Column("a_b & 50 %", is_text=True)], [[text_cell("x_y^{2}")]]).to_tex()
    assert r"a\_b \& 50 \%" in tex
    assert r"x\_y\textasciicircum{}\{2\}" in tex


def test_numbers_that_are_none_stay_empty_and_zero_has_no_sign() -> None:
    assert number_cell(float("nan"), float("inf"), -0.0001).texts == ("", "", "0.00")
    assert cut_cell(-0.001).texts == ("0.00",)


def test_normalised_scores_are_0_at_the_floor_and_1_at_the_reference(summary: Summary) -> None:
    low, high = summary.scale("freeway", "floor-normalised")
    assert (low, high) == (load_floors().value("freeway"), 25.8)
    assert summary.scale("freeway", "human-normalised") == (0.0, 29.6)
    assert np.isnan(summary.scale("breakout", "human-normalised")).all()
    assert summary.common_games("floor-normalised") == ["freeway"]


def test_printed_tables_are_whole() -> None:
    from comper.protocol import PAPER_GAMES

    for game in PAPER_GAMES:
        for column in reference.PRINTED_COLUMNS:
            cell, cells = reference.table_1(game, column), reference.table_2(game, column)
            assert cell is not None
            assert cells is not None
            assert np.isfinite([cell.mean, cell.sd]).all()
            assert len(cells) == 3
        for column in reference.sources():
            assert np.isfinite(reference.score(game, column))


def test_titles() -> None:
    assert game_title("battle_zone") == "Battle Zone*"
    assert game_title("space_invaders") == "Space Invaders"
