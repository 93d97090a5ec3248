"""What a run will need of memory and disk, told and checked before its first frame."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comper.errors import ResourceError
from comper.protocol import NUM_ACTIONS, AnyConfig, ComperConfig, DQNConfig, ProtocolConfig
from comper.runs.checkpoints import NUM_LATEST

PROCESS_BYTES = 500_000_000
"""Python, torch and the emulator library, measured at 390 MB, with room for a batch on its way through the networks."""

EMULATOR_BYTES = 4_000_000
COMPRESSED_FRACTION = 0.15
"""Of a frame's bytes, once compressed: measured 0.04 (Asterix, Video Pinball) to 0.08 (Battle Zone), with a margin."""

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


def needs_of(config: AnyConfig, *, trials: int, with_checkpoints: bool = True) -> Needs:
    """An upper estimate from the configuration: no frame ever repeats, every memory is filled as far as it can be."""
    frames = max_frames(config) * config.screen_size**2
    tables, networks, working = _table_bytes(config), _network_bytes(config), _working_bytes(config)
    checkpoint = int(frames * COMPRESSED_FRACTION) + tables + networks
    # While one is written, its bytes exist twice more: packed, and as copies of the tensors.
    saving = int(frames * COMPRESSED_FRACTION) + 2 * checkpoint if with_checkpoints else 0
    held = int(frames * COMPRESSED_FRACTION) if config.frame_compression == "zlib" else frames
    memory = PROCESS_BYTES + trials * (held + tables + networks + working + EMULATOR_BYTES + saving)
    logs = LOG_BYTES_PER_STEP * config.frames + _weight_bytes(config)
    kept = NUM_LATEST + 3 if with_checkpoints else 0  # the latest, two thirds, and the one being written
    return Needs(memory, trials * (kept * checkpoint + logs), trials * checkpoint if with_checkpoints else 0)


def max_frames(config: ProtocolConfig) -> int:
    """Frames a trial may hold at most: all it will see, or all its memory has room for."""
    seen = (config.frames + config.episode_cap_frames) // config.frame_skip + 256
    rows = config.memory_sets if isinstance(config, ComperConfig) else getattr(config, "replay_capacity", 0)
    return min(seen, (rows + 1) * 2 * config.history_length + 256)


def check(config: AnyConfig, *, trials: int, out: Path, with_checkpoints: bool = True) -> Needs:
    """Refuse a run for which memory or disk will not do."""
    needs = needs_of(config, trials=trials, with_checkpoints=with_checkpoints)
    memory, disk = available_memory(), available_disk(out)
    if memory is not None and needs.memory > memory:
        raise ResourceError(
            f"This run needs up to {_size(needs.memory)} of memory, and {_size(memory)} are there."
            " Take fewer --trials or --frames."
        )
    if needs.disk + MARGIN_BYTES > disk:
        raise ResourceError(
            f"This run needs up to {_size(needs.disk)} of disk, and {_size(max(0, disk - MARGIN_BYTES))} are free at {out}."
            " Choose another --out, fewer --trials, or --checkpoint-period-steps 0."
        )
    return needs


def available_memory() -> int | None:
    """Bytes this process may still take: what the machine, its container and its own limit leave; None where unknown."""
    limits = [*_machine_memory(), *_container_memory(), *_own_limit()]
    return min(limits) if limits else None


def available_disk(folder: Path) -> int:
    """Bytes free where a folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


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


def _table_bytes(config: AnyConfig) -> int:
    """Rows of TM with TMI and RTM, or of the replay memory."""
    h = config.history_length
    row = 8 * h + 4 + 4 + 4 + 1
    if isinstance(config, ComperConfig):
        sets = min(config.memory_sets, config.frames // config.frame_skip + config.episode_cap_frames)
        return config.memory_sets * (row + 4 * (config.sequence_length + 1) + 8 * 5 + 1) + sets * (16 * h + 400)
    return config.replay_capacity * row if isinstance(config, DQNConfig) else 0


def _network_bytes(config: AnyConfig) -> int:
    """Weights and the optimisers' averages."""
    counts = _parameter_counts(config)
    if isinstance(config, ComperConfig):
        return 4 * (3 * counts["CNN"] + (3 if config.qlstm_gradient_momentum else 2) * counts["QLSTM"])
    return 4 * 4 * counts["CNN"] if isinstance(config, DQNConfig) else 0


def _working_bytes(config: AnyConfig) -> int:
    """Gradients, and as much again on their way through an optimiser."""
    return 2 * _weight_bytes(config)


def _weight_bytes(config: AnyConfig) -> int:
    return 4 * sum(_parameter_counts(config).values())


def _parameter_counts(config: AnyConfig) -> dict[str, int]:
    shape = (config.screen_size, config.screen_size)
    if isinstance(config, ComperConfig):
        from comper.agents.comper import comper_networks

        networks = comper_networks(config, shape, NUM_ACTIONS)
    elif isinstance(config, DQNConfig):
        from comper.agents.dqn import dqn_networks

        networks = dqn_networks(config, shape, NUM_ACTIONS)
    else:
        networks = {}
    return {name: sum(p.numel() for p in make().parameters()) for name, make in networks.items()}


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.0f} MB"
