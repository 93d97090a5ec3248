"""Every fault a run must survive, counted: `python -m tests.faults.torture` (or `make torture`) prints a table.

Each row returns how often a fault was tried and how often something was lost: another outcome than the undisturbed run's, a
traceback, a hang, a canary. A row with one loss is a defect. Rows: `--rows kills cuts ...`; sizes: `--size ci` or `full`.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from comper.errors import ComperError
from comper.runs import checkpoints
from comper.runs.folder import LOG_FILES, METRICS_FILE
from comper.runs.verify import verify_run
from comper.training.continuing import open_unfinished
from tests.faults import lab
from tests.faults.lab import Scenario

RESULTS = Path(__file__).parents[2] / "results" / "torture"

SHORT = (
    Scenario("comper-single", "asterix"),
    Scenario("dqn", "pong"),
    Scenario("comper-stacked", "seaquest"),
    Scenario("dqn", "space_invaders", seed=3),
    Scenario("comper-single", "battle_zone", seed=1),
    Scenario("comper-single", "freeway", seed=2),
)


KILLS_A_RUN = 5


@dataclass
class Row:
    """One line of the table."""

    name: str
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


@contextmanager
def laboratory() -> Iterator[Path]:
    """A folder for one row."""
    with tempfile.TemporaryDirectory(prefix="comper-torture-") as name:
        yield Path(name)


# Rows


def kills(row: Row, count: int, rng: random.Random) -> None:
    """kill -9 at random moments, until the run has finished; several games and both agents."""
    with laboratory() as folder:
        references: dict[Scenario, dict[str, str]] = {}
        while row.notes.get("kills", 0) < count:
            scenario = SHORT[row.notes.get("runs", 0) % len(SHORT)]
            if scenario not in references:
                references[scenario] = lab.reference(scenario, folder / f"reference-{len(references)}")
            out = folder / str(row.notes.get("runs", 0))
            out.mkdir()
            budget = min(KILLS_A_RUN, count - row.notes.get("kills", 0))
            num_killed = _kill_until_finished(row, scenario, out, rng, budget)
            is_same = lab.outcome(scenario.folder(out / "run")) == references[scenario]
            row.expect(is_same, f"{scenario}: another outcome")
            row.tried += num_killed - 1
            row.count("kills", num_killed)
            row.count("runs")
            shutil.rmtree(out)


def _kill_until_finished(row: Row, scenario: Scenario, out: Path, rng: random.Random, budget: int) -> int:
    num_killed = 0
    while True:
        child = lab.fork(lambda: scenario.go_on(out / "run", 5), log=out / "log")
        if num_killed < budget:
            time.sleep(rng.uniform(0.0, 0.6))
            os.kill(child, signal.SIGKILL)
        code = lab.wait(child)
        if code == 0:
            return num_killed
        if code != -signal.SIGKILL:
            row.expect(False, f"{scenario}: exit code {code}: {(out / 'log').read_text()[-300:]}")
            return num_killed
        num_killed += 1


def cuts(row: Row, count: int, rng: random.Random) -> None:
    """Stop after every single step, and continue in another process from what is on disk."""
    with laboratory() as out:
        scenarios = [Scenario("comper-single", "asterix"), Scenario("dqn", "pong", seed=1)]
        for place, scenario in enumerate(scenarios):
            frames = max(100, 5 * (count // len(scenarios)) - 150)
            scenario = Scenario(scenario.agent, scenario.game, scenario.seed, frames)
            expected = lab.reference(scenario, out / f"reference-{place}")
            num_cuts = _cut_every_step(scenario, out / f"run-{place}", out / "log")
            row.expect(lab.outcome(scenario.folder(out / f"run-{place}")) == expected, f"{scenario}: another outcome")
            row.tried += num_cuts - 1


def _cut_every_step(scenario: Scenario, out: Path, log: Path) -> int:
    num_cuts = 0
    while (code := lab.run(lambda: _one_step(scenario, out), log=log)) == 9:
        num_cuts += 1
    assert code == 0, log.read_text()
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
            point = 0
            while True:
                shutil.rmtree(out / "run", ignore_errors=True)
                work = partial(_die_at, scenario, out / "run", point, half_a_write=is_half, everywhere=bool(count))
                code = lab.run(work, log=out / "log")
                if code == 0:
                    break
                again = lab.run(partial(scenario.go_on, out / "run", 8), log=out / "log")
                is_same = again == 0 and lab.outcome(scenario.folder(out / "run")) == expected
                row.expect(code == 9 and is_same, f"call {point}: {code}, {again}: {(out / 'log').read_text()[-300:]}")
                point += 1


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
        bases = _bases(out, SHORT[:2], period=9, step=83)
        for number in range(count):
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
        bases = _bases(out, SHORT[:2], period=9, step=83)
        for number in range(count):
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
        limits = sorted({0, 1, *(rng.randrange(largest) for _ in range(count)), largest - 1})
        for limit in limits:
            _expect_clean_stop(row, scenario, base, out, expected, partial(_limit_files, limit), "files of at most")
            row.count("no room")
        for code in (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS):
            for point in range(_calls_of_a_save(scenario, base, out)) if code == errno.EIO else [0, 1, 2]:
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
        for megabytes in (1, 2, 4, 6, 8):
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


def signals(row: Row, count: int, rng: random.Random) -> None:
    """Each signal: a checkpoint within 5 seconds, exit code 130, and the same outcome after resuming."""
    with laboratory() as out:
        names = ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"]
        slowest = 0.0
        bases = [(scenario, lab.reference(scenario, out / f"reference-{k}")) for k, scenario in enumerate(SHORT[:2])]
        for number in range(max(count, len(names))):
            scenario, expected = bases[number % 2]
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
    with laboratory() as out:
        _, base, _ = _bases(out, SHORT[:1])[0]
        folder = lab.copy_run(base, out / "copy")
        child = lab.fork(lambda: _fuzz_in_child(count, rng, folder, out / "result.json"), log=out / "log")
        code = lab.wait(child, timeout=60 + count / 20)
        if code != 0:
            row.expect(False, f"{code}: {(out / 'log').read_text()[-1000:]}")
            return
        result = json.loads((out / "result.json").read_text())
        row.tried, row.losses = result["tried"], len(result["problems"])
        row.problems, row.notes = result["problems"][:5], result["notes"]


def _fuzz_in_child(count: int, rng: random.Random, folder: Path, result: Path) -> None:
    from tests.faults.fuzzing import fuzz_all

    tried, problems, notes = fuzz_all(count, rng, folder)
    result.write_text(json.dumps({"tried": tried, "problems": problems, "notes": notes}))


def cli(row: Row, count: int, rng: random.Random) -> None:
    """Random command lines, with little memory: a sentence and an exit code each, no traceback, no hang."""
    with laboratory() as out:
        _, base, _ = _bases(out, SHORT[:1])[0]
        place = out / "place"
        lab.copy_run(base, place / "whole")
        lab.reference(SHORT[1], place / "finished")
        torn = lab.copy_run(base, place / "torn")
        (torn / "manifest.json").write_text("{")
        child = lab.fork(lambda: _cli_in_child(count, rng, place, out / "result.json"), log=out / "log")
        code = lab.wait(child, timeout=120 + count / 2)
        if code != 0:
            row.expect(False, f"{code}: {(out / 'log').read_text()[-1000:]}")
            return
        result = json.loads((out / "result.json").read_text())
        row.tried, row.losses = result["tried"], len(result["problems"])
        row.problems, row.notes = result["problems"][:5], result["notes"]


def _cli_in_child(count: int, rng: random.Random, place: Path, result: Path) -> None:
    from tests.faults.commands import fuzz_commands

    tried, problems, notes = fuzz_commands(count, rng, place)
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
        for name in names if count else [name for name in names if "step-" not in name or "step-00000089" in name]:
            code = lab.run(partial(_try_payloads, name, base, out, canary, outside), log=out / "log")
            row.expect(code == 0 and not canary.exists(), f"as {name}: {code} {(out / 'log').read_text()[-600:]}")
            row.tried += 2 * len(_payloads(canary)) - 1
        row.notes["canaries"] = int(canary.exists())


def _try_payloads(name: str, base: Path, out: Path, canary: Path, outside: Path) -> None:
    """Every payload in place of one file, as it is and with digests that fit."""
    for kind, payload in _payloads(canary).items():
        for is_sealed in (False, True):
            folder = lab.copy_run(base, out / "copy")
            outside.write_bytes(b"mine")
            _replace(folder / name, payload, outside)
            if is_sealed:
                _seal_again(folder)
            try:
                _all_commands(folder)
            except ComperError as error:
                print(f"{kind}: {error}")
            if canary.exists() or outside.read_bytes() != b"mine":
                raise AssertionError(f"{kind} as {name}: something ran, or something outside changed")


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
        for agent in ("comper-single", "dqn"):
            code = lab.wait(lab.fork(partial(_soak_in_child, agent, count // 2, out), log=out / "log"), timeout=36_000)
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
    """A row's title, function and sizes."""

    title: str
    work: Callable[[Row, int, random.Random], None]
    ci: int
    full: int


