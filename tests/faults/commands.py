"""Random command lines: every command, flags of every agent and environment, numbers without measure, strange places.

The commands are those of `comper.cli.COMMANDS`, and the words of each are made from its parser, so that a new command is tried
as soon as it is there. Nothing is stubbed but what would take long: a run that would start, a measurement of floors, an
episode of an evaluation. Whatever is wrong must come back as a sentence and an exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import os
import random
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comper.agents.registry import AGENTS, find_agent
from comper.cli import COMMANDS, main
from comper.environments.families import FAMILIES
from comper.environments.floors import load_floors, measure_floor
from comper.settings import kind_of, whole_number
from tests.faults.fuzzing import Clock

SLOW_SECONDS = 60
MEMORY_BYTES = 6_000_000_000
CODES = (0, 2, 3, 4, 6)
RUN = "comper-single/asterix/seed-0"
"""Below the folder `whole`, where a run was stopped."""
LINES_PER_PLACE = 100
"""A resumed or imported run changes the place; after so many lines it is made anew."""
NUMBERS = (
    "0", "1", "-1", "2", "3", "16", "100", "1e3", "65536", "65537", "1e9", "1e12", "1e300", "1e999", "-0", "0.5", "nan", "inf",
    "-inf", "1_000", "0x10", "١٢", "9" * 400, "", " ", "1e-300", "true", "4096", "100000", "2**8", "1,000", "-5", "+7",
)  # fmt: skip
WORDS = (
    "", " ", "-", "--", "auto", "none", "true", "false", "zlib", "exact", "l2", "faiss", "max", "set", "successor", "huber",
    "single", "rolling", "stacked", "NOOP", "UP", "../..", "/proc", "a" * 300, "\x1b[31mred", "é", "os:system", "json:dumps",
    "no_module:x", "a:b:c", "%s%n", "\udcff", "\n",
)  # fmt: skip
"""No folder among them holds runs of others, nor can they be written to there: resume would continue those."""
GOOD_ENVIRONMENTS = ("asterix", "pong", "Space Invaders", "gym:CartPole-v1", "minatar:breakout", "minigrid:DoorKey-6x6-v0")
ENVIRONMENTS = (
    *GOOD_ENVIRONMENTS, "paper", "freewai", "gym:MountainCar-v0", "gym:Pendulum-v1", "gym:", ":", "minatar:nothing",
    "os:getcwd", "my_module:env", "python:x", "", "a b", "../x", "x" * 300,
)  # fmt: skip


def fuzz_commands(count: int, rng: random.Random, original: Path, clock: Clock) -> tuple[int, list[str], dict[str, Any]]:
    """Try so many command lines in copies of a place with runs; return how many, what went wrong, and the exit codes."""
    place = original.with_name("copy")
    lines = CommandLines(rng)
    stub_long_work()
    _limit_memory()
    problems: list[str] = []
    notes: dict[str, Any] = {}
    num_tried = 0
    for number in range(count):
        if clock.is_over():
            break
        if number % LINES_PER_PLACE == 0:
            os.chdir(original)
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(original, place, symlinks=True)
            furnish(place)
            os.chdir(place)
        num_tried += 1
        words = lines.make()
        began = time.monotonic()
        outcome, said = answer(words)
        kind = f"{words[0] if words and words[0] in COMMANDS else 'other'}, {outcome}"
        notes[kind] = notes.get(kind, 0) + 1
        problem = _problem(words, outcome, said, time.monotonic() - began)
        problems += [f"{words!r}: {problem}"] if problem else []
    return num_tried, problems, notes


def _problem(words: list[str], outcome: int | str, said: str, seconds: float) -> str:
    """What is wrong with an answer; nothing, if nothing is."""
    if outcome not in CODES:
        return f"{outcome} after {seconds:.1f} s: {said[-600:]}"
    if outcome and not said.strip():
        return f"exit code {outcome} without a word"
    if "Traceback" in said:
        return said[-600:]
    return "" if all(c.isprintable() or c == "\n" for c in said) else f"control characters in {said[-200:]!r}"


def answer(words: list[str]) -> tuple[int | str, str]:
    """The exit code of a command line, or the exception that came out of it, and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _interrupted_after(SLOW_SECONDS):
        try:
            code: int | str = main(words)
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else str(stopped.code)
        except BaseException as error:
            return type(error).__name__, traceback.format_exc()
    return code, out.getvalue() + err.getvalue()


