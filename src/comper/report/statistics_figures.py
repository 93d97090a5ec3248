"""The figures the field expects today (arXiv 2108.13264): intervals over all games, performance profiles, who beats whom."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from comper.report import statistics
from comper.report.drawing import COLOURS, INK, MARKERS, Plot, legend, legend_height, line_handle, look, panels
from comper.report.statistics import Interval
from comper.report.summary import FLOOR_NORMALISED, NORMALISATIONS, STATISTICS, Summary

AGGREGATE = "aggregate"
THRESHOLDS = {FLOOR_NORMALISED: np.linspace(-1, 1, 101)}
HUMAN_THRESHOLDS = np.linspace(-0.1, 1.0, 101)


def build_statistics_figures(summary: Summary) -> list[Plot]:
    """Those of the three that the runs allow: aggregates need a game that all agents share, comparison two agents."""
    plots = [aggregates(summary), profiles(summary), improvement(summary)]
    return [plot for plot in plots if plot is not None]


def aggregates(summary: Summary) -> Plot | None:
    """Interquartile mean, mean and optimality gap with their intervals, a row of panels for each normalisation."""
    scales = [scale for scale in NORMALISATIONS if summary.common_games(scale)]
    if not scales:
        return None
    height = 0.22 * len(summary.agents) + 0.12
    figure, rows = panels(len(scales), len(STATISTICS), cell=(1.75, height), margins=(1.3, 0.2, 0.35, 0.35), gap=0.55)
    for scale, cells in zip(scales, rows, strict=True):
        for axes, name in zip(cells, STATISTICS, strict=True):
            intervals = [summary.aggregates[agent, scale, name] for agent in summary.agents]
            _interval_rows(axes, intervals, summary.agents if axes is cells[0] else [""] * len(intervals))
            is_first = axes is cells[0]
            axes.set_title(f"{scale}: {name}" if is_first else name, loc="right" if is_first else "left")
    sentence = (
        "Aggregates over the games that all agents have played, with 95 % stratified bootstrap intervals; for the "
        "optimality gap less is better."
    )
    return Plot("aggregates", "All games together", sentence, figure, AGGREGATE)


def profiles(summary: Summary) -> Plot | None:
    """The fraction of trials above a score, for every score."""
    scales = [scale for scale in NORMALISATIONS if summary.common_games(scale)]
    if not scales:
        return None
    top = 0.3 + legend_height(len(summary.agents), columns=4)
    figure, [cells] = panels(1, len(scales), cell=(3.2, 1.9), margins=(0.6, 0.15, 0.45, top))
    for axes, scale in zip(cells, scales, strict=True):
        thresholds = THRESHOLDS.get(scale, HUMAN_THRESHOLDS)
        for index, agent in enumerate(summary.agents):
            strata = summary.strata(agent, summary.common_games(scale), scale)
            curve, low, high = statistics.profile_band(strata, thresholds, rng=summary.rng("profile", agent, scale))
            axes.fill_between(thresholds, low, high, color=COLOURS[index % 8], alpha=0.13, linewidth=0)
            axes.plot(thresholds, curve, **look(index), markevery=20)
        axes.set_title(scale)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("normalised score τ")
    cells[0].set_ylabel("fraction of trials above τ")
    legend(figure, [line_handle(agent, index) for index, agent in enumerate(summary.agents)])
    sentence = (
        "Performance profiles: the fraction of trials that score above τ, every game weighing the same, with 95 % bands."
    )
    return Plot("performance_profiles", "Performance profiles", sentence, figure, AGGREGATE)


def improvement(summary: Summary) -> Plot | None:
    """The probability of improvement of each pair of agents."""
    pairs = [pair for pair in combinations(summary.agents, 2) if pair in summary.improvements]
    if not pairs:
        return None
    longest = max(len(f"{x} over {y}") for x, y in pairs)
    margins = (0.065 * longest + 0.2, 0.2, 0.45, 0.1)
    figure, [[axes]] = panels(1, 1, cell=(3.6, 0.22 * len(pairs) + 0.15), margins=margins)
    _interval_rows(
        axes, [summary.improvements[pair] for pair in pairs], [f"{x} over {y}" for x, y in pairs], is_coloured=False
    )
    axes.axvline(0.5, color=INK, linewidth=1, linestyle=":")
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("probability of improvement")
    sentence = (
        "How likely a trial of the first agent beats one of the second on the same game; 0.5 (dotted) means no difference."
    )
    return Plot("improvement", "Probability of improvement", sentence, figure, AGGREGATE)


def _interval_rows(axes: Any, intervals: list[Interval], names: list[str], *, is_coloured: bool = True) -> None:
    for index, interval in enumerate(intervals):
        row, colour = len(intervals) - 1 - index, COLOURS[index % 8] if is_coloured else COLOURS[0]
        axes.plot([interval.low, interval.high], [row, row], color=colour, linewidth=1.6)
        axes.plot([interval.value], [row], color=colour, marker=MARKERS[index % 8] if is_coloured else "o", linestyle="")
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="y", visible=False)
