"""The short table at the end of `comper train`: each trial's score beside its floor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from comper.errors import printable
from comper.report.facts import Floors, all_floors, floor_of, num_scored_episodes
from comper.runs.reader import RecordedTrial, read_run

COLUMNS = ("game", "seed", "episodes", "frames", "steps", "score", "floor", "reached by", "run folder")
EXPLANATION = "score: mean of the last episodes, while learning; floor: the score without learning (docs/protocol.md)."


def scoreboard(folders: Sequence[Path], measured: Path | None = None) -> str:
    """Scores and floors of finished runs as aligned text; `measured` is a file of floors that a user has measured."""
    floors = all_floors(measured)
    rows = [_row(folder, floors) for folder in folders]
    widths = [max(len(row[i]) for row in [COLUMNS, *rows]) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [COLUMNS, *rows]
    ]
    return "\n".join([*lines, "", EXPLANATION])


def _row(folder: Path, floors: Floors) -> tuple[str, ...]:
    trial = read_run(folder)
    last = trial.scores[-num_scored_episodes(trial) :]
    score = f"{np.mean(last):,.1f} (last {len(last)})" if last.size else "-"
    counts = (f"{count:,}" for count in (trial.scores.size, trial.total_frames, trial.total_steps))
    return (trial.game, str(trial.seed), *counts, score, *_floor(trial, floors), printable(str(folder)))


def _floor(trial: RecordedTrial, floors: Floors) -> tuple[str, str]:
    floor = floor_of(trial, floors)
    if floor is None:
        return "-", "not measured with these settings"
    name = f"always {floor.best_constant}" if floor.constant >= floor.random.mean else "random policy"
    return f"{floor.value:,.1f}", name
