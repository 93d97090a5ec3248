"""Learning: score over frames in every environment, score against floor, and every episode of a single run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.report.facts import floor_at, num_scored_episodes
from comper.report.figures.drawing import (
    COLOURS,
    INK,
    MUTED,
    Plot,
    colour,
    handle,
    label_outer,
    legend,
    line_handle,
    look,
    panels,
    titled_panels,
)
from comper.report.names import ATARI, FAMILIES, asterisk_sentence, file_name, game_title
from comper.report.published import reference
from comper.report.reading import Array, Trial
from comper.report.summary import Summary
from comper.report.tables.scores import changes_sentence, mark

LEARNING = "learning"
CURVE_POINTS = 20
EPISODES_PER_POINT = 2
"""Of each trial, on average, at least."""
CURVE_COLUMNS = 3
FLOOR_LINES = (":", (0, (4, 2)), (0, (1, 2, 4, 2)))
"""How the floors of different decision periods are drawn, the shortest period first."""


def learning_curves(summary: Summary) -> Iterator[Plot]:
    """Score over frames, a panel for each environment, one figure per family."""
    for name, games in summary.families.items():
        agents = [agent for agent in summary.agents if any((agent, game) in summary.cells for game in games)]
        handles = [line_handle(agent + mark(summary, agent), summary.agents.index(agent)) for agent in agents]
        handles += _floor_handles(summary, games)
        figure, cells = titled_panels(list(map(game_title, games)), handles, columns=CURVE_COLUMNS, height=1.7)
        for axes, game in zip(cells, games, strict=True):
            for agent in agents:
                _draw_curve(axes, summary, agent, game)
            draw_floors(axes, summary, game)
            axes.set_xlim(left=0)
        label_outer(cells, "frames, thousands", "score", columns=CURVE_COLUMNS)
        sentence = (
            f"Mean over trials of each one's mean score of the episodes that ended in a {CURVE_POINTS}th of the training; "
            f"where episodes are few, in a longer part, with at least {EPISODES_PER_POINT} episodes of each trial on average. "
            "Episodes that ended after the budget was spent count in the last. The band spans the lowest and the highest "
            "trial; the level line is the score without learning."
            f"{asterisk_sentence(games)}{changes_sentence(summary, agents)}"
        )
        is_atari = name == ATARI
        file, section = ("learning_curves", LEARNING) if is_atari else (file_name("learning_curves", name), f"family-{name}")
        title = "Learning curves" if is_atari else f"Learning curves: {FAMILIES[name]}"
        yield Plot(file, title, sentence, figure, section)


def _draw_curve(axes: Any, summary: Summary, agent: str, game: str) -> None:
    trials, index = summary.cells.get((agent, game)), summary.agents.index(agent)
    if trials:
        frames, mean, low, high = learning_curve(trials)
        axes.fill_between(frames / 1000, low, high, color=colour(index), alpha=0.13, linewidth=0)
        axes.plot(frames / 1000, mean, **look(index), markevery=4)


def learning_curve(trials: list[Trial], points: int = CURVE_POINTS) -> tuple[Array, Array, Array, Array]:
    """Frames, and mean, minimum and maximum over trials of each one's mean score, in equal stretches of the budget.

    A trial counts once, however many episodes it has: where good policies have short episodes, the few trials that learn have
    most of them. A trial without an episode in a stretch counts with what lies between its neighbours; stretches without any
    are left out. Where episodes are few there are fewer stretches, so that a point is the mean of several. Those that end
    after the budget is spent count in the last stretch: alone they would make a spike.
    """
    fewest = min(trial.scores.size for trial in trials)
    points = min(points, max(1, fewest // EPISODES_PER_POINT))
    edges = np.linspace(0, min(_budget(trials), max(trial.episode_frames.max() for trial in trials)), points + 1)
    parts = [_stretch_means(trial, edges) for trial in trials]
    present = np.unique(np.concatenate([stretches for stretches, _ in parts]))
    means = np.array([np.interp(present, stretches, values) for stretches, values in parts])
    return (edges[present] + edges[present + 1]) / 2, means.mean(axis=0), means.min(axis=0), means.max(axis=0)


def _stretch_means(trial: Trial, edges: Array) -> tuple[NDArray[np.int64], Array]:
    """The stretches in which episodes of a trial ended, and their mean scores there."""
    stretch = np.clip(np.digitize(trial.episode_frames, edges, right=True) - 1, 0, len(edges) - 2)
    present = np.unique(stretch)
    return present, np.array([trial.scores[stretch == index].mean() for index in present])


def _budget(trials: list[Trial]) -> float:
    budgets = [trial.config.get("frames") for trial in trials]
    known = [budget for budget in budgets if isinstance(budget, int) and budget > 0]
    return max(known) if known else math.inf


def draw_floors(axes: Any, summary: Summary, game: str, *, agent: str | None = None) -> None:
    """A line for the score without learning at each decision period of the agents (or of one), where it was measured."""
    periods = summary.decision_periods([game]) if agent is None else [summary.decision_frames(agent, game)]
    for period in periods:
        floor = floor_at(summary.floors, game, period)
        if floor is not None:
            axes.axhline(floor.value, color=INK, linewidth=1, linestyle=_floor_line(summary, period))


def _floor_line(summary: Summary, period: int) -> Any:
    return FLOOR_LINES[summary.decision_periods(summary.games).index(period) % len(FLOOR_LINES)]


def _floor_handles(summary: Summary, games: list[str]) -> list[Any]:
    periods = summary.decision_periods(games)
    label = "without learning" if len(periods) == 1 else "without learning, decision every {} frames"
    return [
        handle(label.format(period), color=INK, linewidth=1, linestyle=_floor_line(summary, period))
        for period in periods
        if any(floor_at(summary.floors, game, period) for game in games)
    ]


def score_against_floor(summary: Summary) -> Iterator[Plot]:
    """Each agent's mean as a multiple of the floor of its game at its own decision period."""
    known = [cell for cell in summary.cells if summary.floor(*cell) > 0]
    games = [game for game in summary.games if any(game == other for _, other in known)]
    agents = [agent for agent in summary.agents if any(agent == other for other, _ in known)]
    if not games:
        return
    height = 0.13 * len(agents) + 0.14
    left = 0.25 + 0.075 * max(len(game_title(game)) for game in games)
    figure, [[axes]] = panels(1, 1, cell=(4.6, len(games) * height), margins=(left, 0.15, 0.45, 0.2))
    for row, game in enumerate(reversed(games)):
        _floor_row(axes, summary, game, [agent for agent in agents if (agent, game) in known], row)
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.set_yticks(range(len(games)), [game_title(game) for game in reversed(games)])
    axes.set_ylim(-0.5, len(games) - 0.5)
    axes.set_xlim(left=-0.03)  # room for a mark at 0
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("score ÷ score without learning")
    handles = [line_handle(agent + mark(summary, agent), summary.agents.index(agent), linestyle="") for agent in agents]
    if _with_bbf(games):
        handles.append(handle("BBF, 20,000 steps", marker="|", markersize=9, color=MUTED, linestyle=""))
    legend(figure, handles)
    yield Plot("score_against_floor", "Score against floor", _floor_sentence(summary, known, games), figure, "glance")


