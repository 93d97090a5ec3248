"""Every column that an agent logs is drawn, whatever it is called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comper.report.figures.drawing import style
from comper.report.figures.logged import all_columns, column_over_episodes, column_over_training

from ..conftest import MakeRun, summary_of


def test_columns_that_nobody_knows_are_drawn_under_their_own_name(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("mine", metrics={"inner_peace": 0.5, "bytes_held": 2_000_000, "never": None})
    with style():
        (plot,) = all_columns(summary_of(tmp_path))
    assert [axes.get_title(loc="left") for axes in plot.figure.axes] == ["inner peace", "memory held, MB"]
    assert plot.figure.axes[1].lines[0].get_ydata()[0] == pytest.approx(2.0)


def test_an_agent_that_logs_only_counters_has_no_figure(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("mine", metrics={})
    assert list(all_columns(summary_of(tmp_path))) == []


def test_the_first_of_several_columns_that_a_log_has_is_taken(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(scores=[1.0] * 4, metrics={"tm_sets": 3})
    (trial,) = summary_of(tmp_path).runs.trials
    band = column_over_training([trial], ("tm_peak_sets", "tm_sets"))
    assert band is not None
    assert np.unique(band[1]).tolist() == [3]
    assert column_over_training([trial], ("other",)) is None
    episodes = column_over_episodes([trial], ("tm_sets",))
    assert episodes is not None
    assert episodes.tolist() == [3, 3, 3, 3]


def test_of_thousands_of_columns_the_first_are_drawn_and_that_is_said(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("mine", metrics={f"c{number}": 1.0 for number in range(2_000)})
    with style():
        (plot,) = all_columns(summary_of(tmp_path))
    assert len(plot.figure.axes) == 60
    assert "The first 60 of 2,000 are drawn." in plot.sentence
