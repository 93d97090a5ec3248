"""Malformed files for every reader: random bytes, mutated real ones, and well-formed ones that mean nonsense."""

from __future__ import annotations

import copy
import json
import random
import resource
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.numpy

from comper.agents.registry import AGENTS, find_agent
from comper.environments.families import find_environment
from comper.errors import ComperError
from comper.runs import checkpoints
from comper.runs.files import digest, read_json_lines, sealed
from comper.runs.folder import CONFIG_FILE, EPISODES_FILE, MANIFEST_FILE
from comper.runs.lock import RunLock
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.states import unpack
from comper.runs.verify import verify_run
from comper.settings import parse_settings, with_settings
from comper.training.continuing import UnfinishedRun, open_unfinished
from comper.training.options import RunOptions, default_settings
from comper.training.population import Member, _restore, _saved_trial, _setup, make_stepper
from tests.faults.lab import run

SLOW_SECONDS = 5.0
REFUSED = range(1, 7)
"""Exit codes of processes that end with a sentence."""
STEPS_AFTERWARDS = 25
"""Taken with a state that was not refused: the QLSTM is trained once in so many, and targets are made anew."""
JSON_VALUES: list[Any] = [None, True, -1, 0, 1, 2**70, 1e308, -0.5, "", "x" * 1000, [], {}, [[]], {"a": {}}, "../../x", "\0"]
TOML_LINES = [
    "frames = 10", "frames = -1", "frames = 9" + "9" * 5000, "frames = 1e999", "frames = nan", "frames = true", "[frames]",
    "index = 'l3'", "nothing = 1", "a = " + "[" * 5000, "screen_size = 1", "x = '\\u0000'", "frames = 10\nframes = 10",
]  # fmt: skip

EMULATOR = "environment/emulator"
"""The array of a state that ALE reads."""

Case = Callable[[random.Random], object]


class Clock(Protocol):
    """Says when the time is up."""

    def is_over(self) -> bool: ...


def fuzz_all(count: int, rng: random.Random, folder: Path, clock: Clock) -> tuple[int, list[str], dict[str, Any]]:
    """Try so many malformed inputs; return how many, what went wrong, and how each kind was answered."""
    lab = Laboratory(folder)
    kinds: list[tuple[str, int, Case]] = [
        ("configurations", 50, lab.configuration),
        ("manifests", 15, lab.manifest),
        ("logs", 15, lab.log),
        ("descriptions of checkpoints", 10, lab.description),
        ("packed states", 8, lab.state),
        ("whole runs", 1, lab.run),
        ("memories", 1, lab.memory),
    ]
    problems: list[str] = []
    notes: dict[str, Any] = {}
    before = _peak_bytes()
    names = rng.choices([kind[0] for kind in kinds], [kind[1] for kind in kinds], k=count)
    cases = {name: case for name, _, case in kinds}
    num_tried = 0
    for name in names:
        if clock.is_over():
            break
        num_tried += 1
        began = time.monotonic()
        answer = _answer(cases[name], rng)
        notes[f"{name}, {answer}"] = notes.get(f"{name}, {answer}", 0) + 1
        if answer not in ("refused", "read"):
            problems.append(f"{name}: {answer}")
        if time.monotonic() - began > SLOW_SECONDS:
            problems.append(f"{name}: {time.monotonic() - began:.1f} s")
    grown = (_peak_bytes() - before) / 1e6
    notes["peak memory grown by MB"] = round(grown, 1)
    if grown > 400:
        problems.append(f"memory grew by {grown:.0f} MB")
    return num_tried, problems, notes


def _answer(case: Case, rng: random.Random) -> str:
    try:
        case(rng)
    except ComperError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "read"


