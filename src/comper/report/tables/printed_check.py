"""The printed tables of the paper against the logs published with it, where those were imported."""

from __future__ import annotations

from collections.abc import Iterator

from comper.report.names import game_title
from comper.report.published.printed import CUT, DIFFERENT, MISTYPED, ROUNDED, Comparison, compare_with_printed, contradictions
from comper.report.summary import Summary
from comper.report.tables.table import Column, Table, number_cell, text_cell

SECTION = "paper"


def printed_tables(summary: Summary) -> Iterator[Table]:
    """How many figures agree, and those that do not; nothing where no published logs were imported."""
    comparisons = compare_with_printed(summary)
    if comparisons:
        yield from (_counts_table(comparisons), _differences_table(comparisons), _contradictions_table())


def _counts_table(comparisons: list[Comparison]) -> Table:
    verdicts = (CUT, ROUNDED, MISTYPED, DIFFERENT)
    columns = [Column("table", is_text=True), Column("figures compared"), *map(Column, verdicts)]
    rows = []
    for table in (1, 2):
        found = [comparison.verdict for comparison in comparisons if comparison.table == table]
        rows.append(
            [text_cell(f"Table {table}"), text_cell(len(found)), *(text_cell(found.count(verdict)) for verdict in verdicts)]
        )
    sentence = (
        "Figures (means and standard deviations) of the paper's tables whose logs were imported. A figure is equal when the "
        "computed one, cut after the printed digits, gives it; some printed figures are rounded instead."
    )
    return Table("printed_counts", "The printed tables, from the published logs", sentence, columns, rows, SECTION)


def _contradictions_table() -> Table:
    columns = [Column(title, is_text=True) for title in ("game", "column", "figure", "Table 1", "Table 2, last third")]
    rows = [[*map(text_cell, (game_title(game), *words)), number_cell(implied)] for game, *words, implied in contradictions()]
    sentence = (
        "Where 3 episodes are scored, both tables end with the same ones: equal means, and deviations √(5/4) apart, "
        "for the population and the sample form of five trials. Needs no logs, so it covers all games and columns. In Video "
        "Pinball with single frames both are right: one trial has only two episodes in its last third."
    )
    title = "Where the printed tables contradict each other"
    return Table("printed_contradictions", title, sentence, [*columns, Column("implied by Table 1")], rows, SECTION)


def _differences_table(comparisons: list[Comparison]) -> Table:
    titles = ("table", "game", "moment", "column", "figure", "printed")
    columns = [*(Column(title, is_text=True) for title in titles), Column("from the logs"), Column("verdict", is_text=True)]
    rows = [
        [
            *map(text_cell, (f"Table {c.table}", game_title(c.game), c.moment, c.column, c.statistic, c.printed)),
            number_cell(c.computed, decimals=4),
            text_cell(c.verdict),
        ]
        for c in comparisons
        if c.verdict != CUT
    ]
    sentence = "Every printed figure that is not simply the computed one, cut: rounded, mistyped or different."
    return Table("printed_differences", "Where print and logs differ", sentence, columns, rows, SECTION)
