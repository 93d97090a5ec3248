"""The tables the field expects today: intervals of each game, aggregates over games, who beats whom."""

from __future__ import annotations

import math
from collections.abc import Iterator

from comper.report import statistics
from comper.report.names import game_title
from comper.report.summary import FLOOR_NORMALISED, HUMAN_NORMALISED, NORMALISATIONS, STATISTICS, Summary
from comper.report.tables.scores import changes_sentence, mark
from comper.report.tables.table import Cell, Column, Table, cut_cell, number_cell, text_cell

SECTION, COMPARE = "aggregate", "compare"


def per_game_table(summary: Summary) -> Iterator[Table]:
    """Each agent on each game with its bootstrap interval."""
    titles = ["trials", "mean", "95 % low", "95 % high", "decision every", "floor", "above floor"]
    titles += [FLOOR_NORMALISED, HUMAN_NORMALISED]
    columns = [Column("game", is_text=True), Column("agent", is_text=True), *map(Column, titles)]
    rows = [
        _per_game_row(summary, agent, game)
        for game in summary.games
        for agent in summary.agents
        if (agent, game) in summary.cells
    ]
    sentence = (
        f"Mean final score with its 95 % percentile bootstrap interval over trials ({statistics.REPLICATES:,} replicates, "
        f"seed {summary.seed}); one trial alone has none. Scores are cut after two decimals. The floor is the score without "
        "learning at the agent's own decision period, in frames; empty where that was not measured. "
        f"{_normalisation_sentence()}{changes_sentence(summary, summary.agents)}"
    )
    yield Table("per_game", "Each game with its interval", sentence, columns, rows, SECTION, is_grouped=True)


def aggregate_table(summary: Summary) -> Iterator[Table]:
    """Interquartile mean, mean and optimality gap over the games that all agents share."""
    parts = ("value", "low", "high")
    columns = [Column("agent", is_text=True), Column("scores", is_text=True), Column("games")]
    columns += [Column(name, parts) for name in STATISTICS]
    rows = [
        [text_cell(agent), text_cell(normalisation), text_cell(len(summary.common_games(normalisation)))]
        + [_interval_cell(summary.aggregates[agent, normalisation, name]) for name in STATISTICS]
        for normalisation in NORMALISATIONS
        if summary.common_games(normalisation)
        for agent in summary.atari_agents
    ]
    sentence = (
        "Over the Atari games that every agent here has played, with 95 % stratified bootstrap intervals (trials are "
        f"resampled within each game). {_normalisation_sentence()} "
        "The optimality gap is what is missing to 1 on average: smaller is better."
        f"{changes_sentence(summary, summary.atari_agents)}"
    )
    yield Table("aggregates", "All games together", sentence, columns, rows, SECTION)


def improvement_table(summary: Summary) -> Iterator[Table]:
    """The probability of improvement for each ordered pair of agents."""
    titles = ["games", "probability", "95 % low", "95 % high"]
    rows = [
        [text_cell(x), text_cell(y), text_cell(len(summary.games_of(x, y))), *_interval_cells(interval)]
        for (x, y), interval in summary.improvements.items()
    ]
    sentence = (
        "The probability that a trial of the first agent scores above a trial of the second on the same game, averaged over "
        "the games both have played; a tie counts half, so 0.5 means no difference."
    )
    columns = [Column("agent", is_text=True), Column("against", is_text=True), *map(Column, titles)]
    yield Table("improvement", "Probability of improvement", sentence, columns, rows, SECTION)


def difference_table(summary: Summary) -> Iterator[Table]:
    """Two agents side by side: their means on each game, and the difference with its interval."""
    if not summary.is_comparison:
        return
    first, second = summary.agents
    columns = [
        Column("game", is_text=True),
        Column(first, mark=mark(summary, first)),
        Column(second, mark=mark(summary, second)),
    ]
    columns += [Column("difference", ("value", "low", "high")), Column("trials"), Column("higher", is_text=True)]
    rows = [_difference_row(summary, game) for game in summary.differences]
    sentence = (
        f"Mean final scores, and {first} minus {second} with its 95 % bootstrap interval over the trials of both "
        f"({statistics.REPLICATES:,} replicates, seed {summary.seed}). The higher one is named where the whole interval is on "
        "its side of 0; one trial each leaves that open. ▾: at or below the floor (the score without learning): a difference "
        f"between two such scores is not one between two agents that learned.{changes_sentence(summary, summary.agents)}"
    )
    yield Table("differences", f"{first} against {second}", sentence, columns, rows, COMPARE)


def _difference_row(summary: Summary, game: str) -> list[Cell]:
    first, second = summary.agents
    means = [cut_cell(summary.final[agent, game].mean(), floor=summary.floor(agent, game)) for agent in (first, second)]
    interval = summary.differences[game]
    trials = " and ".join(str(len(summary.cells[agent, game])) for agent in (first, second))
    higher = first if interval.low > 0 else second if interval.high < 0 else "unclear"
    difference = cut_cell(interval.value, interval.low, interval.high)
    return [text_cell(game_title(game)), *means, difference, text_cell(trials), text_cell(higher)]


def _per_game_row(summary: Summary, agent: str, game: str) -> list[Cell]:
    interval, floor = summary.mean_intervals[agent, game], summary.floor(agent, game)
    scores = [cut_cell(value) for value in (interval.value, interval.low, interval.high)]
    period = text_cell(summary.decision_frames(agent, game))
    above = text_cell("" if math.isnan(floor) else _above(interval, floor))
    scales = [number_cell(float(summary.normalised(agent, game, scale).mean()), decimals=3) for scale in NORMALISATIONS]
    names = [text_cell(game_title(game)), text_cell(agent), text_cell(len(summary.cells[agent, game]))]
    return [*names, *scores, period, cut_cell(floor), above, *scales]


def _above(interval: statistics.Interval, floor: float) -> str:
    """Whether a whole interval lies above the floor; one trial alone leaves that open."""
    if interval.low > floor:
        return "yes"
    return "no" if interval.high <= floor else "unclear"


def _interval_cell(interval: statistics.Interval) -> Cell:
    return number_cell(interval.value, interval.low, interval.high, decimals=3)


def _interval_cells(interval: statistics.Interval) -> list[Cell]:
    return [number_cell(value, decimals=3) for value in (interval.value, interval.low, interval.high)]


def _normalisation_sentence() -> str:
    return " ".join(f"{name.capitalize()}: {meaning}." for name, meaning in NORMALISATIONS.items())
