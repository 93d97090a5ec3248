"""What can go wrong in a way the user can mend: one sentence each, and the exit code of the command line."""


def printable(text: str) -> str:
    """Text that every terminal and page can show: control characters and broken ones, as in names of files, are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class ComperError(Exception):
    """A problem that is explained in one or two sentences, never as a traceback."""

    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class UsageError(ComperError):
    """A wrong name, number, key or folder."""

    exit_code = 2


class OutsideCodeError(UsageError):
    """Code from outside comper that a run needs and that may not, or cannot, be imported."""


class DamagedFileError(ComperError):
    """A file that does not hold what it should."""

    exit_code = 3


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
