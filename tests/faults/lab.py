"""Short runs of real games, forked, cut, damaged and compared: what every fault test does.

The process that forks must not have computed with torch yet: its threads would not be in the child. So each row of
`torture.py` is a process of its own, and computes only in its children.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comper.environments import atari
from comper.runs.files import digest
from comper.runs.folder import EPISODES_FILE, METRICS_FILE, WEIGHTS_FILE
from comper.training.resume import resume
from comper.training.train import train

SMALL = {
    "screen_size": 36,
    "frames": 300,
    "episode_cap_frames": 150,
    "replay_start_steps": 16,
    "log_period_steps": 10,
    "epsilon_decay_frames": 200,
}
COMPER = {"target_period_steps": 20, "memory_sets": 60, "sets_per_training": 30, **SMALL}  # small enough to forget
DQN = {"target_period_steps": 20, "replay_capacity": 60, **SMALL}
GRAPH = {"refresh_period_steps": 20, "memory_sets": 60, **SMALL}
SETTINGS = {"comper": GRAPH, "comper-single": COMPER, "comper-stacked": COMPER, "dqn": DQN}
SHORTENED = (
    "episode_cap_frames",
    "replay_start_steps",
    "log_period_steps",
    "epsilon_decay_frames",
    "target_period_steps",
    "refresh_period_steps",
)
"""Settings that make a run short, and no network or screen small."""


@dataclass(frozen=True)
class Scenario:
    """A short run, or a population of some."""

    agent: str
    game: str
    second_game: str | None = None
    seed: int = 0
    frames: int = 300
    trials: int = 1
    workers: int = 0
    processes: int = 1
    is_full_size: bool = False
    """Whether screens, networks and memories are the paper's."""

    @property
    def settings(self) -> dict[str, Any]:
        compression = "zlib" if self.seed % 2 else "none"
        settings = SETTINGS[self.agent]
        if self.is_full_size:
            settings = {name: settings[name] for name in SHORTENED if name in settings}
        return {**settings, "frames": self.frames, "frame_compression": compression}

    @property
    def games(self) -> list[str]:
        return [self.game] if self.second_game is None else [self.game, self.second_game]

    def folder(self, out: Path) -> Path:
        """Where its first trial is kept."""
        return self.folders(out)[0]

    def folders(self, out: Path) -> list[Path]:
        """Where its trials are kept."""
        seeds = range(self.seed, self.seed + self.trials)
        return [out / self.agent / game / f"seed-{seed}" for game in self.games for seed in seeds]

    def train(self, out: Path, period: int) -> None:
        """Train from the beginning."""
        train(
            self.games,
            self.agent,
            seed=self.seed,
            trials=self.trials,
            out=out,
            device="cpu",
            workers=self.workers,
            processes=self.processes,
            checkpoint_period_steps=period,
            show_progress=False,
            **self.settings,
        )

    def go_on(self, out: Path, period: int) -> None:
        """Begin, or resume what has begun."""
        if any(folder.exists() for folder in self.folders(out)):
            place = self.folder(out) if len(self.folders(out)) == 1 else out
            options: dict[str, Any] = {"workers": self.workers, "processes": self.processes}
            resume(place, device="cpu", checkpoint_period_steps=period, show_progress=False, **options)
        else:
            self.train(out, period)


def prepare() -> None:
    """Import once what every child needs; nothing here computes with torch."""
    import cv2  # noqa: F401
    import numpy.ma  # noqa: F401 -- for np.unique
    import safetensors.numpy  # noqa: F401
    import torch._dynamo  # noqa: F401 -- torch imports it at the first update, which takes a second

    import comper.agents.comper
    import comper.agents.dqn
    import comper.learners.frame_bank
    import comper.learners.learner
    import comper.learners.optimisers
    import comper.networks.cnn
    import comper.networks.inspection
    import comper.networks.qlstm
    import comper.training.population  # noqa: F401
    from comper.environments.games import available_games
    from comper.environments.palette import pooling_table

    available_games()
    for pooling in ("average", "max"):
        pooling_table(pooling, 210)


_READY: dict[str, list[Any]] = {}
"""Emulators that nobody has played with, by game."""
READY_EMULATORS = 2
"""Of a game: a run asks one about itself, and plays with another."""
_load_emulator = atari._load_emulator


def load_emulators(games: Iterable[str]) -> None:
    """Load what children of this process then find loaded, each its own: that takes longer than a few steps do."""
    atari._load_emulator = lambda game: _READY[game].pop() if _READY.get(game) else _load_emulator(game)
    for game in games:
        ready = _READY.setdefault(game, [])
        ready += [_load_emulator(game) for _ in range(READY_EMULATORS - len(ready))]


