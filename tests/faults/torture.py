"""Every fault a run must survive, counted: `python -m tests.faults.torture` (or `make torture`) prints a table.

Each row returns how often a fault was tried and how often something was lost: another outcome than the undisturbed run's, a
traceback, a hang, a canary. A row with one loss is a defect. Rows: `--rows kills cuts ...`; sizes: `--size ci` or `full`.
`--jobs 16` spreads the attempts of each row over so many processes. It needs torch, numpy, ale-py, opencv and safetensors.

A full size can be gathered in several sittings: each tries what is missing, with another seed, and `results/torture/` keeps
the sum and the commits, as long as the code under test (`records.py`) is the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import errno
import io
import itertools
import json
import math
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from comper.errors import ComperError
from comper.runs import checkpoints
from comper.runs.folder import LOG_FILES, METRICS_FILE
from comper.runs.verify import verify_run
from comper.training.continuing import open_unfinished
from tests.faults import lab, records
from tests.faults.lab import Scenario

RESULTS = Path(__file__).parents[2] / "results" / "torture"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"

SHORT = (
    Scenario("comper-single", "asterix"),
    Scenario("dqn", "pong"),
    Scenario("comper", "breakout"),
    Scenario("comper-stacked", "seaquest"),
    Scenario("dqn", "space_invaders", seed=3),
    Scenario("comper-single", "battle_zone", seed=1),
    Scenario("comper-single", "freeway", seed=2),
    Scenario("comper", "alien", seed=1),
)
ONE_OF_EACH = SHORT[:3]


FULL_SIZE = (
    Scenario("comper-single", "asterix", frames=400, is_full_size=True),
    Scenario("dqn", "pong", frames=800, is_full_size=True),
    Scenario("comper-stacked", "seaquest", frames=800, is_full_size=True),
    Scenario("comper", "breakout", frames=400, is_full_size=True),
)
POPULATIONS = (
    Scenario("comper-single", "asterix", "freeway", trials=3, workers=2),
    Scenario("dqn", "pong", "seaquest", trials=3, processes=2),
    Scenario("comper", "breakout", "alien", trials=3, workers=2),
)

KILLS_A_RUN = 5
ORPHAN_SECONDS = 60.0
"""How long processes may outlive the one that was killed: those that run trials save first, and the machine may be busy."""

Item = TypeVar("Item")


@dataclass
class Row:
    """One line of the table."""

    name: str
    part: int = 0
    """Which of several processes this is that share the row's attempts."""
    num_parts: int = 1
    deadline: float = math.inf
    tried: int = 0
    losses: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def expect(self, holds: bool, problem: str) -> None:
        """Count one trial, and a loss where the expectation does not hold."""
        self.tried += 1
        if not holds:
            self.losses += 1
            self.problems.append(problem)

    def count(self, what: str, number: int = 1) -> None:
        self.notes[what] = self.notes.get(what, 0) + number

    def is_over(self) -> bool:
        """Whether the time is up that the row was given."""
        return time.monotonic() > self.deadline

    def mine(self, items: Iterable[Item]) -> Iterator[Item]:
        """Those that are this process's share, as long as there is time."""
        for item in list(items)[self.part :: self.num_parts]:
            if self.is_over():
                return
            yield item

    def share(self, count: int) -> int:
        """How many of all attempts are this process's."""
        return len(range(count)[self.part :: self.num_parts])

    def add(self, other: Row) -> None:
        """Add what another process has counted."""
        self.tried += other.tried
        self.losses += other.losses
        self.problems += other.problems
        self.notes = records.summed(self.notes, other.notes)


@contextmanager
def laboratory() -> Iterator[Path]:
    """A folder for one row."""
    with tempfile.TemporaryDirectory(prefix="comper-torture-") as name:
        yield Path(name)


# Rows


def kills(row: Row, count: int, rng: random.Random) -> None:
    """kill -9 at random moments, until the run has finished; several games and both agents."""
    _kill(row, count, rng, SHORT, period=5)


def kills_full_size(row: Row, count: int, rng: random.Random) -> None:
    """The same with the paper's networks and screens of 84 x 84."""
    _kill(row, count, rng, FULL_SIZE, period=5)


def kills_populations(row: Row, count: int, rng: random.Random) -> None:
    """The same with six trials in several processes, which must die with the one that started them."""
    _kill(row, count, rng, POPULATIONS, period=5)