def _peak_bytes() -> int:
    """Of this process, or of the largest of its children."""
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Laboratory:
    """A run whose files are mutated, and a small population that reads them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.texts = {name: (folder / name).read_bytes() for name in (CONFIG_FILE, MANIFEST_FILE, EPISODES_FILE)}
        run = open_unfinished(folder)
        assert run is not None
        self.unfinished: UnfinishedRun = run
        run.lock.release()
        self.newest = run.checkpoints[-1]
        self.files = self.newest.read()
        self.about = (self.newest.path / checkpoints.ABOUT_FILE).read_bytes()
        # Writing to a file would reach the run this one is linked to.
        for path in folder.rglob("*"):
            if path.is_file():
                content = path.read_bytes()
                path.unlink()
                path.write_bytes(content)

    def configuration(self, rng: random.Random) -> None:
        """config.toml."""
        content = _mutated(self.texts[CONFIG_FILE], rng) if rng.random() < 0.7 else _toml(rng)
        agent = find_agent(rng.choice(list(AGENTS)))
        parts = default_settings(agent, find_environment("asterix").settings)
        with_settings(parts, parse_settings(content, where="it"), where="it")

    def manifest(self, rng: random.Random) -> None:
        """manifest.json, with or without a seal that fits."""
        path = self.folder / MANIFEST_FILE
        _write(path, _json_file(self.texts[MANIFEST_FILE], rng))
        try:
            Manifest.read(self.folder)
            run = open_unfinished(self.folder)
            if run:
                run.lock.release()
            verify_run(self.folder)
        finally:
            _write(path, self.texts[MANIFEST_FILE])

    def log(self, rng: random.Random) -> None:
        """episodes.jsonl."""
        path = self.folder / "fuzzed.jsonl"
        _write(path, _mutated(self.texts[EPISODES_FILE], rng))
        for _ in read_json_lines(path):
            pass

    def description(self, rng: random.Random) -> None:
        """checkpoint.json, with or without a seal that fits."""
        path = self.newest.path / checkpoints.ABOUT_FILE
        _write(path, _json_file(self.about, rng))
        try:
            checkpoints.open_checkpoint(self.newest.path).read()
        finally:
            _write(path, self.about)

    def state(self, rng: random.Random) -> None:
        """state.safetensors and state.json, as if their digests fitted."""
        tensors, values = self.files[checkpoints.TENSORS_FILE][:60_000], self.files[checkpoints.VALUES_FILE]
        if rng.random() < 0.5:
            tensors = _mutated(self.files[checkpoints.TENSORS_FILE][:60_000], rng)
        else:
            values = _json_file(values, rng)
        unpack(tensors, values)

    def run(self, rng: random.Random) -> None:
        """Any file of a run: verify and open it."""
        path = rng.choice(sorted(path for path in self.folder.rglob("*") if path.is_file()))
        content = path.read_bytes()
        _write(path, _mutated(content, rng))
        try:
            verify_run(self.folder)
            run = open_unfinished(self.folder)
            if run:
                run.lock.release()
        finally:
            _write(path, content)

    def memory(self, rng: random.Random) -> None:
        """A state that parses, with arrays or numbers changed: loaded into agent, memories and emulator, and used."""
        arrays = dict(safetensors.numpy.load(self.files[checkpoints.TENSORS_FILE]))
        values = json.loads(self.files[checkpoints.VALUES_FILE])
        frames = self.files[checkpoints.FRAMES_FILE]
        place = rng.choice(["array", "value", "frames", "emulator"])
        if place == "array":
            name = rng.choice(sorted(arrays))
            arrays[name] = _changed_array(arrays[name], rng)
        elif place == "emulator":
            arrays[EMULATOR] = _forged_numbers(arrays[EMULATOR], rng)
        elif place == "value":
            values["values"][rng.choice(sorted(values["values"]))] = copy.deepcopy(rng.choice(JSON_VALUES))
        else:
            frames = _mutated(frames, rng)
        files = {
            checkpoints.TENSORS_FILE: safetensors.numpy.save(arrays),
            checkpoints.VALUES_FILE: json.dumps(values).encode(),
            checkpoints.FRAMES_FILE: frames,
        }
        log = self.folder.with_name("memory.log")
        code = run(partial(self._load, files), log=log)  # with an emulator that is loaded already
        if code in REFUSED:
            raise ComperError(log.read_text())
        if code:
            raise AssertionError(f"{code}: {log.read_text()[-1000:]}")

    def _load(self, files: dict[str, bytes]) -> None:
        import torch

        from comper.training.checkpointing import Checkpointer
        from comper.training.loop import Loop
        from comper.training.signals import StopRequest

        run = self.unfinished
        manifest, settings, config = run.manifest, run.settings, run.settings.config
        with make_stepper([(run.environment, manifest.seed)], settings, RunOptions(workers=0)) as environments:
            record = Recorder.reopen(self.folder, manifest, RunLock(self.folder), self.newest.about)
            with closing(record):
                member = Member(manifest.game, manifest.seed, record, files=files)
                setup = _setup(member.seed, settings, environments)
                task, device = settings.task(environments.info), torch.device("cpu")
                agent = settings.agent.agent(config, task, [setup], device=device)
                saved = _saved_trial(0, member, record, setup, settings)
                request = StopRequest()
                checkpointer = Checkpointer(agent, environments, [saved], frames=config.frames, request=request)
                _restore(saved, member, agent, checkpointer)
                record.go_on()
                loop = Loop(config, agent, environments, [saved.trial], t=run.step)
                for _ in range(STEPS_AFTERWARDS):
                    if saved.trial.is_running:
                        loop._tick([saved.trial])


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _mutated(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 10, 100])):
        kind = rng.randrange(6)
        at = rng.randrange(len(changed) + 1)
        if kind == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at:at] = rng.randbytes(rng.randrange(20))
        elif kind == 2:
            del changed[at : at + rng.randrange(50)]
        elif kind == 3:
            changed[at:at] = rng.choice([b"{", b"[" * 2000, b'"', b"\n", b"\0", b"-1", b"1e999", b"NaN", b"9" * 5000, b"\xff"])
        elif kind == 4:
            del changed[at:]
        else:
            changed[at:at] = changed[: rng.randrange(60)]
    return bytes(changed)


def _toml(rng: random.Random) -> bytes:
    return "\n".join(rng.choices(TOML_LINES, k=rng.randrange(1, 4))).encode()


def _json_file(content: bytes, rng: random.Random) -> bytes:
    """Mutated bytes, or a well-formed object with some values changed and the seal renewed."""
    if rng.random() < 0.4:
        return _mutated(content, rng)
    plain = json.loads(content)
    for _ in range(rng.choice([1, 1, 3])):
        node = plain
        while isinstance(node, dict) and node:
            key = rng.choice(sorted(node))
            if not isinstance(node[key], dict) or rng.random() < 0.3:
                node[key] = copy.deepcopy(rng.choice(JSON_VALUES))  # or a value could come to hold itself
                break
            node = node[key]
    plain.pop("sha256", None)
    return json.dumps(sealed(plain)).encode()


def _forged_numbers(content: Any, rng: random.Random) -> Any:
    """The emulator's bytes with some of them replaced; most of what stands there is random generators, and no length."""
    forged = content.copy()
    for _ in range(rng.choice([1, 1, 2, 5, 40])):
        at = rng.choice([rng.randrange(82), rng.randrange(len(forged))])
        value = rng.choice([0, 1, 2, 255, 65_535, 2**31 - 1, 2**31, 2**32 - 1, rng.randrange(2**32)]).to_bytes(4, "little")
        part = forged[at : at + 4]
        part[:] = np.frombuffer(value, np.uint8)[: len(part)]
    return forged


def _changed_array(array: Any, rng: random.Random) -> Any:
    kind = rng.randrange(5)
    if kind == 0:
        return np.zeros((0, 3), array.dtype)
    if kind == 1:
        return array.reshape(-1)[: array.size // 2].copy()
    if kind == 2:
        return np.concatenate([array.reshape(-1)] * 2)
    if kind == 3:
        return np.full(array.shape, 2**62 if array.dtype == np.int64 else 1, array.dtype)
    return np.full(array.shape, -1, array.dtype) if array.dtype == np.int64 else array.astype(np.int64)


__all__ = ["digest", "fuzz_all"]
