"""A table is the same text in CSV, LaTeX and on the page; the best of a row is marked, ties and floors considered."""

from __future__ import annotations

import csv
import io

from comper.report.summary import Summary
from comper.report.tables import build_tables
from comper.report.tables.table import Cell, Column, Table, cut_cell, mark_best, number_cell, text_cell


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


def test_a_row_without_numbers_has_no_best() -> None:
    assert not any(cell.is_best for cell in mark_best([Cell(("",)), Cell(("", ""))], [0, 1]))


def test_tex_is_escaped() -> None:
    tex = Table("t", "A_B", "", [Column("a_b & 50 %", is_text=True)], [[text_cell("x_y^{2}")]], "paper").to_tex()
    assert r"a\_b \& 50 \%" in tex
    assert r"x\_y\textasciicircum{}\{2\}" in tex


def test_no_line_of_a_title_or_sentence_is_read_by_latex() -> None:
    hostile = "x\n\\input{/etc/passwd}"
    lines = Table("t", hostile, hostile, [Column("a", is_text=True)], [[text_cell("x")]], "paper").to_tex().splitlines()
    assert [line[:2] for line in lines if "input" in line] == ["% ", "% "]


def test_numbers_that_are_none_stay_empty_and_zero_has_no_sign() -> None:
    assert number_cell(float("nan"), float("inf"), -0.0001).texts == ("", "", "0.00")
    assert cut_cell(-0.001).texts == ("0.00",)


def test_nothing_at_or_below_its_floor_is_best() -> None:
    row = [text_cell("x"), cut_cell(5.0, floor=6.0), cut_cell(4.0, floor=3.0)]
    assert not any(cell.is_best for cell in mark_best(row, [1, 2])), "the highest is below its floor: nobody is best"
    assert [cell.is_best for cell in mark_best(row, [2])] == [False, False, True]


def test_a_mark_stands_beside_the_title_but_not_in_the_csv() -> None:
    table = Table("t", "T", "", [Column("ours", ("mean", "sd"), mark="†")], [[number_cell(1.0, 2.0)]], "paper")
    assert table.csv_rows()[0] == ["ours mean", "ours sd"]
    assert "ours†" in table.to_tex()
