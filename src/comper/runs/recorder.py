"""Writes one trial's run folder; `comper.runs.folder` describes it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comper.errors import DamagedFileError, LockedError, UsageError, explained_os_error, explaining_os_errors
from comper.runs.files import digest, log_digest, open_regular, sync_folder, write_atomically
from comper.runs.folder import (
    CONFIG_FILE,
    EPISODES_FILE,
    LOCK_FILE,
    LOG_FILES,
    MANIFEST_FILE,
    METRICS_FILE,
    WEIGHTS_FILE,
    EpisodeRecord,
)
from comper.runs.lock import RunLock
from comper.runs.manifest import FINISHED, RUNNING, Manifest
from comper.runs.provenance import commit, now, versions
from comper.runs.states import Nested, pack_weights


class Recorder:
    """The one writer of a run folder: holds its lock, appends to its logs, and seals it when the trial has finished.

    `Recorder.create` begins a run, `Recorder.reopen` continues one from a position in its logs as soon as it is told to.
    """

    def __init__(self, path: Path, manifest: Manifest, lock: RunLock, *, seconds_before: float = 0.0):
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._began = time.monotonic() - seconds_before
        self._logs: dict[str, _Log] = {}
        self._is_begun = True
        self._continued_at: Mapping[str, Any] | None = None

    @classmethod
    def create(cls, path: Path, config_text: str, manifest: Manifest) -> Recorder:
        """Begin a run in a folder of its own; status, versions, commit, time and digest are added to the manifest."""
        config = config_text.encode()
        manifest = dataclasses.replace(
            manifest,
            status=RUNNING,
            versions=versions(),
            commit=commit(),
            created=now(),
            config_sha256=digest(config)["sha256"],
        )
        _check_readable(manifest)
        # The folder gets its name when it is complete: a process that is killed before leaves no half-made run.
        unfinished = _create_beside(path)
        record = cls(unfinished, manifest, RunLock(unfinished))
        record._is_begun = False
        try:
            record._write(CONFIG_FILE, config)
            record._write_manifest()
            record._open_logs({})
            _rename_to(unfinished, path)
        except BaseException:
            record.close()
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        record.path, record._is_begun = path, True
        return record

    @classmethod
    def reopen(cls, path: Path, manifest: Manifest, lock: RunLock, saved: Mapping[str, Any]) -> Recorder:
        """Continue a run from what a checkpoint keeps of it, {} from its beginning; nothing is written before `go_on`."""
        record = cls(path, manifest, lock, seconds_before=float(saved.get("wall_seconds", 0.0)))
        record._continued_at = saved.get("logs", {})
        return record

    def go_on(self) -> None:
        """Cut the logs of a continued run to where they were when the checkpoint was written."""
        if self._continued_at is not None:
            self._write_manifest()
            self._open_logs(self._continued_at)

    def episode(self, record: EpisodeRecord) -> None:
        """Append a finished episode."""
        self._append(EPISODES_FILE, dataclasses.asdict(record))

    def metrics(self, record: dict[str, Any]) -> None:
        """Append a line of metrics."""
        self._append(METRICS_FILE, record)

    def position(self) -> dict[str, Any]:
        """How far the logs are, brought to disk, and the time used: what a checkpoint keeps of this object."""
        with self._explaining_write_errors(self.path):
            logs = {name: log.position() for name, log in self._logs.items()}
        return {"logs": logs, "wall_seconds": round(time.monotonic() - self._began, 3)}

    def finish(self, totals: Mapping[str, int], weights: Nested | None = None) -> None:
        """Seal the folder: weights, totals, wall time and the digest of each file go into the manifest."""
        position = self.position()
        files = {name: log_digest(self.path / name) for name in LOG_FILES}
        if weights:
            content = pack_weights(weights)
            self._write(WEIGHTS_FILE, content)
            files[WEIGHTS_FILE] = digest(content)
        self.manifest = dataclasses.replace(
            self.manifest,
            status=FINISHED,
            finished=now(),
            wall_seconds=position["wall_seconds"],
            steps=totals["steps"],
            total_frames=totals["total_frames"],
            episodes=totals["episodes"],
            files=files,
        )
        self._write_manifest()
        self.close()

    def close(self) -> None:
        """Let go of the logs and of the lock."""
        for log in self._logs.values():
            log.close()
        self._lock.release()

    def _open_logs(self, positions: Mapping[str, Any]) -> None:
        with self._explaining_write_errors(self.path):
            for name in LOG_FILES:
                self._logs[name] = _Log(self.path / name, int(positions.get(name, {"bytes": 0})["bytes"]))

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with self._explaining_write_errors(self.path / name):
            self._logs[name].append(json.dumps(record, allow_nan=False).encode() + b"\n")

    def _write_manifest(self) -> None:
        with self._explaining_write_errors(self.path / MANIFEST_FILE):
            self.manifest.write(self.path)

    def _write(self, name: str, content: bytes) -> None:
        with self._explaining_write_errors(self.path / name):
            write_atomically(self.path / name, content)

    @contextmanager
    def _explaining_write_errors(self, path: Path) -> Iterator[None]:
        """Turn the system's error into a sentence that says what to do."""
        try:
            yield
        except OSError as error:
            hint = f"What was saved before is untouched: continue with `comper resume {shlex.quote(str(self.path))}`."
            raise explained_os_error(error, f"{path}: cannot be written", hint=hint if self._is_begun else "") from None


