"""Cost of the graph: microseconds to add a transition, milliseconds to refresh all values, passes, at several sizes.

    python benchmarks/graph_benchmark.py                 # random play in MinAtar Seaquest and Asterix
    python benchmarks/graph_benchmark.py --sets 5000

The graph is grown by random play until it has so many sets. `cold` starts from the network's values (random numbers here),
`warm` after 500 more steps from the values of the refresh before, as an agent does. `sweeps` is the same without following
chains, for comparison. Times are processor time of one core; passes are at most 1,000, to a tolerance of 0.001.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from comper.environments.families import find_environment
from comper.memory import propagation
from comper.memory.frames import FrameStore, ObservationHistory
from comper.memory.graph import TransitionGraph
from comper.memory.propagation import ValueRule
from comper.memory.transitions import Transition

DISCOUNT = 0.99
RULES = {
    "max": ValueRule(discount=DISCOUNT),
    "ignored": ValueRule(discount=DISCOUNT, untried="ignored"),
    "ignored, λ 0.8": ValueRule(discount=DISCOUNT, untried="ignored", trust=0.8),
}


def transitions(frames: FrameStore, environment: str) -> Iterator[Transition]:
    """Random play, for ever."""
    spec = find_environment(environment)
    env = spec.factory(spec.settings, seed=np.random.SeedSequence(0))()
    history, rng = ObservationHistory(frames, 1), np.random.default_rng(0)
    while True:
        history.reset(env.reset())
        is_last = False
        while not is_last:
            action = int(rng.integers(len(env.info.action_names)))
            step = env.step(action)
            s, s_next = history.advance(step.frames)
            is_last = step.terminated or step.truncated
            yield Transition(s, action, step.reward, s_next, step.terminated)


def timed_refresh(graph: TransitionGraph, rng: np.random.Generator, rule: ValueRule) -> str:
    """One refresh with random values for the new states: milliseconds and passes."""
    nodes = graph.unasked()
    graph.tell(nodes, rng.normal(0, 0.1, (len(nodes), graph.num_actions)).astype(np.float32))
    began = time.process_time()
    travel = graph.refresh(rule, max_passes=1_000)
    return f"{1e3 * (time.process_time() - began):7.1f} ms {travel.num_passes:4} passes"


def forget_values(graph: TransitionGraph) -> None:
    """Start from the network's values at the next refresh."""
    graph._nodes["value"][:] = 0


def grown(graph: TransitionGraph, stream: Iterator[Transition], *, sets: int = 0, steps: int = 0) -> float:
    """Add transitions until there are so many sets, and so many steps more; return microseconds per transition."""
    spent, added = 0.0, 0
    while graph.num_edges < sets or added < steps:
        transition = next(stream)
        began = time.process_time()
        graph.add(transition)
        spent += time.process_time() - began
        added += 1
    return 1e6 * spent / max(added, 1)


def report(environment: str, sizes: list[int]) -> None:
    """Print a row for each size and rule."""
    spec = find_environment(environment)
    info = spec.factory(spec.settings, seed=np.random.SeedSequence(0))().info
    frames = FrameStore(info.observation_shape, info.observation_dtype)
    graph = TransitionGraph(frames, len(info.action_names), capacity=10**9)
    stream, rng = transitions(frames, environment), np.random.default_rng(0)
    for size in sizes:
        micros = grown(graph, stream, sets=size)
        shares = f"{graph.num_nodes:,} states, {graph.num_visits:,} visits, {micros:.1f} µs to add one"
        print(f"\n{environment}, {graph.num_edges:,} sets: {shares}")
        for name, rule in RULES.items():
            forget_values(graph)
            cold = timed_refresh(graph, rng, rule)
            grown(graph, stream, steps=500)
            warm = timed_refresh(graph, rng, rule)
            forget_values(graph)
            print(f"  {name:16} cold {cold}   warm {warm}   sweeps {only_sweeps(graph, rng, rule)}")


def only_sweeps(graph: TransitionGraph, rng: np.random.Generator, rule: ValueRule) -> str:
    """A cold refresh that does not follow chains."""
    follow: Any = propagation._follow_chains
    propagation._follow_chains = lambda terms, values, pair_values: values
    try:
        return timed_refresh(graph, rng, rule)
    finally:
        propagation._follow_chains = follow


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, nargs="+", default=[20_000, 100_000])
    parser.add_argument("--environments", nargs="+", default=["minatar:seaquest", "minatar:asterix"])
    given = parser.parse_args()
    for name in given.environments:
        report(name, given.sets)
