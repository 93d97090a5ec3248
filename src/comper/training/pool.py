"""Jobs carried out by a pool of processes: each takes one after another, tells how far it is, and stops when it is asked to.

A process of the pool ends with its parent, however that ends: what it was working on is saved first.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from comper.errors import ComperError, ResourceError, StoppedError, WorkerDiedError, explained
from comper.processes import how_it_ended, start_process
from comper.training.display import Audience, TrialStatus, status_of
from comper.training.gpu_sharing import sharing_variables
from comper.training.loop import Observer, Trial
from comper.training.signals import StopRequest

Work = Callable[[Any, Audience], None]
"""Carries a job out. A function of a module, so that another process finds it by its name."""
Follow = Callable[[int, Sequence[TrialStatus]], None]
"""Called with a job's number and how far its trials are."""
Errors = dict[int, ComperError]
"""Numbers of jobs that were not finished, and why; a job that was never begun counts as stopped."""

PRELOADED = ("comper.training.continuing", "comper.learners.learner", "comper.networks.qlstm", "cv2", "ale_py")
"""What takes seconds to import, and is the same in every process; what is not installed is left out."""
TELL_SECONDS = 0.25
"""How often a process says how far it is."""
STOP_SECONDS = 300.0
"""How long a process may take to save what it works on."""


def run_jobs(
    work: Work, jobs: Sequence[Any], *, num_processes: int, request: StopRequest, follow: Follow = lambda *_: None
) -> Errors:
    """Carry jobs out, at most so many at once; a want of memory or disk, or a request to stop, stops all of them."""
    pool = _Pool(work, jobs, follow)
    try:
        pool.run(num_processes, request)
    finally:
        pool.close()
    return pool.errors


class _Pool:
    def __init__(self, work: Work, jobs: Sequence[Any], follow: Follow) -> None:
        self._work, self._jobs, self._follow = work, jobs, follow
        self._waiting = deque(range(len(jobs)))
        self._children: list[_Child] = []
        self._reason: str | None = None
        self.errors: Errors = {}

    def run(self, num_processes: int, request: StopRequest) -> None:
        while self._hand_out(num_processes):
            busy = {child.connection: child for child in self._children if child.job is not None}
            for connection in wait(list(busy), timeout=TELL_SECONDS):
                self._hear(busy[connection])  # type: ignore[index]
            if request.name is not None:
                self._stop(request.name)

    def _hand_out(self, num_processes: int) -> bool:
        """Give jobs to processes that have none; return whether any is at work."""
        idle = [child for child in self._children if child.job is None]
        while self._waiting and (idle or len(self._children) < num_processes):
            if not idle:
                self._children.append(_new_child(self._work))
                idle = [self._children[-1]]
            number = self._waiting.popleft()
            idle.pop().give(number, self._jobs[number])
        return any(child.job is not None for child in self._children)

    def _hear(self, child: _Child) -> None:
        assert child.job is not None
        try:
            statuses, is_over, error = child.connection.recv()
        except (EOFError, ConnectionResetError):
            self._children.remove(child)
            statuses, is_over, error = [], True, WorkerDiedError(child.how_it_ended())
        if statuses:
            self._follow(child.job, statuses)
        if is_over:
            if error is not None:
                self.errors[child.job] = error
            if isinstance(error, ResourceError):
                self._stop("a want of memory or disk")
            child.job = None

    def _stop(self, reason: str) -> None:
        """Ask for the end of all work; what has not begun never does."""
        if self._reason is not None:
            return
        self._reason = reason
        self.errors |= {number: StoppedError(f"stopped by {reason}: it had not begun.") for number in self._waiting}
        self._waiting.clear()
        for child in self._children:
            child.tell(reason)

    def close(self) -> None:
        """Let the processes end: what they still work on is saved first."""
        for child in self._children:
            child.connection.close()
        end = time.monotonic() + STOP_SECONDS
        for child in self._children:
            child.process.join(max(0.0, end - time.monotonic()))
            if child.process.is_alive():
                child.process.kill()
                child.process.join()


