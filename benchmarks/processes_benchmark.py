"""Several trials on a CPU at once, against one: `python benchmarks/processes_benchmark.py --trials 4`.

Both sides are whole commands' work, processes started and folders written; on two idle cores four trials should take at most
2.2 times as long as one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from comper.processes import usable_cores
from comper.training.train import train

GOAL = 2.2


def seconds(agent: str, game: str, *, trials: int, frames: int, processes: int | None) -> float:
    """Wall time of so many trials."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as out:
        train(
            game,
            agent,
            trials=trials,
            frames=frames,
            episode_cap_frames=1_000,
            replay_start_steps=100,
            out=out,
            device="cpu",
            processes=processes,
            checkpoint_period_steps=0,
            show_progress=False,
        )
    return time.perf_counter() - began


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One trial, several trials, one trial, ...: a ratio from each pair of neighbours."""
    common: dict[str, Any] = {"agent": args.agent, "game": args.game, "frames": args.frames}
    pairs = []
    for _ in range(args.repeats):
        one = seconds(trials=1, processes=1, **common)
        many = seconds(trials=args.trials, processes=args.processes, **common)
        pairs.append((one, many))
        print(f"1 trial {one:.1f} s, {args.trials} trials {many:.1f} s: {many / one:.2f}", flush=True)
    return {
        **common,
        "trials": args.trials,
        "cores": usable_cores(),
        "seconds": pairs,
        "ratio": round(statistics.median(many / one for one, many in pairs), 3),
    }


def main() -> None:
    """Print each measurement and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="comper-single")
    parser.add_argument("--game", default="asterix")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result = measure(args)
    print(f"median {result['ratio']:.2f}; goal on two idle cores, 4 trials: {GOAL} or less")
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
