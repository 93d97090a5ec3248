"""Checkpoints: complete or not there, the right ones kept, and every piece of state in them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.interface import Agent
from comper.environments.atari import AtariFactory
from comper.environments.stepper import SerialStepper
from comper.errors import DamagedFileError, DivergedError, LockedError, ResourceError
from comper.protocol import AnyConfig, ComperConfig, DQNConfig
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.files import digest
from comper.runs.lock import RunLock
from comper.runs.recorder import Recorder
from comper.runs.states import pack, replace_weights, unpack, weights_of
from comper.training.keeper import COUNTERS, Keeper, Saved, Schedule
from comper.training.loop import Loop
from comper.training.population import Member, _saved, _setup
from comper.training.randomness import environment_seed
from comper.training.signals import StopRequest
from comper.training.train import make_agent

EMPTY = {name: {"bytes": 0, "sha256": digest(b"")["sha256"]} for name in ("episodes.jsonl", "metrics.jsonl")}
FILES = {"state.safetensors": b"tensors", "state.json": b"{}", "frames.zlib": b"frames"}


def write(run: Path, step: int, frames: int | None = None) -> Checkpoint:
    about = {"total_frames": step if frames is None else frames, "run": {}, "logs": EMPTY}
    return checkpoints.write(run, step=step, files=FILES, about=about)


def names(run: Path) -> list[str]:
    return [path.name for path in checkpoints.paths(run)]


def test_a_checkpoint_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, 5000)
    found = checkpoints.open_checkpoint(tmp_path / "checkpoints" / "step-00005000")
    assert found.read() == FILES
    assert (found.step, found.num_bytes) == (5000, 15)


def test_files_are_as_readable_as_the_user_wants_new_files_to_be(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = write(tmp_path, 1).path
    finally:
        os.umask(before)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o644 for file in path.iterdir())


def test_a_name_is_never_used_twice(tmp_path: Path) -> None:
    write(tmp_path, 7)
    write(tmp_path, 7)
    assert names(tmp_path) == ["step-00000007-2", "step-00000007"]


def test_the_last_two_and_the_thirds_are_kept(tmp_path: Path) -> None:
    good: list[Checkpoint] = []
    for step in range(10, 100, 10):
        good = checkpoints.prune(tmp_path, [*good, write(tmp_path, step)], budget_frames=100)
    assert [checkpoint.step for checkpoint in good] == [40, 70, 80, 90]
    assert names(tmp_path) == [checkpoint.path.name for checkpoint in reversed(good)]
    assert [c.step for c in checkpoints.prune(tmp_path, good, budget_frames=100, num_latest=0)] == [40, 70]


def test_damaged_checkpoints_go_when_new_ones_come_and_do_not_count_among_them(tmp_path: Path) -> None:
    first, second = write(tmp_path, 1), write(tmp_path, 2)
    (second.path / "state.json").write_bytes(b"[]")
    kept = checkpoints.prune(tmp_path, [first, write(tmp_path, 3)], budget_frames=100)
    assert [checkpoint.step for checkpoint in kept] == [1, 3]
    assert names(tmp_path) == ["step-00000003", "step-00000001"]


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused_before_anyone_parses_it(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, 1).path
    (path / name).write_bytes(FILES[name][:-1] + b"?")
    with pytest.raises(DamagedFileError, match=name):
        checkpoints.open_checkpoint(path).read()


def test_a_changed_description_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 1).path / checkpoints.ABOUT_FILE
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"step": 2}))
    with pytest.raises(DamagedFileError, match="not as it was written"):
        checkpoints.open_checkpoint(path.parent)


def test_other_names_of_files_are_refused(tmp_path: Path) -> None:
    about = {"total_frames": 1, "run": {}, "logs": EMPTY}
    path = checkpoints.write(
        tmp_path, step=1, files={"state.json": b"{}", "../../outside": b"x"} and {"a": b""}, about=about
    ).path
    with pytest.raises(DamagedFileError, match="does not describe"):
        checkpoints.open_checkpoint(path)


def test_a_full_disk_leaves_the_checkpoints_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResourceError, match=r"15 bytes.*No space left.*comper resume"):
        write(tmp_path, 2)
    monkeypatch.undo()
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_linked_folder_of_checkpoints_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", 1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "mine" / "checkpoints")
    with pytest.raises(DamagedFileError, match="a link"):
        checkpoints.paths(tmp_path / "run")


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    with pytest.raises(LockedError, match="another process"):
        RunLock(tmp_path)
    first.release()
    RunLock(tmp_path).release()


# When


def test_a_period_is_kept_exactly_and_zero_is_never() -> None:
    schedule, never = Schedule(50, 0), Schedule(0, 0)
    assert [step for step in range(1, 160) if schedule.is_due(step)] == [50, 100, 150]
    assert not any(never.is_due(step) for step in range(1, 20_000))


def test_by_default_a_checkpoint_waits_a_hundred_times_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("comper.training.keeper.time.monotonic", lambda: now[0])
    schedule = Schedule(None, 0)
    assert schedule.is_due(5000)
    assert not schedule.is_due(4999)
    now[0] = 120.0
    assert schedule.is_due(10)
    schedule.note(10, 0.5)
    now[0] = 160.0
    assert not schedule.is_due(10_000)
    now[0] = 170.0
    assert schedule.is_due(10_000)


# What


def test_a_nested_state_is_read_back_with_its_types() -> None:
    state = {
        "tensor": torch.arange(6.0).view(2, 3),
        "array": np.arange(4, dtype=np.int64),
        "flags": np.array([True, False]),
        "bytes": b"\x00\xff",
        "rng": np.random.default_rng(3).bit_generator.state,
        "deep": {"none": None, "number": 0.1, "empty": {}, "big": 2**127, "scalar": np.float32(0.5)},
        "none of it": np.empty((0, 3), np.float32),
    }
    back = unpack(*pack(state))
    assert torch.equal(back["tensor"], state["tensor"])  # type: ignore[arg-type]
    assert all(np.array_equal(back[name], state[name]) for name in ("array", "flags", "none of it"))  # type: ignore[arg-type]
    assert back["flags"].dtype == np.bool_
    assert back["bytes"] == b"\x00\xff"
    assert back["rng"] == state["rng"]
    assert back["deep"] == {"none": None, "number": 0.1, "empty": {}, "big": 2**127, "scalar": 0.5}


@pytest.mark.parametrize("bad", [np.array([1.0, np.nan], np.float32), torch.tensor([float("inf")]), float("nan")])
def test_what_has_diverged_is_never_saved(bad: Any) -> None:
    with pytest.raises(DivergedError, match="weights"):
        pack({"weights": bad})


# The state inventory: every row alone decides how a run goes on


COMPER = ComperConfig(
    frames=10_000, episode_cap_frames=150, screen_size=36, memory_sets=60, sets_per_training=20, replay_start_steps=12,
    target_period_steps=20, epsilon_decay_frames=100, qlstm_gradient_momentum=0.5,
)  # fmt: skip
DQN = DQNConfig(
    frames=10_000, episode_cap_frames=150, screen_size=36, replay_capacity=40, replay_start_steps=12, target_period_steps=20,
    epsilon_decay_frames=100,
)  # fmt: skip


class Bench:
    """A trial of a real game that can be saved, restored and stepped."""

    def __init__(self, config: AnyConfig, path: Path, files: dict[str, bytes] | None = None):
        self.environments = SerialStepper([AtariFactory("asterix", environment_seed(5), config)()])
        about = {"agent": "x", "game": "asterix", "seed": 5, "population": []}
        self.record = Recorder.create(path, config, about)
        member = Member("asterix", 5, self.record)
        setup = _setup(5, config, self.environments)
        self.agent: Agent = make_agent(config, [setup], num_actions=18, device=torch.device("cpu"))
        self.saved: Saved = _saved(0, member, self.record, setup, config)
        self.keeper = Keeper(self.agent, self.environments, [self.saved], frames=config.frames, request=StopRequest())
        self.loop = Loop(config, self.agent, self.environments, [self.saved.trial])
        if files:
            self.keeper.load(self.saved, files)
            self.loop.t = 70
        else:
            self.saved.trial.history.reset(self.environments.reset(0))

    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.loop._tick([self.saved.trial])

    def save(self) -> dict[str, bytes]:
        self.keeper.save(self.loop.t)
        return self.saved.good[-1].read()

    def close(self) -> None:
        self.record.close()


@pytest.fixture(scope="module", params=[COMPER, DQN], ids=["comper", "dqn"])
def states(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(configuration, state at the start, at step 70, at step 100) of one run."""
    bench = Bench(request.param, tmp_path_factory.mktemp("run") / "seed-5")
    saved = [bench.save()]
    for num_steps in (70, 30):
        bench.step(num_steps)
        bench.saved.trial.episode_score += 0.5 if num_steps == 70 else 0.0  # nothing is scored in so few steps
        saved.append(bench.save())
    bench.close()
    return request.param, *saved


