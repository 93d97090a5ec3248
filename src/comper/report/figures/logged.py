"""What the agents logged while they learned: the paper's figures about its memories, and every column there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from comper.report.figures import columns
from comper.report.figures.columns import column_info
from comper.report.figures.drawing import (
    INK,
    Plot,
    bar_look,
    colour,
    label_outer,
    legend,
    line_handle,
    look,
    panels,
    patch_handle,
    titled_panels,
)
from comper.report.names import file_name, game_title
from comper.report.reading import Array, Trial
from comper.report.summary import Summary

MEMORY, LOGS = "memory", "logs"
POINTS = 80
MAX_COLUMNS = 60
"""Nobody looks at more panels, and thousands of them take hours to draw."""
FRAMES_LABEL = "frames, thousands"


def over_training(summary: Summary) -> Iterator[Plot]:
    """Columns through training, a panel for each game."""
    for spec in columns.OVER_TRAINING:
        (names,) = spec.columns
        agents, games = _with_column(summary, names)
        if not agents:
            continue
        handles = [line_handle(agent, summary.agents.index(agent)) for agent in agents]
        figure, cells = titled_panels(list(map(game_title, games)), handles)
        for axes, game in zip(cells, games, strict=True):
            for agent in agents:
                _draw_band(axes, summary.cells.get((agent, game), []), names, summary.agents.index(agent))
        label_outer(cells, FRAMES_LABEL, column_info(names[0]).label)
        yield Plot(spec.name, spec.title, spec.sentence, figure, MEMORY)


def _draw_band(axes: Any, trials: list[Trial], names: tuple[str, ...], index: int) -> None:
    band = column_over_training(trials, names)
    if band is not None:
        frames, mean, low, high = band
        axes.fill_between(frames / 1000, low, high, color=colour(index), alpha=0.15, linewidth=0)
        axes.plot(frames / 1000, mean, **look(index), markevery=16)


def over_episodes(summary: Summary) -> Iterator[Plot]:
    """Columns at the end of each episode, all games in one panel for each agent."""
    for spec in columns.OVER_EPISODES:
        (names,) = spec.columns
        agents, games = _with_column(summary, names)
        if not agents:
            continue
        figure, cells = titled_panels(agents, _game_handles(games), height=1.6)
        for axes, agent in zip(cells, agents, strict=True):
            for index, game in enumerate(games):
                values = column_over_episodes(summary.cells.get((agent, game), []), names)
                if values is not None:
                    axes.plot(np.arange(1, len(values) + 1), values, **look(index), markevery=max(1, len(values) // 6))
        label_outer(cells, "episode", column_info(names[0]).label)
        yield Plot(spec.name, spec.title, spec.sentence, figure, MEMORY)


def at_the_end(summary: Summary) -> Iterator[Plot]:
    """The last value of a column in each trial, as bars."""
    for spec in columns.AT_THE_END:
        (names,) = spec.columns
        agents, games = _with_column(summary, names)
        if not agents:
            continue
        margins = (0.25 + 0.075 * max(len(game_title(game)) for game in games), 0.3, 0.45, 0.1)
        figure, [[axes]] = panels(1, 1, cell=(4.6, len(games) * (0.16 * len(agents) + 0.12)), margins=margins)
        for order, agent in enumerate(agents):
            for row, game in enumerate(reversed(games)):
                values = _last_values(summary.cells.get((agent, game), []), names)
                thickness = 0.8 / len(agents)
                _draw_bar(axes, values, row + 0.4 - (order + 0.5) * thickness, thickness, summary.agents.index(agent))
        axes.set_yticks(range(len(games)), [game_title(game) for game in reversed(games)])
        axes.set_xlim(left=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"{column_info(names[0]).label}, whole trial")
        legend(figure, [patch_handle(agent, summary.agents.index(agent)) for agent in agents])
        yield Plot(spec.name, spec.title, spec.sentence, figure, MEMORY)


def _draw_bar(axes: Any, values: list[float], y: float, thickness: float, index: int) -> None:
    if values:
        axes.barh(y, np.mean(values), height=thickness * 0.9, **bar_look(index))
        axes.plot(values, np.full(len(values), y), "|", color=INK, markersize=4, alpha=0.6)


def sizes(summary: Summary) -> Iterator[Plot]:
    """Sizes through training: a row for each column, a panel for each agent, all games in each."""
    for spec in columns.SIZES:
        agents, games = _with_column(summary, tuple(name for names in spec.columns for name in names))
        if not agents:
            continue
        figure, rows = panels(len(spec.columns), len(agents), cell=(2.6, 1.35), margins=(0.75, 0.1, 0.45, 0.3), gap=0.25)
        for names, cells in zip(spec.columns, rows, strict=True):
            for axes, agent in zip(cells, agents, strict=True):
                for index, game in enumerate(games):
                    band = column_over_training(summary.cells.get((agent, game), []), names)
                    if band is not None:
                        axes.plot(band[0] / 1000, band[1], **look(index), markevery=16)
                axes.set_ylim(bottom=0)
                axes.tick_params(labelbottom=cells is rows[-1])
            cells[0].set_ylabel(column_info(names[-1]).label)
        for axes, agent in zip(rows[0], agents, strict=True):
            axes.set_title(agent)
        for axes in rows[-1]:
            axes.set_xlabel(FRAMES_LABEL)
        legend(figure, _game_handles(games))
        yield Plot(spec.name, spec.title, spec.sentence, figure, MEMORY)


def all_columns(summary: Summary) -> Iterator[Plot]:
    """Every column of an agent's logs through training, whatever the agent calls it, one figure per agent."""
    for agent in summary.agents:
        trials = summary.trials_of(agent)
        all_names = [name for name in _names(trials) if name not in columns.COUNTERS]
        names = all_names[:MAX_COLUMNS]
        if not names:
            continue
        games = summary.games_of(agent)
        handles = _game_handles(games) if len(games) > 1 else []
        figure, cells = titled_panels([column_info(name).label for name in names], handles, columns=3)
        for axes, name in zip(cells, names, strict=True):
            for index, game in enumerate(games):
                band = column_over_training(summary.cells[agent, game], (name,))
                if band is not None:
                    axes.plot(band[0] / 1000, band[1] * column_info(name).scale, **look(index), markevery=16)
        label_outer(cells, FRAMES_LABEL, "", columns=3)
        sentence = (
            f"Every column of metrics.jsonl that {agent} writes, through training"
            f"{', mean of the trials of each game' if len(trials) > 1 else ''}."
            f"{f' The first {MAX_COLUMNS} of {len(all_names):,} are drawn.' if all_names != names else ''}"
        )
        yield Plot(file_name("log", agent), f"What {agent} logged", sentence, figure, LOGS)


