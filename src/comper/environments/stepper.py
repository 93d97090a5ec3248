"""Many environments stepped together, in this process or in workers beside it, with the same results.

A trial is an environment's position in the list. `send` and `receive` are the two halves of `step`: between them a learner
can work while the environments do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment, EnvironmentFactory, EnvironmentInfo, Step, close
from comper.errors import (
    ComperError,
    OutsideCodeError,
    UsageError,
    WorkerDiedError,
    explained_memory_error,
    explaining_os_errors,
    is_memory_error,
)
from comper.processes import how_it_ended, start_process

Answer = tuple[ComperError | None, Any]
"""What a worker sends back: what went wrong, or what was asked for."""

STOP_SECONDS = 5.0
"""How long a worker may take to end by itself."""


class Stepper(ABC):
    """T environments, one per trial, with observations and actions of the same kind."""

    def __init__(self, infos: Sequence[EnvironmentInfo], observations_per_step: Sequence[int]) -> None:
        _require_alike(infos, observations_per_step)
        self.num_trials = len(infos)
        self.infos = tuple(infos)
        """What each trial's environment says about itself."""
        self.observations_per_step = observations_per_step[0]
        self._is_waiting = False

    @property
    def info(self) -> EnvironmentInfo:
        """What all environments have in common: observations and actions; names and scores are the first one's."""
        return self.infos[0]

    @abstractmethod
    def reset(self, trial: int) -> NDArray[Any]:
        """Start an episode of one trial and return its first observation."""

    def send(self, actions: Sequence[int], trials: Sequence[int]) -> None:
        """Let the listed trials take their actions; `receive` returns the results."""
        self._require_idle()
        if len(actions) != len(trials) or len(set(trials)) != len(trials):
            raise ValueError(f"{len(actions)} actions for the trials {list(trials)}: each trial takes one.")
        for trial in trials:
            self._require_trial(trial)
        self._send([int(action) for action in actions], [int(trial) for trial in trials])
        self._is_waiting = True

    def receive(self) -> list[Step]:
        """Wait for the trials of the last `send`, in its order."""
        if not self._is_waiting:
            raise ValueError("Nothing was sent: call send() before receive().")
        self._is_waiting = False
        return self._receive()

    def step(self, actions: Sequence[int], trials: Sequence[int]) -> list[Step]:
        """Let the listed trials take their actions, and wait for them."""
        self.send(actions, trials)
        return self.receive()

    @abstractmethod
    def state_dict(self, trial: int) -> dict[str, Any]:
        """Return the state of one trial's environment."""

    @abstractmethod
    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Restore the state of one trial's environment."""

    @abstractmethod
    def close(self) -> None:
        """Release processes and memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _send(self, actions: list[int], trials: list[int]) -> None: ...

    @abstractmethod
    def _receive(self) -> list[Step]: ...

    def _require_idle(self) -> None:
        if self._is_waiting:
            raise ValueError("The trials are still stepping: call receive() first.")

    def _require_trial(self, trial: int) -> None:
        if not 0 <= trial < self.num_trials:
            raise ValueError(f"trial = {trial!r}: must be 0 to {self.num_trials - 1}.")


def _require_alike(infos: Sequence[EnvironmentInfo], observations_per_step: Sequence[int]) -> None:
    """Name the first trial whose steps would not fit beside those of trial 0."""
    if not infos:
        raise ValueError("A stepper needs at least one environment.")
    layouts = [
        (info.num_actions, info.observation_shape, info.observation_dtype.name, held)
        for info, held in zip(infos, observations_per_step, strict=True)
    ]
    for trial, layout in enumerate(layouts):
        if layout != layouts[0]:
            what = "(actions, observation shape, dtype, observations per step)"
            raise UsageError(
                f"Trial {trial} ({infos[trial].name}) has {what} {layout}, but trial 0 ({infos[0].name}) has {layouts[0]}:"
                " environments that are trained together must be alike; train these with two commands."
            )


class SerialStepper(Stepper):
    """The environments one after another, in this process."""

    def __init__(self, environments: Sequence[Environment]) -> None:
        super().__init__([env.info for env in environments], [env.observations_per_step for env in environments])
        self._environments = list(environments)
        self._sent: list[tuple[int, int]] = []

    def reset(self, trial: int) -> NDArray[Any]:
        return self._environment(trial).reset()

    def state_dict(self, trial: int) -> dict[str, Any]:
        return self._environment(trial).state_dict()

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        self._environment(trial).load_state_dict(state)

    def close(self) -> None:
        for environment in self._environments:
            close(environment)

    def _send(self, actions: list[int], trials: list[int]) -> None:
        self._sent = list(zip(actions, trials, strict=True))

    def _receive(self) -> list[Step]:
        return [self._environments[trial].step(action) for action, trial in self._sent]

    def _environment(self, trial: int) -> Environment:
        self._require_idle()
        self._require_trial(trial)
        return self._environments[trial]


class ProcessStepper(Stepper):
    """The environments in worker processes; frames come back through shared memory.

    Factories are sent to the workers, so they must be picklable (`EnvironmentSpec.is_picklable`). A worker ends when its
    pipe to this process closes, however this process ends.
    """

    def __init__(self, factories: Sequence[EnvironmentFactory], *, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers = {num_workers!r}: must be 1 or more.")
        num_workers = min(num_workers, max(1, len(factories)))
        by_trial = list(enumerate(factories))
        self._workers = [_start(dict(by_trial[number::num_workers])) for number in range(num_workers)]
        self._shut_down = weakref.finalize(self, _stop, self._workers)
        self._sent: list[int] = []
        self._busy: list[_WorkerHandle] = []
        try:
            made = self._make_environments()
            super().__init__([info for info, _ in made], [held for _, held in made])
            self._slots = self._share_slots()
        except BaseException:
            self._shut_down()
            raise

    def reset(self, trial: int) -> NDArray[Any]:
        self._ask(trial, "reset", trial)
        frame: NDArray[Any] = self._slots["frames"][trial, 0].copy()
        return frame

    def state_dict(self, trial: int) -> dict[str, Any]:
        state: dict[str, Any] = self._ask(trial, "state_dict", trial)
        return state

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        self._ask(trial, "load_state_dict", trial, state)

    def close(self) -> None:
        self._shut_down()

    def _send(self, actions: list[int], trials: list[int]) -> None:
        work: dict[int, list[tuple[int, int]]] = {}
        for trial, action in zip(trials, actions, strict=True):
            work.setdefault(self._worker_of(trial), []).append((trial, action))
        for number, pairs in work.items():
            self._workers[number].ask("step", pairs)
        self._sent = trials
        self._busy = [self._workers[number] for number in work]

    def _receive(self) -> list[Step]:
        _results(self._busy)
        return [self._read(trial) for trial in self._sent]

    def _worker_of(self, trial: int) -> int:
        return trial % len(self._workers)

    def _read(self, trial: int) -> Step:
        slot = self._slots[trial]
        return Step(
            slot["frames"].copy(),
            reward=float(slot["reward"]),
            terminated=bool(slot["terminated"]),
            truncated=bool(slot["truncated"]),
            num_frames=int(slot["num_frames"]),
        )

    def _ask(self, trial: int, verb: str, *arguments: Any) -> Any:
        self._require_idle()
        self._require_trial(trial)
        worker = self._workers[self._worker_of(trial)]
        worker.ask(verb, *arguments)
        return _results([worker])[0]

    def _make_environments(self) -> list[tuple[EnvironmentInfo, int]]:
        """Let all workers make their environments, at the same time."""
        for worker in self._workers:
            worker.ask("make_environments")
        made = {trial: about for part in _results(self._workers) for trial, about in part.items()}
        return [made[trial] for trial in sorted(made)]

    def _share_slots(self) -> NDArray[Any]:
        """Map the memory that the workers write their steps to."""
        slot = _slot(self.infos[0], self.observations_per_step)
        path = _make_shared_file(self.num_trials * slot.itemsize)
        try:
            for worker in self._workers:
                worker.ask("attach", str(path), slot, self.num_trials)
            _results(self._workers)
            return _map_slots(path, slot, self.num_trials)
        finally:
            # All have it open: without a name it is gone with the last of them, even if all are killed.
            with contextlib.suppress(PermissionError):  # Windows keeps the name of an open file
                path.unlink()


def _make_shared_file(num_bytes: int) -> Path:
    in_memory, elsewhere = Path("/dev/shm"), Path(tempfile.gettempdir())
    if os.access(in_memory, os.W_OK):
        with contextlib.suppress(OSError):  # it is full: a file on disk does as well
            return _reserved_file(in_memory, num_bytes)
    with explaining_os_errors(elsewhere, hint="Or set TMPDIR to a place with room, or take --workers 0."):
        return _reserved_file(elsewhere, num_bytes)


def _reserved_file(folder: Path, num_bytes: int) -> Path:
    """A new file whose bytes are really there: writing to a mapped file that finds no room kills the process."""
    descriptor, name = tempfile.mkstemp(prefix="comper-", dir=folder)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, num_bytes)
        else:
            os.truncate(descriptor, num_bytes)
    except OSError:
        os.unlink(name)
        raise
    finally:
        os.close(descriptor)
    return Path(name)


def _slot(info: EnvironmentInfo, observations_per_step: int) -> np.dtype[Any]:
    """Memory layout of one Step."""
    frames = (info.observation_dtype, (observations_per_step, *info.observation_shape))
    fields = [("frames", *frames), ("reward", "f8"), ("num_frames", "i8"), ("terminated", "?"), ("truncated", "?")]
    return np.dtype(fields, align=True)


def _map_slots(path: Path, slot: np.dtype[Any], num_trials: int) -> NDArray[Any]:
    return np.memmap(path, dtype=slot, mode="r+", shape=(num_trials,))


class _WorkerHandle:
    """The parent's end of one worker: ask a question, wait for the answer."""

    def __init__(self, process: BaseProcess, connection: Connection, trials: list[int]) -> None:
        self.process = process
        self.connection = connection
        self.trials = trials

    def ask(self, verb: str, *arguments: Any) -> None:
        if self.connection.closed:
            raise ValueError("The stepper is closed.")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # `wait` reports that the worker is gone
            self.connection.send((verb, *arguments))

    def wait(self) -> Answer:
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join(STOP_SECONDS)
            return WorkerDiedError(_how_it_ended(self.trials, self.process.exitcode)), None
        return answer


