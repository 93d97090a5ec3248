"""The figures of the paper about learning, redrawn with care, and two of our own: score against floor, and wall time."""

from __future__ import annotations

from typing import Any

import numpy as np

from comper.protocol import num_scored_episodes
from comper.report import reference, statistics
from comper.report.drawing import (
    COLOURS,
    HATCHES,
    INK,
    MARKERS,
    MUTED,
    PAPER,
    Plot,
    game_panels,
    handle,
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
from comper.runs.folder import folder_name

LEARNING, DETAILS = "learning", "details"
CURVE_POINTS = 20


def score_against_floor(summary: Summary) -> Plot | None:
    """Each agent's mean as a multiple of its game's floor."""
    games = [game for game in summary.games if summary.floors.value(game) > 0]
    if not games:
        return None
    height = 0.13 * len(summary.agents) + 0.14
    figure, [[axes]] = panels(
        1,
        1,
        cell=(3.55, len(games) * height),
        margins=(1.05, 0.15, 0.45, 0.2 + legend_height(len(summary.agents) + 1, columns=3)),
    )
    for row, game in enumerate(reversed(games)):
        _floor_row(axes, summary, game, row)
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(games)), [game_title(game) for game in reversed(games)])
    axes.set_ylim(-0.5, len(games) - 0.5)
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("score ÷ floor")
    handles = [line_handle(agent, index, linestyle="") for index, agent in enumerate(summary.agents)]
    handles.append(handle("BBF, 20,000 steps", marker="|", markersize=9, color=MUTED, linestyle=""))
    legend(figure, handles, columns=3)
    sentence = (
        "Each agent's mean final score with its 95 % interval, as a multiple of the floor of its game: left of the line at 1 "
        "nothing better than a random policy or one constant action was learned."
    )
    unknown = [game_title(game) for game in summary.games if game not in games]
    if unknown:
        sentence += f" Not shown, for want of a floor above 0: {', '.join(unknown)}."
    return Plot("score_against_floor", "Score against floor, at a glance", sentence, figure, "glance")


def _floor_row(axes: Any, summary: Summary, game: str, row: int) -> None:
    floor, played = summary.floors.value(game), [agent for agent in summary.agents if (agent, game) in summary.cells]
    if row % 2:
        axes.axhspan(row - 0.5, row + 0.5, color=MUTED, alpha=0.06, linewidth=0)
    bbf = reference.score(game, "bbf_20k") / floor
    axes.plot([bbf], [row], marker="|", markersize=9, color=MUTED, linestyle="")
    for position, agent in enumerate(played):
        offset = 0.75 * ((len(played) - 1) / 2 - position) / len(played)
        index, interval = summary.agents.index(agent), summary.mean_intervals[agent, game]
        axes.plot([interval.low / floor, interval.high / floor], [row + offset] * 2, color=COLOURS[index % 8], linewidth=1.4)
        axes.plot([interval.value / floor], [row + offset], color=COLOURS[index % 8], marker=MARKERS[index % 8], linestyle="")


def learning_curves(summary: Summary) -> Plot:
    """Score over frames, a panel for each game, with minimum and maximum."""
    figure, cells = game_panels(summary.games, summary.agents)
    for axes, game in zip(cells, summary.games, strict=False):
        for index, agent in enumerate(summary.agents):
            trials = summary.cells.get((agent, game))
            if trials:
                frames, mean, low, high = learning_curve(trials)
                axes.fill_between(frames / 1000, low, high, color=COLOURS[index % 8], alpha=0.13, linewidth=0)
                axes.plot(frames / 1000, mean, **look(index), markevery=4)
        _floor_line(axes, summary, game)
    label_outer(cells, "frames, thousands", "score")
    sentence = (
        f"Mean score of the episodes that ended in each {CURVE_POINTS}th of the training, over all trials; the band spans "
        "their minimum and maximum, the dotted line is the floor."
    )
    return Plot("learning_curves", "Learning curves with minimum and maximum", sentence, figure, LEARNING)


def learning_curve(trials: list[Trial], points: int = CURVE_POINTS) -> tuple[Array, Array, Array, Array]:
    """Frames, mean, minimum and maximum of the scores in equal stretches of training; empty ones are left out."""
    frames = np.concatenate([trial.episode_frames for trial in trials])
    scores = np.concatenate([trial.scores for trial in trials])
    edges = np.linspace(0, frames.max(), points + 1)
    stretch = np.clip(np.digitize(frames, edges, right=True) - 1, 0, points - 1)
    present = np.unique(stretch)
    parts = [scores[stretch == index] for index in present]
    mean, low, high = (np.array([reduce(part) for part in parts]) for reduce in (np.mean, np.min, np.max))
    return (edges[present] + edges[present + 1]) / 2, mean, low, high


