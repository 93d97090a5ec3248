"""The short table at the end of `comper train`: each trial's score beside its floor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comper.protocol import num_scored_episodes
from comper.report.floors import Floors, load_floors
from comper.runs.folder import EPISODES_FILE, read_json_lines, read_manifest

COLUMNS = ("game", "seed", "episodes", "frames", "steps", "score", "floor", "which is", "run folder")
EXPLANATION = "score: mean of the last episodes, while learning; floor: what needs no learning (docs/protocol.md)."


def scoreboard(folders: Sequence[Path]) -> str:
    """Scores and floors of finished runs as aligned text."""
    floors = load_floors()
    rows = [_row(folder, floors) for folder in folders]
    widths = [max(len(row[i]) for row in [COLUMNS, *rows]) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [COLUMNS, *rows]
    ]
    return "\n".join([*lines, "", EXPLANATION])


def _row(folder: Path, floors: Floors) -> tuple[str, ...]:
    manifest = read_manifest(folder)
    game = manifest["game"]
    scores = [float(record["score"]) for _, record in read_json_lines(folder / EPISODES_FILE)]
    last = scores[-num_scored_episodes(game) :]
    score = f"{np.mean(last):,.1f} (last {len(last)})" if last else "-"
    counts = (f"{manifest.get(key, 0):,}" for key in ("episodes", "total_frames", "steps"))
    return (game, str(manifest["seed"]), *counts, score, *_floor(game, floors), str(folder))


def _floor(game: str, floors: Floors) -> tuple[str, str]:
    floor: Any = floors.games.get(game)
    if floor is None:
        return "-", "not measured: comper floors " + game
    name = f"always {floor.best_constant}" if floor.constant >= floor.random.mean else "random policy"
    return f"{floor.value:,.1f}", name
