"""How long one step of the similarity index takes: look a transition up, then make it a representative.

    python benchmarks/index_benchmark.py [--sizes 1000 10000 100000] [--out index.json]

Every row is one index at one number of representatives: median and 99th percentile of single steps, and the ratio to
faiss IndexFlatL2 in the same process on the same transitions. faiss is measured up to the size that fits --faiss-bytes and
continued from there in proportion to the size (it scans all vectors); such ratios are marked with ~.
Every transition becomes a representative, also those that have a match: harder than in COMPER, where matches join.
Scenes: a game played at random, and the hard case for projections, one frame with a few random pixels changed, at thresholds
that leave most pairs just outside (their distance is 1.25 δ) and all of them far inside.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, SimilarityIndex, TransitionKey, make_index

Pixels = npt.NDArray[np.uint8]
SHAPE = (84, 84)
CHANGED_PIXELS = 5
REPEATS = 3
"""Thirds of the timed steps: the spread of a ratio is that of their medians."""


@dataclass
class Recording:
    """Frames one after the other, with the action and the reward between each two."""

    name: str
    frames: Pixels
    actions: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float64]

    def transitions(self, store: FrameStore, *, history: int) -> list[TransitionKey]:
        ids = [store.intern(frame) for frame in self.frames]
        return [
            TransitionKey(tuple(ids[t : t + history]), int(a), float(r), tuple(ids[t + 1 : t + 1 + history]))
            for t, (a, r) in enumerate(zip(self.actions, self.rewards, strict=True))
            if t + 1 + history <= len(ids)
        ]


@dataclass
class Row:
    """One line of the table; times in milliseconds."""

    scene: str
    num_values: int
    threshold: float
    index: str
    size: int
    median_ms: float
    p99_ms: float
    thirds_ms: list[float]
    match_fraction: float
    bytes_per_transition: float
    faiss_ratio: float = 0.0
    faiss_ratio_range: list[float] = field(default_factory=list)
    is_extrapolated: bool = False


def record_game(game: str, num_frames: int, *, seed: int = 0) -> Recording:
    """Play at random: 5 emulator frames a step, grey, area resize."""
    import ale_py
    import cv2
    from ale_py import roms

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setInt("frame_skip", 5)
    ale.loadROM(roms.get_rom_path(game))
    actions = np.random.default_rng(seed).integers(0, 18, num_frames - 1)
    frames, rewards = np.empty((num_frames, *SHAPE), np.uint8), np.zeros(num_frames - 1)
    legal = ale.getLegalActionSet()
    for t in range(num_frames):
        if t:
            rewards[t - 1] = np.sign(ale.act(legal[actions[t - 1]]))
        if ale.game_over():
            ale.reset_game()
        frames[t] = cv2.resize(ale.getScreenGrayscale(), SHAPE, interpolation=cv2.INTER_AREA)
    return Recording(game, frames, actions, rewards)


def near_duplicates(base: Pixels, num_frames: int, *, seed: int = 0) -> Recording:
    """The base frame with a few pixels changed at random, in every frame others; one action, no reward."""
    rng = np.random.default_rng(seed)
    frames = np.repeat(base[None], num_frames, axis=0)
    flat = frames.reshape(num_frames, -1)
    pixels = rng.integers(0, flat.shape[1], (num_frames, CHANGED_PIXELS))
    flat[np.arange(num_frames)[:, None], pixels] ^= 32
    return Recording("near duplicates", frames, np.zeros(num_frames - 1, np.int64), np.zeros(num_frames - 1))


def near_duplicate_distance(history: int) -> float:
    """The distance of most pairs: each frame differs in 2·CHANGED_PIXELS pixels by 32."""
    return 32 / 255 * float(np.sqrt(2 * CHANGED_PIXELS * 2 * history))


def time_index(
    make: Callable[[FrameStore], SimilarityIndex], recording: Recording, *, history: int, sizes: list[int], num_steps: int
) -> list[tuple[int, npt.NDArray[np.float64], float, float]]:
    """At each size the seconds of single steps, the fraction of them that had a match, and bytes per transition."""
    store = FrameStore(SHAPE)
    keys = recording.transitions(store, history=history)
    index, results, t = make(store), [], 0
    for size in sizes:
        while t < min(size, len(keys)) - num_steps:
            index.update_index(t, keys[t])
            t += 1
        seconds, num_matches = [], 0
        for _ in range(num_steps):
            start = time.perf_counter()
            set_id = index.get_index(keys[t])
            index.update_index(t, keys[t])
            seconds.append(time.perf_counter() - start)
            num_matches += set_id != NO_MATCH
            t += 1
        results.append((size, np.array(seconds), num_matches / num_steps, index.nbytes / len(index)))
    return results


def measure(recording: Recording, *, history: int, thresholds: list[float], args: argparse.Namespace) -> list[Row]:
    num_values = 2 * history * SHAPE[0] * SHAPE[1] + 2
    most_faiss = args.faiss_bytes // (4 * num_values)
    faiss_sizes = sorted({min(size, most_faiss) for size in args.sizes})
    rows = []
    for threshold in thresholds:
        for kind in ("faiss", "l2") if threshold else ("exact",):
            # Thresholds do not change what faiss does: it scans all vectors once.
            if kind == "faiss" and threshold != thresholds[0]:
                continue
            for size, seconds, matches, num_bytes in time_index(
                lambda store, kind=kind, threshold=threshold: make_index(kind, store, threshold),  # type: ignore[misc]
                recording,
                history=history,
                sizes=faiss_sizes if kind == "faiss" else args.sizes,
                num_steps=args.faiss_steps if kind == "faiss" else args.steps,
            ):
                ms = seconds * 1e3
                thirds = [float(np.median(third)) for third in np.array_split(ms, REPEATS)]
                rows.append(
                    Row(recording.name, num_values, threshold, kind, size, float(np.median(ms)), float(np.percentile(ms, 99)),
                        thirds, matches, num_bytes)
                )  # fmt: skip
    add_ratios(rows)
    return rows


def add_ratios(rows: list[Row]) -> None:
    """Ratio of faiss' median to each row's, at the same size or in proportion from the largest size measured."""
    measured = {row.size: row for row in rows if row.index == "faiss"}
    for row in rows:
        nearest = measured[min(measured, key=lambda size: (abs(size - row.size), size))]
        factor = row.size / nearest.size
        row.is_extrapolated = factor != 1
        row.faiss_ratio = factor * nearest.median_ms / row.median_ms
        row.faiss_ratio_range = [
            factor * min(nearest.thirds_ms) / max(row.thirds_ms),
            factor * max(nearest.thirds_ms) / min(row.thirds_ms),
        ]


def print_rows(rows: list[Row]) -> None:
    for row in rows:
        mark = "~" if row.is_extrapolated else " "
        low, high = row.faiss_ratio_range
        print(
            f"{row.scene:16} {row.num_values:6} {row.threshold:6.3f} {row.index:6} {row.size:7}"
            f" {row.median_ms:10.4f} {row.p99_ms:10.4f}"
            f" {mark}{row.faiss_ratio:9.1f} {low:9.1f} {high:9.1f} {row.match_fraction:6.2f} {row.bytes_per_transition:8.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--game", default="asterix")
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.5, 2.0], help="δ > 0 for the game")
    parser.add_argument("--hard", type=float, nargs="+", default=[0.8, 3.0], help="δ of the hard case, in typical distances")
    parser.add_argument("--steps", type=int, default=600, help="timed steps at each size")
    parser.add_argument("--faiss-steps", type=int, default=9)
    parser.add_argument("--faiss-bytes", type=int, default=1_500_000_000, help="the most that faiss' vectors may take")
    parser.add_argument("--out", type=Path, help="write the rows and the machine's load as JSON")
    args = parser.parse_args()
    args.sizes = sorted(args.sizes)

    num_frames = args.sizes[-1] + 8
    load = [os.getloadavg()[0]]
    game = record_game(args.game, num_frames)
    duplicates = near_duplicates(game.frames[1_000 % num_frames], num_frames)
    print(f"{'scene':16} values      δ index     size  median ms     p99 ms   x faster       from        to  match  bytes/τ")
    rows: list[Row] = []
    for history in (1, 4):
        typical = near_duplicate_distance(history)
        for recording, thresholds in (
            (game, [*args.thresholds, 0.0]),
            (duplicates, [factor * typical for factor in args.hard]),
        ):
            new = measure(recording, history=history, thresholds=thresholds, args=args)
            print_rows(new)
            rows += new
    load.append(os.getloadavg()[0])
    print(f"load average before and after: {load[0]:.1f}, {load[1]:.1f} on {os.cpu_count()} CPUs")
    if args.out:
        report: dict[str, Any] = {"load_average": load, "num_cpus": os.cpu_count(), "rows": [asdict(row) for row in rows]}
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