def fork(work: Callable[[], object], *, log: Path | None = None, is_leader: bool = False) -> int:
    """Start a child that does the work and exits 0, or with the exit code of the error it met; return its process id.

    Where it is a leader, it and all processes that it starts are a group, whose number is the child's.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        if is_leader:
            os.setpgid(0, 0)
        stream = open(log, "w") if log else open(os.devnull, "w")  # noqa: SIM115
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        code = _exit_code(work)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _exit_code(work: Callable[[], object]) -> int:
    from comper.errors import ComperError

    try:
        work()
    except ComperError as error:
        print(f"comper: {error}", file=sys.stderr)
        return error.exit_code
    except BaseException:
        traceback.print_exc()
        return 98  # what a user would meet as a traceback
    return 0


def wait(child: int, timeout: float = 600.0) -> int:
    """The exit code of a child; minus the signal that ended it; it is ended after the timeout."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    end_child(child)
    return -999


def end_child(child: int) -> None:
    """Kill a child, if it still runs."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def wait_for_group(leader: int, timeout: float) -> int:
    """How many processes of a group are still alive after the timeout; those are ended."""
    end = time.monotonic() + timeout
    while (alive := _group_members(leader)) and time.monotonic() < end:
        time.sleep(0.01)
    for process in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(alive)


def _group_members(leader: int) -> list[int]:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return []
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
            found += [int(entry.parent.name)] if int(group) == leader and state != "Z" else []
    return found


def run(work: Callable[[], object], *, log: Path | None = None) -> int:
    """Do the work in a child and wait for it."""
    return wait(fork(work, log=log))


def outcome(*folders: Path) -> dict[str, str]:
    """What must be identical in each run folder: episodes, metrics without timings, final weights."""
    found: dict[str, str] = {}
    for folder in folders:
        contents = {name: (folder / name).read_bytes() for name in (EPISODES_FILE, WEIGHTS_FILE)}
        records = [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]
        for record in records:
            record.pop("steps_per_second")
        contents[METRICS_FILE] = json.dumps(records).encode()
        trial = f"{folder.parent.name}/{folder.name}"
        found |= {f"{trial}/{name}": digest(content)["sha256"] for name, content in contents.items()}
    return found


def reference(scenario: Scenario, out: Path) -> dict[str, str]:
    """The outcome of the run that nothing happens to, and that loads its emulators itself; later ones find them loaded."""

    def work() -> None:
        _READY.clear()
        scenario.train(out, 0)

    code = run(work, log=out.with_suffix(".log"))
    assert code == 0, out.with_suffix(".log").read_text()
    load_emulators(scenario.games)
    return outcome(*scenario.folders(out))


def timed_reference(scenario: Scenario, out: Path) -> tuple[dict[str, str], float]:
    """The same outcome, and the seconds that a run takes which finds its emulators loaded."""
    expected = reference(scenario, out)
    again = out.with_name(f"{out.name}-again")
    began = time.monotonic()
    code = run(lambda: scenario.train(again, 0))
    seconds = time.monotonic() - began
    assert code == 0
    assert outcome(*scenario.folders(again)) == expected, "an emulator that was loaded before plays otherwise"
    return expected, seconds


def stopped_at(scenario: Scenario, out: Path, *, period: int, step: int) -> Path:
    """A run that was killed right after a step; its checkpoints are there."""

    def work() -> None:
        from comper.training.checkpointing import Checkpointer

        after_step = Checkpointer.after_step

        def and_die(self: Checkpointer, trials: Any, at: int) -> None:
            after_step(self, trials, at)
            if at == step:
                os._exit(9)

        Checkpointer.after_step = and_die  # type: ignore[method-assign, assignment]
        scenario.train(out, period)

    assert run(work) == 9
    return scenario.folder(out)


def copy_run(folder: Path, to: Path) -> Path:
    """A copy that may be damaged: files of checkpoints are linked, because they are replaced, never written to."""
    shutil.rmtree(to, ignore_errors=True)
    target = to / folder.parents[1].name / folder.parent.name / folder.name
    shutil.copytree(folder, target, copy_function=_link_or_copy)
    return target


def _link_or_copy(source: str, target: str) -> None:
    if Path(source).parent.name.startswith("step-"):
        os.link(source, target)
    else:
        shutil.copy(source, target)