def test_a_restored_state_goes_on_to_the_same_bytes(states: Any, tmp_path: Path) -> None:
    config, _, middle, end = states
    bench = Bench(config, tmp_path / "seed-5", middle)
    bench.step(30)
    state, expected = unpack(*_parts(bench.save())), unpack(*_parts(end))
    bench.close()
    for side in (state, expected):
        side["frames"] = {name: side["frames"][name] for name in ("ids", "counts")}  # the parts differ in how they were cut
    assert pack(state) == pack(expected)


def test_a_state_saved_again_at_once_is_the_same(states: Any, tmp_path: Path) -> None:
    config, _, middle, _ = states
    bench = Bench(config, tmp_path / "seed-5", middle)
    again = bench.save()
    bench.close()
    assert again == middle


def _parts(files: dict[str, bytes]) -> tuple[bytes, bytes]:
    return files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE]


INVENTORY = {
    "weights": "agent/q_network/learner/weights",
    "averages of the CNN's optimiser": "agent/q_network/learner/optimiser/mean_square",
    "mean gradients of the CNN": "agent/q_network/learner/optimiser/mean",
    "losses since the last line": "agent/q_network/loss",
    "state s_t": "history/state",
    "emulator": "environment/emulator",
    "sticky stream": "environment/rng",
    "last executed action": "environment/last_action",
    "screens": "environment/current_screen",
    "frames of the episode": "environment/episode_frames",
    "exploration stream": "exploration",
    "sampling stream": "sampling",
    "ids and references of frames": "frames/counts",
    **{f"counter {name}": f"trial/{name}" for name in COUNTERS},
}
COMPER_INVENTORY = {
    "QLSTM weights": "agent/qlstm/learner/weights",
    "QLSTM averages": "agent/qlstm/learner/optimiser/mean_square",
    "QLSTM velocity": "agent/qlstm/learner/optimiser/velocity",
    "TM transitions": "agent/tm/table",
    "TM order": "agent/tm/queue",
    "TM counters": "agent/tm/counters",
    "TM Q-values": "agent/tm/q",
    "TM successors": "agent/tm/successor",
    "TMI": "agent/tm/index",
    "RTM order": "agent/rtm/members",
    "link to the next transition": "agent/previous",
}
DQN_INVENTORY = {
    "target network": "agent/target",
    "replay memory": "agent/replay/table",
    "replay counter": "agent/replay/num_added",
}


