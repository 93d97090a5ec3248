"""Signals that ask a run to stop: noted when they come, acted on between two steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
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
            os._exit(StoppedError.exit_code)
        self.name = self.name or name


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Listen to the signals for a while; only the main thread may, elsewhere nothing is ever requested."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {name: signal.signal(getattr(signal, name), request.note) for name in STOP_SIGNALS if hasattr(signal, name)}
    try:
        yield request
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