class _Child:
    """The parent's end of a process of the pool."""

    def __init__(self, process: BaseProcess, connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.job: int | None = None

    def give(self, number: int, job: Any) -> None:
        self.job = number
        self.tell(job)

    def tell(self, message: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the next `recv` reports that it is gone
            self.connection.send(message)

    def how_it_ended(self) -> str:
        self.process.join(STOP_SECONDS)
        code = self.process.exitcode
        hint = " Mostly the system does that for want of memory: take fewer --processes." if code == -9 else ""
        return f"A process that ran trials {how_it_ended(code)}.{hint}"


def _new_child(work: Work) -> _Child:
    return _Child(*start_process(_serve, work, sharing_variables(), may_have_children=True, preloaded=PRELOADED))


# What runs in a process of the pool.


def _serve(connection: Connection, work: Work, variables: Mapping[str, str]) -> None:
    """Carry out one job after another, until the parent closes the connection."""
    os.environ.update(variables)  # the server that forks processes may be older than they are
    request, jobs = StopRequest(), queue.SimpleQueue[Any]()
    threading.Thread(target=_listen, args=(connection, request, jobs), daemon=True).start()
    while (job := jobs.get()) is not None:
        teller = _Teller(connection, request)
        error = error_of(work, job, teller)
        teller.send([], True, error)


def _listen(connection: Connection, request: StopRequest, jobs: queue.SimpleQueue[Any]) -> None:
    """Take jobs and requests to stop from the parent; its end is such a request, too."""
    with suppress(EOFError, OSError):
        while True:
            message = connection.recv()
            if isinstance(message, str):
                request.name = message
            else:
                jobs.put(message)
    request.name = request.name or "the end of the process that began it"
    jobs.put(None)


def error_of(work: Work, job: Any, audience: Audience) -> ComperError | None:
    """Carry a job out; return what went wrong."""
    try:
        work(job, audience)
    except ComperError as error:
        return error
    except Exception as error:
        return explained(error)
    return None


class _Teller:
    """The audience of a population in a process of the pool: what there is to see is told to the parent."""

    def __init__(self, connection: Connection, request: StopRequest) -> None:
        self._connection, self._request = connection, request

    def say(self, text: str) -> None:
        """Nothing: the parent speaks for all."""

    @contextmanager
    def requests(self) -> Iterator[StopRequest]:
        yield self._request

    @contextmanager
    def watching(self, frames: int, metric_labels: Mapping[str, str]) -> Iterator[Observer]:
        observer = TellingObserver(self.send, TELL_SECONDS, frames=frames, metric_labels=metric_labels)
        try:
            yield observer
        finally:
            observer.tell()

    def send(self, statuses: Sequence[TrialStatus], is_over: bool = False, error: ComperError | None = None) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone, and the listener knows it
            self._connection.send((statuses, is_over, error))


class TellingObserver:
    """Tells how far trials are, every so many seconds and when the last of them is done."""

    def __init__(
        self,
        tell: Callable[[Sequence[TrialStatus]], None],
        seconds: float,
        *,
        frames: int,
        metric_labels: Mapping[str, str],
    ) -> None:
        self._tell, self._seconds = tell, seconds
        self._frames, self._labels = frames, metric_labels
        self._trials: Sequence[Trial] = ()
        self._step = 0
        self._told = 0.0

    def after_step(self, trials: Sequence[Trial], step: int) -> None:
        self._trials, self._step = trials, step
        if time.monotonic() - self._told >= self._seconds or not any(trial.is_running for trial in trials):
            self.tell()

    def after_trial(self, trial: Trial) -> None:
        """Nothing: the next step tells it."""

    def tell(self) -> None:
        """Tell how far they are now."""
        self._told = time.monotonic()
        self._tell([status_of(trial, self._step, frames=self._frames, metric_labels=self._labels) for trial in self._trials])
