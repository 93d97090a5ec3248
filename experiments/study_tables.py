"""What the analyses of both studies share: variants read from their folders, their scores, and tables written as CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comper.errors import ComperError, UsageError
from comper.report import statistics
from comper.report.facts import decision_frames, floor_at, load_floors, num_scored_episodes
from comper.report.figures.drawing import Plot, draw
from comper.report.figures.learning import CURVE_POINTS, learning_curve
from comper.report.findings import ERROR
from comper.report.reading import Array, Trial, read_runs
from comper.report.summary import Summary
from comper.runs.files import write_atomically
from comper.runs.folder import find_runs

Row = dict[str, Any]


def read_variants(root: Path) -> dict[str, Summary]:
    """The runs of each folder in `root`, which is a variant, by the folder's name; one that has not finished is left out."""
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder.")
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and find_runs([folder])]
    found = {folder.name: read_variant(folder) for folder in folders}
    for name in [name for name, summary in found.items() if not summary.runs.trials]:
        print(f"{name}: no run is finished; left out.", file=sys.stderr)
        del found[name]
    if not found:
        raise UsageError(f"{root}: no folder in it holds finished runs. Each variant is a folder of its own.")
    return found


def read_variant(folder: Path) -> Summary:
    """All runs of one agent with one set of settings; damaged ones are refused."""
    runs = read_runs([folder])
    wrong = [finding.text for finding in runs.findings if finding.severity == ERROR]
    wrong += [f"{folder}: runs of {', '.join(runs.agents())}; a variant is one agent."] if len(runs.agents()) > 1 else []
    if wrong:
        raise UsageError(" ".join(wrong))
    return Summary(runs, load_floors(), seed=0)


def by_game(summary: Summary) -> dict[str, list[Trial]]:
    """A variant's trials in each environment."""
    return {game: trials for (_, game), trials in summary.cells.items()}


def floor(summary: Summary, game: str) -> float:
    """The score without learning at the runs' decision period, also where it was measured after them; NaN where nowhere.

    The studies change no setting of an environment, so what was measured later holds for them too.
    """
    found = floor_at(summary.floors, game, decision_frames(by_game(summary)[game][0]))
    return float("nan") if found is None else found.value


def score(trial: Trial) -> float:
    """The score of Table 1's rule."""
    return statistics.final_score(trial.scores, num_scored_episodes(trial))


def curve(trial: Trial) -> tuple[Array, Array]:
    """Frames and mean scores of one trial in equal stretches of its budget; where no episode ended, in between."""
    frames, mean, _, _ = learning_curve([trial])
    budget = float(min(trial.config.get("frames", frames[-1]), trial.total_frames))
    points = (np.arange(CURVE_POINTS) + 0.5) * budget / CURVE_POINTS
    return points, np.interp(points, frames, mean)


def area(trial: Trial) -> float:
    """The area under the learning curve, as a mean score over the budget."""
    return float(curve(trial)[1].mean())


def trial_row(variant: str, summary: Summary, trial: Trial) -> Row:
    """One trial's numbers."""
    without_learning = floor(summary, trial.game)
    hits = _last(trial, "similar_hits")
    return {
        "variant": variant,
        "environment": trial.game,
        "seed": trial.seed,
        "score": score(trial),
        "floor": without_learning,
        "multiple_of_floor": score(trial) / without_learning if without_learning else np.nan,
        "area": area(trial),
        "known_sets": _last(trial, "known_sets"),
        "similar_share": hits / trial.total_steps,
        "bytes_held": _last(trial, "bytes_held"),
        "steps": trial.total_steps,
        "frames": trial.total_frames,
        "wall_seconds": trial.wall_seconds,
    }


def _last(trial: Trial, name: str) -> float:
    column = trial.metric(name)
    return float("nan") if column is None else float(column[-1])


def trial_rows(variants: Mapping[str, Summary]) -> list[Row]:
    """The numbers of every trial."""
    return [
        trial_row(variant, summary, trial)
        for variant, summary in variants.items()
        for trials in by_game(summary).values()
        for trial in trials
    ]


def write_plots(out: Path, plots: Sequence[Plot]) -> None:
    """Each plot as SVG and as PNG."""
    for plot in plots:
        drawn = draw(plot)
        write_atomically(out / f"{plot.name}.svg", drawn.svg)
        write_atomically(out / f"{plot.name}.png", drawn.png)


def exit_code_of(analysis: Callable[[], Iterable[str]]) -> int:
    """Print the lines that an analysis gives, or what is wrong in a sentence."""
    try:
        for line in analysis():
            print(line)
    except ComperError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Rows as CSV, numbers with up to six digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _shown(value) for key, value in row.items()} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())


def _shown(value: Any) -> Any:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return value
