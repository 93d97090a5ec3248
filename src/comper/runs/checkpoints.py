"""Checkpoints of one run: `<run>/checkpoints/step-00005000/`, complete or not there at all.

    files -> fsync each -> checkpoint.json with their SHA-256 -> fsync the folder -> rename -> fsync the parent -> prune

A checkpoint gets a name that was never used, so no moment exists at which an older one is gone and the new one not yet there.
Reading goes the other way: the digest first, and only what has the right one is given to a parser.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comper.errors import DamagedFileError, ResourceError
from comper.runs.folder import CHECKPOINTS_FOLDER, LOG_FILES, digest, is_sealed, read_regular_file, sealed, sync_folder

FORMAT = 1
ABOUT_FILE = "checkpoint.json"
TENSORS_FILE = "state.safetensors"
VALUES_FILE = "state.json"
FRAMES_FILE = "frames.zlib"
FILES = (TENSORS_FILE, VALUES_FILE, FRAMES_FILE)
NUM_LATEST = 2
"""How many of the latest are kept, besides those at the thirds of the budget."""

MAX_ABOUT_BYTES = 1 << 20
_NAME = re.compile(r"step-(\d{8,12})(?:-(\d{1,6}))?")
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose description could be read and is whole; its files are checked when they are read."""

    path: Path
    about: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.about["step"])

    @property
    def num_bytes(self) -> int:
        return sum(int(entry["bytes"]) for entry in self.about["files"].values())

    @property
    def logs(self) -> dict[str, Any]:
        """How far each log was, and the digest of what it held."""
        return dict(self.about["logs"])

    def read(self) -> dict[str, bytes]:
        """Every file, each with the digest that was written down."""
        return {name: self._read(name) for name in FILES}

    def _read(self, name: str) -> bytes:
        expected = self.about["files"][name]
        content = read_regular_file(self.path / name, max_bytes=int(expected["bytes"]))
        if digest(content) != expected:
            raise DamagedFileError(f"{self.path / name}: not the file its checkpoint describes.")
        return content


def write(run: Path, *, step: int, files: Mapping[str, bytes], about: Mapping[str, Any]) -> Checkpoint:
    """Write a checkpoint; an error, or the end of the process at any moment, leaves those before it untouched."""
    folder = _own_folder(run)
    try:
        folder.mkdir(exist_ok=True)
        _remove_unfinished(folder)
        path = _free_name(folder, step)
        temporary = folder / f"{_UNFINISHED}{path.name}"
        temporary.mkdir()
        for name, content in files.items():
            _write_file(temporary / name, content)
        described = {"format": FORMAT, "step": step, "files": {k: digest(v) for k, v in files.items()}, **about}
        _write_file(temporary / ABOUT_FILE, json.dumps(sealed(described)).encode())
        sync_folder(temporary)
        os.rename(temporary, path)
        sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            _remove_unfinished(folder)
        size = sum(map(len, files.values()))
        raise ResourceError(
            f"{folder}: a checkpoint of {size:,} bytes cannot be written ({error.strerror}). The checkpoints before it are"
            f" untouched: make room, then `comper resume {run}`."
        ) from None
    return Checkpoint(path, described)


def paths(run: Path) -> list[Path]:
    """Everything that is called like a checkpoint, newest first."""
    try:
        names = [entry.name for entry in os.scandir(_own_folder(run))]
    except OSError:
        return []
    found = [(int(match[1]), int(match[2] or 1), match[0]) for name in names if (match := _NAME.fullmatch(name))]
    return [run / CHECKPOINTS_FOLDER / name for _, _, name in sorted(found, reverse=True)]


def open_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's description, which carries its own digest."""
    content = read_regular_file(path / ABOUT_FILE, max_bytes=MAX_ABOUT_BYTES)
    try:
        about = json.loads(content)
    except (ValueError, RecursionError):
        about = None
    if not (isinstance(about, dict) and is_sealed(about)):
        raise DamagedFileError(f"{path / ABOUT_FILE}: not as it was written.")
    if about.get("format") != FORMAT:
        raise DamagedFileError(f"{path}: a checkpoint of format {about.get('format')!r}; this version reads {FORMAT}.")
    files = about.get("files")
    if not (isinstance(files, dict) and set(files) == set(FILES) and all(_is_digest(entry) for entry in files.values())):
        raise DamagedFileError(f"{path / ABOUT_FILE}: does not describe the files of a checkpoint.")
    logs = about.get("logs")
    are_logs_told = (
        isinstance(logs, dict) and set(logs) == set(LOG_FILES) and all(_is_digest(entry) for entry in logs.values())
    )
    if not (are_logs_told and isinstance(about.get("step"), int) and isinstance(about.get("total_frames"), int)):
        raise DamagedFileError(f"{path / ABOUT_FILE}: does not say how far the run was.")
    return Checkpoint(path, about)


def prune(run: Path, good: Sequence[Checkpoint], *, budget_frames: int, num_latest: int = NUM_LATEST) -> list[Checkpoint]:
    """Delete all but the latest and the thirds of the good ones (oldest first); return those kept."""
    kept = list(good[max(0, len(good) - num_latest) :])
    for third in (1, 2):
        past = [checkpoint for checkpoint in good if 3 * checkpoint.about["total_frames"] >= third * budget_frames]
        kept += past[:1]
    names = {checkpoint.path for checkpoint in kept}
    for path in paths(run):
        if path not in names:
            with contextlib.suppress(OSError):  # what cannot be deleted is in nobody's way
                delete(path)
    return [checkpoint for checkpoint in good if checkpoint.path in names]


def delete(path: Path) -> None:
    """Remove a checkpoint: renamed first, so that half of one never looks like a whole."""
    doomed = path.with_name(f"{_UNFINISHED}{path.name}-deleted")
    os.rename(path, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _own_folder(run: Path) -> Path:
    folder = run / CHECKPOINTS_FOLDER
    if folder.is_symlink():  # pruning would delete what belongs to someone else
        raise DamagedFileError(f"{folder}: a link, not a folder.")
    return folder


def _free_name(folder: Path, step: int) -> Path:
    name, attempt = f"step-{step:08}", 1
    while os.path.lexists(folder / name):
        attempt += 1
        name = f"step-{step:08}-{attempt}"
    return folder / name


def _remove_unfinished(folder: Path) -> None:
    for entry in os.scandir(folder):
        if entry.name.startswith(_UNFINISHED):
            shutil.rmtree(entry.path, ignore_errors=True)


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_digest(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and set(entry) == {"bytes", "sha256"}
