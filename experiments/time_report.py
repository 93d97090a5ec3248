"""Seconds that `comper report` takes for 120 trials (3 agents x 8 games x 5 seeds) of the size of real ones.

python experiments/time_report.py FOLDER    # an empty or new folder for the synthetic runs and their report
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from comper.environments.floors import load_floors
from comper.protocol import FEW_EPISODE_GAMES, PAPER_GAMES
from comper.report.report import report
from comper.runs.files import log_digest
from comper.runs.folder import LOG_FILES, run_path

AGENTS = {"comper-single": 5, "comper-stacked": 20, "dqn": 5}
"""Frames per step."""
BUDGET_FRAMES = 100_000


def write_run(out: Path, agent: str, game: str, seed: int, floor: float) -> None:
    """Write a run folder with random scores near the floor and a line of metrics every 100 steps."""
    rng, skip = np.random.default_rng([seed, *agent.encode(), *game.encode()]), AGENTS[agent]
    longest = 8_000 if game in FEW_EPISODE_GAMES else 1_200
    episodes: list[dict[str, Any]] = []
    frames = 0
    while frames < BUDGET_FRAMES:
        steps = int(rng.integers(longest // 2, longest)) // skip + 1
        frames += steps * skip
        score = float(round(floor * max(0.0, 0.3 + frames / BUDGET_FRAMES * 0.5 + rng.normal(0, 0.2))))
        episode = {"episode": len(episodes) + 1, "score": score, "frames": steps * skip, "steps": steps}
        episodes.append(episode | {"total_frames": frames, "truncated": False})
    ends = [episode["total_frames"] for episode in episodes]
    metrics = [_metrics(agent, step, step * skip, ends) for step in range(100, frames // skip + 1, 100)]
    folder = run_path(out, agent=agent, game=game, seed=seed)
    folder.mkdir(parents=True)
    for name, records in zip(LOG_FILES, (episodes, metrics), strict=True):
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "config.toml").write_text(f"frames = {BUDGET_FRAMES}\n")
    manifest = {
        "format": 1, "agent": agent, "game": game, "seed": seed, "status": "finished", "wall_seconds": 3600.0 + seed,
        "steps": frames // skip, "total_frames": frames, "episodes": len(episodes),
        "files": {name: log_digest(folder / name) for name in LOG_FILES},
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _metrics(agent: str, step: int, frames: int, ends: list[int]) -> dict[str, Any]:
    record: dict[str, Any] = {"steps": step, "total_frames": frames, "episodes": sum(end <= frames for end in ends)}
    if agent != "dqn":
        record |= {"tm_sets": 500 + step % 300, "rtm_sets": step, "similar_hits": step // 10, "mean_set_size": 1 + 1 / step}
    return record


def main() -> None:
    """Write the runs, report them, and print the seconds of the report."""
    folder, floors = Path(sys.argv[1]), load_floors()
    for agent in AGENTS:
        for game in PAPER_GAMES:
            for seed in range(5):
                write_run(folder / "runs", agent, game, seed, floors.value(game))
    start = time.perf_counter()
    result = report([folder / "runs"], folder / "report", progress=False)
    print(f"{result.trials} trials, {len(result.figures)} figures: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
