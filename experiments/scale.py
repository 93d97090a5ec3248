"""What the whole ALE costs, on a laptop, on one GPU and on a hundred nodes that fail: the table of docs/scale.md.

    python experiments/scale.py

Seconds of a trial and of populations are the measured ones of docs/performance.md; the scheduler is simulated: jobs in a
queue, slots on nodes, nodes that fail at random and come back, jobs that go on from their last checkpoint.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

GAMES, SEEDS, AGENTS = 104, 5, 4
NUM_TRIALS = GAMES * SEEDS * AGENTS
TRIAL_SECONDS = 20_000 / 75
"""100,000 frames are 20,000 steps; COMPER makes 75 of them a second with one core (docs/performance.md)."""
GPU_SECONDS = 353 / 120
"""A trial's share of an H200 that runs the paper's 120 trials."""
CHECKPOINT_SECONDS = 120.0
START_SECONDS = 15.0
"""Until a process on another node has begun: Python, torch, the state read."""
DAY = 86_400.0


@dataclass(frozen=True)
class Cluster:
    """Nodes that fail after a random time and come back after a fixed one."""

    nodes: int
    slots: int
    """Trials at a time on one node."""
    mean_seconds_to_failure: float = float("inf")
    repair_seconds: float = 600.0
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    start_seconds: float = START_SECONDS


@dataclass
class Outcome:
    """How a study went."""

    seconds: float = 0.0
    failures: int = 0
    interrupted: int = 0
    """Trials that a failure cut off."""
    lost_seconds: float = 0.0
    """Work done twice, and starts."""
    busy_seconds: float = 0.0


@dataclass
class _Node:
    is_up: bool = True
    running: dict[int, float] = field(default_factory=dict)
    """Job -> when it began here."""


class Simulation:
    """One study on one cluster."""

    def __init__(self, cluster: Cluster, job_seconds: list[float], seed: int) -> None:
        self._cluster, self._rng = cluster, np.random.default_rng(seed)
        self._left = dict(enumerate(job_seconds))
        self._queue = deque(self._left)
        self._nodes = [_Node() for _ in range(cluster.nodes)]
        self._events: list[tuple[float, int, str, int, int]] = []
        self._number = 0
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Let time pass until every job is done."""
        for node in range(len(self._nodes)):
            self._expect_failure(0.0, node)
            self._fill(0.0, node)
        while self._left:
            now, _, kind, node, job = heapq.heappop(self._events)
            getattr(self, f"_{kind}")(now, node, job)
        return self.outcome

    def _at(self, when: float, kind: str, node: int, job: int = -1) -> None:
        self._number += 1  # equal times keep their order
        heapq.heappush(self._events, (when, self._number, kind, node, job))

    def _expect_failure(self, now: float, node: int) -> None:
        if np.isfinite(self._cluster.mean_seconds_to_failure):
            self._at(now + float(self._rng.exponential(self._cluster.mean_seconds_to_failure)), "fail", node)

    def _fill(self, now: float, node: int) -> None:
        """Give a node as many jobs as it has free slots."""
        running = self._nodes[node].running
        while self._queue and len(running) < self._cluster.slots:
            job = self._queue.popleft()
            running[job] = now
            self._at(now + self._cluster.start_seconds + self._left[job], "end", node, job)

    def _end(self, now: float, node: int, job: int) -> None:
        began = self._nodes[node].running.get(job)
        if began is None or abs(now - began - self._cluster.start_seconds - self._left[job]) > 1e-6:
            return  # it was cut off, and has gone on since
        del self._nodes[node].running[job]
        self.outcome.busy_seconds += self._left.pop(job)
        self.outcome.lost_seconds += self._cluster.start_seconds
        self.outcome.seconds = now
        self._fill(now, node)

    def _fail(self, now: float, node: int, _: int) -> None:
        self.outcome.failures += 1
        self._nodes[node].is_up = False
        for job, began in self._nodes[node].running.items():
            worked = max(0.0, now - began - self._cluster.start_seconds)
            saved = worked // self._cluster.checkpoint_seconds * self._cluster.checkpoint_seconds
            self._left[job] -= saved
            self.outcome.busy_seconds += saved
            self.outcome.lost_seconds += now - began - saved
            self.outcome.interrupted += 1
            self._queue.appendleft(job)
        self._nodes[node].running = {}
        self._at(now + self._cluster.repair_seconds, "repair", node)
        for other, state in enumerate(self._nodes):
            if state.is_up:
                self._fill(now, other)

    def _repair(self, now: float, node: int, _: int) -> None:
        self._nodes[node].is_up = True
        self._expect_failure(now, node)
        self._fill(now, node)


def simulate(cluster: Cluster, *, num_jobs: int = NUM_TRIALS, seconds: float = TRIAL_SECONDS, seed: int = 0) -> Outcome:
    """A study whose games differ in speed by a third either way."""
    spread = np.random.default_rng(seed + 1).uniform(2 / 3, 4 / 3, num_jobs)
    return Simulation(cluster, (seconds * spread).tolist(), seed).run()


ROWS = {
    "laptop, 2 cores": Cluster(1, 2),
    "laptop, 8 cores": Cluster(1, 8),
    "100 nodes x 16 cores": Cluster(100, 16),
    "the same, a failure a day and node": Cluster(100, 16, DAY),
    "the same, a failure an hour and node": Cluster(100, 16, DAY / 24),
    "the same, a failure every ten minutes and node": Cluster(100, 16, 600.0),
}


def table() -> list[dict[str, Any]]:
    """Every row of the page."""
    rows = [{"where": name, **asdict(simulate(cluster))} for name, cluster in ROWS.items()]
    gpu = {"where": "one H200, populations", "seconds": NUM_TRIALS * GPU_SECONDS}
    return [*rows, gpu]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table")
    if parser.parse_args().json:
        print(json.dumps(table(), indent=2))
        return
    print(f"{NUM_TRIALS:,} trials of 100,000 frames\n\n| where | hours | failures | trials cut off | lost |")
    print("| --- | --- | --- | --- | --- |")
    for row in table():
        total = row.get("busy_seconds", 0.0) + row.get("lost_seconds", 0.0)
        lost = f"{100 * row['lost_seconds'] / total:.1f} %" if total else ""
        counts = f"{row.get('failures', '')} | {row.get('interrupted', '')}"
        print(f"| {row['where']} | {row['seconds'] / 3600:.2f} | {counts} | {lost} |")


if __name__ == "__main__":
    main()
