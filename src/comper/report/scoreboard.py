"""The short table at the end of `comper train`: each trial's score beside its floor."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from comper.errors import printable
from comper.report.facts import Floors, all_floors, floor_of, num_scored_episodes
from comper.runs.logs import Array
from comper.runs.reader import RecordedTrial, read_run

COLUMNS: tuple[str, ...] = ("game", "seed", "episodes", "frames", "score", "floor", "run folder")
EXPLANATION = "score: mean of the last episodes, while learning; floor: the score without learning (docs/protocol.md)."


def scoreboard(
    folders: Sequence[Path], measured: Path | None = None, *, study: Path | None = None, width: int | None = None
) -> str:
    """Scores and floors of finished runs as aligned text; `measured` is a file of floors that a user has measured.

    Runs of a study have the variant in the first column: the name of a folder in that of the study. Where the table is wider
    than `width`, the run folders stand below it.
    """
    floors = all_floors(measured)
    rows = [COLUMNS, *(_row(folder, floors) for folder in folders)]
    if study is not None:
        variants = ["variant", *(folder.relative_to(study).parts[0] for folder in folders)]
        rows = [(variant, *row) for variant, row in zip(variants, rows, strict=True)]
    table = aligned(rows)
    if width is not None and max(map(len, table.splitlines())) > width:
        title, *names = (row[-1] for row in rows)
        table = "\n".join([aligned([row[:-1] for row in rows]), "", f"{title}{'s' if len(names) > 1 else ''}:", *names])
    return "\n".join([table, "", *textwrap.wrap(EXPLANATION, width or len(EXPLANATION))])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A table as text: each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)


def _row(folder: Path, floors: Floors) -> tuple[str, ...]:
    trial = read_run(folder)
    last = last_scores(trial)
    score = f"{np.mean(last):,.1f} (last {len(last)})" if last.size else "-"
    counts = (f"{count:,}" for count in (trial.scores.size, trial.total_frames))
    return (trial.game, str(trial.seed), *counts, score, _floor(trial, floors), printable(str(folder)))


def last_scores(trial: RecordedTrial) -> Array:
    """The scores of the last episodes, whose mean is the trial's score."""
    return trial.scores[-num_scored_episodes(trial) :]


def _floor(trial: RecordedTrial, floors: Floors) -> str:
    floor = floor_of(trial, floors)
    if floor is None:
        return "not measured with these settings" if trial.game in floors.environments else "not measured"
    name = f"always {floor.best_constant}" if floor.constant >= floor.random.mean else "random"
    return f"{floor.value:,.1f} ({name})"
