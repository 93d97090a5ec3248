"""What a stored transition costs: fill one memory in this process and say how much the process has grown.

    python benchmarks/memory_side.py KIND FRAMES.npy

The frames lie in a file that is mapped, not read: they do not count as this process's own memory. Every memory is filled to
its capacity with the transitions between consecutive frames.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BATCH_SIZE = 32
BATCHES = 60
Sample = Callable[[], Any]


def own_memory() -> int:
    """Bytes of this process that are no file's (RssAnon of Linux)."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon in /proc/self/status")


def ours(frames: Any, agent: str, compression: str) -> tuple[int, Sample]:
    """COMPER's memories (TM, TMI, RTM) or the replay memory of DQN, with the frame store."""
    from comper.memory import (
        ObservationHistory,
        ReducedTransitionMemory,
        ReplayMemory,
        Transition,
        TransitionMemory,
        make_frame_store,
        make_index,
    )

    history = 1 if agent == "single" else 4
    capacity = len(frames) - 1
    before = own_memory()
    store = make_frame_store(compression, (84, 84), initial_capacity=len(frames) + 8)
    states = ObservationHistory(store, history)
    states.reset(np.asarray(frames[0]))
    add: Callable[[Transition], Any]
    draw: Callable[[np.random.Generator], Any]
    if agent == "single":
        tm = TransitionMemory(store, make_index("exact", store, 0.0), capacity=capacity, history_length=history)
        rtm = ReducedTransitionMemory(tm)
        add = lambda transition: tm.store_transition(transition, 0.0)  # noqa: E731
        draw = lambda rng: tm.gather(rtm.sample(BATCH_SIZE, rng))  # noqa: E731
    else:
        replay = ReplayMemory(store, capacity=capacity, history_length=history)
        add = lambda transition: replay.add(transition, is_last=False)  # noqa: E731
        draw = lambda rng: replay.sample(BATCH_SIZE, rng)  # noqa: E731
    for t in range(capacity):
        s, s_next = states.advance(np.array(frames[t + 1])[None])
        add(Transition(s, t % 18, 0.0, s_next, False))
    if agent == "single":
        rtm.absorb(tm.take(capacity))
    grown = own_memory() - before
    rng = np.random.default_rng(0)

    def sample() -> Any:
        batch = draw(rng)
        return store.gather(np.stack([batch.s, batch.s_next]))

    stored = tm.num_sets if agent == "single" else capacity
    return grown // stored, sample


def sb3(frames: Any, agent: str) -> tuple[int, Sample]:
    """Stable-Baselines3's buffer as its DQN makes it."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    channels = 1 if agent == "single" else 4
    capacity = len(frames) - 1
    before = own_memory()
    space = spaces.Box(0, 255, (channels, 84, 84), np.uint8)
    buffer = ReplayBuffer(capacity, space, spaces.Discrete(18), device="cpu")
    for t in range(capacity):
        window = [max(0, t + k) for k in range(2 - channels, 2)]
        s_next = np.stack([frames[i] for i in window])[None]
        s = np.stack([frames[max(0, i - 1)] for i in window])[None]
        buffer.add(s, s_next, np.array([[t % 18]]), np.zeros(1), np.zeros(1), [{}])
    return (own_memory() - before) // capacity, lambda: buffer.sample(BATCH_SIZE)


def main() -> None:
    kind, path = sys.argv[1:]
    frames = np.load(path, mmap_mode="r")
    library, agent, *compression = kind.split("-")
    num_bytes, sample = ours(frames, agent, compression[0]) if library == "ours" else sb3(frames, agent)
    seconds = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        sample()
        seconds.append(time.perf_counter() - began)
    low, median, high = (1e3 * float(q) for q in np.percentile(seconds, [25, 50, 75]))
    print(json.dumps({"bytes": num_bytes, "batch_ms": [low, median, high]}))


if __name__ == "__main__":
    main()
