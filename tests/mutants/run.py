"""Run the mutants: each small change of the source must make a test fail. `make mutants` runs the whole list.

    python -m tests.mutants.run [--only TEXT] [--jobs 2] [--out results/mutants.json]

A mutant is applied in a copy of the source tree; the tests that concern it are run there until the first failure. A mutant
that no test notices has survived: a test is missing, or the list must say why the change alters nothing.

Importing torch takes longer than most tests. So each copy has a process that has imported it and forks for every mutant.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "pyproject.toml")
MAX_JOBS = 2
IMPORTED_ONCE = ("pytest", "numpy", "torch", "torch._dynamo", "cv2", "ale_py", "gymnasium")
SECONDS_PER_TEST = 60
"""A mutant may never come to an end; a test that takes so long has noticed it."""

SERVER = """
import importlib, json, os, sys
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass  # a test that needs it says so
import pytest
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        output = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        status = pytest.main(json.loads(line))
        sys.stdout.flush()
        os._exit(int(status))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Forks for every line on stdin, a list of pytest's arguments, and answers with pytest's exit code."""


@dataclass(frozen=True)
class Mutant:
    """A change of one place in the source, and the tests that must notice it."""

    what: str
    """What is wrong after it, in a phrase."""
    file: str
    """In src/comper."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Files in tests/, the likeliest first."""
    survives_because: str = ""
    """Why nothing is altered, where that is so."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.what}"


class Outcome(NamedTuple):
    """What came of a mutant."""

    status: str
    """killed, survived or broken (the mutant or its tests could not be run)."""
    by: str
    """The test that noticed it, or what went wrong."""
    seconds: float


def problems(mutants: Sequence[Mutant], root: Path = ROOT) -> list[str]:
    """What is wrong with a list of mutants: old text that is not there exactly once, tests that do not exist."""
    found = []
    names = [mutant.name for mutant in mutants]
    found += [f"{name}: listed twice" for name in sorted({name for name in names if names.count(name) > 1})]
    for mutant in mutants:
        path = root / "src" / "comper" / mutant.file
        count = path.read_text(encoding="utf-8").count(mutant.old) if path.exists() else 0
        if count != 1:
            found.append(f"{mutant.name}: the old text is there {count} times, not once")
        elif mutant.new == mutant.old or not _compiles(_mutated(path, mutant)):
            found.append(f"{mutant.name}: the new text is no other program")
        found += [f"{mutant.name}: no tests/{test}" for test in mutant.tests if not (root / "tests" / test).exists()]
        if not mutant.tests:
            found.append(f"{mutant.name}: no tests are named")
    return found


def _mutated(path: Path, mutant: Mutant) -> str:
    return path.read_text(encoding="utf-8").replace(mutant.old, mutant.new)


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class Copy:
    """A copy of the source tree, in which mutants are tried one after another."""

    def __init__(self, folder: Path, root: Path, imported_once: Sequence[str]):
        self.root = folder
        for name in COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, folder / name)
        # Compiled once; a mutated file has another hash and is compiled anew.
        compileall.compile_dir(folder / "src", quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
        self._output = folder / "output.txt"
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        command = [sys.executable, "-c", SERVER, str(self._output), *imported_once]
        self._server = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End the process that runs the tests."""
        self._server.communicate()

    def try_out(self, mutant: Mutant) -> Outcome:
        """Apply a mutant, run its tests, take it back."""
        path = self.root / "src" / "comper" / mutant.file
        original = path.read_text(encoding="utf-8")
        path.write_text(_mutated(path, mutant), encoding="utf-8")
        try:
            return self.run_tests(mutant.tests)
        finally:
            path.write_text(original, encoding="utf-8")

    def run_tests(self, tests: Sequence[str]) -> Outcome:
        """Run test files until the first failure; those of the copied sources."""
        start = time.perf_counter()
        options = ["-x", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={SECONDS_PER_TEST}"]
        status = self._pytest([*options, *(f"tests/{test}" for test in tests)])
        seconds = round(time.perf_counter() - start, 1)
        output = self._output.read_text(encoding="utf-8", errors="replace")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+::\S+)", output, flags=re.MULTILINE)
        if status == 0:
            return Outcome("survived", "", seconds)
        if failed:
            return Outcome("killed", failed[1].removeprefix("tests/"), seconds)
        return Outcome("broken", output[-2_000:], seconds)

    def _pytest(self, arguments: Sequence[str]) -> int:
        """Exit code of pytest in a fork of the server."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(arguments) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


@contextmanager
def copies(count: int, root: Path, imported_once: Sequence[str]) -> Iterator[list[Copy]]:
    """Some copies of the source tree, removed in the end."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        made = [Copy(Path(folder) / str(number), root, imported_once) for number in range(count)]
        try:
            yield made
        finally:
            for copy in made:
                copy.close()


