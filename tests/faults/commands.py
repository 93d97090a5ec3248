"""Random command lines: every command, flags of every agent and environment, numbers without measure, strange places.

Nothing is stubbed but what would take long: a run that would start, a measurement of floors, an episode of an evaluation.
Whatever is wrong must come back as a sentence and an exit code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import random
import resource
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comper.agents.registry import AGENTS, find_agent
from comper.cli import COMMANDS, main
from comper.environments.families import FAMILIES
from comper.settings import kind_of

SLOW_SECONDS = 20.0
MEMORY_BYTES = 6_000_000_000
CODES = (0, 2, 3, 4, 6)
NUMBERS = (
    "0", "1", "-1", "2", "3", "16", "100", "1e3", "65536", "65537", "1e9", "1e12", "1e300", "1e999", "-0", "0.5", "nan", "inf",
    "-inf", "1_000", "0x10", "١٢", "9" * 400, "", " ", "1e-300", "true", "4096", "100000", "2**8", "1,000", "-5", "+7",
)  # fmt: skip
WORDS = (
    "", " ", "-", "--", "auto", "none", "true", "false", "zlib", "exact", "l2", "faiss", "max", "set", "successor", "huber",
    "single", "rolling", "stacked", "NOOP", "UP", "../..", "/", "a" * 300, "\x1b[31mred", "é", "os:system", "json:dumps",
    "no_module:x", "a:b:c", "%s%n", "\udcff", "\n",
)  # fmt: skip
GOOD_ENVIRONMENTS = ("asterix", "pong", "Space Invaders", "gym:CartPole-v1", "minatar:breakout", "minigrid:DoorKey-6x6-v0")
ENVIRONMENTS = (
    *GOOD_ENVIRONMENTS, "paper", "freewai", "gym:MountainCar-v0", "gym:Pendulum-v1", "gym:", ":", "minatar:nothing",
    "os:getcwd", "my_module:env", "python:x", "", "a b", "../x", "x" * 300,
)  # fmt: skip


def fuzz_commands(count: int, rng: random.Random, place: Path) -> tuple[int, list[str], dict[str, Any]]:
    """Try so many command lines; return how many, what went wrong, and which exit codes came back."""
    lines = CommandLines(rng, place)
    stub_long_work(place)
    _limit_memory()
    os.chdir(place)
    problems: list[str] = []
    notes: dict[str, Any] = {}
    for _ in range(count):
        words = lines.make()
        began = time.monotonic()
        outcome, said = answer(words)
        took = time.monotonic() - began
        kind = f"{words[0] if words and words[0] in COMMANDS else 'other'}, {outcome}"
        notes[kind] = notes.get(kind, 0) + 1
        if outcome not in CODES:
            problems.append(f"{words!r}: {outcome}: {said[-600:]}")
        elif took > SLOW_SECONDS:
            problems.append(f"{words!r}: {took:.1f} s")
        elif outcome and not said.strip():
            problems.append(f"{words!r}: exit code {outcome} without a word")
        elif not all(c.isprintable() or c == "\n" for c in said):
            problems.append(f"{words!r}: control characters in {said[-200:]!r}")
    return count, problems, notes


def answer(words: list[str]) -> tuple[int | str, str]:
    """The exit code of a command line, or the exception that came out of it, and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: int | str = main(words)
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else str(stopped.code)
        except BaseException as error:
            return type(error).__name__, traceback.format_exc()
    return code, out.getvalue() + err.getvalue()


def stub_long_work(place: Path) -> None:
    """Where a run would start, the run is marked as begun and left; floors and evaluations take no time."""
    import comper.environments.floors
    import comper.training.continuing
    import comper.training.evaluation
    import comper.training.train

    floor = comper.environments.floors.load_floors().find("freeway")
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    modules: list[tuple[Any, str, Any]] = [
        (comper.training.train, "run_population", nothing),
        (comper.training.continuing, "run_population", nothing),
        (comper.environments.floors, "measure_floor", lambda *_, **__: (5, floor)),
        (comper.training.evaluation, "_play", lambda *_: 1.0),
    ]
    for module, name, stub in modules:
        setattr(module, name, stub)


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))


