"""The run folder: one trial's record on disk, `<out>/<agent>/<game>/seed-<n>/`.

    config.toml      every hyper-parameter, resolved
    manifest.json    versions, commit, device, seed, ROM checksum, status; once finished also the digest of each log
    episodes.jsonl   one line an episode: episode, score, frames, steps, total_frames, truncated
    metrics.jsonl    one line every 100 agent steps: epsilon, losses, sizes of TM and RTM, ...
    weights.safetensors    the networks' weights, once finished
    checkpoints/     what `comper resume` continues from; see training/checkpoints.py
    .lock            held by the process that works on the run

Training writes it, `results/` reads it; this module is all that the two share.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comper.errors import DamagedFileError, UsageError

FORMAT = 1
CONFIG_FILE = "config.toml"
MANIFEST_FILE = "manifest.json"
EPISODES_FILE = "episodes.jsonl"
METRICS_FILE = "metrics.jsonl"
LOG_FILES = (EPISODES_FILE, METRICS_FILE)
WEIGHTS_FILE = "weights.safetensors"
CHECKPOINTS_FOLDER = "checkpoints"
LOCK_FILE = ".lock"
SEAL = "sha256"
MAX_MANIFEST_BYTES = 1 << 20

RUNNING = "running"
FINISHED = "finished"


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
    return out / agent / game / f"seed-{seed}"


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a log; a last line without its newline was never finished and is dropped."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DamagedFileError(f"{path}, line {number}: not a line of JSON ({error}).") from None
            if not isinstance(record, dict):
                raise DamagedFileError(f"{path}, line {number}: expected a JSON object.")
            yield number, record


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    path = folder / MANIFEST_FILE
    try:
        manifest = json.loads(read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES))
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path}: cannot be read as a manifest ({error}).") from None
    if not isinstance(manifest, dict):
        raise DamagedFileError(f"{path}: expected a JSON object.")
    return manifest


def read_sealed_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder, which must be as it was written; one from elsewhere may be without a seal."""
    manifest = read_manifest(folder)
    if SEAL in manifest and not is_sealed(manifest):
        raise DamagedFileError(f"{folder / MANIFEST_FILE}: not as it was written.")
    return manifest


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The same with a digest of itself, so that no change goes unnoticed."""
    return {**content, SEAL: _seal(content)}


def is_sealed(content: dict[str, Any]) -> bool:
    """Whether the digest is there and right."""
    return SEAL in content and content[SEAL] == _seal(content)


def _seal(content: dict[str, Any]) -> str:
    plain = {key: value for key, value in content.items() if key != SEAL}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Every run folder among the given folders and in those below them, in a fixed order."""
    found = set()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder.")
        for parent, children, names in os.walk(folder):
            if MANIFEST_FILE in names or CHECKPOINTS_FOLDER in children:
                found.add(Path(parent))
                children.clear()  # what is inside a run is the run's own
            children[:] = [child for child in children if not child.startswith(".")]
    return sorted(found)


def read_regular_file(path: Path, *, max_bytes: int, is_longer_allowed: bool = False) -> bytes:
    """The content of an ordinary file: no link is followed, no pipe waited for, no more read than announced."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedFileError(f"{path}: not an ordinary file.")
            if status.st_size > max_bytes and not is_longer_allowed:
                raise DamagedFileError(f"{path}: {status.st_size:,} bytes, expected at most {max_bytes:,}.")
            return file.read(min(max_bytes, status.st_size))
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror}).") from None


def digest(content: bytes) -> dict[str, Any]:
    """Size and SHA-256 of a file's content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def log_digest(path: Path) -> dict[str, Any]:
    """Lines, bytes and SHA-256 of a log, as a finished manifest keeps them under `files`."""
    content = path.read_bytes()
    return {"lines": content.count(b"\n"), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a crash, meets the old content or the new, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a folder's list of names to disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot, and need not
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
