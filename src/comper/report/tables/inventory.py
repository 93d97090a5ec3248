"""What stands behind the other tables: the floors as they were measured, and every trial that was read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from comper.report import statistics
from comper.report.facts import FLOOR_DECISION_FRAMES, Floor, floor_at, num_scored_episodes
from comper.report.names import game_title
from comper.report.reading import Trial
from comper.report.summary import Summary
from comper.report.tables.table import Cell, Column, Table, cut_cell, number_cell, text_cell


def floors_table(summary: Summary) -> Iterator[Table]:
    """What each game pays without learning, and when that was measured."""
    titles = ["decision every", "random", "random sd", "episodes", "best constant"]
    columns = [Column("game", is_text=True), *map(Column, titles), Column("action", is_text=True)]
    columns += [Column("floor"), Column("measured")]
    rows = [
        _floor_row(game, period, floor)
        for game in summary.games
        for period in sorted({FLOOR_DECISION_FRAMES, *summary.decision_periods([game])})
        if (floor := floor_at(summary.floors, game, period)) is not None
    ]
    sentence = (
        "What needs no learning: a uniformly random policy and each constant action, by frames between decisions. The floor "
        f"is the larger of the two. {'Interim figures: ' if summary.floors.interim else ''}{summary.floors.about}"
    )
    yield Table("floors", "Floors: scores without learning", sentence, columns, rows, "sources")


def trials_table(summary: Summary) -> Iterator[Table]:
    """Every trial that was found intact, also the unfinished ones."""
    titles = ["seed", "episodes", "frames", "steps", "score", "minutes"]
    columns = [Column("agent", is_text=True), Column("game", is_text=True), *map(Column, titles)]
    columns += [Column(title, is_text=True) for title in ("status", "device", "commit")]
    trials = sorted([*summary.runs.trials, *summary.runs.running], key=lambda trial: trial.key)
    sentence = (
        "The score is the mean of the last 10 (or 3) episodes, cut; only finished trials enter any other table or figure."
    )
    rows = [_trial_row(trial) for trial in trials]
    yield Table("trials", "Every trial", sentence, columns, rows, "trials", is_grouped=True)


def _floor_row(game: str, period: int, floor: Floor) -> list[Cell]:
    random = [cut_cell(floor.random.mean), number_cell(floor.random.sd), text_cell(floor.random.episodes)]
    constant = [cut_cell(floor.constant), text_cell(floor.best_constant)]
    measured = [cut_cell(floor.value), text_cell(floor.measured)]
    return [text_cell(game_title(game)), text_cell(period), *random, *constant, *measured]


def _trial_row(trial: Trial) -> list[Cell]:
    score = statistics.final_score(trial.scores, num_scored_episodes(trial)) if trial.scores.size else math.nan
    counts = [text_cell(count) for count in (trial.seed, trial.scores.size, trial.total_frames, trial.total_steps)]
    seconds = math.nan if trial.wall_seconds is None else trial.wall_seconds
    status = trial.manifest.source or trial.manifest.status
    device, commit = trial.manifest.device or "", trial.manifest.commit or ""
    numbers = [*counts, cut_cell(score), number_cell(seconds / 60, decimals=1)]
    words = [text_cell(word) for word in (status[:24], device[:24], commit[:10])]
    return [text_cell(trial.agent), text_cell(trial.game), *numbers, *words]
