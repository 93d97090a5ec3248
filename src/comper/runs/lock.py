"""One writer per run: a lock that the kernel releases when its holder ends, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from comper.errors import LockedError, explaining_os_errors
from comper.runs.files import open_regular
from comper.runs.folder import LOCK_FILE


class RunLock:
    """Held from its making until `release`. Who works on a whole study, or a search, holds one in its folder, too."""

    def __init__(self, run: Path, what: str = "run") -> None:
        with explaining_os_errors(run):
            self._descriptor = open_regular(run / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        if not (_lock(self._descriptor) and _is_still(run / LOCK_FILE, self._descriptor)):
            self.release()
            raise LockedError(f"{run}: another process is working on this {what}. Wait for it, or stop it first.")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let go; the file stays, because deleting it would race with the next holder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether a file has not been replaced since it was opened: another process may have begun the run anew."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