def game_details(summary: Summary, game: str) -> Plot:
    """The paper's three panels of a game, a row for each agent."""
    agents = [agent for agent in summary.agents if (agent, game) in summary.cells]
    figure, rows = panels(len(agents), 3, cell=(2.45, 1.25), margins=(0.6, 0.1, 0.55, 0.55), gap=0.5)
    for agent, (left, middle, right) in zip(agents, rows, strict=True):
        trials = summary.cells[agent, game]
        seeds = [str(trial.seed) for trial in trials]
        _third_bars(left, np.array([statistics.third_means(trial.scores) for trial in trials]), seeds)
        _third_bars(middle, summary.thirds[agent, game], seeds)
        _trial_bars(right, summary.final[agent, game], seeds)
        for axes in (left, middle, right):
            _floor_line(axes, summary, game)
            axes.grid(axis="x", visible=False)
        left.set_ylabel("score")
        left.set_title(agent)
    titles = (
        "(i) each third",
        f"(ii) last {statistics.num_third_episodes(game)} of each third",
        f"(iii) last {num_scored_episodes(game)} of the trial",
    )
    for axes, title in zip(rows[0], titles, strict=True):
        axes.set_title(title, loc="right", fontweight="normal", color=MUTED)
    for axes in rows[-1]:
        axes.set_xlabel("trial (seed)")
    legend(figure, [patch_handle(f"{name} third", index) for index, name in enumerate(("first", "second", "last"))], columns=3)
    sentence = (
        f"{game_title(game)}, per trial: (i) the mean of all episodes of each third, (ii) the mean of the last episodes of "
        "each third, (iii) the mean of the trial's last episodes. The dotted line is the floor."
    )
    return Plot(f"details_{folder_name(game)}", game_title(game), sentence, figure, DETAILS)


def wall_time(summary: Summary) -> Plot | None:
    """Hours or minutes a trial took, by agent."""
    seconds = {
        agent: [trial.wall_seconds for trial in summary.runs.trials if trial.agent == agent and trial.wall_seconds is not None]
        for agent in summary.agents
    }
    seconds = {agent: values for agent, values in seconds.items() if values}
    if not seconds:
        return None
    unit, length = ("hours", 3600) if max(map(max, seconds.values())) >= 2 * 3600 else ("minutes", 60)
    times = {agent: np.array(values) / length for agent, values in seconds.items()}
    figure, [[axes]] = panels(1, 1, cell=(4.6, 0.34 * len(times) + 0.15), margins=(1.5, 0.3, 0.45, 0.1))
    for row, (agent, values) in enumerate(reversed(times.items())):
        index = summary.agents.index(agent)
        axes.barh(row, np.mean(values), height=0.6, color=COLOURS[index % 8], hatch=HATCHES[index % 8], edgecolor=PAPER)
        axes.plot(values, np.full(len(values), row), "|", color=INK, markersize=7, alpha=0.6)
    axes.set_yticks(range(len(times)), list(reversed(times)))
    axes.set_xlim(left=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{unit} a trial")
    sentence = "Wall time from the first to the last step of a trial: the bar is the mean, each stroke a trial."
    return Plot("wall_time", "Wall time", sentence, figure, "cost")


def iterations_per_trial(summary: Summary) -> Plot:
    """Agent steps of every trial, a panel for each agent."""
    figure, [cells] = panels(
        1, len(summary.agents), cell=(2.0, 0.2 * len(summary.games) + 0.2), margins=(1.05, 0.15, 0.45, 0.3)
    )
    for index, (axes, agent) in enumerate(zip(cells, summary.agents, strict=True)):
        for row, game in enumerate(reversed(summary.games)):
            steps = [trial.total_steps / 1000 for trial in summary.cells.get((agent, game), [])]
            axes.plot(steps, np.full(len(steps), row), **look(index) | {"linestyle": ""}, alpha=0.7)
        names = [game_title(game) for game in reversed(summary.games)]
        axes.set_yticks(range(len(names)), names if index == 0 else [""] * len(names))
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlim(0, None)
        axes.set_title(agent)
        axes.set_xlabel("iterations, thousands")
    sentence = "Agent steps (iterations) of every trial until the frame budget was spent and the running episode had ended."
    return Plot("iterations_per_trial", "Iterations per trial", sentence, figure, LEARNING)


def build_learning_figures(summary: Summary) -> list[Plot]:
    """Score against floor, learning curves, the three panels of each game, iterations and wall time."""
    plots = [score_against_floor(summary), learning_curves(summary), iterations_per_trial(summary), wall_time(summary)]
    return [plot for plot in plots if plot is not None] + [game_details(summary, game) for game in summary.games]


def _third_bars(axes: Any, values: Array, names: list[str]) -> None:
    for third in range(3):
        x = np.arange(len(values)) + (third - 1) * 0.27
        axes.bar(x, values[:, third], width=0.25, color=COLOURS[third], hatch=HATCHES[third], edgecolor=PAPER)
    axes.set_xticks(range(len(names)), names)


def _trial_bars(axes: Any, values: Array, names: list[str]) -> None:
    axes.bar(np.arange(len(values)), values, width=0.6, color=COLOURS[2], hatch=HATCHES[2], edgecolor=PAPER)
    axes.set_xticks(range(len(names)), names)


def _floor_line(axes: Any, summary: Summary, game: str) -> None:
    if game in summary.floors.games:
        axes.axhline(summary.floors.value(game), color=INK, linewidth=1, linestyle=":")
