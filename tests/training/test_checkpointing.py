"""When checkpoints are written, and every piece of state in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.comper import ComperAgent
from comper.cli import main
from comper.environments.families import find_environment
from comper.errors import DamagedFileError, DivergedError
from comper.runs import checkpoints
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.states import pack, unpack
from comper.training.checkpointing import COUNTERS, Checkpointer, SavedTrial, Schedule
from comper.training.loop import Loop
from comper.training.options import RunOptions, RunSettings, resolve_settings
from comper.training.population import Member, _saved_trial, _setup, make_stepper
from comper.training.signals import StopRequest
from tests.training.small_runs import RUN, start

# When


def test_a_period_is_kept_exactly_and_zero_is_never() -> None:
    schedule, never = Schedule(50, 0), Schedule(0, 0)
    assert [step for step in range(1, 160) if schedule.is_due(step)] == [50, 100, 150]
    assert not any(never.is_due(step) for step in range(1, 20_000))


def test_by_default_a_checkpoint_waits_a_hundred_times_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("comper.training.checkpointing.time.monotonic", lambda: now[0])
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


# The state inventory: every row alone decides how a run goes on


ASTERIX = find_environment("asterix")
SMALL: dict[str, Any] = {
    "frames": 10_000, "episode_cap_frames": 150, "screen_size": 36, "replay_start_steps": 12, "target_period_steps": 20,
    "epsilon_decay_frames": 100,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "comper-single": {"memory_sets": 60, "sets_per_training": 20, "qlstm_gradient_momentum": 0.5},
    "dqn": {"replay_capacity": 40},
    "ddqn": {"replay_capacity": 40},
    "comper": {
        "memory_sets": 60,
        "refresh_period_steps": 20,
        "held_steps": 50,
        "autofire_steps": 6,
        "replay": "surprise",
        "double": True,
        "epsilon_decay_frames": 100_000,
    },
}


class Bench:
    """A trial of a real game that can be saved, restored and stepped."""

    def __init__(self, settings: RunSettings, path: Path, files: dict[str, bytes] | None = None):
        self.environments = make_stepper([(ASTERIX, 5)], settings, RunOptions(workers=0))
        self.record = Recorder.create(path, settings.to_toml(), Manifest(agent="x", game="asterix", seed=5))
        member = Member("asterix", 5, self.record)
        setup = _setup(5, settings, self.environments)
        task, device = settings.task(self.environments.info), torch.device("cpu")
        self.agent = settings.agent.agent(settings.config, task, [setup], device=device)
        self.saved: SavedTrial = _saved_trial(0, member, self.record, setup, settings)
        self.checkpointer = Checkpointer(
            self.agent, self.environments, [self.saved], frames=settings.config.frames, request=StopRequest()
        )
        self.loop = Loop(settings.config, self.agent, self.environments, [self.saved.trial])
        if files:
            self.checkpointer.load(self.saved, files)
            self.loop.t = 70
        else:
            self.saved.trial.history.reset(self.environments.reset(0))

    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.loop._tick([self.saved.trial])

    def save(self) -> dict[str, bytes]:
        self.checkpointer.write(self.loop.t)
        return self.saved.checkpoints[-1].read()

    def close(self) -> None:
        self.record.close()


@pytest.fixture(scope="module", params=SETTINGS)
def states(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(settings, state at the start, at step 70, at step 100) of one run."""
    settings = resolve_settings(request.param, [ASTERIX], SMALL | SETTINGS[request.param], where="test")
    bench = Bench(settings, tmp_path_factory.mktemp("run") / "seed-5")
    saved = [bench.save()]
    for num_steps in (70, 30):
        bench.step(num_steps)
        bench.saved.trial.episode_score += 0.5 if num_steps == 70 else 0.0  # nothing is scored in so few steps
        saved.append(bench.save())
    bench.close()
    return settings, *saved


def test_a_restored_state_goes_on_to_the_same_bytes(states: Any, tmp_path: Path) -> None:
    settings, _, middle, end = states
    bench = Bench(settings, tmp_path / "seed-5", middle)
    bench.step(30)
    state, expected = unpack(*_parts(bench.save())), unpack(*_parts(end))
    bench.close()
    for side in (state, expected):
        side["frames"] = {name: side["frames"][name] for name in ("ids", "counts")}  # the parts differ in how they were cut
    assert pack(state) == pack(expected)


def test_a_state_saved_again_at_once_is_the_same(states: Any, tmp_path: Path) -> None:
    settings, _, middle, _ = states
    bench = Bench(settings, tmp_path / "seed-5", middle)
    again = bench.save()
    bench.close()
    assert again == middle


def _parts(files: dict[str, bytes]) -> tuple[bytes, bytes]:
    return files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE]


INVENTORY = {
    "weights": "agent/q_network/weights",
    "averages of the CNN's optimiser": "agent/q_network/optimiser/mean_square",
    "mean gradients of the CNN": "agent/q_network/optimiser/mean",
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
    "QLSTM weights": "agent/qlstm/weights",
    "QLSTM averages": "agent/qlstm/optimiser/mean_square",
    "QLSTM velocity": "agent/qlstm/optimiser/velocity",
    "TM transitions": "agent/tm/table",
    "TM order": "agent/tm/queue",
    "TM counters": "agent/tm/counters",
    "TM Q-values": "agent/tm/q",
    "TM successors": "agent/tm/successor",
    "TMI": "agent/tm/index",
    "RTM order": "agent/rtm/members",
    "link to the next transition": "agent/tm/previous",
}
DQN_INVENTORY = {
    "target network": "agent/target",
    "replay memory": "agent/replay/table",
    "replay counter": "agent/replay/num_added",
}


