"""Candidates in Atari games compared over the first frames of their runs, also of runs that were stopped (docs/research.md).

python experiments/graph/first_frames.py runs/atari-more runs/atari-parts --frames 62000      # shares, by experiment 6's rule
python experiments/graph/first_frames.py runs/eight --frames 80000 --scores                    # scores as if it ended there

A folder holds one folder for each candidate. Much as `analyse.py` does it for whole runs, here over as much as all have; an
area is taken over windows of its own, so that whole runs come to shares that differ by some hundredths.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[2]))

from experiments.study_tables import Row, exit_code_of, write_csv

from comper.environments.floors import load_floors
from comper.errors import UsageError
from comper.protocol import num_scored_episodes
from comper.report import statistics

Episodes = tuple[NDArray[np.int64], NDArray[np.float64]]
"""When each episode ended, in frames, and its score."""
NUM_WINDOWS = 20
LONGEST_GAP = 0.2
"""Share of the frames that an episode may take that has not ended by then."""


def read(folder: Path, frames: int) -> dict[str, list[Episodes]]:
    """The episodes of each trial in each game that ended within the first frames."""
    found: dict[str, list[Episodes]] = {}
    for path in sorted(folder.rglob("seed-*/episodes.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        ends, scores = (np.array([line[key] for line in lines]) for key in ("total_frames", "score"))
        is_early = ends <= frames
        if not is_early.any():
            raise UsageError(f"{path.parent}: no episode ended within {frames:,} frames.")
        if ends[-1] < (1 - LONGEST_GAP) * frames:
            raise UsageError(f"{path.parent}: its last episode ended after {ends[-1]:,} frames.")
        found.setdefault(path.parts[-3], []).append((ends[is_early], scores[is_early].astype(float)))
    return found


def area(episodes: Episodes, frames: int) -> float:
    """The mean over equal windows of the mean score of the episodes that ended in each; in between where none did."""
    ends, scores = episodes
    window = np.minimum(ends * NUM_WINDOWS // (frames + 1), NUM_WINDOWS - 1)
    means = {w: scores[window == w].mean() for w in np.unique(window)}
    return float(np.interp(np.arange(NUM_WINDOWS), list(means), list(means.values())).mean())


def last(game: str, episodes: Episodes) -> float:
    """The mean of the last episodes, as many as the paper's rule takes."""
    return float(episodes[1][-num_scored_episodes(game) :].mean())


def random_score(game: str) -> float:
    """What the random policy scores with a decision every 5 frames."""
    floor = load_floors().find(game, 5)
    if floor is None:
        raise UsageError(f"{game}: no Atari game whose floor was measured.")
    return floor.random.mean


def share_rows(candidates: dict[str, dict[str, list[Episodes]]], frames: int) -> Iterator[Row]:
    """The rule of experiment 6: each candidate's mean area above the random policy, divided by the best candidate's."""
    gains = {
        name: {game: np.mean([area(e, frames) for e in trials]) - random_score(game) for game, trials in games.items()}
        for name, games in candidates.items()
    }
    if len({frozenset(own) for own in gains.values()}) > 1:
        raise UsageError("The candidates have played different games.")
    best = {game: max(own[game] for own in gains.values()) for game in next(iter(gains.values()))}
    for name, own in gains.items():
        shares = {game: float(own[game] / best[game]) for game in best}
        yield {"variant": name, "share": float(np.mean([*shares.values()])), **shares}


def score_rows(candidates: dict[str, dict[str, list[Episodes]]]) -> Iterator[Row]:
    """Mean and standard deviation of the trials' scores, as if the frames had ended there."""
    for name, games in candidates.items():
        for game, trials in games.items():
            scores = np.array([last(game, episodes) for episodes in trials])
            spread = statistics.sample_deviation(scores)
            yield {"variant": name, "game": game, "trials": len(scores), "score": float(scores.mean()), "sd": spread}


def main() -> Iterator[str]:
    """The rows as lines; with `--out` also as a CSV file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("roots", type=Path, nargs="+", help="folders with one folder for each candidate")
    parser.add_argument("--frames", type=int, required=True, help="how many of the first frames")
    parser.add_argument("--scores", action="store_true", help="scores in place of shares of areas")
    parser.add_argument("--out", type=Path, help="write a CSV file, too")
    args = parser.parse_args()
    if missing := [str(root) for root in args.roots if not root.is_dir()]:
        raise UsageError(f"{missing[0]}: no such folder.")
    folders = [folder for root in args.roots for folder in sorted(root.iterdir()) if folder.is_dir()]
    candidates = {folder.name: found for folder in folders if (found := read(folder, args.frames))}
    if not candidates:
        raise UsageError(f"{args.roots[0]}: no runs in it.")
    rows = list(score_rows(candidates) if args.scores else share_rows(candidates, args.frames))
    if args.out:
        write_csv(args.out, rows)
    for row in rows:
        yield " ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
