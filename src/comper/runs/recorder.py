"""Writes one trial's run folder; `comper.runs.folder` describes it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray

import comper
from comper.errors import DamagedFileError, LockedError, ResourceError, UsageError
from comper.protocol import AnyConfig
from comper.runs import folder as runfolder
from comper.runs.folder import EpisodeRecord
from comper.runs.lock import RunLock
from comper.settings import to_toml

VERSIONED_PACKAGES = ("numpy", "torch", "ale-py", "opencv-python-headless", "faiss-cpu", "gymnasium")


class Recorder:
    """The one writer of a run folder: holds its lock, appends to its logs, and seals it when the trial has finished.

    `Recorder.create` begins a run, `Recorder.reopen` goes on with one from a position in its logs.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], lock: RunLock, *, seconds_before: float = 0.0):
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._began = time.monotonic() - seconds_before
        self._logs: dict[str, _Log] = {}

    @classmethod
    def create(cls, path: Path, config: AnyConfig, about: dict[str, Any]) -> Recorder:
        """Begin a run in a folder of its own."""
        text = to_toml(config).encode()
        manifest = {
            "format": runfolder.FORMAT,
            **about,
            "status": runfolder.RUNNING,
            "versions": versions(),
            "commit": _commit(),
            "created": _now(),
            "config_sha256": runfolder.digest(text)["sha256"],
        }
        # The folder gets its name when it is complete: a run that ends here, however, leaves nothing to stumble over.
        unfinished = _create_beside(path)
        record = cls(unfinished, manifest, RunLock(unfinished))
        try:
            record._write(runfolder.CONFIG_FILE, text)
            record._write_manifest()
            record._open_logs({})
            _give_name(unfinished, path)
        except BaseException:
            record.close()
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        record.path = path
        return record

    @classmethod
    def reopen(cls, path: Path, manifest: dict[str, Any], lock: RunLock, saved: dict[str, Any]) -> Recorder:
        """Go on with a run: its logs are cut to where they were when the state was saved."""
        record = cls(path, manifest, lock, seconds_before=float(saved.get("wall_seconds", 0.0)))
        record._write_manifest()
        record._open_logs(saved.get("logs", {}))
        return record

    def episode(self, record: EpisodeRecord) -> None:
        """Append a finished episode."""
        self._append(runfolder.EPISODES_FILE, dataclasses.asdict(record))

    def metrics(self, record: dict[str, Any]) -> None:
        """Append a line of metrics."""
        self._append(runfolder.METRICS_FILE, record)

    def position(self) -> dict[str, Any]:
        """How far the logs are, brought to disk, and the time used: what a checkpoint keeps of this object."""
        with self._telling(self.path):
            logs = {name: log.position() for name, log in self._logs.items()}
        return {"logs": logs, "wall_seconds": round(time.monotonic() - self._began, 3)}

    def finish(self, totals: dict[str, Any], weights: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Seal the folder: weights, totals, wall time and the digest of each file go into the manifest."""
        position = self.position()
        files = {name: runfolder.log_digest(self.path / name) for name in runfolder.LOG_FILES}
        if weights:
            content = safetensors.numpy.save(dict(weights))
            self._write(runfolder.WEIGHTS_FILE, content)
            files[runfolder.WEIGHTS_FILE] = runfolder.digest(content)
        self.manifest |= {
            "status": runfolder.FINISHED,
            "finished": _now(),
            "wall_seconds": position["wall_seconds"],
            **totals,
            "files": files,
        }
        self._write_manifest()
        self.close()

    def close(self) -> None:
        """Let go of the logs and of the lock."""
        for log in self._logs.values():
            log.close()
        self._lock.release()

    def _open_logs(self, positions: dict[str, Any]) -> None:
        with self._telling(self.path):
            for name in runfolder.LOG_FILES:
                self._logs[name] = _Log(self.path / name, int(positions.get(name, {"bytes": 0})["bytes"]))

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with self._telling(self.path / name):
            self._logs[name].append(json.dumps(record, allow_nan=False).encode() + b"\n")

    def _write_manifest(self) -> None:
        self._write(runfolder.MANIFEST_FILE, (json.dumps(runfolder.sealed(self.manifest), indent=2) + "\n").encode())

    def _write(self, name: str, content: bytes) -> None:
        with self._telling(self.path / name):
            runfolder.write_atomically(self.path / name, content)

    @contextmanager
    def _telling(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(
                f"{path}: cannot be written ({error.strerror}). What was saved before is untouched: make room, then"
                f" `comper resume {self.path}`."
            ) from None


class _Log:
    """A file that is only appended to, unbuffered, with the digest of what it holds so far."""

    def __init__(self, path: Path, length: int):
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        content = os.pread(self._descriptor, length, 0) if length else b""
        if len(content) != length:
            raise DamagedFileError(f"{path}: {len(content):,} bytes, but {length:,} were saved.")
        os.ftruncate(self._descriptor, length)
        os.lseek(self._descriptor, length, os.SEEK_SET)
        self._length = length
        self._hash = hashlib.sha256(content)

    def append(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._hash.update(line)
        self._length += len(line)

    def position(self) -> dict[str, Any]:
        os.fsync(self._descriptor)
        return {"bytes": self._length, "sha256": self._hash.hexdigest()}

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def check_logs(path: Path, positions: Mapping[str, Any]) -> None:
    """Whether a run's logs still begin with what they held when a state was saved."""
    for name in runfolder.LOG_FILES:
        expected = positions[name]
        start = runfolder.read_regular_file(path / name, max_bytes=max(0, expected["bytes"]), is_longer_allowed=True)
        actual = runfolder.digest(start)
        if actual != expected:
            raise DamagedFileError(f"{path / name}: its first {expected['bytes']:,} bytes are not those that were saved.")


def check_is_free(path: Path) -> None:
    """Refuse a folder that holds anything already: nothing is ever overwritten."""
    try:
        is_taken = path.exists() and (not path.is_dir() or any(p.name != runfolder.LOCK_FILE for p in path.iterdir()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    if is_taken:
        raise UsageError(f"{path} already holds a run. Choose another --out or --seed, or move it away; nothing was changed.")


def check_for_run(path: Path, config: AnyConfig) -> None:
    """Refuse a folder that is taken; an unfinished run of the same configuration can be resumed, and that is said."""
    try:
        manifest = runfolder.read_manifest(path)
    except DamagedFileError:
        return check_is_free(path)
    same = manifest.get("config_sha256") == runfolder.digest(to_toml(config).encode())["sha256"]
    if same and manifest.get("status") == runfolder.RUNNING:
        raise UsageError(
            f"{path} holds an unfinished run of the same configuration. Continue it with `comper resume {path}`, or choose"
            " another --out; nothing was changed."
        )
    return check_is_free(path)


def _create_beside(path: Path) -> Path:
    """A new folder next to where a run will be."""
    check_is_free(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        unfinished = path.with_name(f"{_unfinished_prefix(path)}{os.getpid()}")
        unfinished.mkdir()
    except OSError as error:
        raise UsageError(f"{path}: cannot be created ({error.strerror}). Choose another --out.") from None
    return unfinished


def _give_name(unfinished: Path, path: Path) -> None:
    try:
        os.rename(unfinished, path)  # fails where a run is: nobody is overwritten
        runfolder.sync_folder(path.parent)
    except OSError:
        check_is_free(path)
        raise


def _remove_abandoned(path: Path) -> None:
    """Delete what processes that ended while creating this run have left."""
    for entry in os.scandir(path.parent):
        if entry.name.startswith(_unfinished_prefix(path)):
            try:
                RunLock(Path(entry.path)).release()
            except LockedError:
                continue
            shutil.rmtree(entry.path, ignore_errors=True)


def _unfinished_prefix(path: Path) -> str:
    return f".{path.name}.unfinished-"


def versions() -> dict[str, str]:
    """The packages that a result may depend on."""
    versions = {"comper": comper.__version__, "python": platform.python_version()}
    for package in VERSIONED_PACKAGES:
        try:
            versions[package.replace("-", "_")] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    """The commit of the source tree this package runs from, None for an installed package."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
