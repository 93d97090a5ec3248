"""Writes one trial's run folder; `comper.runfolder` describes it."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import comper
from comper import runfolder
from comper.errors import ResourceError, UsageError
from comper.protocol import AnyConfig
from comper.runfolder import EpisodeRecord
from comper.training.toml import to_toml

VERSIONED_PACKAGES = ("numpy", "torch", "ale-py", "opencv-python-headless", "faiss-cpu", "gymnasium")


class Recorder:
    """The one writer of a run folder: creates it, appends to its logs, and seals it when the trial has finished."""

    def __init__(self, path: Path, config: AnyConfig, about: dict[str, Any]):
        self.path = path
        self._began = time.monotonic()
        self._manifest = {
            "format": runfolder.FORMAT,
            **about,
            "status": runfolder.RUNNING,
            "versions": _versions(),
            "commit": _commit(),
            "created": _now(),
        }
        _create(path)
        self._write(runfolder.CONFIG_FILE, to_toml(config).encode())
        self._write_manifest()
        self._logs: dict[str, BinaryIO] = {name: open(path / name, "ab") for name in runfolder.LOG_FILES}  # noqa: SIM115

    def episode(self, record: EpisodeRecord) -> None:
        """Append a finished episode."""
        self._append(runfolder.EPISODES_FILE, dataclasses.asdict(record))

    def metrics(self, record: dict[str, Any]) -> None:
        """Append a line of metrics."""
        self._append(runfolder.METRICS_FILE, record)

    def finish(self, totals: dict[str, Any]) -> None:
        """Seal the folder: totals, wall time and the digest of each log go into the manifest."""
        self.close()
        self._manifest |= {
            "status": runfolder.FINISHED,
            "finished": _now(),
            "wall_seconds": round(time.monotonic() - self._began, 3),
            **totals,
            "files": {name: runfolder.log_digest(self.path / name) for name in runfolder.LOG_FILES},
        }
        self._write_manifest()

    def close(self) -> None:
        """Bring the logs to disk and let go of them."""
        for log in self._logs.values():
            if not log.closed:
                log.flush()
                os.fsync(log.fileno())
                log.close()

    def _append(self, name: str, record: dict[str, Any]) -> None:
        try:
            self._logs[name].write(json.dumps(record, allow_nan=False).encode() + b"\n")
            self._logs[name].flush()
        except OSError as error:
            raise ResourceError(f"{self.path / name}: cannot be written ({error.strerror}).") from None

    def _write_manifest(self) -> None:
        self._write(runfolder.MANIFEST_FILE, (json.dumps(self._manifest, indent=2) + "\n").encode())

    def _write(self, name: str, content: bytes) -> None:
        try:
            runfolder.write_atomically(self.path / name, content)
        except OSError as error:
            raise ResourceError(f"{self.path / name}: cannot be written ({error.strerror}).") from None


def check_is_free(path: Path) -> None:
    """Refuse a folder that holds anything already: nothing is ever overwritten."""
    try:
        is_taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None
    if is_taken:
        raise UsageError(f"{path} already holds a run. Choose another --out or --seed, or move it away; nothing was changed.")


def _create(path: Path) -> None:
    check_is_free(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be created ({error.strerror}). Choose another --out.") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path}: cannot be written to. Choose another --out.")


def _versions() -> dict[str, str]:
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
