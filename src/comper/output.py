"""The one way to print: a broken output (a closed pipe, a full disk, a terminal that is gone) never ends the work.

`comper.cli.main` puts these streams in the place of `sys.stdout` and `sys.stderr`, so that every `print`, our own or that of
others' code, goes through them.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from comper.errors import printable


class UnbreakableOutput:
    """A text stream that swallows what it cannot write; characters it cannot encode become question marks."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self.encoding: str = getattr(stream, "encoding", None) or "utf-8"
        self.failure: OSError | None = None
        """Why something that someone may have waited for was lost; a reader who went away (`| head`) is no failure."""

    def write(self, text: str) -> int:
        """Write what can be written."""
        with self._noting_failure():
            self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
        return len(text)

    def flush(self) -> None:
        """Flush, if possible."""
        with self._noting_failure():
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether a person watches."""
        try:
            return self._stream.isatty()
        except (OSError, ValueError):
            return False

    def settle(self) -> None:
        """Flush for the last time: what is left over after that is dropped, or Python would complain of it at its end."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._note(error)
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            self._note(error)

    def _note(self, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno not in (errno.EPIPE, errno.EBADF) and self.failure is None:
            self.failure = error


def print_line(text: str) -> None:
    """Print to standard error, names of files and all; an output that breaks does not matter."""
    if sys.stderr is not None:
        output = UnbreakableOutput(sys.stderr)
        output.write(printable(text) + "\n")
        output.flush()


@contextmanager
def unbreakable_streams() -> Iterator[UnbreakableOutput]:
    """Print through streams that cannot break, for a while; yield the one of standard output."""
    _open_closed_descriptors()
    before = sys.stdout, sys.stderr
    out, err = (UnbreakableOutput(stream or open(os.devnull, "w")) for stream in before)  # noqa: SIM115
    sys.stdout, sys.stderr = out, err
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before
        out.settle()
        err.settle()


def _open_closed_descriptors() -> None:
    """Give 0, 1 and 2 to /dev/null where they are closed: the next file opened would get such a number, and any C library
    that prints would write into it."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
