"""Jobs of a study on a Ray cluster: one node or twenty is the same command, and a node that dies costs no trial.

Nodes that see the study's folder work in it. Those that do not get what there is of a run through Ray, and send back every
checkpoint; the driver keeps it. Either way a dead worker's job goes on from its last checkpoint elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comper.errors import (
    ComperError,
    DamagedFileError,
    LockedError,
    ResourceError,
    StoppedError,
    UsageError,
    WorkerDiedError,
    explaining_os_errors,
    import_library,
)
from comper.runs.files import read_file, require_no_links, write_atomically
from comper.runs.folder import CHECKPOINTS_FOLDER, MANIFEST_FILE
from comper.studies.study import StudyJob
from comper.training.display import TrialStatus
from comper.training.loop import Observer
from comper.training.pool import Errors, Follow, TellingObserver, Work, error_of
from comper.training.signals import StopRequest

Files = dict[str, bytes]
"""Of a run folder: path below it -> content."""

CONNECT_SECONDS = 10.0
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client begins: a fixed line, and a frame (type 4) with no settings."""
PORT_HINT = "The port is the one that `ray start --head` prints, mostly 6379."
TELL_SECONDS = 1.0
TOKEN_FILE = ".ray-token"
"""In the folder of a variant while its jobs run: who reads the right one there sees the study."""
MAX_LOSSES = 20
"""Of one job: whoever loses so many workers has another problem than a node."""
MAX_LOCKED = 60
"""Seconds for which the processes of a dead node may go on holding their runs."""
MAX_RUN_BYTES = 1 << 34
"""Of all files of a run that travels: it is held in memory as a whole. With the paper's settings a run has 0.3 GB."""


@dataclass(frozen=True)
class RayRunner:
    """Carries jobs out on a cluster, as `comper.training.pool.run_jobs` does in processes."""

    address: str = "auto"
    """`auto`: the cluster of this machine or of RAY_ADDRESS; where there is none, one is started here."""
    is_shared: bool | None = None
    """Whether nodes see the study's folder; None: each of them looks."""

    def __call__(
        self, work: Work, jobs: Sequence[StudyJob], *, num_processes: int, request: StopRequest, follow: Follow
    ) -> Errors:
        """Carry jobs out; how many at once is the cluster's own business."""
        ray = import_ray()
        with _connected(ray, self.address, num_processes):
            try:
                return _Driver(ray, work, jobs, request, follow, self.is_shared).run()
            except ray.exceptions.RayError as error:
                raise ResourceError(f"The Ray cluster failed ({_first_line(error)}). What was saved is untouched.") from None


def import_ray() -> Any:
    """Ray, or a sentence that says how to install it."""
    return import_library("ray", "--ray needs Ray, which is not installed", extra="ray", end=".")


@contextmanager
def _connected(ray: Any, address: str, num_processes: int) -> Iterator[None]:
    """Be connected for a while; an address that does not answer is refused at once, where Ray would try for minutes."""
    is_ours = not ray.is_initialized()
    if is_ours and address != "auto":
        check_answers(address)
    if is_ours:
        # Ray has its workers look for every module in the folder of the driver first, where anything may lie.
        with chdir(sys.prefix):
            _connect(ray, address, num_processes)
    try:
        yield
    finally:
        if is_ours:
            ray.shutdown()