def run(
    mutants: Sequence[Mutant],
    *,
    jobs: int,
    root: Path = ROOT,
    imported_once: Sequence[str] = IMPORTED_ONCE,
    show: Callable[[str], None] = print,
) -> dict[str, Outcome]:
    """Try every mutant out, a few at a time; first their tests must pass on the source as it is."""
    with copies(jobs, root, imported_once) as made, ThreadPoolExecutor(jobs) as pool:
        tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        free: SimpleQueue[Copy] = SimpleQueue()
        for copy in made:
            free.put(copy)

        def borrowed(use: Callable[[Copy], Outcome]) -> Outcome:
            copy = free.get()
            try:
                return use(copy)
            finally:
                free.put(copy)

        for test, unchanged in zip(tests, pool.map(lambda t: borrowed(lambda c: c.run_tests([t])), tests), strict=True):
            if unchanged.status != "survived":
                raise SystemExit(f"{test} fails without any mutant: {unchanged.by}")
        outcomes: dict[str, Outcome] = {}
        for mutant, outcome in zip(mutants, pool.map(lambda m: borrowed(lambda c: c.try_out(m)), mutants), strict=True):
            outcomes[mutant.name] = outcome
            show(f"{outcome.status:8} {outcome.seconds:5.1f} s  {mutant.name}" + (f"  [{outcome.by}]" if outcome.by else ""))
    return outcomes


def verdict(mutants: Sequence[Mutant], outcomes: dict[str, Outcome]) -> list[str]:
    """What is not as it should be: survivors without an explanation, explained ones that a test notices, broken ones."""
    wrong = []
    for mutant in mutants:
        status, by, _ = outcomes[mutant.name]
        expected = "survived" if mutant.survives_because else "killed"
        if status != expected:
            wrong.append(f"{mutant.name}: {status}, not {expected}" + (f" ({by})" if by else ""))
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the list, or a part of it; 1 if a mutant survives unexplained."""
    from tests.mutants.listed import MUTANTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only the mutants that have this in their name")
    parser.add_argument("--jobs", type=int, default=MAX_JOBS, choices=range(1, MAX_JOBS + 1), help="mutants at a time")
    parser.add_argument("--out", type=Path, help="write the outcome of each mutant as JSON; with --only, into what is there")
    given = parser.parse_args(arguments)
    mutants = [mutant for mutant in MUTANTS if given.only in mutant.name]
    if listed := problems(mutants):
        print("\n".join(listed))
        return 1
    start = time.perf_counter()
    outcomes = run(mutants, jobs=given.jobs)
    seconds = round(time.perf_counter() - start)
    wrong = verdict(mutants, outcomes)
    killed = sum(outcome.status == "killed" for outcome in outcomes.values())
    print(f"{len(mutants)} mutants, {killed} killed, in {seconds} s")
    print("\n".join(wrong))
    if given.out:
        rows = {
            m.name: {"mutant": m.name, **outcomes[m.name]._asdict()}
            | ({"why": m.survives_because} if m.survives_because else {})
            for m in mutants
        }
        if given.only and given.out.exists():
            before = json.loads(given.out.read_text(encoding="utf-8"))
            names = {mutant.name for mutant in MUTANTS}
            rows = {row["mutant"]: row for row in before["outcomes"] if row["mutant"] in names} | rows
            seconds += before["seconds"]
        killed = sum(row["status"] == "killed" for row in rows.values())
        content = {"command": "make mutants", "mutants": len(rows), "killed": killed, "seconds": seconds}
        given.out.write_text(json.dumps({**content, "outcomes": [*rows.values()]}, indent=1) + "\n", encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
