"""Jobs of a study on a Slurm cluster, through submitit: one job array, in a folder that all nodes see.

A job that nears its time limit, or has to make room for another, saves its trials and goes back into Slurm's queue by itself.
One that was killed is submitted again. Either way its trials go on from their last checkpoints.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comper.errors import (
    ComperError,
    LockedError,
    ResourceError,
    StoppedError,
    UsageError,
    WorkerDiedError,
    explaining_os_errors,
    import_library,
)
from comper.processes import STOP_SIGNALS, safe_path
from comper.runs.files import digest, require_no_links, write_atomically
from comper.studies.study import StudyJob
from comper.training.display import TrialStatus
from comper.training.loop import Observer
from comper.training.options import RunOptions
from comper.training.pool import Errors, Follow, TellingObserver, Work, error_of
from comper.training.signals import StopRequest, stop_requests

FOLDER = ".slurm"
"""In the study's folder; no variant has such a name. Each command makes a folder of its own there, for what submitit writes,
logs of the jobs, and how far they are: what was there before may be a stranger's, and submitit unpickles what it finds."""
MAX_ARRAY = 1_000
"""Jobs of an array; Slurm itself allows 1,001 unless its administrator says otherwise."""
AT_ONCE = 256
MIN_MINUTES = 5
MAX_LOSSES = 20
"""Of one job, by being killed; who meets more of them has another problem than a node."""
MAX_TIME_LIMITS = 1_000
MAX_LOCKED = 60
"""Seconds for which what is left of a killed job may go on holding its runs."""
OVER = ("", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
"""States in which a job does not come back by itself; "": Slurm does not know it any more."""
ASK_SECONDS = 30.0
"""How often Slurm is asked; its administrators do not like to be asked more often."""
RESULT_SECONDS = 15.0
"""How long a shared folder may take to show what a job wrote last."""
STOP_SECONDS = 60.0
"""How long jobs may take to save what they work on; Slurm itself waits for 30 seconds."""


@dataclass(frozen=True)
class SlurmRunner:
    """Carries jobs out on a cluster, as `comper.training.pool.run_jobs` does in processes."""

    out: Path
    """The study's folder, which all nodes must see."""
    partition: str | None = None
    minutes: int = 60
    memory_gb: int | None = None
    at_once: int = AT_ONCE
    cluster: str = "slurm"
    """`local`: submitit's own stand-in for a cluster, processes of this machine."""
    tell_seconds: float = 5.0

    def __call__(
        self, work: Work, jobs: Sequence[StudyJob], *, num_processes: int, request: StopRequest, follow: Follow
    ) -> Errors:
        """Carry jobs out; how many at once is said by `at_once`, for these are not this machine's processes."""
        self.check()
        return _Driver(self, work, jobs, request, follow).run()

    def check(self) -> None:
        """Refuse what cannot work, before anything is written."""
        import_submitit()
        if self.cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            text = "--slurm: there is no `sbatch` on this machine. Type the command where jobs are submitted (a login node)."
            raise UsageError(text)
        if self.minutes < MIN_MINUTES:
            raise UsageError(f"--slurm-time {self.minutes}: must be {MIN_MINUTES} minutes or more.")
        if self.memory_gb is not None and self.memory_gb < 1:
            raise UsageError(f"--slurm-memory {self.memory_gb}: must be 1 GB or more.")
        for flag, text in {"--out": str(self.out.absolute()), "--slurm-partition": self.partition or ""}.items():
            # They stand in a script, where what follows a new line is a command, and in names that Slurm completes (%j).
            if not text.isprintable() or set("%\\") & set(text):
                raise UsageError(f"{flag} {text}: with --slurm, no %, no \\ and nothing that cannot be printed may be in it.")

    @property
    def job_name(self) -> str:
        """The name of this study's jobs, and of no other's."""
        return f"comper-{digest(os.path.realpath(self.out).encode(errors='surrogateescape'))['sha256'][:12]}"

    def new_folder(self) -> Path:
        """A folder that nobody but this user has ever written to."""
        above = self.out.absolute() / FOLDER
        require_no_links(self.out.absolute(), [above])
        with explaining_os_errors(above):
            above.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="jobs-", dir=above))

    def executor(self, folder: Path, options: RunOptions) -> Any:
        """Submitit's, with what is asked of Slurm for each job."""
        # Without -P a file of the working folder could take the place of any module that a job imports.
        python = f"{shlex.quote(sys.executable)} -P"
        found = import_submitit().AutoExecutor(
            folder, cluster=self.cluster, slurm_max_num_timeout=MAX_TIME_LIMITS, slurm_python=python
        )
        num_gpus = 1 if options.torch_device().type == "cuda" else None
        asked = {"slurm_partition": self.partition, "mem_gb": self.memory_gb, "gpus_per_node": num_gpus}
        asked["cpus_per_task"] = options.threads
        given = {name: value for name, value in asked.items() if value is not None}
        found.update_parameters(name=self.job_name, timeout_min=self.minutes, slurm_array_parallelism=self.at_once, **given)
        return found


