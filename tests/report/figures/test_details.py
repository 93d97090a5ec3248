"""Trial by trial: bars and points are the trials' own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comper.report.figures.details import game_details, iterations_per_trial, wall_time
from comper.report.figures.drawing import style

from ..conftest import MakeRun, summary_of, write_manifest


@pytest.fixture(autouse=True)
def styled() -> Iterator[None]:
    with style():
        yield


def heights(bars: Any) -> list[float]:
    return [bar.get_height() for bar in bars]


def test_the_three_panels_are_thirds_their_ends_and_the_end_of_the_trial(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "asterix", 3, [float(score) for score in range(1, 37)])
    make_run("ours", "asterix", 5, [2.0] * 36)
    (plot,) = game_details(summary_of(tmp_path))
    left, middle, right = plot.figure.axes
    # Thirds of 12 episodes: means 6.5, 18.5, 30.5; the last 5 of each: 10, 22, 34; the last 10 of 36: 31.5.
    assert [heights(container) for container in left.containers] == [[6.5, 2], [18.5, 2], [30.5, 2]]
    assert [heights(container) for container in middle.containers] == [[10, 2], [22, 2], [34, 2]]
    assert [heights(container) for container in right.containers] == [[31.5, 2]]
    assert [label.get_text() for label in right.get_xticklabels()] == ["3", "5"]
    assert [axes.get_title(loc="right") for axes in (middle, right)] == [
        "(ii) last 5 of each third",
        "(iii) last 10 of the trial",
    ]
    assert (plot.name, plot.title) == ("details_asterix", "Asterix")


def test_each_game_has_a_figure_with_a_row_for_each_agent_that_played_it(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "freeway")
    make_run("other", "freeway")
    make_run("ours", "gym:CartPole-v1")
    plots = {plot.name: plot.figure.axes for plot in game_details(summary_of(tmp_path))}
    assert {name: len(axes) for name, axes in plots.items()} == {"details_freeway": 6, "details_gym-CartPole-v1": 3}
    assert [axes.get_title(loc="left") for axes in plots["details_freeway"][::3]] == ["other", "ours"]


def test_iterations_are_the_steps_of_every_trial_in_thousands(make_run: MakeRun, tmp_path: Path) -> None:
    make_run("ours", "freeway", 0, [1.0] * 10)  # 20 steps each
    make_run("ours", "freeway", 1, [1.0] * 20)
    make_run("other", "asterix", 0, [1.0] * 5)
    (plot,) = iterations_per_trial(summary_of(tmp_path))
    other, ours = plot.figure.axes
    assert [label.get_text() for label in other.get_yticklabels()] == ["Asterix", "Freeway*"]
    assert [list(line.get_xdata()) for line in ours.lines] == [[], [0.2, 0.4]]
    assert [list(line.get_xdata()) for line in other.lines] == [[0.1], []]


def test_wall_time_is_in_minutes_until_two_hours(make_run: MakeRun, tmp_path: Path) -> None:
    for seed, seconds in ((0, 1_800.0), (1, 3_600.0)):
        write_manifest(make_run("ours", seed=seed), wall_seconds=seconds)
    write_manifest(make_run("untimed"), wall_seconds=None)
    (plot,) = wall_time(summary_of(tmp_path))
    (axes,) = plot.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours"]
    assert axes.get_xlabel() == "minutes per trial"
    assert [bar.get_width() for bar in axes.patches] == [45]
    assert sorted(axes.lines[0].get_xdata()) == [30, 60]
    write_manifest(make_run("slow"), wall_seconds=7_200.0)
    (plot,) = wall_time(summary_of(tmp_path))
    assert plot.figure.axes[0].get_xlabel() == "hours per trial"
    assert [bar.get_width() for bar in plot.figure.axes[0].patches] == [2, 0.75]


def test_without_any_time_there_is_no_figure(make_run: MakeRun, tmp_path: Path) -> None:
    write_manifest(make_run(), wall_seconds=None)
    assert list(wall_time(summary_of(tmp_path))) == []
