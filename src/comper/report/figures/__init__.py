"""Step 5: the figures of a report. A new figure is a function that yields plots of a summary, and a word in FIGURES."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from comper.progress import Progress
from comper.report.figures import drawing
from comper.report.figures.comparisons import aggregates, differences, improvement, profiles
from comper.report.figures.details import game_details, iterations_per_trial, wall_time
from comper.report.figures.drawing import Drawn, Plot
from comper.report.figures.learning import every_episode, learning_curves, score_against_floor
from comper.report.figures.logged import all_columns, at_the_end, over_episodes, over_training, sizes
from comper.report.summary import Summary

MakePlots = Callable[[Summary], Iterator[Plot]]

FIGURES: tuple[MakePlots, ...] = (
    learning_curves, differences, score_against_floor, aggregates, profiles, improvement, over_training, over_episodes,
    at_the_end, sizes, all_columns, game_details, iterations_per_trial, wall_time,
)  # fmt: skip
"""Each yields its plots, or nothing where the runs hold nothing for it; a plot names the section of the page it stands in."""

SINGLE_RUN_FIGURES: tuple[MakePlots, ...] = (every_episode, all_columns)
"""Those that say something about one trial alone."""


def draw_figures(summary: Summary, progress: Progress) -> list[Drawn]:
    """All figures of a report, drawn."""
    makers = SINGLE_RUN_FIGURES if summary.is_single_run else FIGURES
    with drawing.style():
        plots = [plot for make in makers for plot in make(summary)]
        drawn = []
        for plot in plots:
            drawn.append(drawing.draw(plot))
            progress.update(len(drawn), len(plots))
    return drawn