def import_submitit() -> Any:
    """Submitit, or a sentence that says how to install it."""
    return import_library("submitit", "--slurm needs submitit, which is not installed", extra="slurm", end=".")


class _Driver:
    """Submits jobs, takes in what they tell, and submits again what was killed."""

    def __init__(
        self, runner: SlurmRunner, work: Work, jobs: Sequence[StudyJob], request: StopRequest, follow: Follow
    ) -> None:
        self._runner, self._work, self._jobs, self._request, self._follow = runner, work, jobs, request, follow
        self._folder = runner.new_folder()
        self._executor = runner.executor(self._folder, jobs[0].options)
        self._submitted: dict[int, Any] = {}
        self._states: dict[str, str] | None = None
        self._asked = time.monotonic()
        self._ended: dict[int, float] = {}
        self._told: dict[int, bytes] = {}
        self._losses = dict.fromkeys(range(len(jobs)), 0)
        self._stop_by: float | None = None
        self.errors: Errors = {}

    def run(self) -> Errors:
        self._cancel_older()
        for first in range(0, len(self._jobs), MAX_ARRAY):
            array = range(first, min(first + MAX_ARRAY, len(self._jobs)))
            if self._stop_by is None:
                self._submit(array)
            else:
                self._note_stopped(array)
            while self._submitted:
                time.sleep(min(1.0, self._runner.tell_seconds))
                self._take_in()
                self._stop_if_asked()
        return self.errors

    def _cancel_older(self) -> None:
        """Cancel what a driver that was killed has left in the queue: two jobs must not work on one trial."""
        if self._runner.cluster == "slurm":
            words = ["scancel", f"--user={os.getuid()}", f"--name={self._runner.job_name}"]
            subprocess.run(words, check=False)

    def _submit(self, numbers: Sequence[int]) -> None:
        submitit = import_submitit()
        for number in numbers:
            self._told.pop(number, None)
            _status_file(self._folder, number).unlink(missing_ok=True)
        sent = [(self._work, self._jobs[number], _status_file(self._folder, number)) for number in numbers]
        try:
            with safe_path(), explaining_os_errors(self._folder):
                made = self._executor.map_array(_Task(self._runner.tell_seconds), *zip(*sent, strict=True))
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            reason = _last_line(str(error)) or "sbatch fails without a word."
            raise UsageError(f"Slurm does not take the jobs: {reason}") from None
        self._submitted |= dict(zip(numbers, made, strict=True))

    def _take_in(self) -> None:
        if self._runner.cluster == "slurm" and time.monotonic() - self._asked > ASK_SECONDS:
            self._states, self._asked = _slurm_states(self._runner.job_name), time.monotonic()
        for number, job in list(self._submitted.items()):
            with suppress(FileNotFoundError):
                told = _status_file(self._folder, number).read_bytes()
                if told != self._told.get(number):
                    self._told[number] = told
                    self._follow(number, [TrialStatus(**status) for status in json.loads(told)])
            if job.paths.result_pickle.exists():
                self._end(number, job)
            elif self._is_over(job) and time.monotonic() - self._ended.setdefault(number, time.monotonic()) > RESULT_SECONDS:
                self._lose(number, job)

    def _is_over(self, job: Any) -> bool:
        if self._runner.cluster != "slurm":
            return bool(job.done())
        return self._states is not None and self._states.get(job.job_id, "") in OVER

    def _end(self, number: int, job: Any) -> None:
        """Note how a job ended that could say so."""
        failure = job.exception()
        error = job.result() if failure is None else WorkerDiedError(f"Slurm job {job.job_id}: {_last_line(str(failure))}")
        if isinstance(error, StoppedError) and self._stop_by is None:
            return self._lose(number, job)  # by Slurm, which makes room for another
        self._forget(number)
        if error is not None:
            self.errors[number] = error
        if isinstance(error, ResourceError):
            self._request.name = self._request.name or "a want of memory or disk"

    def _lose(self, number: int, job: Any) -> None:
        """Submit a job again that was cut off, unless that would not help."""
        self._losses[number] += 1
        state = (self._states or {}).get(job.job_id, "")
        self._forget(number)
        if self._stop_by is not None or state == "CANCELLED":
            self._note_stopped([number], "Slurm's scancel")
        elif number not in self._told or state == "OUT_OF_MEMORY" or self._losses[number] > MAX_LOSSES:
            remedy = "Ask for more --slurm-memory." if state == "OUT_OF_MEMORY" else "Do all nodes see the study's folder?"
            log = f"its log: {job.paths.stderr}" if job.paths.stderr.exists() else "it has left no log"
            reason = _last_line(job.stderr() or "")
            self.errors[number] = WorkerDiedError(
                f"Slurm job {job.job_id} died ({state or 'killed'}). {remedy} {reason} ({log})"
            )
        else:
            self._submit([number])

    def _forget(self, number: int) -> None:
        del self._submitted[number]
        self._ended.pop(number, None)

    def _note_stopped(self, numbers: Sequence[int], reason: str = "") -> None:
        self.errors |= {number: StoppedError(f"stopped by {self._request.name or reason}.") for number in numbers}

    def _stop_if_asked(self) -> None:
        """Cancel all jobs: those at work save their trials first, those that wait never begin."""
        if self._request.name is None:
            return
        if self._stop_by is None:
            self._stop_by = time.monotonic() + STOP_SECONDS
            for job in self._submitted.values():
                job.cancel(check=False)
        for number in list(self._submitted):
            if number not in self._told or time.monotonic() > self._stop_by:
                self._forget(number)
                self._note_stopped([number])


