"""The printed tables against imported logs: counted, and only differences listed."""

from __future__ import annotations

from pathlib import Path

from comper.report.published.printed import CUT, DIFFERENT, compare_with_printed, contradictions
from comper.report.published.release import import_release
from comper.report.summary import Summary
from comper.report.tables.printed_check import printed_tables

from ..conftest import MakeLog, MakeRun, row_of, summary_of


def imported(make_log: MakeLog, tmp_path: Path) -> Summary:
    for trial in range(1, 6):
        make_log("asterix", trial, (209 + 10 * trial,) * 12)
    import_release(tmp_path / "released", agent="theirs", out=tmp_path / "imported", frames=2_400)
    return summary_of(tmp_path / "imported")


def test_runs_of_our_own_are_not_compared_with_print(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    assert list(printed_tables(summary_of(tmp_path))) == []


def test_every_figure_is_counted_once_and_those_that_differ_are_listed(make_log: MakeLog, tmp_path: Path) -> None:
    summary = imported(make_log, tmp_path)
    comparisons = compare_with_printed(summary)
    counts, differences, _ = printed_tables(summary)
    assert (row_of(counts, "Table 1")["figures compared"], row_of(counts, "Table 2")["figures compared"]) == ("2", "6")
    for number in (1, 2):
        row = row_of(counts, f"Table {number}")
        verdicts = [comparison.verdict for comparison in comparisons if comparison.table == number]
        assert (row[CUT], row[DIFFERENT]) == (str(verdicts.count(CUT)), str(verdicts.count(DIFFERENT)))
        assert sum(int(value) for key, value in row.items() if key not in ("table", "figures compared")) == len(verdicts)
    listed = differences.csv_rows()[1:]
    assert [row[5] for row in listed] == [c.printed for c in comparisons if c.verdict != CUT]
    assert listed
    # Trials score 219, 229, 239, 249, 259: the mean is the printed 239.0, the deviation √200 is not the printed 58.3.
    assert [row[4] for row in listed if row[0] == "Table 1"] == ["sd"]
    assert row_of(differences, "Table 1", "Asterix", "end of training", "comper-single", "sd")["from the logs"] == "14.1421"


def test_contradictions_within_the_paper_are_listed_whatever_was_imported(make_log: MakeLog, tmp_path: Path) -> None:
    *_, table = printed_tables(imported(make_log, tmp_path))
    rows = table.csv_rows()[1:]
    assert len(rows) == len(contradictions())
    assert rows[0][:3] == ["Battle Zone*", "comper-stacked", "sd"]