def create_all(paths: Sequence[Path], config_text: str, manifests: Sequence[Manifest]) -> list[Recorder]:
    """Begin the runs of a population; where one cannot be begun, those begun just before it are removed again."""
    records: list[Recorder] = []
    try:
        for path, manifest in zip(paths, manifests, strict=True):
            records.append(Recorder.create(path, config_text, manifest))
    except BaseException:
        for record in records:
            record.close()
            shutil.rmtree(record.path, ignore_errors=True)
        raise
    return records


class _Log:
    """A file that is only appended to, unbuffered, with the digest of what it holds so far."""

    def __init__(self, path: Path, length: int):
        self._descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
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


def check_can_begin(path: Path, config_text: str) -> None:
    """Refuse a folder that is taken; an unfinished run of the same configuration can be resumed, and that is said."""
    try:
        manifest = Manifest.read(path)
    except DamagedFileError:
        return check_is_free(path)
    if manifest.config_sha256 == digest(config_text.encode())["sha256"] and not manifest.is_finished:
        raise UsageError(
            f"{path} holds an unfinished run of the same configuration. Continue it with"
            f" `comper resume {shlex.quote(str(path))}`, or choose another --out; nothing was changed."
        )
    return check_is_free(path)


def check_is_free(path: Path) -> None:
    """Refuse a folder that holds anything but a lock: nothing is ever overwritten."""
    try:
        is_taken = os.path.lexists(path) and (not path.is_dir() or any(p.name != LOCK_FILE for p in path.iterdir()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    if is_taken:
        raise UsageError(
            f"{path} already holds a run. Choose another folder (--out, out=) or seed, or move it away; nothing was changed."
        )


def _check_readable(manifest: Manifest) -> None:
    """Refuse to write what could not be read back, such as an environment's name that is none."""
    try:
        Manifest.from_json(manifest.to_json(), where="This run cannot be recorded")
    except DamagedFileError as error:
        raise UsageError(str(error)) from None


def _create_beside(path: Path) -> Path:
    """A new folder next to where a run will be."""
    check_is_free(path)
    with explaining_os_errors(path, hint="Choose another --out.", is_typed=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        unfinished = path.with_name(f"{_unfinished_prefix(path)}{os.getpid()}")
        unfinished.mkdir()
    return unfinished


def _rename_to(unfinished: Path, path: Path) -> None:
    """Give a complete folder its name; it fails where a run is, so that none is ever overwritten."""
    with explaining_os_errors(path, hint="Choose another --out.", is_typed=True):
        try:
            if os.path.lexists(path):
                _remove_emptied(path)
            os.rename(unfinished, path)
            sync_folder(path.parent)
        except OSError:
            check_is_free(path)
            raise


def _remove_emptied(path: Path) -> None:
    """Remove a folder of which only the lock is left, as `rm -r seed-0/*` leaves it, unless someone works in it."""
    lock = RunLock(path)
    try:
        check_is_free(path)
        (path / LOCK_FILE).unlink()
        path.rmdir()
    finally:
        lock.release()


def _remove_abandoned(path: Path) -> None:
    """Delete what processes that ended while creating this run have left."""
    for entry in os.scandir(path.parent):
        if entry.name.startswith(_unfinished_prefix(path)) and entry.is_dir(follow_symlinks=False):
            try:
                RunLock(Path(entry.path)).release()
            except (LockedError, DamagedFileError):  # someone works in it, or it is not of our making
                continue
            shutil.rmtree(entry.path, ignore_errors=True)


def _unfinished_prefix(path: Path) -> str:
    return f".{path.name}.unfinished-"
