"""Step 4: the tables of a report, in the order of the page. A new table is a function from a summary, and a word here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from comper.report.summary import Summary
from comper.report.tables.intervals import aggregate_table, difference_table, improvement_table, per_game_table
from comper.report.tables.inventory import floors_table, trials_table
from comper.report.tables.printed_check import printed_tables
from comper.report.tables.scores import family_tables, last_episodes_table, thirds_table
from comper.report.tables.table import Table

MakeTables = Callable[[Summary], Iterator[Table]]

TABLES: tuple[MakeTables, ...] = (
    difference_table, last_episodes_table, thirds_table, printed_tables, family_tables, per_game_table, aggregate_table,
    improvement_table, floors_table, trials_table,
)  # fmt: skip
"""Each yields its tables, or nothing where the runs hold nothing for it."""

SINGLE_RUN_TABLES: tuple[MakeTables, ...] = (last_episodes_table, printed_tables, floors_table, trials_table)
"""Those that say something about one trial alone, beyond the numbers at the head of its page."""


def build_tables(summary: Summary) -> list[Table]:
    """All tables of a report."""
    makers = SINGLE_RUN_TABLES if summary.is_single_run else TABLES
    return [table for make in makers for table in make(summary)]