def _connect(ray: Any, address: str, num_processes: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        with _quiet_errors() if address != "auto" else nullcontext():
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address != "auto" or not isinstance(error, ConnectionError):
            raise UsageError(f"--ray {address}: no Ray cluster there ({_first_line(error)}). {PORT_HINT}") from None
        ray.init(num_cpus=num_processes, include_dashboard=False, **quiet)


@contextmanager
def _quiet_errors() -> Iterator[None]:
    """Drop what Ray's compiled part writes to standard error: a warning every second, though an exception follows."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def check_answers(address: str) -> None:
    """Refuse an address at which nobody listens, or not Ray: for another service's answer it would wait forever."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--ray {address}: an address is HOST:PORT, as `ray start --head` prints it.")
    try:
        connection = socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS)
    except (OSError, UnicodeError) as error:  # a name that cannot be one is the latter
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--ray {address}: nobody answers there ({reason}). Is the head node up?") from None
    with connection:
        if not _speaks_http2(connection):
            raise UsageError(f"--ray {address}: what listens there is not Ray. {PORT_HINT}")


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether a server greets as Ray's do, with a frame of settings; one behind TLS is taken for Ray."""
    if os.environ.get("RAY_USE_TLS", "0") == "1":
        return True
    try:
        connection.sendall(HTTP2_GREETING)
        return connection.recv(9)[3:4] == b"\x04"
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class _Driver:
    """Hands jobs to the cluster, takes in what they tell, and hands out again what a dead worker leaves."""

    def __init__(
        self,
        ray: Any,
        work: Work,
        jobs: Sequence[StudyJob],
        request: StopRequest,
        follow: Follow,
        is_shared: bool | None,
    ) -> None:
        self._ray, self._jobs, self._request, self._follow = ray, jobs, request, follow
        self._is_seen: dict[int, bool | None] = dict.fromkeys(range(len(jobs)), is_shared)
        self._token = secrets.token_hex()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id=ray.get_runtime_context().get_node_id(), soft=False
        )
        self._mailbox = ray.remote(num_cpus=0, scheduling_strategy=here)(_Mailbox).remote()
        self._work, self._working_folder = ray.put(work), os.getcwd()
        self._losses = dict.fromkeys(range(len(jobs)), 0)
        self._locked = dict.fromkeys(range(len(jobs)), 0)
        self._later: dict[int, float] = {}
        self._refs: dict[Any, int] = {}
        self._reason: str | None = None
        self.errors: Errors = {}

    def run(self) -> Errors:
        folders = {job.out for job in self._jobs}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / TOKEN_FILE, self._token.encode())
        try:
            return self._run()
        finally:
            for folder in folders:
                (folder / TOKEN_FILE).unlink(missing_ok=True)

    def _run(self) -> Errors:
        for number in range(len(self._jobs)):
            self._submit(number)
        while self._refs or self._later:
            done, _ = self._ray.wait([*self._refs], timeout=0.5) if self._refs else ([], None)
            if not self._refs:
                time.sleep(0.5)
            self._take_in()
            for ref in done:
                self._end(self._refs.pop(ref), ref)
            for number in [number for number, when in self._later.items() if time.monotonic() >= when]:
                del self._later[number]
                self._submit(number)
            if self._request.name is not None:
                self._stop(self._request.name)
        return self.errors

    def _submit(self, number: int) -> None:
        job = self._jobs[number]
        resources = {"num_gpus": 1} if job.options.torch_device().type == "cuda" else {}
        task = self._ray.remote(num_cpus=1, max_retries=0, **resources)(_carry_out)
        is_seen = self._is_seen[number]
        try:
            files = {str(path): read_run_files(path) for path in job.paths} if is_seen is False else None
        except DamagedFileError as error:
            self.errors[number] = error
            return
        if is_seen is None and not any(map(os.path.lexists, job.paths)):
            files = {}  # nothing to send, even to a node that does not see the study
        seen = self._token if is_seen is None else is_seen
        ref = task.remote(self._work, job, number, self._mailbox, files, seen, self._working_folder)
        self._refs[ref] = number

    def _take_in(self) -> None:
        for number, statuses, files in self._ray.get(self._mailbox.collect.remote()):
            self._keep(number, files)
            if statuses:
                self._follow(number, statuses)

    def _keep(self, number: int, files: Mapping[str, Files]) -> None:
        """Write down what a node has sent of its job's runs; what cannot be theirs is that job's error."""
        try:
            for path, content in files.items():
                if Path(path) not in self._jobs[number].paths:
                    raise DamagedFileError(f"{path}: sent by a node whose job has no such run.")
                write_run_files(Path(path), content)
        except ComperError as error:
            self._note(number, error)

    def _end(self, number: int, ref: Any) -> None:
        """Note how a job ended; one whose worker is dead goes on elsewhere, from its last checkpoint."""
        try:
            error, files = self._ray.get(ref)
        except self._ray.exceptions.RayError as lost:
            self._losses[number] += 1
            if self._reason is not None:
                self.errors[number] = StoppedError(f"stopped by {self._reason}.")
            elif self._losses[number] > MAX_LOSSES:
                text = f"A job has lost {MAX_LOSSES} workers ({_first_line(lost)})."
                self.errors[number] = WorkerDiedError(text)
            else:
                self._later[number] = time.monotonic() + 1.0
            return
        self._keep(number, files)
        if isinstance(error, FilesNeededError):
            self._is_seen[number] = False
            self._later[number] = 0.0
        elif isinstance(error, LockedError) and self._losses[number] and self._locked[number] < MAX_LOCKED:
            self._locked[number] += 1  # by a process that does not know yet that its node is dead
            self._later[number] = time.monotonic() + 1.0
        elif error is not None:
            self._note(number, error)

    def _note(self, number: int, error: ComperError) -> None:
        self.errors[number] = error
        if isinstance(error, ResourceError):
            self._stop("a want of memory or disk")

    def _stop(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
            self._ray.get(self._mailbox.stop.remote(reason))
            self.errors |= {number: StoppedError(f"stopped by {reason}.") for number in self._later}
            self._later.clear()


class FilesNeededError(ComperError):
    """A node does not see the study's folder, and there are runs in it to go on with."""


class _Mailbox:
    """An actor beside the driver: jobs leave word there, and learn whether they are to stop."""

    def __init__(self) -> None:
        self._letters: list[tuple[int, Sequence[TrialStatus], Mapping[str, Files]]] = []
        self._reason: str | None = None

    def tell(self, number: int, statuses: Sequence[TrialStatus], files: Mapping[str, Files]) -> str | None:
        self._letters.append((number, statuses, files))
        return self._reason

    def collect(self) -> list[tuple[int, Sequence[TrialStatus], Mapping[str, Files]]]:
        letters, self._letters = self._letters, []
        return letters

    def stop(self, reason: str) -> None:
        self._reason = reason


# What runs on a node.


def _carry_out(
    work: Work,
    job: StudyJob,
    number: int,
    mailbox: Any,
    files: Mapping[str, Files] | None,
    seen: bool | str,
    working_folder: str,
) -> tuple[ComperError | None, dict[str, Files]]:
    """Carry a job out; return what went wrong, and, where this node does not see the study, its runs.

    `seen` is whether it does, or the token by which it finds out; `working_folder` is the driver's, where there is one here.
    """
    with suppress(OSError):
        os.chdir(working_folder)
    if seen is True or (isinstance(seen, str) and _reads(job.out / TOKEN_FILE, seen)):
        return error_of(work, job, _NodeAudience(number, mailbox, {})), {}
    if files is None:
        return FilesNeededError("The study's folder is not seen here."), {}
    with tempfile.TemporaryDirectory(prefix="comper-study-") as folder:
        here = {str(path): Path(folder, *path.parts[-3:]) for path in job.paths}
        try:
            for path, content in files.items():
                write_run_files(here[path], content)
        except ComperError as unkept:
            return unkept, {}
        local = replace(job, paths=tuple(here[str(path)] for path in job.paths), out=Path(folder))
        error = error_of(work, local, _NodeAudience(number, mailbox, here))
        try:
            return error, {path: read_run_files(place) for path, place in here.items()}
        except DamagedFileError as unsent:  # an exception would be taken for the death of this worker
            return error or unsent, {}


def _reads(path: Path, token: str) -> bool:
    try:
        return read_file(path, max_bytes=len(token)) == token.encode()
    except ComperError:
        return False


class _NodeAudience:
    """The audience of a population on a node: it tells the mailbox, once a second, and asks whether to stop."""

    def __init__(self, number: int, mailbox: Any, folders: Mapping[str, Path]) -> None:
        self._number, self._mailbox, self._folders = number, mailbox, folders
        self._request = StopRequest()
        self._answer: Any = None
        self._sent: dict[str, str] = {}

    def say(self, text: str) -> None:
        """Nothing: the driver speaks for all."""

    @contextmanager
    def requests(self) -> Iterator[StopRequest]:
        yield self._request

    @contextmanager
    def watching(self, frames: int, metric_labels: Mapping[str, str]) -> Iterator[Observer]:
        yield TellingObserver(self.tell, TELL_SECONDS, frames=frames, metric_labels=metric_labels)

    def tell(self, statuses: Sequence[TrialStatus]) -> None:
        """Leave word, with the checkpoints that are new; what was answered before may be a request to stop."""
        import ray

        if self._answer is not None:
            ready, _ = ray.wait([self._answer], timeout=0)
            if not ready:
                return
            self._request.name = self._request.name or ray.get(self._answer)
        self._answer = self._mailbox.tell.remote(self._number, statuses, self._new_checkpoints())

    def _new_checkpoints(self) -> dict[str, Files]:
        new = {}
        for path, place in self._folders.items():
            newest = max((step.name for step in (place / CHECKPOINTS_FOLDER).glob("step-*")), default="")
            if newest and newest != self._sent.get(path):
                self._sent[path] = newest
                new[path] = read_run_files(place)
        return new


# A run folder as bytes, for nodes that do not see it.


def read_run_files(run: Path, *, max_bytes: int = MAX_RUN_BYTES) -> Files:
    """Everything a run has on disk but its lock; nothing where there is no run."""
    if not (run / MANIFEST_FILE).is_file():
        return {}
    found: Files = {}
    left = max_bytes
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.is_file() and not path.is_symlink() and _is_name_in_run(name):
            try:
                found[name] = read_file(path, max_bytes=left)
            except DamagedFileError as error:
                if os.path.lexists(path):  # else an old checkpoint that was removed meanwhile
                    raise DamagedFileError(f"{run}: cannot travel through Ray. {error} {_LIMIT_HINT}") from None
                continue
            left -= len(found[name])
    return found


_LIMIT_HINT = f"All files of a run may have {MAX_RUN_BYTES:,} bytes; nodes that see the study's folder need none of them sent."


_NAME = re.compile(rf"({CHECKPOINTS_FOLDER}/step-[0-9-]{{8,20}}/|(?!{CHECKPOINTS_FOLDER}$))[A-Za-z0-9_][A-Za-z0-9_.-]{{0,99}}")


def _is_name_in_run(name: str) -> bool:
    """Whether a path is one that comper gives to a file of a run; all else in its folder is the user's, and stays there."""
    return _NAME.fullmatch(name) is not None


def write_run_files(run: Path, files: Files) -> None:
    """Make a run folder hold these files: each whole, and last the manifest, which may call the run finished."""
    if not files:
        return
    _require_run_files(run, files)
    with explaining_os_errors(run, is_typed=True):
        _write_run_files(run, files)


def _write_run_files(run: Path, files: Files) -> None:
    run.mkdir(parents=True, exist_ok=True)
    require_no_links(run.parent, [run / CHECKPOINTS_FOLDER])
    steps = {os.path.dirname(name) for name in files if name.startswith(f"{CHECKPOINTS_FOLDER}/")}
    for name in files:
        if os.path.dirname(name) not in steps and name != MANIFEST_FILE:
            write_atomically(run / name, files[name])
    for step in sorted(steps):
        _write_checkpoint(run, step, {name: files[name] for name in files if os.path.dirname(name) == step})
    write_atomically(run / MANIFEST_FILE, files[MANIFEST_FILE])
    for old in (run / CHECKPOINTS_FOLDER).glob("step-*"):
        if str(old.relative_to(run)) not in steps:
            shutil.rmtree(old, ignore_errors=True)


def _require_run_files(run: Path, files: Files) -> None:
    """Refuse what was sent unless it can be a run, before any of it is written."""
    if MANIFEST_FILE not in files or not all(_is_name_in_run(name) and isinstance(files[name], bytes) for name in files):
        raise DamagedFileError(f"{run}: what was sent through Ray are not the files of a run; nothing of it was kept.")
    num_bytes = sum(map(len, files.values()))
    if num_bytes > MAX_RUN_BYTES:
        raise DamagedFileError(f"{run}: {num_bytes:,} bytes were sent through Ray; nothing was kept. {_LIMIT_HINT}")


def _write_checkpoint(run: Path, step: str, files: Files) -> None:
    """A checkpoint gets its name when it is complete."""
    if (run / step).exists():
        return
    (run / CHECKPOINTS_FOLDER).mkdir(exist_ok=True)
    unfinished = run / CHECKPOINTS_FOLDER / f".{os.path.basename(step)}.fetched"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for name, content in files.items():
        write_atomically(unfinished / os.path.basename(name), content)
    os.rename(unfinished, run / step)
