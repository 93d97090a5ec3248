"""From run folders to trials and findings: what cannot be trusted is named instead of used.

A finished trial must match the digests in its manifest byte for byte; a running one must at least count its episodes and
frames without a gap. So editing, deleting or repeating a line of a log never changes a mean silently.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from comper.errors import DamagedFileError, UsageError, printable
from comper.report.findings import ERROR, NOTE, WARNING, Finding
from comper.runs.folder import EPISODES_FILE, MANIFEST_FILE, find_runs, is_trial_folder, run_path
from comper.runs.logs import Array
from comper.runs.reader import RecordedTrial as Trial
from comper.runs.reader import read_run

__all__ = ["Array", "Runs", "Trial", "read_runs"]

MAX_NUMBER = 1e100
"""Squares and sums of larger numbers overflow, and axes cannot be divided."""


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
    paths = find_runs(folders)
    if not paths:
        raise UsageError(f"No run folders in {', '.join(str(folder) for folder in folders)}: nothing holds a {MANIFEST_FILE}.")
    trials, findings = [], []
    for done, path in enumerate(paths, start=1):
        try:
            trials.append(_with_usable_numbers(read_run(path)))
        except DamagedFileError as error:
            findings.append(Finding(ERROR, "damaged", f"Left out: {error}", str(path)))
        advance(done, len(paths))
    trials, duplicates = _without_duplicates(_with_variants(trials))
    running = [trial for trial in trials if not trial.finished]
    findings += duplicates + [_incomplete(trial) for trial in running] + _misplaced(trials)
    return Runs([trial for trial in trials if trial.finished], running, findings)


def _with_usable_numbers(trial: Trial) -> Trial:
    """A trial without logged numbers that no figure can show; one with such scores cannot be averaged."""
    if (np.abs(trial.scores) > MAX_NUMBER).any():
        raise DamagedFileError(f"{trial.folder / EPISODES_FILE}: a score beyond {MAX_NUMBER:g} cannot be averaged.")
    metrics = {name: np.where(np.abs(column) > MAX_NUMBER, np.nan, column) for name, column in trial.metrics.items()}
    return replace(trial, metrics=metrics)


def _with_variants(trials: list[Trial]) -> list[Trial]:
    """Trials of one agent that share game and seed but not their settings become agents of their own, named by these."""
    varied = _varied_settings(trials)
    return [replace(trial, variant=_variant(trial, varied[trial.agent])) for trial in trials]


def _varied_settings(trials: list[Trial]) -> dict[str, set[str]]:
    """For each agent the settings in which its trials differ; none where no two claim the same game and seed with others."""
    same_trial: dict[tuple[str, str, int], list[dict[str, str]]] = defaultdict(list)
    for trial in trials:
        same_trial[trial.key].append(_changes(trial))
    varied: dict[str, set[str]] = {agent: set() for agent, _, _ in same_trial}
    for agent in {agent for (agent, _, _), changes in same_trial.items() if any(c != changes[0] for c in changes)}:
        all_changes = [change for (other, _, _), changes in same_trial.items() if other == agent for change in changes]
        keys = {key for change in all_changes for key in change}
        varied[agent] = {key for key in keys if len({change.get(key) for change in all_changes}) > 1}
    return varied


def _changes(trial: Trial) -> dict[str, str]:
    """The settings that differ from the agent's own, as words; a manifest made elsewhere may hold anything."""
    pairs = trial.manifest.changed.items()
    return {key: _shown(pair[0] if isinstance(pair, list) and pair else pair) for key, pair in pairs}


def _shown(value: Any) -> str:
    return printable(" ".join(str(value).split()) if isinstance(value, str) else json.dumps(value))[:40]


def _variant(trial: Trial, varied: set[str]) -> str:
    changes = _changes(trial)
    return ", ".join(f"{printable(key.replace('_', ' '))} {changes[key]}" for key in sorted(varied & set(changes)))


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
        if is_trial_folder(trial.folder) and trial.folder.resolve().parts[-3:] != _expected_place(trial)
    ]


def _expected_place(trial: Trial) -> tuple[str, ...]:
    return run_path(Path(), agent=trial.manifest.agent, game=trial.game, seed=trial.seed).parts


def _incomplete(trial: Trial) -> Finding:
    budget = trial.config.get("frames")
    of = f" of {budget:,}" if isinstance(budget, int) else ""
    so_far = f"{trial.total_frames:,}{of} frames, {trial.scores.size} episodes"
    text = f"Not averaged in: {trial.name} is not finished ({so_far})."
    return Finding(NOTE, "incomplete", text, str(trial.folder))