def _slurm_states(job_name: str) -> dict[str, str] | None:
    """Job id -> state, of jobs that Slurm knows; None where it does not answer. (`sacct` is not on every cluster.)"""
    command = ["squeue", "--me", f"--name={job_name}", "--noheader", "--array", "--states=all", "--format=%i %T"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    pairs = [line.split() for line in answer.stdout.splitlines()]
    return None if answer.returncode else {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def _status_file(folder: Path, number: int) -> Path:
    return folder / f"status-{number}.json"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]


# What runs on a node.


@dataclass(frozen=True)
class _Task:
    """Carries a job out; with a `checkpoint`, submitit puts it back into the queue where its time is over."""

    tell_seconds: float

    def __call__(self, work: Work, job: StudyJob, status_file: Path) -> ComperError | None:
        audience = _NodeAudience(status_file, self.tell_seconds)
        error = error_of(work, job, audience)
        for _ in range(MAX_LOCKED):
            if not isinstance(error, LockedError):
                break
            time.sleep(1.0)
            error = error_of(work, job, audience)
        if isinstance(error, StoppedError) and audience.request.name == audience.warning:
            signal.raise_signal(getattr(signal, audience.warning))  # all is saved: submitit takes over, and ends this process
        return error

    def checkpoint(self, *arguments: Any) -> Any:
        """What submitit is to run next: the same, for it goes on from its checkpoint."""
        return import_submitit().helpers.DelayedSubmission(self, *arguments)


class _NodeAudience:
    """The audience of a population on a node: what there is to see goes into a file; Slurm's warnings are heard."""

    def __init__(self, status_file: Path, tell_seconds: float) -> None:
        self._status_file, self._tell_seconds = status_file, tell_seconds
        self.warning = "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")
        self.request = StopRequest()

    def say(self, text: str) -> None:
        """Nothing: the driver speaks for all."""

    @contextmanager
    def requests(self) -> Iterator[StopRequest]:
        with stop_requests((*STOP_SIGNALS, self.warning)) as self.request:
            yield self.request

    @contextmanager
    def watching(self, frames: int, metric_labels: Mapping[str, str]) -> Iterator[Observer]:
        yield TellingObserver(self.tell, self._tell_seconds, frames=frames, metric_labels=metric_labels)

    def tell(self, statuses: Sequence[TrialStatus]) -> None:
        """Write down how far trials are."""
        content = [dataclasses.asdict(status) for status in statuses]
        with suppress(OSError):  # it is only to look at
            write_atomically(self._status_file, json.dumps(content, default=float).encode())
