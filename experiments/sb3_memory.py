"""Bytes per transition, speed and score of Stable-Baselines3's DQN with several replay buffers.

pip install "comper[sb3,atari,minigrid]" "sb3-extra-buffers[zstd,isal]"
python experiments/sb3_memory.py --out results/sb3-memory           # about 10 minutes of one core
python experiments/sb3_memory.py --table results/sb3-memory         # the table of docs/integrations.md

Memory: each buffer is filled with the same transitions of random actions, in a process of its own. Counted are the
bytes of the arrays and byte strings that hold the transitions; RssAnon is what the process grew by, so with all
bookkeeping.
Speed: one DQN for each buffer, in turns of a few hundred steps; each turn is divided by that of SB3's own buffer next to
it. Every DQN has its own generators, so where two buffers give the same samples the weights are the same in the end.
All times are those of the processor, in one thread, so that other programs on the machine count little.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import multiprocessing
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage

from comper.integrations.sb3 import CompactReplayBuffer

TASKS = {"pong": "PongNoFrameskip-v4", "freeway": "FreewayNoFrameskip-v4", "minigrid": "MiniGrid-DoorKey-5x5-v0"}
OPTIMIZED = {"optimize_memory_usage": True, "replay_buffer_kwargs": {"handle_timeout_termination": False}}
SB3 = "SB3's own"
BATCH_SIZE = 32


def extra_buffers(**kwargs: Any) -> dict[str, Any]:
    from sb3_extra_buffers.compressed import CompressedReplayBuffer

    settings = {"compression_method": "zstd-3", "dtypes": {"elem_type": np.uint8, "runs_type": np.uint16}, **kwargs}
    return {"replay_buffer_class": CompressedReplayBuffer, "replay_buffer_kwargs": settings}


BUFFERS: dict[str, Callable[[], dict[str, Any]]] = {
    SB3: dict,
    "SB3's own, optimize_memory_usage": lambda: OPTIMIZED,
    "sb3-extra-buffers, zstd-3": extra_buffers,
    "sb3-extra-buffers, igzip1, optimize_memory_usage": lambda: {
        **extra_buffers(compression_method="igzip1", handle_timeout_termination=False),
        "optimize_memory_usage": True,
    },
    "CompactReplayBuffer": lambda: {"replay_buffer_class": CompactReplayBuffer},
    "CompactReplayBuffer, zlib": lambda: {
        "replay_buffer_class": CompactReplayBuffer,
        "replay_buffer_kwargs": {"compression": "zlib"},
    },
}


def make_env(task: str) -> VecEnv:
    """The environment as SB3's users make it: DQN's wrappers and four frames, or MiniGrid's picture."""
    if task == "minigrid":
        from minigrid.wrappers import ImgObsWrapper

        return VecTransposeImage(make_vec_env(TASKS[task], seed=0, wrapper_class=ImgObsWrapper))
    import ale_py

    gymnasium.register_envs(ale_py)
    return VecTransposeImage(VecFrameStack(make_atari_env(TASKS[task], seed=0), 4))


# Memory.


