"""Loops in C (`native.c`), compiled on this machine at first use and kept in the user's cache folder.

They save time and change nothing else: each gives the same bits as the Python code that calls it, which does the work itself
where there is no compiler (`cc`, or what the variable CC names; an empty CC switches the loops off).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("native.c")
FLAGS = (
    "-std=gnu11", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"
)  # fmt: skip
"""Arithmetic as it is written: no fused, reordered or approximate operation that the source does not ask for."""
COMPILER_SECONDS = 60


class Loops(NamedTuple):
    """The compiled loops, or why there are none."""

    library: ctypes.CDLL | None
    status: str


class NoLoopsError(Exception):
    """Why the loops are not there."""


@cache
def loops() -> Loops:
    """Compile the loops, or take those compiled before."""
    try:
        library, compiler = _load()
    except NoLoopsError as error:
        return Loops(None, f"not compiled: {error}")
    except (
        OSError,
        RuntimeError,
        ValueError,
        subprocess.SubprocessError,
    ) as error:  # a full disk, no home, a hanging compiler
        return Loops(None, f"not compiled: {error}")
    return Loops(library, f"compiled with {compiler}")


@cache
def library() -> ctypes.CDLL | None:
    """The compiled loops; None where there are none."""
    return loops().library


def _load() -> tuple[ctypes.CDLL, str]:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoLoopsError("there is no C compiler")
    if not hasattr(os, "geteuid"):
        raise NoLoopsError("this is no Unix system")
    folder = _private_folder(_cache_home() / "comper")
    file = folder / f"native-{_fingerprint(compiler)}.so"
    if not file.exists():
        _compile(compiler, file)
    _require_private(file)
    try:
        return ctypes.CDLL(str(file)), compiler
    except OSError:  # cut short by a power failure: once more
        _compile(compiler, file)
        return ctypes.CDLL(str(file)), compiler


def _cache_home() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if os.path.isabs(given) else Path.home() / ".cache"


def _fingerprint(compiler: str) -> str:
    """What the compiled file depends on: the source, the flags, the compiler and the processor (homes may be shared)."""
    real = os.path.realpath(compiler)
    found = os.stat(real)
    parts = [SOURCE.read_text(encoding="utf-8"), *FLAGS, real, str(found.st_size), str(found.st_mtime_ns), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _processor() -> str:
    """The processor and its instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.release()}"
    kept = ("model name", "flags", "Features", "CPU implementer", "CPU part")
    return "\n".join([platform.machine(), *(line for line in lines if line.startswith(kept))])


def _private_folder(folder: Path) -> Path:
    """Make a folder that nobody else can write to, on a path that nobody else can change."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in (folder, *folder.resolve().parents):
        _require_private(place)
    return folder


def _require_private(place: Path) -> None:
    """Refuse what someone else owns or may write: a library from there would run with this user's rights."""
    found = place.lstat()
    is_shared = bool(found.st_mode & 0o022) and not found.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(found.st_mode) or found.st_uid not in (os.geteuid(), 0) or is_shared:
        raise NoLoopsError(f"others may write to {place}")


def _compile(compiler: str, file: Path) -> None:
    """Compile beside the file and rename: another process sees nothing, or the whole file."""
    handle, name = tempfile.mkstemp(prefix="compiling-", suffix=".so", dir=file.parent)
    try:
        command = [compiler, *FLAGS, str(SOURCE), "-o", name, "-lm", "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILER_SECONDS, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise NoLoopsError(f"{compiler} fails ({next((line for line in lines if 'error' in line), lines[0])})")
        os.chmod(name, 0o600)
        os.fsync(handle)
        os.replace(name, file)
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)
