"""Trial by trial: the three panels of the paper for each game, agent steps, and wall time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from comper.report import statistics
from comper.report.facts import num_scored_episodes
from comper.report.figures.drawing import INK, MUTED, Plot, bar_look, legend, look, panels, patch_handle
from comper.report.figures.learning import draw_floors
from comper.report.names import file_name, game_title
from comper.report.reading import Array
from comper.report.summary import Summary

DETAILS, COST = "details", "cost"


def game_details(summary: Summary) -> Iterator[Plot]:
    """The paper's three panels of each game, a row for each agent."""
    for game in summary.games:
        agents = [agent for agent in summary.agents if (agent, game) in summary.cells]
        figure, rows = panels(len(agents), 3, cell=(2.45, 1.25), margins=(0.6, 0.1, 0.55, 0.35), gap=0.5)
        for agent, cells in zip(agents, rows, strict=True):
            _draw_agent(cells, summary, agent, game)
        scored = num_scored_episodes(summary.cells[agents[0], game][0])
        titles = (
            "(i) each third",
            f"(ii) last {statistics.num_third_episodes(scored)} of each third",
            f"(iii) last {scored} of the trial",
        )
        for axes, title in zip(rows[0], titles, strict=True):
            axes.set_title(title, loc="right", fontweight="normal", color=MUTED)
        for axes in rows[-1]:
            axes.set_xlabel("trial (seed)")
        legend(figure, [patch_handle(f"{name} third", index) for index, name in enumerate(("first", "second", "last"))])
        sentence = (
            f"{game_title(game)}, per trial: (i) the mean of all episodes of each third, (ii) the mean of the last episodes "
            "of each third, (iii) the mean of the trial's last episodes. The level line is the score without learning."
        )
        yield Plot(file_name("details", game), game_title(game), sentence, figure, DETAILS)


def _draw_agent(cells: list[Any], summary: Summary, agent: str, game: str) -> None:
    left, middle, right = cells
    trials = summary.cells[agent, game]
    seeds = [str(trial.seed) for trial in trials]
    _third_bars(left, np.array([statistics.third_means(trial.scores) for trial in trials]), seeds)
    _third_bars(middle, summary.thirds[agent, game], seeds)
    _trial_bars(right, summary.final[agent, game], seeds)
    for axes in cells:
        draw_floors(axes, summary, game, agent=agent)
        axes.grid(axis="x", visible=False)
    left.set_ylabel("score")
    left.set_title(agent)


def _third_bars(axes: Any, values: Array, names: list[str]) -> None:
    for third in range(3):
        x = np.arange(len(values)) + (third - 1) * 0.27
        axes.bar(x, values[:, third], width=0.25, **bar_look(third))
    axes.set_xticks(range(len(names)), names)


def _trial_bars(axes: Any, values: Array, names: list[str]) -> None:
    axes.bar(np.arange(len(values)), values, width=0.6, **bar_look(2))
    axes.set_xticks(range(len(names)), names)


def iterations_per_trial(summary: Summary) -> Iterator[Plot]:
    """Agent steps of every trial, a panel for each agent."""
    names = [game_title(game) for game in reversed(summary.games)]
    left = 0.25 + 0.08 * max(map(len, names))
    figure, [cells] = panels(1, len(summary.agents), cell=(2.0, 0.2 * len(names) + 0.2), margins=(left, 0.15, 0.45, 0.3))
    for index, (axes, agent) in enumerate(zip(cells, summary.agents, strict=True)):
        for row, game in enumerate(reversed(summary.games)):
            steps = [trial.total_steps / 1000 for trial in summary.cells.get((agent, game), [])]
            axes.plot(steps, np.full(len(steps), row), **look(index) | {"linestyle": ""}, alpha=0.7)
        axes.set_yticks(range(len(names)), names if index == 0 else [""] * len(names))
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlim(0, None)
        axes.set_title(agent)
        axes.set_xlabel("iterations, thousands")
    sentence = "Agent steps (iterations) of every trial until the frame budget was spent and the running episode had ended."
    yield Plot("iterations_per_trial", "Iterations per trial", sentence, figure, COST)


def wall_time(summary: Summary) -> Iterator[Plot]:
    """Hours or minutes per trial, by agent."""
    seconds = {
        agent: [trial.wall_seconds for trial in summary.trials_of(agent) if trial.wall_seconds is not None]
        for agent in summary.agents
    }
    seconds = {agent: values for agent, values in seconds.items() if values}
    if not seconds:
        return
    unit, length = ("hours", 3600) if max(map(max, seconds.values())) >= 2 * 3600 else ("minutes", 60)
    times = {agent: np.array(values) / length for agent, values in seconds.items()}
    figure, [[axes]] = panels(1, 1, cell=(4.6, 0.34 * len(times) + 0.15), margins=(1.5, 0.3, 0.45, 0.1))
    for row, (agent, values) in enumerate(reversed(times.items())):
        index = summary.agents.index(agent)
        axes.barh(row, np.mean(values), height=0.6, **bar_look(index))
        axes.plot(values, np.full(len(values), row), "|", color=INK, markersize=7, alpha=0.6)
    axes.set_yticks(range(len(times)), list(reversed(times)))
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{unit} per trial")
    sentence = "Wall time from the first to the last step of a trial: the bar is the mean, each stroke a trial."
    yield Plot("wall_time", "Wall time", sentence, figure, COST)
