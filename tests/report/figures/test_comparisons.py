"""Intervals, profiles and who beats whom: what is drawn is what the summary says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.report.figures.comparisons import aggregates, differences, improvement, profiles
from comper.report.figures.drawing import style
from comper.report.summary import FLOOR_NORMALISED, NORMALISATIONS, STATISTICS, Summary

from ..conftest import MakeRun, summary_of


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with style():
        yield


def labels(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_aggregates_have_a_row_for_each_agent_at_its_interval(summary: Summary) -> None:
    (plot,) = aggregates(summary)
    axes = plot.figure.axes
    assert len(axes) == len(NORMALISATIONS) * len(STATISTICS)
    assert labels(axes[0]) == list(reversed(summary.atari_agents))
    for number, (scale, name) in enumerate((scale, name) for scale in NORMALISATIONS for name in STATISTICS):
        for row, agent in enumerate(reversed(summary.atari_agents)):
            interval, (bar, point) = summary.aggregates[agent, scale, name], axes[number].lines[2 * row : 2 * row + 2]
            assert (list(bar.get_xdata()), list(bar.get_ydata())) == ([interval.low, interval.high], [row, row])
            assert (list(point.get_xdata()), list(point.get_ydata())) == ([interval.value], [row])


def test_a_profile_is_the_fraction_of_trials_above_each_score(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, score in enumerate((5.0, 15.0, 25.0)):
        make_run("ours", "freeway", seed, [score] * 3)
    summary = summary_of(tmp_path)
    (plot,) = profiles(summary)
    scales = [scale for scale in NORMALISATIONS if summary.common_games(scale)]
    for axes, scale in zip(plot.figure.axes, scales, strict=True):
        (line,) = axes.lines
        scores = summary.normalised("ours", "freeway", scale)
        expected = [(scores > threshold).mean() for threshold in line.get_xdata()]
        assert np.allclose(line.get_ydata(), expected)
        assert axes.get_title(loc="left") == scale
        assert len(set(expected)) > 1


def test_improvement_has_each_pair_once_with_a_line_at_one_half(summary: Summary) -> None:
    (plot,) = improvement(summary)
    (axes,) = plot.figure.axes
    assert labels(axes) == ["other over ours"]
    interval = summary.improvements["other", "ours"]
    assert interval.value == 0
    assert list(axes.lines[1].get_xdata()) == [interval.value]
    assert list(axes.lines[-1].get_xdata()) == [0.5, 0.5]


def test_where_there_is_nothing_to_compare_there_is_no_figure(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "gym:CartPole-v1")
    summary = summary_of(tmp_path)
    assert summary.common_games(FLOOR_NORMALISED) == []
    assert [list(make(summary)) for make in (aggregates, profiles, improvement, differences)] == [[]] * 4


def test_a_difference_is_drawn_as_a_share_of_the_higher_score(summary: Summary) -> None:
    (plot,) = differences(summary)  # "other" scores nothing, "ours" 21.67
    (axes,) = plot.figure.axes
    assert labels(axes) == ["Freeway*"]
    assert list(axes.lines[1].get_xdata()) == [-1.0]
    assert (axes.get_title(loc="left"), axes.get_title(loc="right")) == ("← ours is higher", "other is higher →")


def test_a_difference_between_single_trials_is_drawn_without_an_interval(make_run: MakeRun, tmp_path: Path) -> None:
    for agent, score in (("ours", 20.0), ("other", 10.0)):
        make_run(agent, "freeway", 0, [score] * 3)
    (plot,) = differences(summary_of(tmp_path))
    assert list(plot.figure.axes[0].lines[1].get_xdata()) == [-0.5]
