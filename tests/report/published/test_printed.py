"""The printed tables against the same tables from the published logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from comper.report.facts import load_floors
from comper.report.findings import ERROR
from comper.report.published.printed import (
    CUT,
    DIFFERENT,
    MISTYPED,
    ROUNDED,
    agreement,
    compare_with_printed,
    contradictions,
)
from comper.report.published.release import import_release
from comper.report.reading import read_runs
from comper.report.summary import Summary

from ..conftest import SHARED


@pytest.mark.parametrize(
    ("printed", "computed", "verdict"),
    [
        ("19.53", 19.5333, CUT),
        ("12", 12.0, CUT),
        ("0.0", 0.0, CUT),
        ("827.8", 827.8, CUT),
        ("9.77", 9.7675, ROUNDED),
        ("2080.6", 2080.5982, ROUNDED),
        ("334.80", 344.8, DIFFERENT),
        ("256.0.0", 256.0, MISTYPED),
        ("00.", 0.0, MISTYPED),
    ],
)
def test_agreement_with_print(printed: str, computed: float, verdict: str) -> None:
    assert agreement(printed, computed) == verdict


def test_where_the_printed_tables_contradict_each_other() -> None:
    assert [(game, column, figure) for game, column, figure, *_ in contradictions()] == [
        ("battle_zone", "comper-stacked", "sd"),
        ("video_pinball", "comper-single", "mean"),
        ("video_pinball", "comper-single", "sd"),
        ("video_pinball", "comper-stacked", "sd"),
        ("video_pinball", "dqn", "mean"),
        ("beam_rider", "comper-stacked", "sd"),
        ("beam_rider", "dqn", "sd"),
    ]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published logs are not beside this checkout")
def test_both_printed_tables_come_out_of_the_published_logs(tmp_path: Path) -> None:
    for folder, agent in (("single_frames", "single"), ("staked_frames", "stacked")):
        result = import_release(SHARED / "released-logs" / folder, agent=agent, out=tmp_path)
        assert len(result.folders) == 40
        assert not any(finding.severity == ERROR for finding in result.findings)
    runs = read_runs([tmp_path])
    assert (len(runs.trials), len(runs.running)) == (80, 0)
    summary = Summary(runs, load_floors(), 0)
    comparisons = compare_with_printed(summary)
    verdicts = {table: [c.verdict for c in comparisons if c.table == table] for table in (1, 2)}
    assert {table: len(found) for table, found in verdicts.items()} == {1: 32, 2: 96}
    assert verdicts[1].count(CUT) + verdicts[1].count(ROUNDED) == 27
    assert verdicts[2].count(CUT) == 93
    different = {(c.table, c.game, c.column, c.statistic, c.printed) for c in comparisons if c.verdict == DIFFERENT}
    assert different == {
        (1, "battle_zone", "comper-stacked", "sd", "2689.59"),
        (1, "video_pinball", "comper-stacked", "sd", "84"),
        (1, "asterix", "comper-single", "sd", "58.3"),
        (1, "asterix", "comper-stacked", "sd", "130.64"),
        (1, "beam_rider", "comper-stacked", "sd", "123.7"),
        (2, "asteroids", "comper-stacked", "mean", "334.80"),
        (2, "space_invaders", "comper-single", "sd", "30.58"),
    }
