"""Signals that ask a run to stop: noted when they come, acted on between two steps."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

from comper.errors import StoppedError
from comper.processes import STOP_SIGNALS


class StopRequest:
    """Whether a signal has asked to stop, and which."""

    def __init__(self) -> None:
        self.name: str | None = None

    def note(self, number: int, _: FrameType | None = None) -> None:
        """The first signal is noted; a second Ctrl-C ends the process at once; the last checkpoint stays as it is."""
        name = signal.Signals(number).name
        if self.name is not None and name == "SIGINT":
            os.write(2, b"\ncomper: left at once; the last checkpoint is whole.\n")
            _remove_temporary_folder()
            os._exit(StoppedError.exit_code)
        self.name = self.name or name


def _remove_temporary_folder() -> None:
    """Remove what multiprocessing keeps its sockets in: at an end like this one, it cannot."""
    folder = getattr(multiprocessing.current_process(), "_config", {}).get("tempdir")
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def stop_requests(names: Sequence[str] = STOP_SIGNALS) -> Iterator[StopRequest]:
    """Listen to the signals for a while; only the main thread may, elsewhere nothing is ever requested.

    Those that the caller has set to be ignored (`nohup`, a script's background) stay ignored.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, request.note) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