def column_over_training(trials: list[Trial], names: tuple[str, ...]) -> tuple[Array, Array, Array, Array] | None:
    """Frames, mean, minimum and maximum over trials of a column, on a grid within which every trial has values."""
    curves = [curve for trial in trials if (curve := _curve(trial, "total_frames", names)) is not None]
    if not curves:
        return None
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.linspace(start, max(start, end), POINTS)
    values = np.array([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def column_over_episodes(trials: list[Trial], names: tuple[str, ...]) -> Array | None:
    """A column at the end of each episode that every trial reached, averaged over the trials."""
    curves = [
        np.interp(trial.episode_steps, *curve) for trial in trials if (curve := _curve(trial, "steps", names)) is not None
    ]
    if not curves:
        return None
    reached = min(map(len, curves))
    return np.asarray(np.mean([curve[:reached] for curve in curves], axis=0))


def _curve(trial: Trial, x: str, names: tuple[str, ...]) -> tuple[Array, Array] | None:
    """The first of the columns that the trial has."""
    for name in names:
        values = trial.metric(name)
        if values is not None:
            known = ~np.isnan(values)
            return trial.metrics[x][known], values[known]
    return None


def _last_values(trials: list[Trial], names: tuple[str, ...]) -> list[float]:
    return [float(curve[1][-1]) for trial in trials if (curve := _curve(trial, "steps", names)) is not None]


def _names(trials: list[Trial]) -> list[str]:
    """The columns with any number in them, in the order in which the logs have them."""
    return list(dict.fromkeys(name for trial in trials for name in trial.metrics if trial.metric(name) is not None))


def _with_column(summary: Summary, names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The agents and games of which any trial has one of these columns."""
    cells = [
        cell
        for cell, trials in summary.cells.items()
        if any(trial.metric(name) is not None for trial in trials for name in names)
    ]
    agents, games = {agent for agent, _ in cells}, {game for _, game in cells}
    return [agent for agent in summary.agents if agent in agents], [game for game in summary.games if game in games]


def _game_handles(games: list[str]) -> list[Any]:
    return [line_handle(game_title(game), index) for index, game in enumerate(games)]
