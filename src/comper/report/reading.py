"""From run folders to trials: everything is read strictly, and what cannot be trusted is named instead of used.

A finished trial must match the digest in its manifest byte for byte; a running one must at least count its episodes and
frames without a gap. So editing, deleting or repeating a line of a log never changes a mean silently.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.errors import DamagedFileError, UsageError
from comper.report.findings import ERROR, NOTE, WARNING, Finding
from comper.runs.folder import (
    CONFIG_FILE,
    EPISODES_FILE,
    FINISHED,
    FORMAT,
    LOG_FILES,
    MANIFEST_FILE,
    METRICS_FILE,
    RUNNING,
    log_digest,
    read_json_lines,
    read_manifest,
)

Array = NDArray[np.float64]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_TRIAL_FOLDER = re.compile(r"seed-\d+")
_COUNTERS = ("steps", "total_frames", "episodes")


@dataclass(frozen=True)
class Trial:
    """One run folder, read and checked."""

    folder: Path
    agent: str
    game: str
    seed: int
    finished: bool
    manifest: dict[str, Any]
    config: dict[str, Any]
    scores: Array
    """Undiscounted raw score of each episode."""
    episode_frames: Array
    """Emulator frames of the trial at the end of each episode."""
    episode_steps: Array
    """Agent steps of the trial at the end of each episode."""
    metrics: dict[str, Array] = field(default_factory=dict)
    """Columns of metrics.jsonl; NaN where a line has no number."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes a trial one of its kind."""
        return self.agent, self.game, self.seed

    @property
    def name(self) -> str:
        """The trial as a report names it."""
        return f"{self.agent} / {self.game} / seed {self.seed}"

    @property
    def total_frames(self) -> int:
        """Emulator frames at the end of the last episode."""
        return int(self.episode_frames[-1]) if self.episode_frames.size else 0

    @property
    def total_steps(self) -> int:
        """Agent steps at the end of the last episode."""
        return int(self.episode_steps[-1]) if self.episode_steps.size else 0

    @property
    def wall_seconds(self) -> float | None:
        """Seconds from start to end, where the manifest says so."""
        return _optional_number(self.manifest.get("wall_seconds"))

    def metric(self, name: str) -> Array | None:
        """A column of the metrics, or None where the agent has no such thing."""
        column = self.metrics.get(name)
        return None if column is None or np.isnan(column).all() else column


@dataclass(frozen=True)
class Runs:
    """All that was found under the folders a user named."""

    trials: list[Trial]
    """Finished, intact and the only ones of their kind: what statistics may use."""
    running: list[Trial]
    """Consistent so far, but not at their end: named, never averaged in."""
    findings: list[Finding]

    def agents(self) -> list[str]:
        """The agents in a fixed order: by name."""
        return sorted({trial.agent for trial in self.trials})

    @property
    def cells(self) -> dict[tuple[str, str], list[Trial]]:
        """The trials by agent and game, each list by seed."""
        cells: dict[tuple[str, str], list[Trial]] = defaultdict(list)
        for trial in sorted(self.trials, key=lambda trial: trial.seed):
            cells[trial.agent, trial.game].append(trial)
        return cells


def read_runs(folders: Iterable[Path], *, advance: Callable[[int, int], None] = lambda done, total: None) -> Runs:
    """Read every run folder below the given ones; `advance(done, total)` is told of each."""
    paths = find_run_folders(folders)
    if not paths:
        raise UsageError(f"No run folders in {', '.join(str(folder) for folder in folders)}: nothing holds a {MANIFEST_FILE}.")
    trials, findings = [], []
    for done, path in enumerate(paths, start=1):
        try:
            trials.append(read_trial(path))
        except DamagedFileError as error:
            findings.append(Finding(ERROR, "damaged", f"Left out: {error}", str(path)))
        advance(done, len(paths))
    trials, duplicates = _without_duplicates(trials)
    running = [trial for trial in trials if not trial.finished]
    findings += duplicates + [_incomplete(trial) for trial in running] + _misplaced(trials)
    return Runs([trial for trial in trials if trial.finished], running, findings)


