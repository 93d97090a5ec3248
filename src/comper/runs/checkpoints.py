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
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comper.errors import DamagedFileError, explained_os_error
from comper.runs.files import (
    check_digest,
    digest,
    is_digest,
    is_sealed,
    read_file,
    read_json_object,
    sealed,
    sync_folder,
    write_new_file,
)
from comper.runs.folder import CHECKPOINTS_FOLDER, LOG_FILES
from comper.runs.manifest import FORMAT, READ_FORMATS, is_duration

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
    """A checkpoint whose description was read and is whole; its files are checked when they are read."""

    path: Path
    about: dict[str, Any]

    @property
    def format(self) -> int:
        """The run format it was written with."""
        return int(self.about["format"])

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

    def check(self) -> None:
        """Compare every file with its digest, without holding it in memory."""
        for name in FILES:
            check_digest(self.path / name, self.about["files"][name])

    def _read(self, name: str) -> bytes:
        expected = self.about["files"][name]
        content = read_file(self.path / name, max_bytes=int(expected["bytes"]))
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
            write_new_file(temporary / name, content)
        described = {"format": FORMAT, "step": step, "files": {k: digest(v) for k, v in files.items()}, **about}
        write_new_file(temporary / ABOUT_FILE, json.dumps(sealed(described)).encode())
        sync_folder(temporary)
        os.rename(temporary, path)
        sync_folder(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            _remove_unfinished(folder)
        size = sum(map(len, files.values()))
        hint = f"The checkpoints before it are untouched: continue with `comper resume {shlex.quote(str(run))}`."
        raise explained_os_error(error, f"{folder}: a checkpoint of {size:,} bytes cannot be written", hint=hint) from None
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
    where = path / ABOUT_FILE
    about = read_json_object(where, max_bytes=MAX_ABOUT_BYTES)
    if not is_sealed(about):
        raise DamagedFileError(f"{where}: not as it was written.")
    if about.get("format") not in READ_FORMATS:
        raise DamagedFileError(f"{path}: a checkpoint of format {about.get('format')!r}; this version reads {FORMAT}.")
    if not _are_digests(about.get("files"), FILES):
        raise DamagedFileError(f"{where}: does not describe the files of a checkpoint.")
    counters = [about.get("step"), about.get("total_frames")]
    are_numbers = all(type(number) is int and 0 <= number < 2**63 for number in counters)
    are_numbers = are_numbers and is_duration(about.get("wall_seconds", 0.0))
    if not (_are_digests(about.get("logs"), LOG_FILES) and are_numbers):
        raise DamagedFileError(f"{where}: does not say how far the run was.")
    if not isinstance(about.get("run"), dict):
        raise DamagedFileError(f"{where}: does not hold a copy of its run's manifest.")
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
            with contextlib.suppress(OSError):  # what cannot be deleted does no harm
                delete(path)
    return [checkpoint for checkpoint in good if checkpoint.path in names]


def delete(path: Path) -> None:
    """Remove a checkpoint: renamed first, so that half of one never looks like a whole."""
    doomed = path.with_name(f"{_UNFINISHED}{path.name}-deleted")
    os.rename(path, doomed)
    _remove(doomed)


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
            _remove(Path(entry.path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:  # rmtree would open it, and wait for a pipe's other end
        path.unlink()


def _are_digests(entries: Any, names: Sequence[str]) -> bool:
    return isinstance(entries, dict) and set(entries) == set(names) and all(map(is_digest, entries.values()))
