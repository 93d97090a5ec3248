"""How soon all tasks together reach the score at which DQN ends: experiment 16 of docs/research.md.

python experiments/graph/pace.py runs/pace runs/premise --out results/graph/pace

The first folder has runs of the first steps alone, the second those of the study. The scale is the study's: in each task 0 is
the score without learning, and 1 the mean at which the best agent's curve ends. The table also has each task's mean score.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))

from experiments.graph.analyse import DQN, floors_of, mean_curve, together_rows
from experiments.study_tables import Row, by_game, exit_code_of, read_variants, write_csv

from comper.errors import UsageError
from comper.report import statistics
from comper.report.reading import Array, Trial
from comper.report.summary import Summary

STEPS = 20_000
NUM_WINDOWS = 8


def windows(trial: Trial) -> Array:
    """The mean score of the episodes that ended in each window of the first steps; in between where none did."""
    window = (trial.episode_frames - 1) * NUM_WINDOWS // STEPS
    found = [w for w in range(NUM_WINDOWS) if (window == w).any()]
    means: Array = np.interp(np.arange(NUM_WINDOWS), found, [trial.scores[window == w].mean() for w in found])
    return means


def rows(early: Mapping[str, Summary], study: Mapping[str, Summary]) -> Iterator[Row]:
    """The interquartile mean over all trials of all tasks in each window, for the early runs and the study's own."""
    floors = floors_of(study)
    ends = {game: [mean_curve(own[game])[1][-1] for own in map(by_game, study.values()) if game in own] for game in floors}
    best = {game: max(ends[game]) for game in floors if max(ends[game]) > floors[game]}
    for agent, summary in [*early.items(), *study.items()]:
        trials = by_game(summary)
        if missing := [game for game in best if game not in trials]:
            raise UsageError(f"{agent}: no run in {missing[0]}.")
        curves = {game: np.array([windows(trial) for trial in trials[game]]) for game in best}
        for number in range(NUM_WINDOWS):
            scaled = [statistics.normalised(curves[g][:, number], low=floors[g], high=best[g]) for g in best]
            found = statistics.interval(statistics.interquartile_mean, scaled, rng=np.random.default_rng(0))
            end = (number + 1) * STEPS // NUM_WINDOWS
            own = {g: float(curves[g][:, number].mean()) for g in best}
            yield {"agent": agent, "tasks": len(best), "steps, up to": end, **vars(found), **own}


def main() -> Iterator[str]:
    """Write the table, and say when each agent comes to the score at which DQN ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("early", type=Path)
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    study = read_variants(args.study)
    if DQN not in study:
        raise UsageError(f"{args.study}: no runs of {DQN}, whose final score is the goal.")
    goal = [row["mean"] for row in together_rows(study) if row["agent"] == DQN][-1]
    found = list(rows(read_variants(args.early), study))
    write_csv(args.out / "pace.csv", found)
    yield f"{DQN} ends at {goal:.3f}"
    for agent in dict.fromkeys(row["agent"] for row in found):
        reached = [row["steps, up to"] for row in found if row["agent"] == agent and row["value"] >= goal]
        yield f"{agent}: " + (f"reaches it in the window up to {reached[0]:,}" if reached else f"not within {STEPS:,}")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
