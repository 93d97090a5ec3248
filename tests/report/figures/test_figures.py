"""How a figure is added: a function that yields plots, and a word in the list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from comper.progress import show_progress
from comper.protocol import PAPER_GAMES
from comper.report import figures
from comper.report.figures.drawing import Plot, panels, style
from comper.report.page import SECTIONS
from comper.report.summary import Summary

from ..conftest import MakeRun, summary_of


def episodes_per_trial(summary: Summary) -> Iterator[Plot]:
    """A figure as a newcomer would add it."""
    figure, [[axes]] = panels(1, 1, cell=(3, 2), margins=(0.5, 0.1, 0.4, 0.1))
    axes.bar(range(len(summary.runs.trials)), [trial.scores.size for trial in summary.runs.trials])
    yield Plot("episodes_per_trial", "Episodes per trial", "How many episodes each trial played.", figure, "cost")


def test_a_figure_is_one_function_and_one_word_in_the_list(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "FIGURES", (episodes_per_trial,))
    for seed in range(2):
        make_run(seed=seed)
    with show_progress(wanted=False) as progress:
        (drawn,) = figures.draw_figures(summary_of(tmp_path), progress)
    assert drawn.svg.startswith(b"<?xml")
    assert drawn.section in SECTIONS


@pytest.mark.parametrize(
    "agents", [("comper",), ("comper-single",), ("comper", "comper-single", "comper-stacked", "dqn", "ddqn")]
)
def test_no_legend_is_wider_than_its_figure(agents: tuple[str, ...], make_run: MakeRun, tmp_path: Path) -> None:
    logged = {"nodes": 3, "edges": 4, "visits": 5, "tm_sets": 3, "rtm_sets": 2, "bytes_held": 9, "travelled_steps": 2}
    for agent in agents:
        for game in PAPER_GAMES:
            make_run(agent, game=game, metrics=logged)
    with style():
        for plot in (plot for figure in figures.FIGURES for plot in figure(summary_of(tmp_path))):
            plot.figure.canvas.draw()
            for legend in plot.figure.legends:
                assert legend.get_window_extent().x1 <= plot.figure.bbox.x1, plot.name