def find_run_folders(folders: Iterable[Path]) -> list[Path]:
    """Every folder that holds a part of a run or is called like one, whatever is missing, in a fixed order."""
    found = set()
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder.")
        for parent, children, names in os.walk(folder):
            children[:] = [child for child in children if not child.startswith(".")]
            if {MANIFEST_FILE, EPISODES_FILE, METRICS_FILE} & set(names) or _TRIAL_FOLDER.fullmatch(Path(parent).name):
                found.add(Path(parent).resolve())
    return sorted(found)


def read_trial(folder: Path) -> Trial:
    """Read one run folder; anything that does not add up raises DamagedFileError with its place."""
    manifest = _checked_manifest(folder)
    finished = manifest["status"] == FINISHED
    if finished:
        _check_digests(folder, manifest)
    scores, frames, steps = _read_episodes(folder / EPISODES_FILE, finished=finished)
    config = _read_config(folder)
    trial = Trial(
        folder, manifest["agent"], manifest["game"], manifest["seed"], finished, manifest, config,
        scores, frames, steps, _read_metrics(folder / METRICS_FILE),
    )  # fmt: skip
    if finished:
        _check_finish(trial)
    return trial


def _checked_manifest(folder: Path) -> dict[str, Any]:
    manifest, path = read_manifest(folder), folder / MANIFEST_FILE
    _demand(manifest.get("format") == FORMAT, path, f"format is {manifest.get('format')!r}, this version reads {FORMAT}")
    for key in ("agent", "game"):
        value = manifest.get(key)
        _demand(isinstance(value, str) and _NAME.fullmatch(value) is not None, path, f"{key} is {value!r}, expected a name")
    seed, status = manifest.get("seed"), manifest.get("status")
    _demand(
        isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0, path, f"seed is {seed!r}, expected a whole number"
    )
    _demand(status in (RUNNING, FINISHED), path, f"status is {status!r}, expected {RUNNING} or {FINISHED}")
    return manifest


def _check_digests(folder: Path, manifest: dict[str, Any]) -> None:
    files = manifest.get("files")
    for name in LOG_FILES:
        expected = files.get(name) if isinstance(files, dict) else None
        if not isinstance(expected, dict):
            raise DamagedFileError(f"{folder / MANIFEST_FILE}: a finished run, but no digest of {name}.")
        try:
            actual = log_digest(folder / name)
        except OSError as error:
            raise DamagedFileError(f"{folder / name}: cannot be read ({error.strerror}).") from None
        if actual != {key: expected.get(key) for key in actual}:
            raise DamagedFileError(
                f"{folder / name}: not the file its manifest describes: {actual['lines']} lines, {actual['bytes']} bytes, "
                f"SHA-256 {actual['sha256'][:12]}…; the manifest says {expected.get('lines')}, {expected.get('bytes')}, "
                f"{str(expected.get('sha256'))[:12]}…."
            )


def _read_episodes(path: Path, *, finished: bool) -> tuple[Array, Array, Array]:
    scores, frames, steps = [], [], []
    total_frames = total_steps = 0
    for line, record in _lines(path):
        where = f"{path}, line {line}"
        scores.append(_number(record, "score", where))
        total_frames += _count(record, "frames", where)
        total_steps += _count(record, "steps", where)
        _expect(record, "episode", len(scores), where)
        _expect(record, "total_frames", total_frames, where)
        frames.append(total_frames)
        steps.append(total_steps)
    if finished and not scores:
        raise DamagedFileError(f"{path}: a finished run without an episode.")
    return np.array(scores, float), np.array(frames, float), np.array(steps, float)


