"""What a run will need of memory and disk, printed and checked before its first frame."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comper.environments.environment import EnvironmentInfo
from comper.errors import ResourceError, UsageError
from comper.runs.checkpoints import NUM_LATEST
from comper.training.options import RunSettings

PROCESS_BYTES = 500_000_000
"""Python, torch and the emulator library, measured at 390 MB, and what is computed beside the batches."""

EMULATOR_BYTES = 4_000_000
COMPRESSED_FRACTION = 0.15
"""Of a frame's bytes, once compressed: measured 0.04 (Asterix, Video Pinball) to 0.08 (Battle Zone), with a margin."""

OPEN_FILES = 40
"""Of the process itself, with a checkpoint being written."""
FILES_PER_TRIAL = 5
"""A lock, two logs, and one or two while a checkpoint is written."""
FILES_PER_WORKER = 3

LOG_BYTES_PER_STEP = 4
MARGIN_BYTES = 50_000_000
"""Left free on a disk."""


@dataclass(frozen=True)
class Needs:
    """Bytes of a whole population."""

    memory: int
    disk: int
    checkpoint: int

    def __str__(self) -> str:
        return (
            f"up to {_size(self.memory)} of memory and {_size(self.disk)} of disk,"
            f" {_size(self.checkpoint)} of it for each checkpoint"
        )


def needs_of(
    settings: RunSettings,
    info: EnvironmentInfo,
    *,
    trials: int,
    at_once: int | None = None,
    processes: int = 1,
    with_checkpoints: bool = True,
) -> Needs:
    """An upper estimate from the settings: no frame ever repeats, every memory is filled as far as it can be."""
    agent, task, config = settings.agent.agent, settings.task(info), settings.config
    estimate = agent.memory_estimate(config, task)
    frames = max_frames(settings, info) * math.prod(info.observation_shape) * info.observation_dtype.itemsize
    compressed = int(frames * COMPRESSED_FRACTION)
    weights = _weight_bytes(settings, info)
    checkpoint = compressed + estimate.table_bytes + estimate.network_bytes
    # While one is written, its bytes exist twice more: packed, and as copies of the tensors.
    saving = compressed + 2 * checkpoint if with_checkpoints else 0
    held = compressed if config.frame_compression == "zlib" else frames
    working = 2 * weights  # gradients, and as much again on their way through an optimiser
    each = held + estimate.table_bytes + estimate.network_bytes + working + EMULATOR_BYTES + saving + estimate.batch_bytes
    logs = LOG_BYTES_PER_STEP * config.frames + weights
    kept = NUM_LATEST + 3 if with_checkpoints else 0  # the latest, two thirds, and the one being written
    return Needs(
        processes * PROCESS_BYTES + (trials if at_once is None else at_once) * each,
        trials * (kept * checkpoint + logs),
        trials * checkpoint if with_checkpoints else 0,
    )


def max_frames(settings: RunSettings, info: EnvironmentInfo) -> int:
    """Frames a trial may hold at most: all it will see, or all its memory has room for."""
    config = settings.config
    per_observation = settings.environment.frames_per_observation
    seen = (config.frames + (info.episode_cap_frames or config.frames)) // per_observation + 256
    num_transitions = settings.agent.agent.memory_estimate(config, settings.task(info)).num_transitions
    return min(seen, (num_transitions + 1) * 2 * config.history_length + 256)


def check(
    settings: RunSettings,
    info: EnvironmentInfo,
    *,
    trials: int,
    out: Path,
    at_once: int | None = None,
    processes: int = 1,
    with_checkpoints: bool = True,
) -> Needs:
    """Refuse a run for which memory or disk will not do."""
    needs = needs_of(settings, info, trials=trials, at_once=at_once, processes=processes, with_checkpoints=with_checkpoints)
    _require_disk(out)
    require_memory("This run", needs.memory, "Take fewer --trials or --frames, or smaller batches or memories.")
    disk = available_disk(out)
    if needs.disk + MARGIN_BYTES > disk:
        raise ResourceError(
            f"This run needs up to {_size(needs.disk)} of disk, and {_size(max(0, disk - MARGIN_BYTES))} are free at {out}."
            " Choose another --out, fewer --trials, or --checkpoint-period-steps 0."
        )
    return needs


def require_memory(what: str, num_bytes: int, remedy: str) -> None:
    """Refuse what needs more memory than is there."""
    memory = available_memory()
    if memory is not None and num_bytes > memory:
        raise ResourceError(
            f"{what} needs up to {_size(num_bytes)} of memory, and {_size(max(0, memory))} are there. {remedy}"
        )


def allow_open_files(num_trials: int, num_workers: int) -> None:
    """Raise this process's limit of open files to what a population needs, or refuse it before anything is written."""
    if sys.platform == "win32":
        return
    import resource

    needed = OPEN_FILES + FILES_PER_TRIAL * num_trials + FILES_PER_WORKER * num_workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ResourceError(
            f"{num_trials:,} trials need up to {needed:,} open files, and {hard:,} are allowed."
            " Take fewer --trials, or ask for a higher limit (`ulimit -n`)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def available_memory() -> int | None:
    """Bytes this process may still take: what the machine, its container and its own limit leave; None where unknown."""
    limits = [*_machine_memory(), *_container_memory(), *_own_limit()]
    return min(limits) if limits else None


def available_disk(folder: Path) -> int:
    """Bytes free where a folder is, or will be."""
    return shutil.disk_usage(_existing(folder)).free


def _require_disk(folder: Path) -> None:
    """Refuse a place like /proc, which has no room at all because it is none."""
    if shutil.disk_usage(_existing(folder)).total == 0:
        raise UsageError(f"{folder}: cannot be written, as no disk is there. Choose another --out.")


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _machine_memory() -> Sequence[int]:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return [int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")]
    except OSError:
        return []


def _container_memory() -> Sequence[int]:
    try:
        limit, used = (Path("/sys/fs/cgroup", name).read_text("ascii") for name in ("memory.max", "memory.current"))
        return [int(limit) - int(used)]
    except (OSError, ValueError):  # ValueError: "max", no limit
        return []


def _own_limit() -> Sequence[int]:
    if sys.platform == "win32":
        return []
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return []
    try:
        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        used = 0
    return [soft - used]


def _weight_bytes(settings: RunSettings, info: EnvironmentInfo) -> int:
    networks = settings.agent.agent.networks(settings.config, settings.task(info))
    if not networks:
        return 0
    from comper.networks.inspection import num_parameters

    return 4 * sum(num_parameters(network) for network in networks.values())


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.0f} MB"
