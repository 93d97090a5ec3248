"""What learning costs against the number of trials T: milliseconds of each part of a tick, on this machine's CPU or GPU.

    python benchmarks/learner_benchmark.py --device cuda --trials 1 4 16 40 64 --out learner.json

Frames are random bytes: the arithmetic does not depend on them. Each figure is a median with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from comper.agents.agent import Task, TrialSetup
from comper.agents.comper import ComperAgent
from comper.agents.registry import find_agent
from comper.memory.frames import FrameStore
from comper.memory.transitions import Transition
from comper.protocol import ACTION_NAMES
from comper.training.randomness import streams

NUM_TRANSITIONS = 1_500


def filled(agent_name: str, num_trials: int, device: torch.device) -> Any:
    """An agent whose memories hold some transitions of random frames."""
    rng = np.random.default_rng(0)
    setups = []
    for seed in range(num_trials):
        weights, exploration, sampling, _ = streams(seed)
        setups.append(TrialSetup(FrameStore((84, 84), initial_capacity=8192), weights, exploration, sampling))
    spec = find_agent(agent_name)
    config = spec.config
    task = Task((84, 84), np.dtype(np.uint8), "pixels", ACTION_NAMES)
    agent = spec.agent(config, task, setups, device=device)
    for trial, setup in enumerate(setups):
        ids = [setup.frames.intern(frame) for frame in rng.integers(0, 256, (NUM_TRANSITIONS, 84, 84), dtype=np.uint8)]
        length = config.history_length
        for i in range(NUM_TRANSITIONS - length):
            transition = Transition(tuple(ids[i : i + length]), i % 18, 0.0, tuple(ids[i + 1 : i + 1 + length]), False)
            agent.store(trial, transition, 0.0, is_last=False)
    return agent


def timed(function: Callable[[], Any], device: torch.device, repetitions: int) -> dict[str, float]:
    """Median milliseconds of a call, and the quartiles."""
    times = []
    for _ in range(repetitions + 3):
        began = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    low, median, high = np.percentile(times[3:], [25, 50, 75])
    return {"median": round(float(median), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def parts(agent_name: str, num_trials: int, device: torch.device, repetitions: int) -> dict[str, Any]:
    """The parts of one tick of T trials."""
    agent = filled(agent_name, num_trials, device)
    trials = list(range(num_trials))
    states = np.zeros((num_trials, agent.config.history_length), np.int64)
    epsilon = [0.1] * num_trials
    batch = _batch(agent, trials, 32)
    target = torch.zeros(num_trials, 32, device=device)
    found = {
        "act": timed(lambda: agent.act(states, epsilon, trials), device, repetitions),
        "cnn_update": timed(lambda: agent.q_network.fit(batch, target), device, repetitions),
    }
    if isinstance(agent, ComperAgent):
        found["qlstm_prediction"] = timed(lambda: agent.qlstm.predict(batch), device, repetitions)
        sets = agent._training_sets(agent.tm.take(160, trials))
        ten = timed(lambda: agent.qlstm.fit(sets, trials), device, max(3, repetitions // 5))
        found["qlstm_update"] = {key: round(value / 10, 3) for key, value in ten.items()}  # 160 samples, batches of 16
    found["learn"] = timed(lambda: agent.learn(1_004, trials), device, repetitions)
    return found


def _batch(agent: Any, trials: Sequence[int], count: int) -> Any:
    if isinstance(agent, ComperAgent):
        agent.rtm.absorb(agent.tm.take(count, trials))
        return agent.rtm.sample(count, trials)
    return agent.replay.sample(count, trials)


def main() -> None:
    """Print a line per measurement and write all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--trials", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--agents", nargs="+", default=["comper-single", "dqn", "comper-stacked"])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = torch.device(args.device)
    rows: list[dict[str, Any]] = []
    for agent in args.agents:
        for num_trials in args.trials:
            ms = parts(agent, num_trials, device, args.repetitions)
            rows.append({"agent": agent, "trials": num_trials, "device": args.device, "ms": ms})
            print(agent, num_trials, {name: figures["median"] for name, figures in ms.items()}, flush=True)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
