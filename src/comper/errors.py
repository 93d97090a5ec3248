"""What can go wrong in a way the user can mend: one sentence each, and the exit code of the command line.

This is also the one place that turns the errors of the operating system, and a want of memory, into such sentences.
"""

from __future__ import annotations

import errno
import importlib
import os
import stat
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any


def counted(number: int, one: str, many: str = "") -> str:
    """A number and what is counted: 1 trial, 2 trials, 3 processes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def printable(text: str) -> str:
    """Text that every terminal and page can show: control characters and broken ones, as in names of files, are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


MAX_TEXT = 2_000
"""Characters of a sentence about wrong use."""


class ComperError(Exception):
    """A problem that is explained in one or two sentences, never as a traceback."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class UsageError(ComperError):
    """A wrong name, number, key or folder."""

    exit_code = 2

    def __init__(self, text: str) -> None:
        # What is wrong is quoted, and may be as long as a file.
        super().__init__(text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT // 2]} ... {text[-MAX_TEXT // 2 :]}")


class OutsideCodeError(UsageError):
    """Code from outside comper that a run needs and that may not, or cannot, be imported."""


class OtherVersionError(UsageError):
    """A run that is as it was written, by a version of comper that this one cannot go on from."""


class DamagedFileError(ComperError):
    """A file that does not hold what it should."""

    exit_code = 3


class UnusableStateError(DamagedFileError):
    """A checkpoint whose files are those that were written, and whose state cannot be taken over all the same."""

    def __init__(self, text: str, checkpoint: Path) -> None:
        super().__init__(text)
        self.checkpoint = checkpoint


class ResourceError(ComperError):
    """Too little memory or disk."""

    exit_code = 4


class DivergedError(ComperError):
    """Learning produced NaN or infinity."""

    exit_code = 5


class LockedError(ComperError):
    """Another process works on the same run."""

    exit_code = 6


class StoppedError(ComperError):
    """A signal asked the run to stop, and it did, in good order."""

    exit_code = 130


class LeftOutError(ComperError):
    """Some runs could not be continued; the others were."""

    def __init__(self, text: str, *, exit_code: int, done: Sequence[Path]) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.done = list(done)

    def __reduce__(self) -> tuple[Any, ...]:  # another process may tell of it
        return partial(LeftOutError, exit_code=self.exit_code, done=self.done), self.args


class WorkerDiedError(ResourceError):
    """A worker process that ended by itself; mostly the system has killed it for want of memory."""


# Errors of the operating system

_WRONG_PLACES = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL,
)  # fmt: skip
"""What the system says of a path that cannot be one; all else is a want of room or of rights."""

_REMEDIES = {
    errno.ENOSPC: "Make room",
    errno.EDQUOT: "Make room",
    errno.EMFILE: "Allow more open files with `ulimit -n 4096`",
    errno.ENFILE: "Close other programs",
    errno.EACCES: "Get the right to write there",
    errno.EROFS: "Choose a place that can be written to",
}


@contextmanager
def explaining_os_errors(path: str | os.PathLike[str], *, hint: str = "", is_typed: bool = False) -> Iterator[None]:
    """While a file or folder is written: what the system objects to becomes a sentence, with the exit code 4.

    Where the user has typed the path (`is_typed`) and it cannot be one, that is wrong use, with the exit code 2. So is a
    device: files are replaced as a whole, and a superuser would replace /dev/null.
    """
    if is_typed and _is_device(path):
        raise UsageError(f"{os.fspath(path)}: cannot be written (a device, not a place for a file).")
    try:
        yield
    except OSError as error:
        raise explained_os_error(error, f"{os.fspath(path)}: cannot be written", hint=hint, is_typed=is_typed) from None


def _is_device(path: str | os.PathLike[str]) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):  # not there, or no path at all: writing tells
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def explained_os_error(error: OSError, problem: str, *, hint: str = "", is_typed: bool = False) -> ComperError:
    """The error as a sentence."""
    reason = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0)
    sentence = f"{problem} ({reason})." + (f" {remedy}." if remedy else "") + (f" {hint}" if hint else "")
    return UsageError(sentence) if is_typed and error.errno in _WRONG_PLACES else ResourceError(sentence)


# A want of memory

_MEMORY_WORDS = (
    "allocate memory", "not enough memory", "bad_alloc", "out of memory", "failed to map segment", "start new thread",
)  # fmt: skip


def is_memory_error(error: BaseException) -> bool:
    """Whether memory, or threads, ran out: Python and NumPy say so by type, torch and the dynamic linker in words alone."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError | ImportError | OSError) and any(words in text for words in _MEMORY_WORDS)


@contextmanager
def explaining_memory_errors(hint: str = "") -> Iterator[None]:
    """While much is computed: a want of memory becomes a sentence with the exit code 4."""
    try:
        yield
    except (MemoryError, RuntimeError, ImportError, OSError) as error:
        if not is_memory_error(error):
            raise
        raise explained_memory_error(error, hint) from None


def explained_memory_error(error: BaseException, hint: str = "") -> ResourceError:
    """The error as a sentence."""
    lines = str(error).strip().splitlines()
    reason = f" ({lines[0][:200]})" if lines else ""
    return ResourceError(f"There is too little memory{reason}." + (f" {hint}" if hint else ""))


# All else

EXTRAS = {
    "train": ("torch", "safetensors"),
    "atari": ("ale_py", "cv2"),
    "gymnasium": ("gymnasium",),
    "minatar": ("minatar",),
    "minigrid": ("minigrid", "gymnasium"),
    "report": ("matplotlib", "jinja2"),
    "faiss": ("faiss",),
    "watch": ("PIL",),
    "ray": ("ray",),
    "slurm": ("submitit",),
    "optuna": ("optuna",),
    "sb3": ("stable_baselines3",),
    "torchrl": ("torchrl", "tensordict"),
}
"""Extra of the package -> the modules that it brings and that work needs."""


def explained(error: Exception) -> ComperError:
    """What went wrong as a sentence: memory, a missing package, the system, or a place in code."""
    if is_memory_error(error):
        return explained_memory_error(error)
    if isinstance(error, ImportError):
        return UsageError(f"{error}. Install what is missing: {install_command(_extra_of(error.name))}")
    if isinstance(error, OSError):
        return explained_os_error(error, str(error.filename or "The system refuses what is needed"), is_typed=True)
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    if is_own_file(last.filename):
        return ComperError(f"{place}. The whole traceback: python -X dev -m comper ...")
    return OutsideCodeError(f"code from outside comper failed: {place}.")


def _extra_of(package: str | None) -> str:
    root = (package or "").partition(".")[0]
    return next((extra for extra, modules in EXTRAS.items() if root in modules), "all")


def import_library(name: str, problem: str, *, extra: str, end: str = "", kind: type[UsageError] = UsageError) -> Any:
    """Import a library that an extra brings, or say in a sentence what needs it and how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise kind(f"{problem}: {install_command(extra)}{end}") from error


def is_own_file(filename: str) -> bool:
    """Whether a file is part of this package, or of what it is built on."""
    folders = (os.path.dirname(__file__), sys.prefix, sys.base_prefix)
    return any(os.path.realpath(filename).startswith(os.path.realpath(folder) + os.sep) for folder in folders)


def install_command(*extras: str) -> str:
    """The command that installs some extras."""
    return f'pip install "comper[{",".join(extras)}]"'
