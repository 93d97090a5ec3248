"""Runs before their first frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from comper.environments.families import find_environment
from comper.errors import ResourceError, UsageError
from comper.runs.manifest import Manifest
from comper.training import preflight
from comper.training.options import RunOptions, resolve_settings
from comper.training.start import begin, check_beginning, num_at_once

CARTPOLE = find_environment("gym:CartPole-v1")
SETTINGS = resolve_settings("random", [CARTPOLE], {"frames": 50}, where="test")
OPTIONS = RunOptions(device="cpu", workers=0, show_progress=False)


def test_runs_that_are_begun_for_later_record_their_whole_population(tmp_path: Path) -> None:
    pairs = [(CARTPOLE, seed) for seed in (3, 4)]
    paths = begin(pairs, SETTINGS, out=tmp_path, options=OPTIONS, population=[*pairs, (CARTPOLE, 5)])
    assert paths == [tmp_path / "random" / "gym-CartPole-v1" / f"seed-{seed}" for seed in (3, 4)]
    for path in paths:
        manifest = Manifest.read(path)
        assert (manifest.is_finished, manifest.threads) == (False, 1)
        assert manifest.population == [f"gym:CartPole-v1/seed-{seed}" for seed in (3, 4, 5)]


def test_what_is_taken_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    begin([(CARTPOLE, 1)], SETTINGS, out=tmp_path, options=OPTIONS, population=[(CARTPOLE, 1)])
    with pytest.raises(UsageError, match="holds an unfinished run of the same configuration"):
        check_beginning([(CARTPOLE, 0), (CARTPOLE, 1)], SETTINGS, out=tmp_path, options=OPTIONS)
    assert [path.name for path in tmp_path.rglob("seed-*")] == ["seed-1"]


def test_memory_is_counted_for_the_trials_that_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = resolve_settings("dqn", [CARTPOLE], {}, where="test")
    pairs = [(CARTPOLE, seed) for seed in range(50)]
    one = preflight.needs_of(settings, CARTPOLE.info(), trials=1).memory
    monkeypatch.setattr(preflight, "available_memory", lambda: 2 * one)
    common: dict[str, Any] = {"out": tmp_path, "options": OPTIONS}
    assert check_beginning(pairs, settings, num_processes=2, **common).needs.memory == 2 * one
    with pytest.raises(ResourceError, match="of memory, and"):
        check_beginning(pairs, settings, num_processes=1, **common)


def test_on_a_cpu_a_process_has_one_trial_at_a_time() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [num_at_once(40, processes, cpu) for processes in (1, 4)] == [40, 4]
    assert [num_at_once(40, processes, gpu) for processes in (1, 4)] == [40, 40]
