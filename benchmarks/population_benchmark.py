"""What training costs against the number of trials T: agent steps a second of whole populations, emulators and all.

    python benchmarks/population_benchmark.py --trials 1 4 16 40 64 --steps 600 --out population.json

Games are the paper's eight in turn. A row compares T trials in lockstep with one trial alone in the same call: `speedup` says
how many times more steps a second they make together. Speeds are medians over the lines of metrics.jsonl after the first two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from comper.environments.families import find_environment
from comper.protocol import PAPER_GAMES
from comper.runs.files import read_json_lines
from comper.runs.folder import METRICS_FILE
from comper.training.options import RunOptions, resolve_settings
from comper.training.train import start_runs


def measure(agent: str, num_trials: int, *, steps: int, device: str, workers: int | None) -> dict[str, Any]:
    """Train so many trials for so many steps each and read how fast they went."""
    games = [find_environment(game) for game in PAPER_GAMES]
    preset = resolve_settings(agent, games, {}, where="benchmark")
    frames = steps * preset.environment.frame_skip * preset.config.observations_per_step  # type: ignore[attr-defined]
    short = {"frames": frames - 1, "episode_cap_frames": frames}
    settings = resolve_settings(agent, games, short, where="benchmark")
    pairs = [(games[i % len(games)], i // len(games)) for i in range(num_trials)]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        options = RunOptions(device, workers, checkpoint_period_steps=0, show_progress=False)
        folders = start_runs(pairs, settings, out=Path(out), options=options)
        wall = time.perf_counter() - began
        lines = [record for _, record in read_json_lines(folders[0] / METRICS_FILE)]
    rates = [line["steps_per_second"] for line in lines[2:]]
    low, median, high = np.percentile(rates, [25, 50, 75])
    return {
        "agent": agent,
        "trials": num_trials,
        "ticks_per_second": {"median": round(median, 2), "low": round(low, 2), "high": round(high, 2)},
        "wall_seconds": round(wall, 2),
    }


def main() -> None:
    """Print a line per measurement and write all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=["comper-single"])
    parser.add_argument("--trials", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for agent in args.agents:
        alone: float | None = None
        for num_trials in args.trials:
            row = measure(agent, num_trials, steps=args.steps, device=args.device, workers=args.workers)
            together = num_trials * row["ticks_per_second"]["median"]
            alone = alone or together / num_trials
            row["speedup"] = round(together / alone, 2)
            rows.append(row)
            print(json.dumps(row), flush=True)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
