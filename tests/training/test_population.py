"""A population put together: environments where they run best, each trial from its own start."""

from __future__ import annotations

import dataclasses
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comper.environments.families import find_environment
from comper.environments.stepper import ProcessStepper, SerialStepper
from comper.errors import DamagedFileError
from comper.runs import checkpoints
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.states import unpack_weights
from comper.training import population
from comper.training.loop import Loop
from comper.training.options import RunOptions, RunSettings, resolve_settings
from comper.training.population import Member, make_stepper, run_population
from comper.training.randomness import streams
from tests.training.lamp import Light

CARTPOLE = find_environment("gym:CartPole-v1")
SERIAL = RunOptions(device="cpu", workers=0, show_progress=False, checkpoint_period_steps=20)
SMALL: dict[str, Any] = {"frames": 60, "replay_start_steps": 8, "target_period_steps": 12, "log_period_steps": 10}


def settings_of(agent: str = "comper-single", **changes: Any) -> RunSettings:
    values = SMALL if agent.startswith("comper") else {"frames": 60}
    return resolve_settings(agent, [CARTPOLE], values | changes, where="test")


def recorder(path: Path, settings: RunSettings, seed: int) -> Recorder:
    return Recorder.create(path, settings.to_toml(), Manifest(agent="x", game=CARTPOLE.name, seed=seed))


def run(
    out: Path, seeds: list[int], *, settings: RunSettings | None = None, gone: tuple[int, ...] = (), **start: Any
) -> list[Path]:
    """Run a population; the seeds in `gone` had finished before."""
    settings = settings or settings_of()
    paths = [out / f"seed-{seed}" for seed in seeds]
    members = [
        Member(CARTPOLE.name, seed, None if seed in gone else recorder(path, settings, seed), **start)
        for seed, path in zip(seeds, paths, strict=True)
    ]
    with make_stepper([(CARTPOLE, seed) for seed in seeds], settings, SERIAL) as environments:
        run_population(members, settings, environments, torch.device("cpu"), options=SERIAL)
    return paths


def test_environments_run_in_workers_only_where_those_are_wanted_and_can_make_them() -> None:
    settings, light = settings_of(), find_environment(Light)
    pairs = [(CARTPOLE, 0), (CARTPOLE, 1)]
    with make_stepper(pairs, settings, SERIAL) as serial:
        assert isinstance(serial, SerialStepper)
        first = [serial.reset(trial) for trial in (0, 1)]
    with make_stepper(pairs, settings, dataclasses.replace(SERIAL, workers=2)) as processes:
        assert isinstance(processes, ProcessStepper)
        assert np.array_equal([processes.reset(trial) for trial in (0, 1)], first)
    assert not np.array_equal(first[0], first[1])  # each seed has its own episodes
    of_light = resolve_settings("random", [light], {}, where="test")
    with make_stepper([(light, 0)], of_light, dataclasses.replace(SERIAL, workers=2)) as callable_made:
        assert isinstance(callable_made, SerialStepper)


def test_an_action_is_held_for_as_many_observations_as_the_agent_wants() -> None:
    for observation, count in (("single", 1), ("stacked", 4)):
        with make_stepper([(CARTPOLE, 0)], settings_of(observation=observation), SERIAL) as environments:
            environments.reset(0)
            (step,) = environments.step([0], [0])
            assert len(step.frames) == count


def test_a_trial_has_the_streams_of_its_seed_and_room_for_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "MAX_RESERVED_FRAMES", 40)
    with make_stepper([(CARTPOLE, 7)], settings_of(), SERIAL) as environments:
        setup = population._setup(7, settings_of(), environments)
    expected = streams(7)
    for name in ("weights", "exploration", "sampling"):
        assert getattr(setup, name).random(4).tolist() == getattr(expected, name).random(4).tolist()
    assert (setup.frames.shape, setup.frames.capacity) == ((4,), 40)


def test_a_member_that_had_finished_keeps_its_row_and_nothing_is_written_of_it(tmp_path: Path) -> None:
    alone = run(tmp_path / "alone", [1])[0]
    _, beside, _ = paths = run(tmp_path / "beside", [0, 1, 2], gone=(0, 2))
    assert [path.exists() for path in paths] == [False, True, False]
    for name in ("episodes.jsonl", "weights.safetensors"):
        assert (beside / name).read_bytes() == (alone / name).read_bytes()


def test_weights_of_another_run_are_where_learning_starts(tmp_path: Path) -> None:
    settings = settings_of(replay_start_steps=1_000)  # it never learns: the weights at the end are those at the start
    (first,) = run(tmp_path / "first", [0], settings=settings)
    weights = unpack_weights((first / "weights.safetensors").read_bytes())
    (other,) = run(tmp_path / "other", [1], settings=settings)
    (started,) = run(tmp_path / "started", [1], settings=settings, weights=weights)
    assert (started / "weights.safetensors").read_bytes() == (first / "weights.safetensors").read_bytes()
    assert (other / "weights.safetensors").read_bytes() != (first / "weights.safetensors").read_bytes()


def test_the_garbage_collector_passes_over_what_was_there_only_while_a_population_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(Loop, "run", lambda *_: frozen.append(gc.get_freeze_count()))
    run(tmp_path, [0])
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_the_garbage_collector_looks_at_everything_again_after_a_run_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Loop, "run", fail)
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, [0])
    assert gc.get_freeze_count() == 0


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    wrong = {name: {"w": np.zeros(3, np.float32)} for name in ("q_network", "qlstm")}
    with pytest.raises(DamagedFileError, match="of other networks than this agent has"):
        run(tmp_path, [0], weights=wrong)


def test_no_checkpoint_is_written_where_nothing_could_be_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkpoints.paths(run(tmp_path / "can", [0])[0]) != []
    begin = SerialStepper.__init__

    def forgetful(self: SerialStepper, environments: Any) -> None:
        begin(self, environments)
        self.infos = tuple(dataclasses.replace(info, resume="it forgets its state") for info in self.infos)

    monkeypatch.setattr(SerialStepper, "__init__", forgetful)
    assert checkpoints.paths(run(tmp_path / "cannot", [0])[0]) == []