def _kill(row: Row, count: int, rng: random.Random, scenarios: tuple[Scenario, ...], *, period: int) -> None:
    count = row.share(count)
    row.notes |= {"kills": 0, "runs": 0}
    with laboratory() as folder:
        references: dict[Scenario, tuple[dict[str, str], float]] = {}
        while row.notes["kills"] < count and not row.is_over():
            scenario = scenarios[(row.part + row.notes["runs"]) % len(scenarios)]
            if scenario not in references:
                references[scenario] = lab.timed_reference(scenario, folder / f"reference-{len(references)}")
            expected, seconds = references[scenario]
            out = folder / str(row.notes["runs"])
            out.mkdir()
            budget = min(KILLS_A_RUN, count - row.notes["kills"])
            num_killed = _kill_until_finished(
                row, scenario, out, rng, budget, partial(scenario.go_on, out / "run", period), seconds
            )
            row.expect(lab.outcome(*scenario.folders(out / "run")) == expected, f"{scenario}: another outcome")
            row.tried += num_killed - 1
            row.count("kills", num_killed)
            row.count("runs")
            shutil.rmtree(out)


def _kill_until_finished(
    row: Row, scenario: Scenario, out: Path, rng: random.Random, budget: int, work: Callable[[], None], seconds: float
) -> int:
    """Kill a run so many times at most, each time at a moment of the time that a whole run takes."""
    num_killed = 0
    while True:
        child = lab.fork(work, log=out / "log", is_leader=True)
        if num_killed < budget:
            time.sleep(rng.uniform(0.0, seconds))
            os.kill(child, signal.SIGKILL)
        code = lab.wait(child)
        began = time.monotonic()
        orphans = lab.wait_for_group(child, ORPHAN_SECONDS)
        slowest = "slowest seconds until all its processes were gone"
        row.notes[slowest] = round(max(row.notes.get(slowest, 0.0), time.monotonic() - began), 2)
        if orphans:
            row.expect(False, f"{scenario}: left {orphans} processes alive")
        if code == 0:
            return num_killed
        if code != -signal.SIGKILL:
            row.expect(False, f"{scenario}: exit code {code}: {(out / 'log').read_text()[-300:]}")
            return num_killed
        num_killed += 1


FRAMES_PER_STEP = 5
CHAINS = (Scenario("comper-single", "asterix"), Scenario("dqn", "pong", seed=1), Scenario("comper", "breakout"))