class CommandLines:
    """Makes command lines, half of them nearly right."""

    def __init__(self, rng: random.Random, place: Path):
        self._rng, self._place = rng, place
        self._number = 0
        parts = [find_agent(agent).config for agent in AGENTS] + [family.settings for family in FAMILIES.values()]
        self._settings = sorted({_flag(field) for part in parts for field in dataclasses.fields(part)})
        for name, content in _FILES.items():
            (place / name).write_bytes(content)
        (place / "folder").mkdir(exist_ok=True)
        os.mkfifo(place / "pipe")
        (place / "loop").symlink_to("loop")

    def make(self) -> list[str]:
        """A command line."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.02:
            return [self._word() for _ in range(rng.randrange(4))]
        command = rng.choice([*COMMANDS, "train", "train", "train", "train", "resume", "floors", "describe"])
        words = [command, *getattr(self, f"_{command.replace('-', '_')}")()]
        if rng.random() < 0.15:
            words.insert(
                rng.randrange(1, len(words) + 1), rng.choice([self._word(), self._number_word(), *self._settings[:3]])
            )
        if rng.random() < 0.1 and len(words) > 1:
            del words[rng.randrange(1, len(words))]
        return [word for word in words if "\0" not in word]

    def _train(self) -> list[str]:
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
        # Worker processes belong to a run that starts; they are tried elsewhere.
        words += ["--workers", rng.choice(["0"] * 12 + ["-1", "1e3", "nan", "99999"])]
        return [*words, "--processes", rng.choice(["1"] * 12 + ["0", "-1", "nan", "99999"])]

    def _right_setting(self, agent: str) -> list[str]:
        """A setting of the agent with a value of its kind, which need not be sensible."""
        field = self._rng.choice(dataclasses.fields(find_agent(agent).config))
        if field.metadata.get("choices"):
            return [_flag(field), self._rng.choice(field.metadata["choices"])]
        if kind_of(field) == "int":
            return [_flag(field), self._rng.choice(["1", "2", "7", "50", "400", "1000", "9999", "65536", "1000000", "1e12"])]
        return [_flag(field), self._rng.choice(["0", "0.001", "0.1", "0.5", "0.99", "1", "3", "999", "1e8", "auto", "UP"])]

    def _any(self) -> str:
        return self._rng.choice([self._number_word(), self._word()])

    def _resume(self) -> list[str]:
        rng = self._rng
        words = [self._path() for _ in range(rng.choice([1, 1, 2]))] + ["--workers", "0", "--processes", "1"]
        if rng.random() < 0.3:
            words += ["--weights-only"]
        if rng.random() < 0.3:
            words += ["--out", self._out()]
        return words + (["--trust", self._word()] if rng.random() < 0.2 else [])

    def _evaluate(self) -> list[str]:
        flags = [
            w for flag in ("--episodes", "--epsilon", "--seed") if self._rng.random() < 0.4 for w in (flag, self._small())
        ]
        return [self._path(), *flags]

    def _verify(self) -> list[str]:
        return [self._path()]

    def _report(self) -> list[str]:
        words = [self._path(), "--out", self._rng.choice([self._out(), self._path()])]
        return words + (["--seed", self._number_word()] if self._rng.random() < 0.3 else [])

    def _import_release(self) -> list[str]:
        words = [self._path(), "--agent", self._word(), "--out", self._out()]
        return words + (["--frames", self._number_word()] if self._rng.random() < 0.3 else [])

    def _floors(self) -> list[str]:
        words = [self._rng.choice([name for name in ENVIRONMENTS if name != "paper"]), "--workers", "0"]
        for flag in ("--seed", "--observations-per-step"):
            words += [flag, self._number_word()] if self._rng.random() < 0.3 else []
        return words + (["--out", self._path()] if self._rng.random() < 0.6 else [])

    def _describe(self) -> list[str]:
        words = [self._rng.choice([*AGENTS, self._word()]), self._rng.choice(ENVIRONMENTS)]
        return words + (["--json"] if self._rng.random() < 0.3 else [])

    def _agents(self) -> list[str]:
        return []

    def _games(self) -> list[str]:
        return []

    def _number_word(self) -> str:
        return self._rng.choice(NUMBERS)

    def _small(self) -> str:
        return self._rng.choice([number for number in NUMBERS if number not in ("1e3", "65536", "65537", "4096", "100000")])

    def _word(self) -> str:
        return self._rng.choice(WORDS)

    def _out(self) -> str:
        self._number += 1
        strange = ["file", "pipe", "loop", "folder", "/proc/x", "a" * 300, "", "file/x", "\x1b[31mred"]
        return self._rng.choice([f"out-{self._number}"] * 6 + strange)

    def _path(self) -> str:
        strange = ["folder", "pipe", "loop", ".", "nowhere", "/dev/null", "/proc/self/fd", "a" * 300, "", "torn", "whole/.."]
        runs = ["whole", "whole", "whole/comper-single/asterix/seed-0", "whole/comper-single"] * 2 + ["finished"]
        return self._rng.choice([*_FILES, *strange, *runs])


def _flag(field: dataclasses.Field[Any]) -> str:
    return f"--{field.name.replace('_', '-')}"


_FILES = {
    "file": b"",
    "good.toml": b"frames = 50\n",
    "bad.toml": b"frames = \n",
    "huge.toml": b"#" * 70_000,
    "strange.toml": b'frames = "\\u001b[31m"\n"\\u001b[31m" = 1\n',
    "bytes": bytes(range(256)),
    "floors.json": b'{"format": 2, "about": "", "environments": {}}',
    "list.json": b"[]",
}