def _with_bbf(games: list[str]) -> list[str]:
    """The games for which BBF's score is published."""
    return [game for game in games if math.isfinite(reference.score(game, "bbf_20k"))]


def _floor_row(axes: Any, summary: Summary, game: str, played: list[str], row: int) -> None:
    if row % 2:
        axes.axhspan(row - 0.5, row + 0.5, color=MUTED, alpha=0.06, linewidth=0)
    bbf = reference.score(game, "bbf_20k") / summary.floors.value(game)
    axes.plot([bbf], [row], marker="|", markersize=9, color=MUTED, linestyle="")
    for position, agent in enumerate(played):
        offset = 0.75 * ((len(played) - 1) / 2 - position) / len(played)
        index, interval, floor = summary.agents.index(agent), summary.mean_intervals[agent, game], summary.floor(agent, game)
        axes.plot([interval.low / floor, interval.high / floor], [row + offset] * 2, color=colour(index), linewidth=1.4)
        axes.plot([interval.value / floor], [row + offset], **look(index) | {"linestyle": ""})


def _floor_sentence(summary: Summary, known: list[tuple[str, str]], games: list[str]) -> str:
    sentence = (
        "Each agent's mean final score with its 95 % interval, as a multiple of the floor: what a random policy or one "
        "constant action scores in the game, whichever is more, deciding as often as the agent does. Left of the line at 1, "
        "nothing better than that was learned."
    )
    if _with_bbf(games):
        sentence += (
            " BBF is a strong agent of 2023 (published scores after 20,000 agent steps, 80,000 frames; against the floor of "
            "the paper's decision period)."
        )
    sentence += asterisk_sentence(games)
    absent = [agent for agent in summary.agents if not any(agent == other for other, _ in known)]
    absent += [
        f"{agent} in {game_title(game)}" for agent, game in summary.cells if agent not in absent and (agent, game) not in known
    ]
    if absent:
        sentence += f" Not shown, as no floor above 0 was measured at its decision period: {', '.join(absent)}."
    return sentence + changes_sentence(summary, sorted({agent for agent, _ in known}))


def every_episode(summary: Summary) -> Iterator[Plot]:
    """Every episode of a single run as a dot, with the moving mean that is its score."""
    (trial,) = summary.runs.trials
    count, floors = num_scored_episodes(trial), _floor_handles(summary, [trial.game])
    handles = [handle("an episode", color=COLOURS[0], marker="o", linestyle="", alpha=0.5)]
    handles.append(handle(f"mean of the last {count}", color=COLOURS[1]))
    figure, [axes] = titled_panels([game_title(trial.game)], [*handles, *floors], height=1.9)
    frames = trial.episode_frames / 1000
    axes.plot(frames, trial.scores, color=COLOURS[0], marker="o", linestyle="", alpha=0.5)
    means = [trial.scores[max(0, end - count) : end].mean() for end in range(1, len(frames) + 1)]
    axes.plot(frames, means, color=COLOURS[1])
    draw_floors(axes, summary, trial.game)
    axes.set_xlim(left=0)
    label_outer([axes], "frames, thousands", "score")
    floor = "" if floors else " No floor has been measured here: what scores without learning is not known."
    sentence = (
        f"The score of every episode at the frame it ended, and the mean of the last {count} episodes: at its right end it "
        f"is the score of the run.{floor}{asterisk_sentence([trial.game])}"
        f"{changes_sentence(summary, summary.agents, with_mark=False)}"
    )
    yield Plot("every_episode", "Every episode", sentence, figure, LEARNING)
