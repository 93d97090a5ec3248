"""The one way to start a child process: a new Python that knows nothing of the caller's but what it is handed.

It cannot take files of the working folder for modules of the standard library, it does not run the caller's script again
(so no `if __name__ == "__main__":` is needed), and it leaves signals to its parent: Ctrl-C, or a cluster's SIGTERM, reaches
the whole group, and the parent decides what happens. It ends when its pipe closes, however the parent ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
"""Ctrl-C, kill, a closed terminal, and what a cluster sends before it takes the machine away."""


def start_process(
    work: Callable[..., None], *arguments: Any, may_have_children: bool = False, preloaded: Sequence[str] = ()
) -> tuple[BaseProcess, Connection]:
    """Start `work(connection, *arguments)` in a process of its own; return it and our end of the connection.

    `preloaded` modules are imported once for all processes that are to follow, where the system can fork.
    """
    # Not fork: the parent may run torch's threads, which a forked child would miss.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver" and preloaded:
        context.set_forkserver_preload(list(preloaded))
    ours, theirs = context.Pipe()
    process = context.Process(target=_begin, args=(work, theirs, *arguments), daemon=not may_have_children)
    with safe_path(), _hidden_script():
        process.start()
    theirs.close()
    return process, ours


def can_start_processes() -> bool:
    """Whether this process may have children: a daemon of Python's multiprocessing may not."""
    return not multiprocessing.current_process().daemon


def usable_cores() -> int:
    """The cores this process may use; a container or a cluster may allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def how_it_ended(code: int | None) -> str:
    """What became of a process, by its exit code."""
    if code is not None and code < 0:
        killer = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"was killed ({killer})"
    return f"ended by itself with exit code {code}"


def _begin(work: Callable[..., None], connection: Connection, *arguments: Any) -> None:
    for name in STOP_SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    work(connection, *arguments)


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Keep a new Python process from importing files of the working folder in place of the standard library's."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@contextlib.contextmanager
def _hidden_script() -> Iterator[None]:
    """Hide the script that runs: multiprocessing would import it in the child, and a script without a guard starts anew."""
    script, empty = sys.modules["__main__"], ModuleType("__main__")
    sys.modules["__main__"] = empty
    try:
        yield
    finally:
        sys.modules["__main__"] = script
