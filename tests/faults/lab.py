"""Short runs of real games, forked, cut, damaged and compared: what every fault test does.

The process that forks must not have computed with torch yet: its threads would not be in the child. So each row of
`torture.py` is a process of its own, and computes only in its children.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Scenario:
    """A short run."""

    agent: str
    game: str
    seed: int = 0
    frames: int = 300

    @property
    def settings(self) -> dict[str, Any]:
        compression = "zlib" if self.seed % 2 else "none"
        return {**(DQN if self.agent == "dqn" else COMPER), "frames": self.frames, "frame_compression": compression}

    def folder(self, out: Path) -> Path:
        return out / self.agent / self.game / f"seed-{self.seed}"

    def train(self, out: Path, period: int) -> None:
        """Train from the beginning."""
        train(
            self.game,
            self.agent,
            seed=self.seed,
            out=out,
            device="cpu",
            workers=0,
            checkpoint_period_steps=period,
            show_progress=False,
            **self.settings,
        )

    def go_on(self, out: Path, period: int) -> None:
        """Begin, or resume what has begun."""
        if self.folder(out).exists():
            resume(self.folder(out), device="cpu", workers=0, checkpoint_period_steps=period, show_progress=False)
        else:
            self.train(out, period)


def prepare() -> None:
    """Import once what every child needs; nothing here computes with torch."""
    import cv2  # noqa: F401
    import safetensors.numpy  # noqa: F401
    import torch._dynamo  # noqa: F401 -- torch imports it at the first update, which takes a second

    import comper.agents.comper
    import comper.agents.dqn
    import comper.learners.frame_bank
    import comper.learners.learner
    import comper.learners.optimisers
    import comper.networks.cnn
    import comper.networks.qlstm
    import comper.training.population  # noqa: F401
    from comper.environments.games import available_games
    from comper.environments.palette import pooling_table

    available_games()
    for pooling in ("average", "max"):
        pooling_table(pooling, 210)


def fork(work: Callable[[], object], *, log: Path | None = None) -> int:
    """Start a child that does the work and exits 0, or with the exit code of the error it met; return its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 99
    try:
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


def wait(child: int, timeout: float = 120.0) -> int:
    """The exit code of a child; minus the signal that ended it; it is ended after the timeout."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -999


def run(work: Callable[[], object], *, log: Path | None = None) -> int:
    """Do the work in a child and wait for it."""
    return wait(fork(work, log=log))


def outcome(folder: Path) -> dict[str, str]:
    """What must be identical: episodes, metrics without timings, final weights."""
    found = {}
    for name in (EPISODES_FILE, WEIGHTS_FILE):
        found[name] = digest((folder / name).read_bytes())["sha256"]
    stream = io.StringIO()
    for line in (folder / METRICS_FILE).read_text().splitlines():
        record = json.loads(line)
        record.pop("steps_per_second")
        stream.write(json.dumps(record) + "\n")
    found[METRICS_FILE] = digest(stream.getvalue().encode())["sha256"]
    return found


def reference(scenario: Scenario, out: Path) -> dict[str, str]:
    """The outcome of the run that nothing happens to."""
    code = run(lambda: scenario.train(out, 0), log=out.with_suffix(".log"))
    assert code == 0, out.with_suffix(".log").read_text()
    return outcome(scenario.folder(out))


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