def anonymous_bytes() -> int:
    """RssAnon of this process."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def counted_bytes(buffer: ReplayBuffer) -> int:
    """Bytes of everything that holds transitions."""
    if isinstance(buffer, CompactReplayBuffer):
        return buffer.nbytes
    arrays = [value for value in vars(buffer).values() if isinstance(value, np.ndarray)]
    strings = [item for array in arrays if array.dtype == object for item in array.ravel() if item is not None]
    return sum(array.nbytes for array in arrays) + sum(map(len, strings))


def make_buffer(name: str, env: VecEnv, size: int) -> ReplayBuffer:
    settings = BUFFERS[name]()
    kind, kwargs = settings.get("replay_buffer_class", ReplayBuffer), settings.get("replay_buffer_kwargs", {})
    is_optimized = settings.get("optimize_memory_usage", False)
    buffer: ReplayBuffer = kind(
        size, env.observation_space, env.action_space, "cpu", optimize_memory_usage=is_optimized, **kwargs
    )
    return buffer


def record(task: str, steps: int) -> tuple[VecEnv, list[tuple[Any, ...]]]:
    """Transitions of random actions, as SB3 gives them to a buffer."""
    env, rng, transitions = make_env(task), np.random.default_rng(0), []
    observations = env.reset()
    for _ in range(steps):
        actions = np.array([rng.integers(env.action_space.n)])  # type: ignore[attr-defined]
        after, rewards, dones, infos = env.step(actions)
        last = infos[0]["terminal_observation"][None] if dones[0] else after
        is_cut = [{"TimeLimit.truncated": info.get("TimeLimit.truncated", False)} for info in infos]
        transitions.append((observations, last, actions, rewards, dones, is_cut))
        observations = after
    return env, transitions


def measure_memory(name: str, env: VecEnv, transitions: list[tuple[Any, ...]], answer: Connection) -> None:
    """Fill a buffer; to be run in a process of its own."""
    make_buffer(name, env, 10)  # what is imported or made once is no part of the growth
    before, add_seconds = anonymous_bytes(), []
    buffer = make_buffer(name, env, len(transitions))
    for transition in transitions:
        start = time.process_time()
        buffer.add(*transition)
        add_seconds.append(time.process_time() - start)
    rss, counted = anonymous_bytes() - before, counted_bytes(buffer)
    row = {
        "rss_bytes_per_transition": round(rss / len(transitions)),
        "counted_bytes_per_transition": round(counted / len(transitions)),
        "add_microseconds": round(1e6 * statistics.median(add_seconds), 1),
        "sample_microseconds": round(1e6 * statistics.median(_sample_seconds(buffer)), 1),
    }
    answer.send(row)


def measure_all_memory(task: str, steps: int) -> dict[str, dict[str, float]]:
    """Fill each buffer with the same transitions. A forked process has them already, so that it grows by the buffer alone."""
    env, transitions = record(task, steps)
    rows = {}
    for name in BUFFERS:
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=measure_memory, args=(name, env, transitions, there))
        child.start()
        rows[name] = here.recv()
        child.join()
        print(f"{task}: {name}: {rows[name]}", file=sys.stderr)
    return rows


def _sample_seconds(buffer: ReplayBuffer) -> Iterator[float]:
    for _ in range(300):
        start = time.process_time()
        buffer.sample(BATCH_SIZE)
        yield time.process_time() - start


# Speed and score.


@contextmanager
def own_generators(states: dict[str, Any]) -> Iterator[None]:
    """Go on with the random numbers of one DQN."""
    if states:
        np.random.set_state(states["numpy"])  # noqa: NPY002 - SB3 draws from it
        torch.set_rng_state(states["torch"])
        random.setstate(states["python"])
    yield
    states.update(numpy=np.random.get_state(), torch=torch.get_rng_state(), python=random.getstate())  # noqa: NPY002


def make_model(task: str, name: str, steps: int) -> DQN:
    policy = "MlpPolicy" if task == "minigrid" else "CnnPolicy"
    settings = {"learning_starts": 500, "train_freq": 4, "batch_size": BATCH_SIZE, "buffer_size": steps, "seed": 1}
    return DQN(policy, make_env(task), device="cpu", learning_rate=1e-4, **settings, **BUFFERS[name]())


def measure_training(task: str, steps: int, turn: int) -> dict[str, dict[str, Any]]:
    """Train a DQN with each buffer, in turns."""
    generators: dict[str, dict[str, Any]] = {name: {} for name in BUFFERS}
    models, seconds = {}, {name: [] for name in BUFFERS}
    for name in BUFFERS:
        with own_generators(generators[name]):
            models[name] = make_model(task, name, steps)
    for number in range(steps // turn):
        names = list(BUFFERS)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with own_generators(generators[name]):
                start = time.process_time()
                models[name].learn(turn, reset_num_timesteps=number == 0)
                seconds[name].append(time.process_time() - start)
        print(f"{task}: {(number + 1) * turn} of {steps} steps", file=sys.stderr)
    return {name: _trained(models[name], seconds, name, turn) for name in BUFFERS}


def _trained(model: DQN, seconds: dict[str, list[float]], name: str, turn: int) -> dict[str, Any]:
    learning = slice(-(-model.learning_starts // turn), None)
    ratios = [own / other for own, other in zip(seconds[SB3][learning], seconds[name][learning], strict=True)]
    weights = b"".join(tensor.numpy().tobytes() for tensor in model.policy.state_dict().values())
    scores = [episode["r"] for episode in model.ep_info_buffer or []]
    return {
        "steps_per_second": round(turn / statistics.median(seconds[name][learning]), 1),
        "speed_against_sb3": [round(float(q), 3) for q in np.quantile(ratios, [0.25, 0.5, 0.75])],
        "score": round(float(np.mean(scores)), 3) if scores else None,
        "episodes": len(scores),
        "weights": hashlib.sha256(weights).hexdigest()[:16],
    }


# Files and the table.


def measure(task: str, args: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = measure_all_memory(task, args.steps)
    steps, turn = (6 * args.train_steps, 1000) if task == "minigrid" else (args.train_steps, 250)
    for name, row in measure_training(task, steps, turn).items():
        rows[name] |= row
    packages = ("stable_baselines3", "sb3-extra-buffers", "torch", "numpy", "ale-py", "minigrid", "comper")
    return {
        "task": TASKS[task],
        "memory_steps": args.steps,
        "train_steps": steps,
        "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
        "buffers": rows,
    }


def table(folder: Path) -> str:
    """The measurements in Markdown."""
    lines = []
    for task, env in TASKS.items():
        data = json.loads((folder / f"{task}.json").read_text())
        lines += [f"| {env} | bytes, counted | bytes, RssAnon | add, µs | sample, µs | speed | score |"]
        lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
        for name, row in data["buffers"].items():
            numbers = [f"{row[f'{kind}_bytes_per_transition']:,}" for kind in ("counted", "rss")]
            numbers += [f"{row[f'{kind}_microseconds']:.0f}" for kind in ("add", "sample")]
            score = "-" if row["score"] is None else f"{row['score']:g}"
            lines += [f"| {name} | {' | '.join(numbers)} | {row['speed_against_sb3'][1]:.2f} | {score} |"]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for one JSON file per task")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--steps", type=int, default=8_000, help="transitions in each buffer")
    parser.add_argument("--train-steps", type=int, default=1_000, help="steps of each DQN; six times as many in MiniGrid")
    parser.add_argument("--table", type=Path, metavar="FOLDER", help="print the table of measurements made before")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.table:
        print(table(args.table), end="")
    elif args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        if len(args.tasks) > 1:  # each in a new process: memory that one has freed would hide what the next one takes
            sizes = ["--steps", str(args.steps), "--train-steps", str(args.train_steps), "--out", str(args.out)]
            for task in args.tasks:
                subprocess.run([sys.executable, __file__, *sizes, "--tasks", task], check=True)
            return
        (task,) = args.tasks
        (args.out / f"{task}.json").write_text(json.dumps(measure(task, args), indent=1) + "\n")
    else:
        parser.error("give --out FOLDER or --table FOLDER")


if __name__ == "__main__":
    main()