def _read_metrics(path: Path) -> dict[str, Array]:
    columns: dict[str, list[float]] = defaultdict(list)
    last = dict.fromkeys(_COUNTERS, 0.0)
    count = 0
    for line, record in _lines(path):
        where = f"{path}, line {line}"
        for name in _COUNTERS:
            value = _number(record, name, where)
            if value < last[name]:
                raise DamagedFileError(f"{where}: {name} is {value:g} after {last[name]:g}.")
            last[name] = value
        for name, value in record.items():
            column = columns[name]
            column += [math.nan] * (count - len(column))
            column.append(_metric(value, name, where))
        count += 1
    return {name: np.array(column + [math.nan] * (count - len(column))) for name, column in columns.items()}


def _lines(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    try:
        yield from read_json_lines(path)
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror}).") from None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path}: cannot be read as TOML ({error}).") from None


def _check_finish(trial: Trial) -> None:
    path = trial.folder / MANIFEST_FILE
    counted = {"episodes": trial.scores.size, "total_frames": trial.total_frames, "steps": trial.total_steps}
    for key, value in counted.items():
        claimed = trial.manifest.get(key)
        _demand(claimed == value, path, f"{key} is {claimed!r}, its log has {value}")
    budget = trial.config.get("frames")
    if isinstance(budget, int) and trial.total_frames < budget:
        raise DamagedFileError(f"{path}: finished after {trial.total_frames:,} frames, before its budget of {budget:,}.")


def _without_duplicates(trials: list[Trial]) -> tuple[list[Trial], list[Finding]]:
    claims: dict[tuple[str, str, int], list[Trial]] = defaultdict(list)
    for trial in trials:
        claims[trial.key].append(trial)
    findings = [
        Finding(
            ERROR,
            "duplicate",
            f"Left out: {len(same)} folders claim to be {same[0].name}.",
            "; ".join(str(t.folder) for t in same),
        )
        for same in claims.values()
        if len(same) > 1
    ]
    return [same[0] for same in claims.values() if len(same) == 1], findings


def _misplaced(trials: list[Trial]) -> list[Finding]:
    """Trials in a folder that is called after another one: the manifest is believed, and the reader told."""
    return [
        Finding(WARNING, "misplaced", f"The manifest says {trial.name}, the folder's name does not.", str(trial.folder))
        for trial in trials
        if _TRIAL_FOLDER.fullmatch(trial.folder.name)
        and trial.folder.parts[-3:] != (trial.agent, trial.game, f"seed-{trial.seed}")
    ]


def _incomplete(trial: Trial) -> Finding:
    budget = trial.config.get("frames")
    of = f" of {budget:,}" if isinstance(budget, int) else ""
    so_far = f"{trial.total_frames:,}{of} frames, {trial.scores.size} episodes"
    text = f"Not averaged in: {trial.name} is not finished ({so_far})."
    return Finding(NOTE, "incomplete", text, str(trial.folder))


def _demand(holds: bool, path: Path, problem: str) -> None:
    if not holds:
        raise DamagedFileError(f"{path}: {problem}.")


def _number(record: dict[str, Any], key: str, where: str) -> float:
    value = _optional_number(record.get(key))
    if value is None:
        raise DamagedFileError(f"{where}: {key} is {_shown(record.get(key))}, expected a number.")
    return value


def _count(record: dict[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise DamagedFileError(f"{where}: {key} is {_shown(value)}, expected a whole number.")
    return value


def _expect(record: dict[str, Any], key: str, expected: int, where: str) -> None:
    if _count(record, key, where) != expected:
        raise DamagedFileError(
            f"{where}: {key} is {record[key]}, expected {expected}: a line is missing, repeated or changed."
        )


def _metric(value: Any, name: str, where: str) -> float:
    if value is None:
        return math.nan
    number = _optional_number(value)
    if number is None:
        raise DamagedFileError(f"{where}: {name} is {_shown(value)}, expected a number or null.")
    return number


def _optional_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> str:
    return repr(value)[:40]