def _how_it_ended(trials: Sequence[int], code: int | None) -> str:
    named = ", ".join(map(str, trials[:5])) + (", ..." if len(trials) > 5 else "")
    who = f"The worker process of {'trial' if len(trials) == 1 else 'trials'} {named}"
    hint = "Try --workers 0, which runs the environments in one process."
    if code == -9:
        hint = "Mostly the system does that for want of memory: take fewer --workers or --trials."
    return f"{who} {how_it_ended(code)}. {hint}"


def _results(workers: Sequence[_WorkerHandle]) -> list[Any]:
    """What the workers answered to their last questions."""
    # All answers are read before a failure is raised, or the next question would get an old answer.
    answers = [worker.wait() for worker in workers]
    for error, _ in answers:
        if error is not None:
            raise error
    return [value for _, value in answers]


def _start(factories: dict[int, EnvironmentFactory]) -> _WorkerHandle:
    return _WorkerHandle(*start_process(_work, factories), list(factories))


def _stop(workers: Sequence[_WorkerHandle]) -> None:
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        worker.process.join(STOP_SECONDS)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


# What runs in a worker process.


class _Worker:
    """The trials of one worker process; its methods are the questions the parent may ask."""

    def __init__(self, factories: Mapping[int, EnvironmentFactory]) -> None:
        self._factories = factories
        self._environments: dict[int, Environment] = {}
        self._slots: NDArray[Any] = np.empty(0)

    def make_environments(self) -> dict[int, tuple[EnvironmentInfo, int]]:
        self._environments = {trial: factory() for trial, factory in self._factories.items()}
        return {trial: (env.info, env.observations_per_step) for trial, env in self._environments.items()}

    def attach(self, path: str, slot: np.dtype[Any], num_trials: int) -> None:
        self._slots = _map_slots(Path(path), slot, num_trials)

    def reset(self, trial: int) -> None:
        self._slots["frames"][trial, 0] = self._environments[trial].reset()

    def step(self, work: Sequence[tuple[int, int]]) -> None:
        for trial, action in work:
            step = self._environments[trial].step(action)
            slot = self._slots[trial]
            slot["frames"] = step.frames
            slot["reward"] = step.reward
            slot["num_frames"] = step.num_frames
            slot["terminated"] = step.terminated
            slot["truncated"] = step.truncated

    def state_dict(self, trial: int) -> dict[str, Any]:
        return self._environments[trial].state_dict()

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        self._environments[trial].load_state_dict(state)

    def close(self) -> None:
        for environment in self._environments.values():
            close(environment)


def _work(connection: Connection, factories: Mapping[int, EnvironmentFactory]) -> None:
    _use_one_thread()
    worker = _Worker(factories)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed the pipe, or died
        while True:
            verb, *arguments = connection.recv()
            connection.send(_answer(getattr(worker, verb), *arguments))
    worker.close()


def _use_one_thread() -> None:
    """Keep OpenCV from starting a pool of threads in every worker: the workers are the parallelism."""
    with contextlib.suppress(ImportError):
        import cv2

        cv2.setNumThreads(1)


def _answer(question: Callable[..., Any], *arguments: Any) -> Answer:
    """Answer a question; whatever goes wrong is sent to the parent as one sentence."""
    try:
        return None, question(*arguments)
    except ComperError as error:
        return error, None
    except Exception as error:
        if is_memory_error(error):
            return explained_memory_error(error, "Take fewer --workers or --trials."), None
        return OutsideCodeError(f"An environment failed in its worker process: {type(error).__name__}: {error}"), None
