"""Run a plan of variants on all cores of one machine, one process per trial; then a table.

    python experiments/graph/study.py --out runs/graph-study --variants comper dqn ddqn --processes 16
    python experiments/graph/study.py --out runs/graph-study --table results/graph/study.csv

The plan is a TOML file as `comper study` takes it; this script needs nothing but the training core, and goes on where it was
interrupted: finished trials are skipped, others are begun again. The table has one line per trial: the mean score of the
episodes that ended in each tenth of the frames.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PARTS = 10


class Job(NamedTuple):
    """One trial."""

    variant: str
    agent: str
    environment: str
    seed: int
    settings: dict[str, Any]

    def folder(self, out: Path) -> Path:
        """Where its runs are."""
        return out / self.variant / self.environment.replace(":", "-") / f"seed-{self.seed}"

    def command(self, out: Path) -> list[str]:
        """How it is run."""
        flags = [x for name, value in self.settings.items() for x in (f"--{name.replace('_', '-')}", _text(value))]
        words = ["train", self.environment, "--agent", self.agent, "--seed", str(self.seed), "--out", str(self.folder(out))]
        fixed = ["--device", "cpu", "--workers", "0", "--checkpoint-period-steps", "0"]
        return [sys.executable, "-m", "comper", *words, *fixed, *flags]

    def episodes(self, out: Path) -> Path | None:
        """Its log, if it was finished."""
        for manifest in self.folder(out).rglob("manifest.json"):
            if json.loads(manifest.read_text(encoding="utf-8"))["status"] == "finished":
                return manifest.with_name("episodes.jsonl")
        return None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def jobs(plan: Path, variants: list[str]) -> Iterator[Job]:
    """The trials of a plan, those of one seed after the other, so that an unfinished study has every variant."""
    content = tomllib.loads(plan.read_text(encoding="utf-8"))
    unknown = set(variants) - {variant["name"] for variant in content["variants"]}
    if unknown:
        raise SystemExit(f"no such variant: {', '.join(sorted(unknown))}")
    seeds = content["seeds"]
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        for environment in content["environments"]:
            for variant in content["variants"]:
                if not variants or variant["name"] in variants:
                    settings = {**content["settings"], **variant.get("settings", {})}
                    yield Job(variant["name"], variant.get("agent", content.get("agent")), environment, seed, settings)


def run(job: Job, out: Path) -> str:
    """Run one trial, with one thread; return a line about it."""
    if job.episodes(out) is not None:
        return f"{job.variant} {job.environment} {job.seed}: finished before"
    folder = job.folder(out)
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-begun-{time.time_ns()}"))
    folder.mkdir(parents=True)
    began = time.monotonic()
    with (folder / "output.txt").open("w") as output:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        code = subprocess.run(job.command(out), stdout=output, stderr=subprocess.STDOUT, env=environment, check=False)
    return f"{job.variant} {job.environment} {job.seed}: exit {code.returncode}, {time.monotonic() - began:.0f} s"


def tenths(path: Path) -> list[float | None]:
    """Mean score of the episodes that ended in each tenth of the frames."""
    episodes = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    frames = episodes[-1]["total_frames"]
    sums: list[list[float]] = [[] for _ in range(PARTS)]
    for episode in episodes:
        sums[min(PARTS - 1, episode["total_frames"] * PARTS // frames)].append(episode["score"])
    return [sum(scores) / len(scores) if scores else None for scores in sums]


def table(plan: Path, out: Path, path: Path) -> None:
    """Write a line per finished trial."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "environment", "seed", *(f"tenth_{i + 1}" for i in range(PARTS))])
        for job in jobs(plan, []):
            if (episodes := job.episodes(out)) is not None:
                means = ["" if mean is None else round(mean, 4) for mean in tenths(episodes)]
                writer.writerow([job.variant, job.environment, job.seed, *means])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", type=Path, default=Path(__file__).with_name("study.toml"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", nargs="*", default=[], help="of the plan; none: all")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", type=Path, help="only write this table of what is finished")
    given = parser.parse_args()
    if given.table:
        table(given.plan, given.out, given.table)
        raise SystemExit
    with ThreadPoolExecutor(given.processes) as pool:
        for line in pool.map(lambda job: run(job, given.out), list(jobs(given.plan, given.variants))):
            print(line, flush=True)