@pytest.mark.parametrize("row", [*INVENTORY, *COMPER_INVENTORY, *DQN_INVENTORY])
def test_the_checkpoint_holds(row: str, states: Any) -> None:
    """One row of the state inventory: it is saved, and it is not what a new run would start with."""
    config, start, middle, _ = states
    inventory = INVENTORY | (COMPER_INVENTORY if isinstance(config, ComperConfig) else DQN_INVENTORY)
    if row not in inventory:
        pytest.skip("the other agent's")
    initial, saved = (pack({"row": _at(unpack(*_parts(files)), inventory[row])}) for files in (start, middle))
    assert saved != initial


def _at(state: Any, path: str) -> Any:
    for key in path.split("/"):
        state = state[key]
    return state


def test_weights_are_taken_from_a_state_and_put_into_another(states: Any, tmp_path: Path) -> None:
    config, _, middle, _ = states
    weights = weights_of(unpack(*_parts(middle))["agent"])
    bench = Bench(config, tmp_path / "seed-5")
    state = bench.agent.state_dict(0)
    assert set(weights) == set(weights_of(state))
    replace_weights(state, weights)
    bench.agent.load_state_dict(0, state)
    now = weights_of(bench.agent.state_dict(0))
    bench.close()
    assert all(np.array_equal(now[name], weights[name]) for name in weights)
    with pytest.raises(DamagedFileError, match="other networks"):
        replace_weights(state, {"x": np.zeros(1)})
