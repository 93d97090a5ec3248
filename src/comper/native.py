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
FUNCTIONS = (
    "comper_product", "comper_update", "comper_picture", "comper_inflate", "comper_channels_last", "comper_scaled",
    "comper_hidden", "comper_dense",
)  # fmt: skip
"""What native.c offers."""
COMPILER_SECONDS = 60
MAX_BYTES = 1 << 24
"""More than any compiler makes of native.c."""


class Loops(NamedTuple):
    """The compiled loops, or why there are none."""

    compiled: ctypes.CDLL | None
    status: str


class NoLoopsError(Exception):
    """Why the loops are not there; the system gives other reasons: a full disk, no home, a hanging compiler."""


@cache
def loops() -> Loops:
    """Compile the loops, or take those compiled before."""
    try:
        library, compiler = _load()
    except (NoLoopsError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        return Loops(None, f"not compiled: {error}")
    return Loops(library, f"compiled with {compiler}")


@cache
def compiled() -> ctypes.CDLL | None:
    """The compiled loops; None where there are none."""
    return loops().compiled


def _load() -> tuple[ctypes.CDLL, str]:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise NoLoopsError("there is no C compiler")
    if not hasattr(os, "geteuid"):
        raise NoLoopsError("this is no Unix system")
    folder = _private_folder(_cache_home() / "comper")
    prefix = f"native-{_fingerprint(compiler)}"
    for file in sorted(folder.glob(f"{prefix}-*.so")):
        if _is_as_compiled(file) and (library := _opened(file)) is not None:
            return library, compiler
        file.unlink(missing_ok=True)  # cut short by a power failure: once more
    library = _opened(_compile(compiler, folder, prefix))
    if library is None:
        raise NoLoopsError(f"what {compiler} makes cannot be loaded")
    return library, compiler


def _is_as_compiled(file: Path) -> bool:
    """Whether a file has the digest in its name: a damaged library would end the process as it is loaded, or later."""
    _require_private(file)
    if not stat.S_ISREG(file.lstat().st_mode):
        raise NoLoopsError(f"{file} is not an ordinary file")
    with open(file, "rb") as opened:
        content = opened.read(MAX_BYTES + 1)
    return len(content) <= MAX_BYTES and file.name.endswith(f"-{_digest(content)}.so")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _opened(file: Path) -> ctypes.CDLL | None:
    """The library, if it is one and has all the loops."""
    try:
        library = ctypes.CDLL(str(file))
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in FUNCTIONS) else None


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
    """Make a folder that nobody else can write to, on a path that nobody else can change; elsewhere nothing is made."""
    _require_private_path(folder.parent)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_private_path(folder.parent)
    _require_private(folder)
    return folder


def _require_private_path(path: Path) -> None:
    """Refuse a path on which someone else may put another folder, or another link, in the place of one."""
    for place in {*_with_parents(path), *_with_parents(path.resolve())}:
        if place.is_symlink():
            _require_own(place)
            _require_private_path(Path(os.path.abspath(place.parent / os.readlink(place))))
        elif place.exists():
            _require_private(place)


def _with_parents(path: Path) -> tuple[Path, ...]:
    return path, *path.parents


def _require_private(place: Path) -> None:
    """Refuse what someone else owns or may write: a library from there would run with this user's rights."""
    mode = place.lstat().st_mode
    is_shared = bool(mode & 0o022) and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX)
    if stat.S_ISLNK(mode) or is_shared:
        raise NoLoopsError(f"others may write to {place}")
    _require_own(place)


def _require_own(place: Path) -> None:
    if place.lstat().st_uid not in (os.geteuid(), 0):
        raise NoLoopsError(f"others may write to {place}")


def _compile(compiler: str, folder: Path, prefix: str) -> Path:
    """Compile beside the file and rename: another process sees nothing, or the whole file, named after its content."""
    handle, name = tempfile.mkstemp(prefix="compiling-", suffix=".so", dir=folder)
    os.close(handle)
    try:
        command = [compiler, *FLAGS, str(SOURCE), "-o", name, "-lm", "-pthread"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILER_SECONDS, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            raise NoLoopsError(f"{compiler} fails ({next((line for line in lines if 'error' in line), lines[0])})")
        os.chmod(name, 0o600)
        with open(name, "rb") as compiled:
            content = compiled.read()
            os.fsync(compiled.fileno())
        file = folder / f"{prefix}-{_digest(content)}.so"
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)
    return file
