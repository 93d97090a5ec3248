"""Small runs, one after the other, that choose between variants of the agent `comper`. docs/research.md reads their results.

    python experiments/graph/first_look.py untried --out runs/graph          # one question, a line of CSV for each run
    python experiments/graph/first_look.py --list

A line is written to results/graph/first_look.csv as soon as its run has ended. Runs that have a line already are skipped.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CSV = ROOT / "results" / "graph" / "first_look.csv"
COLUMNS = ("question", "environment", "variant", "seed", "frames", "last_quarter", "whole", "episodes", "cpu_seconds")

OPTIONS: dict[str, Any] = {
    "device": "cpu", "workers": 0, "show_progress": False, "checkpoint_period_steps": 0, "log_period_steps": 500,
}  # fmt: skip
MINATAR: dict[str, Any] = {"observation": "single", "epsilon_decay_frames": 5_000, "train_period_steps": 2}
MINIGRID: dict[str, Any] = {"observation": "single", "epsilon_decay_frames": 4_000, "train_period_steps": 2}
NO_MIRRORS: dict[str, Any] = {"mirror": False, "average_views": False}
PLAIN: dict[str, Any] = {"trust": 1.0, "trust_grows": "never"}
LAMBDA: dict[str, Any] = {"untried": "ignored", "trust": 0.8, "trust_grows": "never"}
GROWING: dict[str, Any] = {**LAMBDA, "trust_grows": "state"}
DDQN: dict[str, Any] = {"agent": "ddqn", "step_size": 0.00025}
DQN: dict[str, Any] = {"agent": "dqn", "epsilon_end": 0.01}

UNTRIED: dict[str, dict[str, Any]] = {
    "max": {**PLAIN, "untried": "max"},
    "λ 0.8": LAMBDA,
    "3 steps": {"targets": "steps"},
    "chosen": {**PLAIN, "untried": "chosen"},
    "max, k 0.25": {**PLAIN, "untried": "max", "prior_visits": 0.25},
    "ignored": {**PLAIN, "untried": "ignored"},
}
QUESTIONS: dict[str, tuple[list[str], int, dict[str, Any], dict[str, dict[str, Any]]]] = {
    "untried": (["minatar:breakout", "minatar:space_invaders"], 15_000, MINATAR, UNTRIED),
    "trust": (
        ["minatar:breakout", "minatar:space_invaders", "minatar:asterix"],
        15_000,
        MINATAR,
        {
            "λ 0.8 growing": GROWING,
            "λ 0.8, acts with the graph": {**LAMBDA, "act_with": "graph"},
            "λ 0.8, by visit": {**LAMBDA, "replay": "visit"},
            "λ 0.8": LAMBDA,
            "3 steps": {"targets": "steps"},
            "λ 0.6": {**LAMBDA, "trust": 0.6},
        },
    ),
    "parts": (
        ["minatar:breakout", "minatar:space_invaders", "minatar:asterix"],
        15_000,
        MINATAR,
        {
            "growing": GROWING,
            "3 steps": {"targets": "steps"},
            "ddqn": DDQN,
            "growing, acts with the graph": {**GROWING, "act_with": "graph"},
            "growing from λ 0.6": {**GROWING, "trust": 0.6},
            "growing from λ 0.6, acts with the graph, bonus 0.01": {
                **GROWING,
                "trust": 0.6,
                "act_with": "graph",
                "count_bonus": 0.01,
            },
            "growing, by visit": {**GROWING, "replay": "visit"},
            "growing, by surprise": {**GROWING, "replay": "surprise"},
            "growing, one action": {**GROWING, "all_tried": False},
            "growing, max": {**GROWING, "untried": "max"},
        },
    ),
    "grid": (
        ["minigrid:DoorKey-5x5-v0", "minigrid:Empty-8x8-v0", "minigrid:FourRooms-v0"],
        15_000,
        MINIGRID,
        {
            "growing": GROWING,
            "growing, acts with the graph": {**GROWING, "act_with": "graph"},
            "growing, bonus 0.05": {**GROWING, "untried": "max", "count_bonus": 0.05},
            "growing, acts with the graph, bonus 0.05, the untried as good as the best": {
                **GROWING,
                "act_with": "graph",
                "count_bonus": 0.05,
            },
            "3 steps": {"targets": "steps"},
            "ddqn": DDQN,
            "dqn": DQN,
        },
    ),
}


def row(folder: Path) -> dict[str, float]:
    """Mean score of the episodes that ended in the last quarter of the frames, and of all."""
    episodes = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    frames = episodes[-1]["total_frames"]
    late = [e["score"] for e in episodes if e["total_frames"] > 0.75 * frames]
    every = [e["score"] for e in episodes]
    return {"last_quarter": sum(late) / len(late), "whole": sum(every) / len(every), "episodes": len(every)}


def done() -> set[tuple[str, ...]]:
    """Runs that have a line already."""
    if not CSV.exists():
        return set()
    with CSV.open(encoding="utf-8") as file:
        return {tuple(line[name] for name in COLUMNS[:5]) for line in csv.DictReader(file)}


def write(values: dict[str, Any]) -> None:
    """Append a line, after the names of the columns where the file is new."""
    CSV.parent.mkdir(parents=True, exist_ok=True)
    is_new = not CSV.exists()
    with CSV.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerow(values)
    print(values, flush=True)


def run(question: str, seeds: list[int], out: Path, *, only: list[str]) -> None:
    """All runs of a question, or those whose environment and variant are both named."""
    import torch

    from comper import train

    torch.set_num_threads(1)
    environments, frames, shared, variants = QUESTIONS[question]
    for seed in seeds:
        for environment in environments:
            for variant, changes in variants.items():
                key = {"question": question, "environment": environment, "variant": variant, "seed": seed, "frames": frames}
                if tuple(map(str, key.values())) in done():
                    continue
                if only and not (variant in only and environment in only):
                    continue
                settings = {**shared, **changes, "frames": frames}
                agent = settings.pop("agent", "comper")
                settings = NO_MIRRORS | settings if agent == "comper" else settings
                began = time.process_time()
                place = out / f"{question}-{variant}".replace(" ", "_").replace(",", "")
                (folder,) = train(environment, agent, seed=seed, out=place, **OPTIONS, **settings)
                write({**key, **row(Path(folder)), "cpu_seconds": round(time.process_time() - began, 1)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], help="which questions, in this order")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/graph"))
    parser.add_argument("--only", nargs="*", default=[], help="environments and variants, both by name")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        for name, (environments, frames, _, variants) in QUESTIONS.items():
            print(f"{name}: {', '.join(environments)}; {frames:,} frames; {', '.join(variants)}")
    for name in given.questions:
        run(name, given.seeds, given.out, only=given.only)