ROWS = {
    "kills": Kind("kill -9 at random moments; outcome identical", kills, 10, 300),
    "cuts": Kind("stopped after every step of a run; outcome identical", cuts, 50, 1_000),
    "write_points": Kind("ended at every call that changes the disk, or in mid-write; outcome identical", write_points, 0, 1),
    "damage": Kind("newest checkpoint torn or flipped: noticed, older one used, outcome identical", damage, 50, 1_000),
    "log_tails": Kind("log tail torn or garbage; outcome identical", log_tails, 50, 1_000),
    "disk": Kind("no room at any byte, EIO, EACCES, EROFS: told, outcome identical afterwards", disk, 10, 200),
    "small_disk": Kind("a small or read-only file system: told, outcome identical afterwards", small_disk, 0, 0),
    "two_writers": Kind("a second process on the run: refused", two_writers, 0, 0),
    "signals": Kind("SIGINT, SIGTERM, SIGHUP, SIGUSR1: saved within 5 s, outcome identical", signals, 4, 100),
    "fuzz": Kind("malformed configurations, checkpoints, logs, memories: one sentence", fuzz, 5_000, 200_000),
    "cli": Kind("random command lines: a sentence and an exit code, no traceback", cli, 300, 10_000),
    "payloads": Kind("pickle, zip, npz, link, folder in place of every file: nothing runs", payloads, 0, 1),
    "soak": Kind("memory against frames", soak, 100_000, 1_000_000),
}


def run_row(name: str, size: str, seed: int, count: int | None = None) -> Row:
    """Run one row."""
    kind = ROWS[name]
    row = Row(name)
    began = time.monotonic()
    kind.work(row, count if count is not None else getattr(kind, size), random.Random(seed))
    row.seconds = round(time.monotonic() - began, 1)
    return row


def main() -> int:
    """Run rows, print the table, write results/torture/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--size", choices=["ci", "full"], default="full")
    parser.add_argument("--count", type=int, help="instead of the size's own counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    lab.prepare()
    losses = 0
    for name in args.rows:
        row = run_row(name, args.size, args.seed, args.count)
        losses += row.losses
        notes = ", ".join(f"{key}: {value}" for key, value in row.notes.items())
        print(f"{ROWS[name].title:<82} tried {row.tried:>7,}  lost {row.losses}  {row.seconds:>7.1f} s  {notes}", flush=True)
        for problem in row.problems[:5]:
            print(f"    {problem}", flush=True)
        (args.out / f"{name}.json").write_text(json.dumps({"title": ROWS[name].title, **asdict(row)}, indent=2) + "\n")
    return 1 if losses else 0


if __name__ == "__main__":
    sys.exit(main())