@contextlib.contextmanager
def _interrupted_after(seconds: int) -> Iterator[None]:
    """Press Ctrl-C for a command that does not end: 130 in place of a fuzz that hangs."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def stub_long_work() -> None:
    """Where a run would start, the run is marked as begun and left; floors and evaluations take no time."""
    from comper.studies.estimate import _frames_per_second
    from comper.studies.ray_cluster import RayRunner
    from comper.training.evaluation import _play
    from comper.training.pool import run_jobs
    from comper.training.population import run_population

    # The code is replaced, not the name: whichever module calls one of these by whatever name gets the stub.
    # Names in the new code are looked up in the module of the old.
    run_population.__code__ = (lambda *_, **__: None).__code__
    measure_floor.__code__ = (lambda *_, **__: (5, load_floors().find("freeway"))).__code__
    _play.__code__ = (lambda *_: 1.0).__code__
    run_jobs.__code__ = RayRunner.__call__.__code__ = (lambda *_, **__: {}).__code__
    _frames_per_second.__code__ = (lambda *_: 100.0).__code__


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))


def furnish(place: Path) -> None:
    """Put beside the runs what is none: files, pipes, links, a log, and a run with a pipe and a link in it."""
    for name, content in _FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    (place / "folder").mkdir()
    (place / "loop").symlink_to("loop")
    hostile = shutil.copytree(place / "whole", place / "hostile") / RUN
    for path in (place / "pipe", place / "strange" / "report.json", hostile / "episodes.jsonl"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    (hostile / "config.toml").unlink()
    (hostile / "config.toml").symlink_to("/dev/zero")


class CommandLines:
    """Makes command lines, half of them nearly right."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._number = 0
        parts = [find_agent(agent).config for agent in AGENTS] + [family.settings for family in FAMILIES.values()]
        self._settings = sorted({_flag(field) for part in parts for field in dataclasses.fields(part)})

    def make(self) -> list[str]:
        """A command line."""
        rng = self._rng
        if rng.random() < 0.02:
            return [self._word() for _ in range(rng.randrange(4))]
        command = rng.choice([*COMMANDS, *["train"] * (len(COMMANDS) // 2)])
        words = [command, *(self._train() if command == "train" else self._from_parser(parser_of(command)))]
        if rng.random() < 0.15:
            extra = [self._word(), self._number_word(), "--workers", "--out", *self._settings[:3]]
            words.insert(rng.randrange(1, len(words) + 1), rng.choice(extra))
        if rng.random() < 0.1 and len(words) > 1:
            del words[rng.randrange(1, len(words))]
        return words

    def _train(self) -> list[str]:
        """Half of all settings are of the agent, with values of their kind; the other half are anything."""
        rng = self._rng
        is_nearly_right = rng.random() < 0.7
        agent = rng.choice([*AGENTS]) if is_nearly_right else rng.choice([*AGENTS, self._word()])
        environment = rng.choice(GOOD_ENVIRONMENTS if is_nearly_right else ENVIRONMENTS)
        words = [environment, "--agent", agent, "--out", self._out(), "--frames", rng.choice(["10", "200", "5000", "1e5"])]
        words += [rng.choice(ENVIRONMENTS)] if rng.random() < 0.1 else []
        for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
            words += self._right_setting(agent) if is_nearly_right else [rng.choice(self._settings), self._any()]
        for flag in ("--seed", "--trials", "--checkpoint-period-steps", "--frames"):
            if rng.random() < 0.15:
                words += [flag, rng.choice(["1", "2", "3", self._number_word()])]
        if rng.random() < 0.1:
            words += ["--device", rng.choice(["cpu", "cuda", self._word()])]
        if rng.random() < 0.15:
            words += ["--config", rng.choice(["good.toml", self._path()])]
        return [*words, *self._no_processes(parser_of("train"))]

    def _right_setting(self, agent: str) -> list[str]:
        """A setting of the agent with a value of its kind, which need not be sensible."""
        field = self._rng.choice(dataclasses.fields(find_agent(agent).config))
        if field.metadata.get("choices"):
            return [_flag(field), self._rng.choice(field.metadata["choices"])]
        if kind_of(field) == "int":
            return [_flag(field), self._rng.choice(["1", "2", "7", "50", "400", "1000", "9999", "65536", "1000000", "1e12"])]
        return [_flag(field), self._rng.choice(["0", "0.001", "0.1", "0.5", "0.99", "1", "3", "999", "1e8", "auto", "UP"])]

    def _from_parser(self, parser: argparse.ArgumentParser) -> list[str]:
        """Words for a command, from what its parser asks for: what it needs, and a third of what it offers."""
        words: list[str] = []
        for action in parser._actions:
            chance = 0.02 if action.dest == "help" else 1 / 3
            if isinstance(action, argparse._SubParsersAction):
                name = self._rng.choice([*action.choices])
                words += [name, *self._from_parser(action.choices[name])]
            elif action.option_strings[-1:] == ["--workers"]:
                words += self._no_processes(parser)
            elif action.option_strings[-1:] == ["--processes"]:
                continue
            elif not action.option_strings or action.required or self._rng.random() < chance:
                words += [*action.option_strings[-1:], *self._values(action)]
        return words

    def _no_processes(self, parser: argparse.ArgumentParser) -> list[str]:
        # Other processes belong to a run that starts; they are tried elsewhere.
        words = ["--workers", self._rng.choice(["0"] * 12 + ["-1", "1e3", "nan", "99999"])]
        if "--processes" in parser._option_string_actions:
            words += ["--processes", self._rng.choice(["1"] * 12 + ["0", "-1", "nan"])]
        return words

    def _values(self, action: argparse.Action) -> list[str]:
        if action.nargs == 0:  # --json, --help
            return []
        count = self._rng.choice([0, 1, 2]) if action.nargs == "*" else 2 if self._rng.random() < 0.2 else 1
        return [self._value(action) for _ in range(count if action.nargs in ("*", "+") else 1)]

    def _value(self, action: argparse.Action) -> str:
        """A value of the kind that an argument is for, which its name tells; now and then of any other."""
        kind = f"{action.metavar or action.dest}"
        if self._rng.random() < 0.1:
            return self._any()
        if action.choices:
            return str(self._rng.choice([*action.choices]))
        if kind in ("N", "X") or action.type in (whole_number, int, float):
            return self._small()
        if "--out" in action.option_strings:
            return self._rng.choice([self._out(), self._path()])
        if kind == "ENV":
            return self._rng.choice([name for name in ENVIRONMENTS if name != "paper"])
        if kind == "A" and not action.option_strings:
            return self._rng.choice([*AGENTS])
        if kind == "PLAN":
            return self._rng.choice(["plan.toml", "plan.toml", "incomplete.toml", "paper", self._path()])
        if kind in ("DIR", "RUN", "FILE") or action.type is Path:
            return self._path()
        return self._rng.choice([self._word(), self._path(), *AGENTS])

    def _any(self) -> str:
        return self._rng.choice([self._number_word(), self._word(), self._path()])

    def _number_word(self) -> str:
        return self._rng.choice(NUMBERS)

    def _small(self) -> str:
        return self._rng.choice([number for number in NUMBERS if number not in ("1e3", "65536", "65537", "4096", "100000")])

    def _word(self) -> str:
        return self._rng.choice(WORDS)

    def _out(self) -> str:
        self._number += 1
        strange = ["file", "pipe", "loop", "folder", "/proc/x", "a" * 300, "", "file/x", "\x1b[31mred", "whole", "strange"]
        return self._rng.choice([f"out-{self._number}"] * 6 + strange)

    def _path(self) -> str:
        strange = ["folder", "pipe", "loop", ".", "nowhere", "/dev/null", "/proc/self/fd", "a" * 300, "", "whole/.."]
        runs = ["whole", "whole/comper-single", f"whole/{RUN}", "finished", "finished/dqn/pong/seed-0", "torn", "hostile"]
        return self._rng.choice([*_FILES, *strange, *runs * 3, "strange", "strange"])


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command, as `comper.cli` builds it."""
    parser = argparse.ArgumentParser(prog=command)
    COMMANDS[command][1](parser, [])
    return parser


def _flag(field: dataclasses.Field[Any]) -> str:
    return f"--{field.name.replace('_', '-')}"


_FILES = {
    "file": b"",
    "good.toml": b"frames = 50\n",
    "bad.toml": b"frames = \n",
    "incomplete.toml": b'agents = ["dqn", "random"]\nenvironments = ["gym:CartPole-v1", "pong"]\nsettings = { frames = 50 }\n',
    "plan.toml": b'agents = ["dqn", "random"]\nenvironments = ["pong"]\nseeds = 2\n[grid]\nframes = [50, 60]\n',
    "huge.toml": b"#" * 70_000,
    "strange.toml": b'frames = "\\u001b[31m"\n"\\u001b[31m" = 1\n',
    "bytes": bytes(range(256)),
    "floors.json": b'{"format": 2, "about": "", "environments": {}}',
    "list.json": b"[]",
    "strange/v5-pong-1/progress.json": b'{"Rom": "pong"}\n',
}
