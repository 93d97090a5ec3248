"""When checkpoints are written, and every piece of state in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.interface import Agent
from comper.environments.atari import AtariFactory
from comper.environments.stepper import SerialStepper
from comper.errors import DamagedFileError
from comper.memory.compressed import CompressedFrameStore
from comper.memory.frame_archive import FrameArchive
from comper.memory.frames import FrameStore
from comper.protocol import AnyConfig, ComperConfig, DQNConfig
from comper.runs import checkpoints
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.states import flatten, pack, replace_weights, unpack, weights_of
from comper.settings import to_toml
from comper.training.keeper import COUNTERS, Keeper, Saved, Schedule
from comper.training.loop import Loop
from comper.training.population import Member, _saved, _setup
from comper.training.randomness import environment_seed
from comper.training.signals import StopRequest
from comper.training.train import make_agent

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


@pytest.mark.parametrize("make", [FrameStore, CompressedFrameStore])
def test_frames_come_back_after_many_reuses_of_their_slots(make: type[FrameStore]) -> None:
    rng = np.random.default_rng(0)
    store = make((4,), initial_capacity=4)
    archive = FrameArchive(store)
    held: list[int] = []
    for step in range(3000):
        held.append(store.intern(rng.integers(0, 255, 4).astype(np.uint8)))
        if len(held) > 40:
            store.release([held.pop(int(rng.integers(len(held))))])
        if step % 37 == 0:
            archive.take_in()
            other = make((4,), initial_capacity=4)
            copy = FrameArchive(other)
            copy.load_state_dict(archive.state_dict(), archive.content)
            assert other.check_valid() == (True, "valid")
            assert np.array_equal(other.gather(held), store.gather(held))
            assert other.nbytes == store.nbytes
            assert [other.references(i) for i in held] == [store.references(i) for i in held]
            if step % 74 == 0:
                store, archive = other, copy  # go on with what was read back
    assert sum(map(len, archive._slots)) <= 2 * len(store) + 1024 + 37


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
        self.record = Recorder.create(path, to_toml(config), Manifest(agent="x", game="asterix", seed=5))
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
    assert set(flatten(weights)) == set(flatten(weights_of(state)))
    replace_weights(state, weights)
    bench.agent.load_state_dict(0, state)
    now, saved = flatten(weights_of(bench.agent.state_dict(0))), flatten(weights)
    bench.close()
    assert all(np.array_equal(now[name], saved[name]) for name in saved)
    with pytest.raises(DamagedFileError, match="other networks"):
        replace_weights(state, {"x": np.zeros(1)})
