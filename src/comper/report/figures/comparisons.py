"""The figures the field expects today (arXiv 2108.13264): intervals over all games, performance profiles, who beats whom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from comper.report import statistics
from comper.report.figures.drawing import INK, Plot, colour, legend, line_handle, look, panels
from comper.report.names import asterisk_sentence, game_title
from comper.report.statistics import Interval
from comper.report.summary import FLOOR_NORMALISED, NORMALISATIONS, STATISTICS, Summary
from comper.report.tables.scores import changes_sentence

AGGREGATE, COMPARE = "aggregate", "compare"
THRESHOLDS = {FLOOR_NORMALISED: np.linspace(-1, 1, 101)}
HUMAN_THRESHOLDS = np.linspace(-0.1, 1.0, 101)


def aggregates(summary: Summary) -> Iterator[Plot]:
    """Interquartile mean, mean and optimality gap with their intervals, a row of panels for each normalisation."""
    scales = [scale for scale in NORMALISATIONS if summary.common_games(scale)]
    if not scales:
        return
    height = 0.22 * len(summary.atari_agents) + 0.12
    figure, rows = panels(len(scales), len(STATISTICS), cell=(1.75, height), margins=(1.3, 0.2, 0.35, 0.35), gap=0.55)
    for scale, cells in zip(scales, rows, strict=True):
        for axes, name in zip(cells, STATISTICS, strict=True):
            intervals = [summary.aggregates[agent, scale, name] for agent in summary.atari_agents]
            is_first = axes is cells[0]
            names = summary.atari_agents if is_first else [""] * len(intervals)
            _interval_rows(axes, intervals, names, looks=[summary.agents.index(agent) for agent in summary.atari_agents])
            axes.set_title(f"{scale}: {name}" if is_first else name, loc="right" if is_first else "left")
    sentence = (
        "Aggregates over the games that all agents have played, with 95 % stratified bootstrap intervals; for the "
        "optimality gap less is better."
    )
    yield Plot("aggregates", "All games together", sentence, figure, AGGREGATE)


def profiles(summary: Summary) -> Iterator[Plot]:
    """The fraction of trials above a score, for every score."""
    scales = [scale for scale in NORMALISATIONS if summary.common_games(scale)]
    if not scales:
        return
    figure, [cells] = panels(1, len(scales), cell=(3.2, 1.9), margins=(0.6, 0.15, 0.45, 0.3))
    for axes, scale in zip(cells, scales, strict=True):
        thresholds = THRESHOLDS.get(scale, HUMAN_THRESHOLDS)
        for agent in summary.atari_agents:
            index = summary.agents.index(agent)
            strata = summary.strata(agent, summary.common_games(scale), scale)
            curve, low, high = statistics.profile_band(strata, thresholds, rng=summary.rng("profile", agent, scale))
            axes.fill_between(thresholds, low, high, color=colour(index), alpha=0.13, linewidth=0)
            axes.plot(thresholds, curve, **look(index), markevery=20)
        axes.set_title(scale)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("normalised score τ")
    cells[0].set_ylabel("fraction of trials above τ")
    legend(figure, [line_handle(agent, summary.agents.index(agent)) for agent in summary.atari_agents])
    sentence = (
        "Performance profiles: the fraction of trials that score above τ, every game weighing the same, with 95 % bands."
    )
    yield Plot("performance_profiles", "Performance profiles", sentence, figure, AGGREGATE)


def improvement(summary: Summary) -> Iterator[Plot]:
    """The probability of improvement of each pair of agents."""
    pairs = [pair for pair in combinations(summary.agents, 2) if pair in summary.improvements]
    if not pairs:
        return
    longest = max(len(f"{x} over {y}") for x, y in pairs)
    margins = (0.065 * longest + 0.2, 0.2, 0.45, 0.1)
    figure, [[axes]] = panels(1, 1, cell=(3.6, 0.22 * len(pairs) + 0.15), margins=margins)
    names = [f"{x} over {y}" for x, y in pairs]
    _interval_rows(axes, [summary.improvements[pair] for pair in pairs], names, looks=[0] * len(pairs))
    axes.axvline(0.5, color=INK, linewidth=1, linestyle=":")
    axes.set_xlim(-0.03, 1.03)
    axes.set_xlabel("probability of improvement")
    sentence = (
        "How likely a trial of the first agent beats one of the second on the same game; 0.5 (dotted) means no difference."
    )
    yield Plot("improvement", "Probability of improvement", sentence, figure, AGGREGATE)


def differences(summary: Summary) -> Iterator[Plot]:
    """Two agents: the difference of their scores on each game, as a share of the higher of the two."""
    if not summary.is_comparison:
        return
    first, second = summary.agents
    rows = {game: shares for game in reversed(summary.differences) if (shares := _difference_shares(summary, game))}
    if not rows:
        return
    left = 0.25 + 0.075 * max(len(game_title(game)) for game in rows)
    figure, [[axes]] = panels(1, 1, cell=(5.2, 0.3 * len(rows) + 0.2), margins=(left, 0.25, 0.45, 0.3))
    for row, shares in enumerate(rows.values()):
        index = 0 if shares.value > 0 else 1
        axes.plot([shares.low, shares.high], [row, row], color=colour(index), linewidth=1.6)
        axes.plot([shares.value], [row], **look(index) | {"linestyle": ""})
    axes.axvline(0, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(rows)), [game_title(game) for game in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    edges = [abs(edge) for shares in rows.values() for edge in (shares.low, shares.high) if np.isfinite(edge)]
    widest = max([1.05, *edges])  # one trial of each agent has no interval
    axes.set_xlim(-1.02 * widest, 1.02 * widest)
    axes.grid(axis="y", visible=False)
    axes.set_title(f"← {second} is higher")
    axes.set_title(f"{first} is higher →", loc="right")
    axes.set_xlabel("difference ÷ higher score")
    sentence = (
        f"The mean final score of {first} less that of {second}, as a share of the higher of the two, with its 95 % interval: "
        "1 means that the other one scored nothing. An interval that crosses the line leaves open which one is higher."
        f"{asterisk_sentence(list(rows))}{changes_sentence(summary, summary.agents)}"
    )
    yield Plot("differences", "Difference on each game", sentence, figure, COMPARE)


def _difference_shares(summary: Summary, game: str) -> Interval | None:
    """A difference and its interval as shares of the higher score; None where neither scored anything."""
    interval, higher = summary.differences[game], max(abs(summary.final[agent, game].mean()) for agent in summary.agents)
    if not higher:
        return None
    return Interval(interval.value / higher, interval.low / higher, interval.high / higher)


def _interval_rows(axes: Any, intervals: list[Interval], names: list[str], *, looks: list[int]) -> None:
    for row, (interval, index) in enumerate(zip(reversed(intervals), reversed(looks), strict=True)):
        axes.plot([interval.low, interval.high], [row, row], color=colour(index), linewidth=1.6)
        axes.plot([interval.value], [row], **look(index) | {"linestyle": ""})
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="y", visible=False)
