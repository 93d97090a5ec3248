"""The figures of the paper about memory: similar-transition sets, how often similarity occurs, and the sizes of TM and RTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from comper.report.drawing import (
    COLOURS,
    HATCHES,
    INK,
    PAPER,
    Plot,
    game_panels,
    label_outer,
    legend,
    legend_height,
    line_handle,
    look,
    panels,
    patch_handle,
)
from comper.report.paper_tables import game_title
from comper.report.reading import Array, Trial
from comper.report.summary import Summary

MEMORY = "memory"
POINTS = 80
PEAKS = {"tm_sets": "tm_peak_sets"}
"""Better measures of the same thing, where a log has them: a line is often written just after TM was emptied."""


def build_memory_figures(summary: Summary) -> list[Plot]:
    """The memory figures for which the runs hold the numbers."""
    plots = [set_sizes(summary), set_sizes_over_episodes(summary), occurrences(summary), memory_sizes(summary)]
    return [plot for plot in plots if plot is not None]


def set_sizes(summary: Summary) -> Plot | None:
    """Mean size of the similar-transition sets through training, a panel for each game."""
    agents, games = _with_metric(summary, "mean_set_size")
    if not agents:
        return None
    figure, cells = game_panels(games, agents)
    for axes, game in zip(cells, games, strict=True):
        for index, agent in enumerate(agents):
            band = over_training(summary.cells.get((agent, game), []), "mean_set_size")
            if band is not None:
                frames, mean, low, high = band
                axes.fill_between(frames / 1000, low, high, color=COLOURS[index % 8], alpha=0.15, linewidth=0)
                axes.plot(frames / 1000, mean, **look(index), markevery=16)
    label_outer(cells, "frames, thousands", "members a set")
    sentence = "Mean number of transitions in a set of similar ones, over all trials; the band spans the trials."
    return Plot("set_sizes", "Sizes of similar-transition sets through training", sentence, figure, MEMORY)


def set_sizes_over_episodes(summary: Summary) -> Plot | None:
    """Mean set size at the end of each episode, all games in one panel for each agent."""
    agents, games = _with_metric(summary, "mean_set_size")
    if not agents:
        return None
    figure, cells = _agent_panels(agents, games)
    for axes, agent in zip(cells, agents, strict=True):
        for index, game in enumerate(games):
            sizes = over_episodes(summary.cells.get((agent, game), []), "mean_set_size")
            if sizes is not None:
                episodes = np.arange(1, len(sizes) + 1)
                axes.plot(episodes, sizes, **look(index), markevery=max(1, len(sizes) // 6))
        axes.set_xlabel("episode")
    cells[0].set_ylabel("members a set")
    sentence = (
        "Mean size of the similar-transition sets at the end of each episode that all trials of the game reached; all games."
    )
    return Plot("set_sizes_over_episodes", "Set sizes over episodes, all games", sentence, figure, MEMORY)


def occurrences(summary: Summary) -> Plot | None:
    """How often a new transition met a similar one, at the end of training."""
    agents, games = _with_metric(summary, "similar_hits")
    if not agents:
        return None
    top, left = 0.1 + legend_height(len(agents), columns=3), 1.05
    thickness = 0.8 / len(agents)
    figure, [[axes]] = panels(1, 1, cell=(4.6, len(games) * (0.16 * len(agents) + 0.12)), margins=(left, 0.3, 0.45, top))
    for index, agent in enumerate(agents):
        for row, game in enumerate(reversed(games)):
            hits = _last_values(summary.cells.get((agent, game), []), "similar_hits")
            y = row + 0.4 - (index + 0.5) * thickness
            if hits:
                bar = {"color": COLOURS[index % 8], "hatch": HATCHES[index % 8], "edgecolor": PAPER}
                axes.barh(y, np.mean(hits), height=thickness * 0.9, **bar)
                axes.plot(hits, np.full(len(hits), y), "|", color=INK, markersize=4, alpha=0.6)
    axes.set_yticks(range(len(games)), [game_title(game) for game in reversed(games)])
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("transitions that joined a known set, whole trial")
    legend(figure, [patch_handle(agent, index) for index, agent in enumerate(agents)], columns=3)
    sentence = "How often a transition met a similar one during a trial: the bar is the mean, each stroke a trial."
    return Plot("occurrences", "Occurrences of similarity", sentence, figure, MEMORY)


def memory_sizes(summary: Summary) -> Plot | None:
    """Sizes of TM (above) and RTM (below) through training, a column for each agent."""
    agents, games = _with_metric(summary, "tm_sets")
    if not agents:
        return None
    top = 0.3 + legend_height(len(games), columns=4)
    figure, rows = panels(2, len(agents), cell=(2.6, 1.35), margins=(0.75, 0.1, 0.45, top), gap=0.25)
    for row, (metric, label) in enumerate((("tm_sets", "sets in TM"), ("rtm_sets", "sets in RTM"))):
        for axes, agent in zip(rows[row], agents, strict=True):
            for index, game in enumerate(games):
                trials = summary.cells.get((agent, game), [])
                band = over_training(trials, PEAKS.get(metric, metric)) or over_training(trials, metric)
                if band is not None:
                    axes.plot(band[0] / 1000, band[1], **look(index), markevery=16)
            axes.set_ylim(bottom=0)
        rows[row][0].set_ylabel(label)
    for axes, agent in zip(rows[0], agents, strict=True):
        axes.set_title(agent)
        axes.tick_params(labelbottom=False)
    for axes in rows[1]:
        axes.set_xlabel("frames, thousands")
    legend(figure, [line_handle(game_title(game), index) for index, game in enumerate(games)])
    sentence = (
        "Similar-transition sets held by the transition memory (TM, above) and the reduced one (RTM, below), mean of trials. "
        "TM is shown at its largest between two lines of the log; logs without that figure (tm_peak_sets) show it as it was "
        "when the line was written, which by the paper's settings is just after it was emptied."
    )
    return Plot("memory_sizes", "Sizes of TM and RTM through training", sentence, figure, MEMORY)


def over_training(trials: list[Trial], metric: str) -> tuple[Array, Array, Array, Array] | None:
    """Frames, mean, minimum and maximum over trials of a metric, on a common grid that no trial needs to be extended to."""
    curves = [curve for trial in trials if (curve := _curve(trial, "total_frames", metric)) is not None]
    if not curves:
        return None
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.linspace(start, max(start, end), POINTS)
    values = np.array([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def over_episodes(trials: list[Trial], metric: str) -> Array | None:
    """A metric at the end of each episode that every trial reached, averaged over the trials."""
    curves = [
        np.interp(trial.episode_steps, *curve) for trial in trials if (curve := _curve(trial, "steps", metric)) is not None
    ]
    if not curves:
        return None
    reached = min(map(len, curves))
    return np.asarray(np.mean([curve[:reached] for curve in curves], axis=0))


def _curve(trial: Trial, x: str, metric: str) -> tuple[Array, Array] | None:
    values = trial.metric(metric)
    if values is None:
        return None
    known = ~np.isnan(values)
    return trial.metrics[x][known], values[known]


def _last_values(trials: list[Trial], metric: str) -> list[float]:
    return [float(curve[1][-1]) for trial in trials if (curve := _curve(trial, "steps", metric)) is not None]


def _with_metric(summary: Summary, metric: str) -> tuple[list[str], list[str]]:
    """The agents and games of which any trial has this metric."""
    cells = [cell for cell, trials in summary.cells.items() if any(trial.metric(metric) is not None for trial in trials)]
    agents, games = {agent for agent, _ in cells}, {game for _, game in cells}
    return [agent for agent in summary.agents if agent in agents], [game for game in summary.games if game in games]


def _agent_panels(agents: list[str], games: list[str]) -> tuple[Any, list[Any]]:
    top = 0.3 + legend_height(len(games), columns=4)
    figure, [cells] = panels(1, len(agents), cell=(2.6, 1.6), margins=(0.6, 0.1, 0.45, top))
    for axes, agent in zip(cells, agents, strict=True):
        axes.set_title(agent)
    legend(figure, [line_handle(game_title(game), index) for index, game in enumerate(games)])
    return figure, cells
