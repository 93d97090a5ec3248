"""What made a run: the versions of the packages, and the commit of this one's source."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import comper

PACKAGES = ("numpy", "torch", "ale-py", "opencv-python-headless", "faiss-cpu", "gymnasium")


def versions() -> dict[str, str]:
    """The packages that a result may depend on."""
    versions = {"comper": comper.__version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package.replace("-", "_")] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def commit(source: Path = Path(__file__)) -> str | None:
    """The commit that holds this source file; None for an installed package, whatever repository it may lie in."""
    is_tracked = _git(source.parent, "ls-files", "--error-unmatch", "--", source.name) is not None
    return _git(source.parent, "rev-parse", "--verify", "HEAD") if is_tracked else None


def _git(folder: Path, *words: str) -> str | None:
    """What a git command prints; None where it fails."""
    command = ["git", "-C", str(folder), *words]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # ValueError: a path that is not text
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
