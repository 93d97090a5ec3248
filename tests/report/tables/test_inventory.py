"""What stands behind the other tables: floors and trials."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from comper.report.facts import load_floors
from comper.report.tables.inventory import floors_table, trials_table

from ..conftest import MakeRun, only, row_of, summary_of, write_manifest


def test_floors_are_listed_at_the_papers_period_and_at_the_agents_own(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("slow", "freeway", observation="stacked")
    make_run("odd", "freeway", frame_skip=7)  # nobody measured that
    make_run("ours", "pong")  # nor that game
    table = only(floors_table(summary_of(tmp_path)))
    floors = load_floors()
    assert {row[0] for row in table.csv_rows()[1:]} == {"Freeway*"}
    assert [row[1] for row in table.csv_rows()[1:]] == ["5", "20"]
    for period in (5, 20):
        floor = floors.find("freeway", period)
        assert floor is not None
        row = row_of(table, "Freeway*", str(period))
        assert row["action"] == floor.best_constant
        assert row["episodes"] == str(floor.random.episodes)
        assert float(row["floor"]) == max(float(row["random"]), float(row["best constant"]))
        assert abs(float(row["random sd"]) - floor.random.sd) < 0.006


def test_interim_floors_are_called_so(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(game="freeway")
    summary = summary_of(tmp_path)
    for interim in (True, False):
        changed = dataclasses.replace(summary, floors=dataclasses.replace(summary.floors, interim=interim))
        assert ("Interim figures" in only(floors_table(changed)).sentence) is interim


def test_every_intact_trial_is_listed_also_the_unfinished(make_run: MakeRun, tmp_path: Path) -> None:
    write_manifest(make_run("b", "freeway", 0, [1.0, 2.0, 3.0, 4.0]), wall_seconds=90.0, commit="abcdef0123456789")
    make_run("a", "freeway", 1, [5.0], finished=False)
    table = only(trials_table(summary_of(tmp_path)))
    rows = table.csv_rows()
    assert [tuple(row[:3]) for row in rows[1:]] == [("a", "freeway", "1"), ("b", "freeway", "0")]
    row = row_of(table, "b", "freeway", "0")
    # The last three of four: (2 + 3 + 4) / 3
    assert (row["episodes"], row["frames"], row["steps"], row["score"], row["minutes"]) == ("4", "400", "80", "3.00", "1.5")
    assert (row["status"], row["device"], row["commit"]) == ("finished", "cpu", "abcdef0123")
    unfinished = row_of(table, "a", "freeway", "1")
    assert (unfinished["score"], unfinished["status"], unfinished["minutes"]) == ("5.00", "running", "")
