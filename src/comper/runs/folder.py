"""The run folder: one trial's record on disk, `<out>/<agent>/<environment>/seed-<n>/`.

config.toml            every setting, resolved
manifest.json          what was run, with which versions, on which device, and its status; see manifest.py
episodes.jsonl         one line per episode: episode, score, frames, steps, total_frames, truncated
metrics.jsonl          one line every 100 agent steps: epsilon, losses, sizes of the memories, ...
weights.safetensors    the networks' weights, once finished
left-out.json          in an archived run without its weights: their digest; see archive.py
checkpoints/           what `comper resume` continues from; see checkpoints.py
.lock                  held by the process that works on the run
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from comper.errors import UsageError

CONFIG_FILE = "config.toml"
MANIFEST_FILE = "manifest.json"
EPISODES_FILE = "episodes.jsonl"
METRICS_FILE = "metrics.jsonl"
LOG_FILES = (EPISODES_FILE, METRICS_FILE)
WEIGHTS_FILE = "weights.safetensors"
LEFT_OUT_FILE = "left-out.json"
CHECKPOINTS_FOLDER = "checkpoints"
LOCK_FILE = ".lock"

_OWN_NAMES = {MANIFEST_FILE, *LOG_FILES}
_TRIAL_FOLDER = re.compile(r"seed-\d+")


@dataclass(frozen=True)
class EpisodeRecord:
    """One line of episodes.jsonl."""

    episode: int
    """1 for the first episode of the trial."""
    score: float
    """Undiscounted sum of the raw rewards."""
    frames: int
    """Emulator frames of this episode."""
    steps: int
    """Agent steps of this episode."""
    total_frames: int
    """Emulator frames of the trial so far, this episode included."""
    truncated: bool
    """Whether the frame cap ended it, not the game."""


def run_path(out: Path, *, agent: str, game: str, seed: int) -> Path:
    """Where the trial of one seed is kept."""
    return out / folder_name(agent) / folder_name(game) / f"seed-{seed}"


def folder_name(name: str) -> str:
    """The name of an agent or environment as a folder's name: "gym:CartPole-v1" becomes "gym-CartPole-v1"."""
    return re.sub(r"[^A-Za-z0-9._+-]", "-", name)


def is_trial_folder(path: Path) -> bool:
    """Whether a folder is called like a run's."""
    return _TRIAL_FOLDER.fullmatch(path.name) is not None


def has_begun(path: Path) -> bool:
    """Whether a folder holds anything that a run could continue from; one that was emptied does not."""
    return os.path.lexists(path / MANIFEST_FILE) or (path / CHECKPOINTS_FOLDER).is_dir()


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Every folder, among the given ones and below them, that holds a part of a run or is called like one, sorted."""
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder.")
        for parent, children, names in os.walk(folder):
            path = Path(parent)
            is_run = bool(_OWN_NAMES & set(names))
            if is_run or is_trial_folder(path):
                found.setdefault(path.resolve(), path)
            if is_run:
                children.clear()  # what is inside a run belongs to it
            children[:] = [child for child in children if not child.startswith(".")]
    return sorted(found.values())