def cuts(row: Row, count: int, rng: random.Random) -> None:
    """Stop after every single step, and continue in another process from what is on disk."""
    count = row.share(count)
    with laboratory() as out:
        while row.tried < count and not row.is_over():
            number = row.notes.get("runs", 0)
            scenario = CHAINS[(row.part + number) % len(CHAINS)]
            num_steps = max(20, min(count // len(CHAINS), count - row.tried))
            frames = num_steps * FRAMES_PER_STEP
            scenario = dataclasses.replace(scenario, seed=scenario.seed + 2 * (row.part + number), frames=frames)
            expected = lab.reference(scenario, out / f"reference-{number}")
            num_cuts = _cut_every_step(scenario, out / f"run-{number}", out / "log", row)
            row.tried += num_cuts
            if row.is_over():
                return
            row.expect(lab.outcome(scenario.folder(out / f"run-{number}")) == expected, f"{scenario}: another outcome")
            row.tried -= 1
            row.count("runs")


def _cut_every_step(scenario: Scenario, out: Path, log: Path, row: Row) -> int:
    num_cuts = 0
    while (code := lab.run(lambda: _one_step(scenario, out), log=log)) == 9 and not row.is_over():
        num_cuts += 1
    assert code == 0 or row.is_over(), log.read_text()
    return num_cuts


def _one_step(scenario: Scenario, out: Path) -> None:
    from comper.training.checkpointing import Checkpointer

    def save_and_die(self: Checkpointer, trials: Any, step: int) -> None:
        if any(saved.trial.is_running for saved in self._trials):
            self.write(step)
            os._exit(9)

    Checkpointer.after_step = save_and_die  # type: ignore[method-assign]
    scenario.go_on(out, 1)


def write_points(row: Row, count: int, rng: random.Random) -> None:
    """End the process at every call that changes the disk: in a checkpoint's writing; at full size in the whole run."""
    del rng
    with laboratory() as out:
        scenario = Scenario("dqn", "pong", frames=100)
        expected = lab.reference(scenario, out / "reference")
        for is_half in (False, True):
            for point in itertools.count(row.part, row.num_parts):
                shutil.rmtree(out / "run", ignore_errors=True)
                work = partial(_die_at, scenario, out / "run", point, half_a_write=is_half, everywhere=bool(count))
                code = lab.run(work, log=out / "log")
                if code == 0 or row.is_over():
                    break
                again = lab.run(partial(scenario.go_on, out / "run", 8), log=out / "log")
                is_same = again == 0 and lab.outcome(scenario.folder(out / "run")) == expected
                row.expect(code == 9 and is_same, f"call {point}: {code}, {again}: {(out / 'log').read_text()[-300:]}")


DISK_CALLS = ("write", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "ftruncate", "open")


def _die_at(scenario: Scenario, out: Path, point: int, *, half_a_write: bool, everywhere: bool) -> None:
    from comper.training.checkpointing import Checkpointer

    if everywhere:
        _patch_disk_calls(point, half_a_write=half_a_write)
    else:
        save = Checkpointer.write

        def dying_save(self: Checkpointer, step: int) -> None:
            if step == 24:  # the third, after which the first is pruned
                _patch_disk_calls(point, half_a_write=half_a_write)
            save(self, step)
            if step == 24:
                os._exit(0)  # past the last call

        Checkpointer.write = dying_save  # type: ignore[method-assign]
    scenario.train(out, 8)


def _patch_disk_calls(point: int, *, half_a_write: bool) -> None:
    counter = iter(range(1 << 60))
    for name in ("write",) if half_a_write else DISK_CALLS:
        real = getattr(os, name)

        def call(*args: Any, _real: Any = real, **kwargs: Any) -> Any:
            if next(counter) == point:
                if half_a_write:
                    _real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os._exit(9)
            return _real(*args, **kwargs)

        setattr(os, name, call)


def damage(row: Row, count: int, rng: random.Random) -> None:
    """The newest checkpoint is torn or has a flipped bit: noticed, the one before it is used, the outcome is the same."""
    with laboratory() as out:
        bases = _bases(out, ONE_OF_EACH, period=9, step=83)
        for number in row.mine(range(count)):
            scenario, base, expected = bases[number % len(bases)]
            folder = lab.copy_run(base, out / "copy")
            newest, older = checkpoints.paths(folder)[:2]
            harm(newest, rng)
            verdict = verify_run(folder)
            run = open_unfinished(folder)
            is_noticed = bool(verdict.damaged) and run is not None and run.checkpoints[-1].path == older
            if run:
                run.lock.release()
            code = lab.run(partial(scenario.go_on, out / "copy", 20), log=out / "log")
            row.expect(is_noticed, "not noticed")
            row.expect(code == 0 and lab.outcome(folder) == expected, f"{scenario}: {code} {(out / 'log').read_text()[-300:]}")
            row.tried -= 1
            row.count("noticed", int(is_noticed))


def _bases(
    out: Path, scenarios: tuple[Scenario, ...], *, period: int = 20, step: int = 70
) -> list[tuple[Scenario, Path, dict[str, str]]]:
    """Runs of 90 steps that were killed on the way, and what must come of them."""
    found = []
    for place, scenario in enumerate(scenarios):
        expected = lab.reference(scenario, out / f"reference-{place}")
        found.append((scenario, lab.stopped_at(scenario, out / f"base-{place}", period=period, step=step), expected))
    return found


def harm(folder: Path, rng: random.Random) -> None:
    """Flip a bit of a file, tear it, empty it, delete it, or add to it."""
    path = rng.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    path.unlink()  # the file may be linked to the undamaged run
    kind = rng.choice(["flip", "flip", "flip", "tear", "empty", "delete", "grow"])
    if kind == "delete":
        return
    if kind == "flip":
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    torn = bytes(content[: rng.randrange(len(content))])
    changed: dict[str, bytes] = {"tear": torn, "empty": b"", "grow": bytes(content) + b"\0"}
    path.write_bytes(changed.get(kind, bytes(content)))


def log_tails(row: Row, count: int, rng: random.Random) -> None:
    """The end of a log is torn or garbage."""
    with laboratory() as out:
        bases = _bases(out, ONE_OF_EACH, period=9, step=83)
        for number in row.mine(range(count)):
            scenario, base, expected = bases[number % len(bases)]
            folder = lab.copy_run(base, out / "copy")
            for name in rng.sample(LOG_FILES, rng.randint(1, 2)):
                _spoil_tail(folder / name, rng)
            code = lab.run(partial(scenario.go_on, out / "copy", 20), log=out / "log")
            row.expect(code == 0 and lab.outcome(folder) == expected, f"{scenario}: {code} {(out / 'log').read_text()[-300:]}")


def _spoil_tail(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    garbage = rng.choice([b"\0" * 300, b'{"episode": 9', rng.randbytes(200), b"\n\n\n", content, b"[]\n"])
    if rng.random() < 0.5:
        content = content[: rng.randrange(len(content) + 1)]
    path.write_bytes(content + (garbage if rng.random() < 0.7 else b""))


def disk(row: Row, count: int, rng: random.Random) -> None:
    """No room at any byte, an error of any call, a folder that cannot be written to: exit code 4, and nothing is lost."""
    with laboratory() as out:
        scenario, base, expected = _bases(out, SHORT[1:2])[0]
        largest = max(path.stat().st_size for path in base.rglob("*") if path.is_file())
        drawn = random.Random(count)  # the same in every part, which then share the limits
        limits = sorted({0, 1, largest - 1, *(drawn.randrange(largest) for _ in range(count))})
        for limit in row.mine(limits):
            _expect_clean_stop(row, scenario, base, out, expected, partial(_limit_files, limit), "files of at most")
            row.count("no room")
        for code in (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS):
            for point in row.mine(range(_calls_of_a_save(scenario, base, out)) if code == errno.EIO else [0, 1, 2]):
                _expect_clean_stop(row, scenario, base, out, expected, partial(_fail_at, code, point), os.strerror(code))
                row.count(errno.errorcode[code])


def _expect_clean_stop(
    row: Row, scenario: Scenario, base: Path, out: Path, expected: dict[str, str], spoil: Callable[[], None], what: str
) -> None:
    """A resumed run meets the fault at its first checkpoint; without the fault it goes on to the same end."""
    folder = lab.copy_run(base, out / "copy")

    def work() -> None:
        spoil()
        scenario.go_on(out / "copy", 20)

    (out / "log").unlink(missing_ok=True)
    code = lab.run(work, log=None if isinstance(spoil, partial) and spoil.args[0] in range(4096) else out / "log")
    text = (out / "log").read_text() if (out / "log").exists() else ""  # the limit would hold for the log as well
    again = lab.run(lambda: scenario.go_on(out / "copy", 20), log=out / "log-2")
    is_same = again == 0 and lab.outcome(folder) == expected
    row.expect(code in (0, 2, 4) and is_same and "Traceback" not in text, f"{what}: {code}, {again}: {text[-400:]}")


def _limit_files(num_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


def _fail_at(code: int, point: int) -> None:
    """Let the n-th call of a save fail."""
    from comper.training.checkpointing import Checkpointer

    save = Checkpointer.write

    def failing_save(self: Checkpointer, step: int) -> None:
        counter = iter(range(1 << 60))
        for name in DISK_CALLS:
            real = getattr(os, name)

            def call(*args: Any, _real: Any = real, **kwargs: Any) -> Any:
                if next(counter) == point:
                    raise OSError(code, os.strerror(code))
                return _real(*args, **kwargs)

            setattr(os, name, call)
        save(self, step)

    Checkpointer.write = failing_save  # type: ignore[method-assign]


def _calls_of_a_save(scenario: Scenario, base: Path, out: Path) -> int:
    """How many calls one save makes."""
    lab.copy_run(base, out / "copy")

    def work() -> None:
        from comper.training.checkpointing import Checkpointer

        save = Checkpointer.write

        def counting_save(self: Checkpointer, step: int) -> None:
            num_calls = [0]
            for name in DISK_CALLS:
                real = getattr(os, name)

                def call(*args: Any, _real: Any = real, **kwargs: Any) -> Any:
                    num_calls[0] += 1
                    return _real(*args, **kwargs)

                setattr(os, name, call)
            save(self, step)
            os._exit(min(90, num_calls[0]))

        Checkpointer.write = counting_save  # type: ignore[method-assign]
        scenario.go_on(out / "copy", 20)

    return lab.run(work)


def small_disk(row: Row, count: int, rng: random.Random) -> None:
    """A file system of a few megabytes that fills up, and one that is read-only; needs the right to mount."""
    del count, rng
    with laboratory() as out:
        scenario = SHORT[1]
        expected = lab.reference(scenario, out / "reference")
        place = out / "mounted"
        place.mkdir()
        for megabytes in row.mine([1, 2, 4, 6, 8]):
            if not _mount(place, f"size={megabytes}m"):
                row.notes["skipped"] = "no right to mount"
                return
            try:
                code = lab.run(lambda: _without_preflight(lambda: scenario.go_on(place / "run", 10)), log=out / "log")
                text = (out / "log").read_text()
                row.expect(code in (0, 2, 4) and "Traceback" not in text, f"{megabytes} MB: {code}: {text[-300:]}")
                row.count(f"exit code {code}")
                subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
                code = lab.run(lambda: scenario.go_on(place / "run", 10), log=out / "log")
                row.expect(code in (0, 2, 4) and "Traceback" not in (out / "log").read_text(), f"read-only: {code}")
                subprocess.run(["mount", "-o", "remount,rw,size=100m", str(place)], check=True)
                code = lab.run(lambda: scenario.go_on(place / "run", 10), log=out / "log")
                is_same = code == 0 and lab.outcome(scenario.folder(place / "run")) == expected
                row.expect(is_same, f"{megabytes} MB, after making room: {code} {(out / 'log').read_text()[-300:]}")
            finally:
                subprocess.run(["umount", str(place)], check=True)


def _mount(place: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _without_preflight(work: Callable[[], None]) -> None:
    from comper.training import preflight

    preflight.available_disk = lambda folder: 1 << 40
    work()


def two_writers(row: Row, count: int, rng: random.Random) -> None:
    """A second process on the same run is refused, whatever it wants to do."""
    del count
    if row.part > 0:
        return
    with laboratory() as out:
        scenario = Scenario("comper-single", "asterix", frames=2000)
        first = lab.fork(lambda: scenario.train(out / "run", 20))
        while not checkpoints.paths(scenario.folder(out / "run")):
            time.sleep(0.02)
        for _ in range(3):
            code = lab.run(lambda: scenario.go_on(out / "run", 20), log=out / "log")
            row.expect(code == 6, f"resume: {code}")
            code = lab.run(lambda: scenario.train(out / "run", 20), log=out / "log")
            row.expect(code == 2, f"train: {code}")
        os.kill(first, signal.SIGKILL)
        lab.wait(first)
        run = open_unfinished(scenario.folder(out / "run"))
        row.expect(run is not None, "the lock of a dead process still holds")


def readers(row: Row, count: int, rng: random.Random) -> None:
    """A run that is being written is read all the while, and begun anew when it has ended: never called damaged."""
    with laboratory() as out:
        count = row.share(count)
        while row.tried < count and not row.is_over():
            shutil.rmtree(out / "run", ignore_errors=True)
            scenario = rng.choice(SHORT)
            folder = scenario.folder(out / "run")
            writer = lab.fork(partial(scenario.train, out / "run", 1), log=out / "log")
            while row.tried < count and not os.waitpid(writer, os.WNOHANG)[0]:
                if folder.exists():
                    verdict = verify_run(folder, with_states=rng.random() < 0.7)
                    row.expect(not verdict.damaged, str(verdict))
            lab.end_child(writer)
            row.count("runs")


def signals(row: Row, count: int, rng: random.Random) -> None:
    """Each signal: a checkpoint within 5 seconds, exit code 130, and the same outcome after resuming."""
    with laboratory() as out:
        names = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]
        slowest = 0.0
        bases = [(scenario, lab.reference(scenario, out / f"reference-{k}")) for k, scenario in enumerate(ONE_OF_EACH)]
        for number in row.mine(range(max(count, len(names)))):
            scenario, expected = bases[number // len(names) % 2]
            name = names[number % len(names)]
            shutil.rmtree(out / "run", ignore_errors=True)
            child = lab.fork(partial(scenario.train, out / "run", 1000), log=out / "log")
            while not (scenario.folder(out / "run") / METRICS_FILE).exists():
                time.sleep(0.005)
            time.sleep(rng.uniform(0.05, 0.3))
            began = time.monotonic()
            os.kill(child, getattr(signal, name))
            code = lab.wait(child)
            took = time.monotonic() - began
            slowest = max(slowest, took)
            text = (out / "log").read_text()
            is_told = code == 0 or (code == 130 and "comper resume" in text)  # 0: it had finished by then
            row.count("stopped", int(code == 130))
            again = lab.run(partial(scenario.go_on, out / "run", 1000), log=out / "log")
            is_same = again == 0 and lab.outcome(scenario.folder(out / "run")) == expected
            row.expect(is_told and took < 5 and is_same, f"{name}: {code}, {took:.1f} s, {again}: {text[-300:]}")
        row.notes["slowest seconds"] = round(slowest, 2)


def fuzz(row: Row, count: int, rng: random.Random) -> None:
    """Malformed configurations, checkpoints, logs and memories: one sentence each, no traceback, no hang, memory bounded."""
    count = row.share(count)
    with laboratory() as out:
        _, base, _ = _bases(out, SHORT[:1])[0]
        folder = lab.copy_run(base, out / "copy")
        child = lab.fork(lambda: _fuzz_in_child(row, count, rng, folder, out / "result.json"), log=out / "log")
        code = lab.wait(child, timeout=36_000)
        if code != 0:
            row.expect(False, f"{code}: {(out / 'log').read_text()[-1000:]}")
            return
        result = json.loads((out / "result.json").read_text())
        row.tried, row.losses = result["tried"], len(result["problems"])
        row.problems, row.notes = result["problems"][:5], result["notes"]


def _fuzz_in_child(row: Row, count: int, rng: random.Random, folder: Path, result: Path) -> None:
    from tests.faults.fuzzing import fuzz_all

    tried, problems, notes = fuzz_all(count, rng, folder, row)
    result.write_text(json.dumps({"tried": tried, "problems": problems, "notes": notes}))


def cli(row: Row, count: int, rng: random.Random) -> None:
    """Random command lines, with little memory: a sentence and an exit code each, no traceback, no hang."""
    count = row.share(count)
    with laboratory() as out:
        _, base, _ = _bases(out, SHORT[:1])[0]
        place = out / "above" / "beside" / "place"  # so deep that `../..` leads to no folder of others
        lab.copy_run(base, place / "whole")
        lab.reference(SHORT[1], place / "finished")
        torn = lab.copy_run(base, place / "torn")
        (torn / "manifest.json").write_text("{")
        child = lab.fork(lambda: _cli_in_child(row, count, rng, place, out / "result.json"), log=out / "log")
        code = lab.wait(child, timeout=36_000)
        if code != 0:
            row.expect(False, f"{code}: {(out / 'log').read_text()[-1000:]}")
            return
        result = json.loads((out / "result.json").read_text())
        row.tried, row.losses = result["tried"], len(result["problems"])
        row.problems, row.notes = result["problems"][:5], result["notes"]


def _cli_in_child(row: Row, count: int, rng: random.Random, place: Path, result: Path) -> None:
    from tests.faults.commands import fuzz_commands

    tried, problems, notes = fuzz_commands(count, rng, place, row)
    result.write_text(json.dumps({"tried": tried, "problems": problems, "notes": dict(sorted(notes.items()))}))


class Canary:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def payloads(row: Row, count: int, rng: random.Random) -> None:
    """Pickles, zips, npz files and links in place of every file: nothing runs, nothing outside the folder changes."""
    with laboratory() as out:
        canary, outside = out / "canary", out / "outside"
        _, base, _ = _bases(out, SHORT[:1], period=1, step=89)[0]
        names = sorted(str(path.relative_to(base)) for path in base.rglob("*") if path.is_file())
        for name in row.mine(name for name in names if count or "step-" not in name or "step-00000089" in name):
            for kind, payload in _payloads(canary).items():
                for is_sealed in (False, True):
                    outside.write_bytes(b"mine")
                    work = partial(_try_payload, name, payload, base, out / "copy", outside, is_sealed=is_sealed)
                    code = lab.run(work, log=out / "log")
                    is_harmless = code == 0 and not canary.exists() and outside.read_bytes() == b"mine"
                    row.expect(is_harmless, f"{kind} as {name}: {code} {(out / 'log').read_text()[-600:]}")
        row.notes["canaries"] = int(canary.exists())


def _try_payload(name: str, payload: bytes | None, base: Path, copy: Path, outside: Path, *, is_sealed: bool) -> None:
    """A payload in place of one file, as it is or with digests that fit."""
    folder = lab.copy_run(base, copy)
    _replace(folder / name, payload, outside)
    if is_sealed:
        _seal_again(folder)
    try:
        _all_commands(folder)
    except ComperError as error:
        print(error)


def _payloads(canary: Path) -> dict[str, bytes | None]:
    bomb = pickle.dumps(Canary(canary))
    zipped, arrays = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("../../canary", b"x")
        archive.writestr("data.pkl", bomb)
    np.savez(arrays, a=np.array([Canary(canary)], object))
    lines = b'{"__reduce__": ["os.system", "touch canary"]}\n'
    return {"pickle": bomb, "zip": zipped.getvalue(), "npz": arrays.getvalue(), "json": lines, "link": None, "folder": b"/"}


def _replace(path: Path, payload: bytes | None, outside: Path) -> None:
    path.unlink()
    if payload is None:
        path.symlink_to(outside)
    elif payload == b"/":
        path.mkdir()
    else:
        path.write_bytes(payload)


def _seal_again(folder: Path) -> None:
    """What an attacker would do: make the digests of every checkpoint fit its files."""
    from comper.runs.files import digest, sealed

    for path in checkpoints.paths(folder):
        try:
            about = checkpoints.open_checkpoint(path).about
            about["files"] = {name: digest((path / name).read_bytes()) for name in checkpoints.FILES}
        except (ComperError, OSError):
            continue
        (path / checkpoints.ABOUT_FILE).unlink()
        (path / checkpoints.ABOUT_FILE).write_text(json.dumps(sealed(about)))


def _all_commands(folder: Path) -> None:
    verify_run(folder)
    from comper.runs.manifest import Manifest
    from comper.training.resume import resume
    from comper.training.weights import saved_weights

    try:
        saved_weights(folder, Manifest(agent="any", game="any", seed=0))
    except ComperError as error:
        print(error)
    resume(folder, checkpoint_period_steps=20, show_progress=False, workers=0, device="cpu")


def soak(row: Row, count: int, rng: random.Random) -> None:
    """Process memory against frames, once the memories are full; count is the number of frames."""
    del rng
    with laboratory() as out:
        for agent in row.mine(["comper-single", "dqn", "comper"]):
            code = lab.wait(lab.fork(partial(_soak_in_child, agent, count // 3, out), log=out / "log"), timeout=36_000)
            if code != 0:
                row.expect(False, f"{agent}: {code} {(out / 'log').read_text()[-500:]}")
                continue
            points = json.loads((out / f"{agent}.json").read_text())
            half = points[len(points) // 2 :]
            frames, rss = np.array([p[0] for p in half]), np.array([p[1] for p in half])
            slope = float(np.polyfit(frames, rss, 1)[0]) * 1e6 / 1e6
            row.notes[f"{agent} MB per 1,000,000 frames"] = round(slope, 2)
            row.notes[f"{agent} MB at the end"] = round(float(rss[-1]) / 1e6, 1)
            growth = float(rss[-1] - rss[0]) / 1e6
            row.notes[f"{agent} MB grown in the second half"] = round(growth, 2)
            row.expect(growth < 8, f"{agent}: {growth:.1f} MB more in the second half")


def _soak_in_child(agent: str, frames: int, out: Path) -> None:
    from comper.training import checkpointing

    points: list[tuple[int, int]] = []
    after_step = checkpointing.Checkpointer.after_step

    def note(self: checkpointing.Checkpointer, trials: Any, step: int) -> None:
        after_step(self, trials, step)
        if step % 100 == 0:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            points.append((self._trials[0].trial.total_frames, resident))

    checkpointing.Checkpointer.after_step = note  # type: ignore[method-assign]
    scenario = Scenario(agent, "asterix", frames=frames)
    scenario.train(out / agent, max(200, frames // 100))
    (out / f"{agent}.json").write_text(json.dumps(points))


# The table


@dataclass(frozen=True)
class Kind:
    """A row's title, function and sizes, with words where a size is no number."""

    title: str
    work: Callable[[Row, int, random.Random], None]
    ci: int
    full: int
    words: tuple[str, str] | None = None
    """Of a row that tries all there is: a second sitting would try the same again, and counts in place of the first."""

    @property
    def sizes(self) -> tuple[str, str]:
        """The sizes as the documentation shows them."""
        return self.words or (f"{self.ci:,}", f"{self.full:,}")


ROWS = {
    "kills": Kind("kill -9 at random moments; outcome identical", kills, 10, 300),
    "kills_full_size": Kind("kill -9 with the paper's networks and screens; outcome identical", kills_full_size, 2, 30),
    "kills_populations": Kind(
        "kill -9 of six trials in two workers or processes; none is left, outcome identical", kills_populations, 2, 30
    ),
    "cuts": Kind("stopped after every step of a run; outcome identical", cuts, 50, 1_000),
    "write_points": Kind(
        "ended at every call that changes the disk, or in mid-write; outcome identical",
        write_points, 0, 1, ("every call of one save", "every call of a run"),
    ),
    "damage": Kind("newest checkpoint torn or flipped: noticed, older one used, outcome identical", damage, 50, 1_000),
    "log_tails": Kind("log tail torn or garbage; outcome identical", log_tails, 50, 1_000),
    "disk": Kind(
        "no room at any byte, EIO, EACCES, EROFS: reported, outcome identical afterwards", disk, 10, 200, ("43", "about 230")
    ),
    "small_disk": Kind(
        "a small or read-only file system: reported, outcome identical afterwards", small_disk, 0, 0, ("15", "15")
    ),
    "two_writers": Kind("a second process on the run: refused", two_writers, 0, 0, ("7", "7")),
    "readers": Kind("a run verified while it is written: never called damaged", readers, 100, 5_000),
    "signals": Kind("SIGINT, SIGTERM, SIGHUP, SIGUSR1: saved within 5 s, outcome identical", signals, 4, 100),
    "fuzz": Kind("malformed configurations, checkpoints, logs, memories: one sentence", fuzz, 5_000, 200_000),
    "cli": Kind("random command lines in 6 GB of memory: a sentence and an exit code", cli, 300, 10_000),
    "payloads": Kind(
        "pickle, zip, npz, link, folder in place of every file: nothing runs", payloads, 0, 1, ("newest checkpoint", "all")
    ),
    "soak": Kind(
        "three runs whose memories are full: less than 8 MB more in the second half of the frames",
        soak, 100_000, 1_000_000, ("100,000 frames", "1,000,000 frames"),
    ),
}  # fmt: skip


TABLE = re.compile(r"(<!-- table: torture -->\n).*?(<!-- end of table -->)", re.DOTALL)


def results_table(results: Path = RESULTS) -> str:
    """The table of docs/reliability.md, from what the results hold."""
    lines = ["| fault | `make test` | `make torture` | tried | lost | at | earlier | lost |", "| --- |" + " --- |" * 7]
    for name, kind in ROWS.items():
        row = records.read(results / f"{name}.json") or {"tried": 0, "losses": 0}
        earlier = row.get("earlier", {"tried": 0, "losses": 0})
        commits = ", ".join(dict.fromkeys(sitting["commit"] for sitting in row.get("sittings", [])))
        cells = [
            kind.title,
            *kind.sizes,
            f"{row['tried']:,}",
            row["losses"],
            commits,
            f"{earlier['tried']:,}",
            earlier["losses"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "".join(line + "\n" for line in lines)


def document(text: str) -> str:
    """The documentation with the table as it is now."""
    return TABLE.sub(lambda match: match[1] + results_table() + match[2], text)


def run_row(name: str, number: int, seed: int, jobs: int = 1, minutes: float = math.inf) -> Row:
    """Run one row, in so many processes, for so many minutes at most."""
    row, began = Row(name), time.monotonic()
    with laboratory() as out:
        children = [
            lab.fork(
                partial(_run_part, Row(name, part, jobs, began + 60 * minutes), number, seed, out), log=out / f"{part}.log"
            )
            for part in range(jobs)
        ]
        for part, child in enumerate(children):
            code = lab.wait(child, timeout=36_000)
            if code == 0:
                row.add(Row(**json.loads((out / f"{part}.json").read_text())))
            else:
                row.expect(False, f"part {part}: {code}: {(out / f'{part}.log').read_text()[-1000:]}")
    row.seconds = round(time.monotonic() - began, 1)
    return row


def _run_part(row: Row, count: int, seed: int, out: Path) -> None:
    ROWS[row.name].work(row, count, random.Random(f"{seed} {row.part}"))
    (out / f"{row.part}.json").write_text(json.dumps(asdict(row)))


def _sit(name: str, record: dict[str, Any], code: str, args: argparse.Namespace) -> dict[str, Any]:
    """One sitting of a row: what is missing to its size, tried and printed; return the record with it."""
    kind = ROWS[name]
    asked, before = getattr(kind, args.size), 0 if kind.words else records.tried(record, code)
    number = args.count if args.count is not None else asked if kind.words else max(0, asked - before)
    if not number and before:
        print(f"{kind.title:<82} tried {before:>7,} of {asked:,} with this very code before", flush=True)
        return record
    seed = args.seed if args.seed is not None else len(record.get("sittings", [])) if before else 0
    row = run_row(name, number, seed, args.jobs, args.minutes)
    counted = {key: value for key, value in asdict(row).items() if "part" not in key and key != "deadline"}
    sitting = {"title": kind.title, **counted, "asked": asked, "commit": records.commit(), "seed": seed, "jobs": args.jobs}
    sitting["problems"] = row.problems[:5]
    if kind.words and record.get("code") == code:  # the same once more
        record = {"tried": 0, "losses": 0, "seconds": 0.0, "problems": [], "notes": {}, "sittings": [], **_kept(record)}
    new = records.added(record, sitting, code=code)
    whole = "" if kind.words else f" of {asked:,}"
    notes = ", ".join(f"{key}: {value}" for key, value in row.notes.items())
    print(
        f"{kind.title:<82} tried {new['tried']:>7,}{whole}  lost {new['losses']}  {row.seconds:>7.1f} s  {notes}", flush=True
    )
    for problem in row.problems[:5]:
        print(f"    {problem}", flush=True)
    return new


def _kept(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("code", "earlier") if key in record}


def main() -> int:
    """Run rows, print the table, write results/torture/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--size", choices=["ci", "full"], default="full")
    parser.add_argument("--count", type=int, help="so many more, instead of what is missing to the size's own counts")
    parser.add_argument("--seed", type=int, help="of what is random; each sitting has another by itself")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop a row after so many, and count what was tried")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the attempts of a row")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--document", action="store_true", help="run nothing; put the results into docs/reliability.md")
    args = parser.parse_args()
    if args.document:
        DOCUMENT.write_text(document(DOCUMENT.read_text()))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the rows are about CPUs, and a process that holds a GPU must not fork
    lab.prepare()
    code, losses = records.code_digest(), 0
    for name in args.rows:
        path = args.out / f"{name}.json"
        record = _sit(name, records.read(path), code, args)
        losses += record["losses"]
        path.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if losses else 0


if __name__ == "__main__":
    sys.exit(main())