GRAPH_INVENTORY = {
    "nodes": "agent/graph/nodes/state",
    "edges": "agent/graph/edges",
    "visits": "agent/graph/edges/count",
    "values": "agent/graph/nodes/value",
    "targets": "agent/graph/nodes/target",
    "the network's values": "agent/graph/nodes/q",
    "the network's values before": "agent/graph/nodes/q_before",
    "when the network was asked": "agent/graph/nodes/asked",
    "index of the states": "agent/graph/index",
    "what is replayed": "agent/graph/replay_weights",
    "pairs to replay": "agent/graph/pairs",
    "counters of the graph": "agent/graph/counters",
    "the action that is held": "agent/explorer/held",
    "what the button has paid": "agent/autofire/paid",
}
OWN_INVENTORIES = {"comper-single": COMPER_INVENTORY, "comper": GRAPH_INVENTORY}


@pytest.mark.parametrize("row", [*INVENTORY, *COMPER_INVENTORY, *DQN_INVENTORY, *GRAPH_INVENTORY])
def test_the_checkpoint_holds(row: str, states: Any) -> None:
    """One row of the state inventory: it is saved, and it is not what a new run would start with."""
    settings, start, middle, _ = states
    inventory = INVENTORY | OWN_INVENTORIES.get(settings.agent_name, DQN_INVENTORY)
    if row not in inventory:
        pytest.skip("the other agent's")
    initial, saved = (pack({"row": _at(unpack(*_parts(files)), inventory[row])}) for files in (start, middle))
    assert saved != initial


def _at(state: Any, path: str) -> Any:
    for key in path.split("/"):
        state = state[key]
    return state


def test_weights_are_taken_from_a_state_and_put_into_another(states: Any, tmp_path: Path) -> None:
    settings, _, middle, _ = states
    state = unpack(*_parts(middle))["agent"]
    weights = {name: part["weights"] for name, part in state.items() if "weights" in part}
    bench = Bench(settings, tmp_path / "seed-5")
    before = bench.agent.weights(0)
    assert set(before) == set(weights)
    if "autofire" in weights:  # nothing is scored in so few steps: as if the button by turns had paid more
        weights["autofire"] = {"button": np.array([1])}
    bench.agent.load_weights(0, weights)
    now = bench.agent.weights(0)
    bench.close()
    for network in weights:
        assert all(np.array_equal(now[network][name], values) for name, values in weights[network].items())
        assert any(not np.array_equal(before[network][name], values) for name, values in weights[network].items())
    wrongs: list[dict[str, dict[str, Any]]] = [{name: {} for name in weights}, {name: {"x": np.zeros(1)} for name in weights}]
    for wrong in wrongs:
        with pytest.raises((ValueError, DamagedFileError), match="another network"):
            bench.agent.load_weights(0, wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_weight_stops_the_run_with_the_good_checkpoints_untouched(
    value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = ComperAgent.learn

    def break_it(self: ComperAgent, t: int, trials: Sequence[int]) -> None:
        learn(self, t, trials)
        if t == 39:
            weights = self.q_network.weights(0)
            weights["Dense2.bias"][:] = value
            self.q_network.load_weights(0, weights)

    monkeypatch.setattr(ComperAgent, "learn", break_it)
    with pytest.raises(DivergedError) as error:
        start(tmp_path)
    assert error.value.exit_code == 5
    assert [path.name for path in checkpoints.paths(tmp_path / RUN)][:2] == ["step-00000030", "step-00000020"]
    assert main(["verify", str(tmp_path)]) == 0


WRONG: list[Any] = [[], "abc", True, 10**400, None]
WRONG_VALUES: list[tuple[str, Any]] = [
    *((f"trial/{name}", value) for name in COUNTERS for value in WRONG if (name, value) != ("last_score", None)),
    *(("environment/is_playing", value) for value in (*WRONG, 0) if value is not True),
    *(("agent/tm/previous", value) for value in (10**30, -2)),
    ("trial/total_frames", -1),
]


@pytest.mark.parametrize(("path", "value"), WRONG_VALUES, ids=lambda part: str(part)[:20])
def test_a_state_of_wrong_values_is_called_damaged(path: str, value: Any, first_states: Any, tmp_path: Path) -> None:
    settings, files = first_states
    content = json.loads(files["state.json"])
    assert path in content["values"] or path == "environment/is_playing"  # which other environments have
    content["values"][path] = value
    with pytest.raises(DamagedFileError, match="the checkpoint is damaged"):
        Bench(settings, tmp_path / "seed-5", {**files, "state.json": json.dumps(content).encode()})


@pytest.fixture(scope="module")
def first_states(tmp_path_factory: pytest.TempPathFactory) -> Any:
    settings = resolve_settings("comper-single", [ASTERIX], SMALL | SETTINGS["comper-single"], where="test")
    bench = Bench(settings, tmp_path_factory.mktemp("run") / "seed-5")
    bench.step(5)
    files = bench.save()
    bench.close()
    return settings, files


def test_a_state_that_cannot_be_read_is_named(first_states: Any, tmp_path: Path) -> None:
    settings, files = first_states
    with pytest.raises(DamagedFileError, match="seed-5: A saved state cannot be read"):
        Bench(settings, tmp_path / "seed-5", {**files, "state.json": b"[]"})
