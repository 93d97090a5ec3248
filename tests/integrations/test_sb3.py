"""The buffers for Stable-Baselines3 against its own: the same samples, draw for draw, in a fraction of the memory."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from comper.errors import DamagedFileError, UsageError
from comper.integrations.sb3 import CompactDictReplayBuffer, CompactNStepReplayBuffer, CompactReplayBuffer
from comper.memory.observation_array import ObservationArray

IMAGE = spaces.Box(0, 255, (4, 40, 32), np.uint8)
ACTIONS = spaces.Discrete(5)
SPACES: dict[str, spaces.Space[Any]] = {
    "stack of frames first": IMAGE,
    "stack of frames last": spaces.Box(0, 255, (40, 32, 4), np.uint8),
    "colours": spaces.Box(0, 255, (3, 40, 40), np.uint8),
    "stack of colours": spaces.Box(0, 255, (6, 40, 40), np.uint8),
    "stack of colour frames": spaces.Box(0, 255, (2, 24, 24, 3), np.uint8),
    "small picture": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "long vector": spaces.Box(-1, 1, (200,), np.float32),
    "vector": spaces.Box(-1, 1, (4,), np.float32),
    "double precision": spaces.Box(-1, 1, (3,), np.float64),
    "number": spaces.Discrete(7),
    "numbers": spaces.MultiDiscrete([3, 4, 5]),
    "bits": spaces.MultiBinary(40),
    "dict": spaces.Dict({"picture": IMAGE, "Goal-1": spaces.Discrete(3), "vector": spaces.Box(-1, 1, (4,), np.float32)}),
}
BUFFERS: dict[str, tuple[type[ReplayBuffer], type[CompactReplayBuffer], dict[str, Any]]] = {
    "one step": (ReplayBuffer, CompactReplayBuffer, {}),
    "n steps": (NStepReplayBuffer, CompactNStepReplayBuffer, {"n_steps": 3, "gamma": 0.9}),
}

Transition = tuple[Any, Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_], list[dict[str, Any]]]


def observed(space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    """An observation of few kinds, so that some come again."""
    if isinstance(space, spaces.Dict):
        return {key: observed(part, rng) for key, part in space.spaces.items()}
    space.seed(int(rng.integers(12)))
    return np.asarray(space.sample(), space.dtype)


def following(space: spaces.Space[Any], before: Any, rng: np.random.Generator) -> Any:
    """The next observation: of a stack of frames, one frame is new."""
    new = observed(space, rng)
    if isinstance(space, spaces.Box) and space.shape == (4, 40, 32):
        new[:3] = before[1:]
    if isinstance(space, spaces.Box) and space.shape == (6, 40, 40):
        new[:3] = before[3:]
    return new


def joined(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([o[key] for o in observations]) for key in observations[0]}
    return np.stack(observations)


def played(space: spaces.Space[Any], count: int, n_envs: int = 1, *, seed: int = 0) -> Iterator[Transition]:
    """Transitions of several environments, with episodes that end and that are cut off."""
    rng = np.random.default_rng(seed)
    obs = [observed(space, rng) for _ in range(n_envs)]
    for _ in range(count):
        following_obs = [following(space, o, rng) for o in obs]
        done, cut = rng.random(n_envs) < 0.2, rng.random(n_envs) < 0.5
        infos = [{"TimeLimit.truncated": bool(d and c)} for d, c in zip(done, cut, strict=True)]
        yield joined(obs), joined(following_obs), rng.integers(0, 3, n_envs), rng.integers(0, 2, n_envs) * 0.5, done, infos
        obs = [observed(space, rng) if d else o for d, o in zip(done, following_obs, strict=True)]


def filled(buffer: ReplayBuffer, count: int, **kwargs: Any) -> Any:
    for transition in played(buffer.observation_space, count, buffer.n_envs, **kwargs):
        buffer.add(*copy.deepcopy(transition))
    return buffer


def drawn(buffer: ReplayBuffer, count: int = 50, env: Any = None) -> Any:
    np.random.seed(7)  # noqa: NPY002 - the generator that SB3 draws from
    return buffer.sample(count, env)


def assert_same(one: Any, other: Any) -> None:
    """Two samples are equal: type, kind of number, shape, device and content."""
    assert type(one) is type(other)
    for a, b in zip(one, other, strict=True):
        if isinstance(a, dict):
            assert list(a) == list(b)
        pairs = [(a[key], b[key]) for key in a] if isinstance(a, dict) else [(a, b)]
        for left, right in pairs:
            assert (left is None) == (right is None)
            if left is not None:
                assert (left.dtype, left.shape, left.device) == (right.dtype, right.shape, right.device)
                assert right.is_contiguous()
                assert torch.equal(left, right)


# The same samples.


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("name", SPACES)
def test_the_samples_are_those_of_sb3_draw_for_draw(name: str, n_envs: int, compression: Any) -> None:
    space = SPACES[name]
    theirs: type[ReplayBuffer] = DictReplayBuffer if name == "dict" else ReplayBuffer
    ours = CompactDictReplayBuffer if name == "dict" else CompactReplayBuffer
    for count in (5, 90):  # before and after the first transitions are overwritten
        own = filled(theirs(60, space, ACTIONS, "cpu", n_envs=n_envs), count)
        compact = filled(ours(60, space, ACTIONS, "cpu", n_envs=n_envs, compression=compression), count)
        assert (own.size(), own.pos, own.full) == (compact.size(), compact.pos, compact.full)
        assert_same(drawn(own), drawn(compact))


@pytest.mark.parametrize("handles_timeouts", [False, True])
def test_time_limits_end_no_value_unless_that_is_switched_off(handles_timeouts: bool) -> None:
    settings: dict[str, Any] = {"handle_timeout_termination": handles_timeouts}
    own, compact = (filled(kind(60, IMAGE, ACTIONS, "cpu", **settings), 90) for kind in (ReplayBuffer, CompactReplayBuffer))
    assert_same(drawn(own), drawn(compact))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_returns_over_n_steps_are_those_of_sb3(n_envs: int) -> None:
    settings: dict[str, Any] = {"n_envs": n_envs, "n_steps": 3, "gamma": 0.9}
    own = filled(NStepReplayBuffer(60, IMAGE, ACTIONS, "cpu", **settings), 90)
    compact = filled(CompactNStepReplayBuffer(60, IMAGE, ACTIONS, "cpu", **settings), 90)
    assert_same(drawn(own), drawn(compact))


class Corridor(gymnasium.Env[Any, Any]):
    """Walk to the end of a corridor, seen as a stack of two pictures or as a vector."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._seen(self.observation_space), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.steps = max(0, self.place + (1 if action else -1)), self.steps + 1
        return self._seen(self.observation_space), float(self.place == 5), self.place == 5, self.steps == 20, {}

    def _seen(self, space: spaces.Space[Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._seen(part) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Discrete):
            return np.int64(self.place)
        array = np.zeros(space.shape or (), space.dtype)
        array[..., self.place] = 200 if array.dtype == np.uint8 else 0.5
        return array


CORRIDORS: dict[str, tuple[str, Any]] = {
    "pictures": ("CnnPolicy", spaces.Box(0, 255, (2, 36, 36), np.uint8)),
    "vectors": ("MlpPolicy", spaces.Box(-1, 1, (6,), np.float32)),
    "numbers": ("MlpPolicy", spaces.Discrete(7)),
    "dicts": ("MultiInputPolicy", spaces.Dict({"a": spaces.Box(0, 255, (1, 40, 40), np.uint8), "b": spaces.Discrete(7)})),
}
SMALL: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "buffer_size": 100, "train_freq": 2, "seed": 3}


def weights(model: Any) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in model.policy.state_dict().values()]


@pytest.mark.parametrize("n_envs", [1, 2])
@pytest.mark.parametrize("name", CORRIDORS)
def test_dqn_learns_the_same_weights_with_either_buffer(name: str, n_envs: int) -> None:
    policy, space = CORRIDORS[name]
    learned = []
    ours = CompactDictReplayBuffer if name == "dicts" else CompactReplayBuffer
    for kind in (None, ours):
        env = DummyVecEnv([lambda: Corridor(space)] * n_envs)
        learned.append(weights(DQN(policy, env, replay_buffer_class=kind, device="cpu", **SMALL).learn(160)))
    assert learned[0] == learned[1]


def test_dqn_learns_the_same_weights_with_normalized_observations() -> None:
    learned = []
    for kind in (None, CompactReplayBuffer):
        env = VecNormalize(DummyVecEnv([lambda: Corridor(spaces.Box(-1, 1, (6,), np.float32))]))
        learned.append(weights(DQN("MlpPolicy", env, replay_buffer_class=kind, device="cpu", **SMALL).learn(160)))
    assert learned[0] == learned[1]


def test_normalized_samples_are_those_of_sb3() -> None:
    env = VecNormalize(DummyVecEnv([lambda: Corridor(IMAGE)]))
    env.reset()
    for _ in range(10):
        env.step(np.array([1]))
    own, compact = (filled(kind(60, IMAGE, ACTIONS, "cpu"), 90) for kind in (ReplayBuffer, CompactReplayBuffer))
    assert_same(drawn(own, env=env), drawn(compact, env=env))
    assert not torch.equal(drawn(compact, env=env).rewards, drawn(compact).rewards)


def test_real_actions_work_as_in_sb3() -> None:
    learned = []
    for kind in (None, CompactReplayBuffer):
        settings: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "buffer_size": 100, "seed": 3, "device": "cpu"}
        learned.append(weights(SAC("MlpPolicy", "Pendulum-v1", replay_buffer_class=kind, **settings).learn(60)))
    assert learned[0] == learned[1]


def test_it_works_as_cleanrl_uses_its_copy_of_the_buffer() -> None:
    rb = CompactReplayBuffer(
        50, IMAGE, ACTIONS, torch.device("cpu"), optimize_memory_usage=False, handle_timeout_termination=False
    )
    for obs, next_obs, actions, rewards, terminations, _ in played(IMAGE, 80):
        rb.add(obs, next_obs, actions, rewards, terminations, {})  # a dict, as vector environments give it
    data = rb.sample(32)
    assert data.observations.shape == data.next_observations.shape == (32, 4, 40, 32)
    q = torch.arange(5.0).expand(32, 5)
    assert q.gather(1, data.actions).squeeze().shape == data.rewards.flatten().shape == data.dones.flatten().shape == (32,)


# Memory.


def test_a_stack_of_frames_takes_an_eighth_of_the_memory_and_less_if_compressed() -> None:
    frames = np.zeros((1000, 84, 84), np.uint8)
    frames[np.arange(1000), np.arange(1000) // 84, np.arange(1000) % 84] = 255
    sizes = {}
    settings: list[Any] = [None, "zlib"]
    for compression in settings:
        buffer = CompactReplayBuffer(900, spaces.Box(0, 255, (4, 84, 84), np.uint8), ACTIONS, compression=compression)
        for t in range(900):
            stacks = frames[t : t + 4][None], frames[t + 1 : t + 5][None]
            buffer.add(*stacks, np.array([0]), np.array([0.0]), np.array([False]), [{}])
        sizes[compression] = buffer.nbytes / 900
    assert sizes[None] < 84 * 84 + 100  # SB3: 56,468
    assert sizes["zlib"] < 250


@pytest.mark.parametrize("name", ["vector", "number", "numbers"])
def test_observations_that_are_smaller_than_their_bookkeeping_are_kept_as_sb3_keeps_them(name: str) -> None:
    buffer = filled(CompactReplayBuffer(60, SPACES[name], ACTIONS), 10)
    assert type(buffer.observations) is np.ndarray


@pytest.mark.parametrize("name", ["stack of frames first", "small picture", "dict"])
def test_frames_of_overwritten_transitions_are_forgotten(name: str) -> None:
    kind = CompactDictReplayBuffer if name == "dict" else CompactReplayBuffer
    buffer = kind(10, SPACES[name], ACTIONS)
    space = SPACES[name]
    for transition in played(space, 200):
        buffer.add(*transition)
        for pool in buffer._pools.values():
            arrays = [array for _, s, s_next in buffer._arrays() for array in (s, s_next)]
            ids = np.concatenate([a.ids.ravel() for a in arrays if isinstance(a, ObservationArray) and a.pool is pool])
            assert pool.frames.check_valid() == (True, "valid")
            assert len(pool.frames) <= len(np.unique(ids[ids >= 0])) + pool.frames_per_observation
    buffer.reset()
    assert buffer.size() == 0
    assert all(len(pool.frames) == 0 for pool in buffer._pools.values())


# Sets of similar transitions.


def pixel(value: int) -> npt.NDArray[np.uint8]:
    return np.full((1, 40), value, np.uint8)


PIXELS = spaces.Box(0, 255, (40,), np.uint8)


def add(buffer: CompactReplayBuffer, s: int, a: int = 0, r: float = 0.0, s_next: int = 0, done: bool = False) -> None:
    buffer.add(pixel(s), pixel(s_next), np.array([a]), np.array([r]), np.array([done]), [{}])


def test_every_visit_is_equally_likely_unless_sets_are_asked_for() -> None:
    shares = {}
    kinds: list[Any] = ["visits", "sets"]
    for replay in kinds:
        buffer = CompactReplayBuffer(100, PIXELS, ACTIONS, replay=replay)
        for value in [1] * 9 + [2]:
            add(buffer, value)
        shares[replay] = float((drawn(buffer, 4000).observations[:, 0] == 2).float().mean())
    assert shares["visits"] == pytest.approx(0.1, abs=0.02)
    assert shares["sets"] == pytest.approx(0.5, abs=0.03)
    assert buffer.set_sizes.tolist() == [9, 1]


def test_a_set_is_forgotten_with_its_last_visit() -> None:
    buffer = CompactReplayBuffer(3, PIXELS, ACTIONS, replay="sets")
    for value, sizes in ((1, [1]), (2, [1, 1]), (1, [2, 1]), (3, [1, 1, 1]), (3, [1, 2]), (3, [3]), (1, [2, 1])):
        add(buffer, value)
        assert sorted(buffer.set_sizes.tolist()) == sorted(sizes)
        assert set(drawn(buffer).observations[:, 0].tolist()) <= {1, 2, 3}


def test_a_set_is_replayed_as_it_was_met_last() -> None:
    buffer = CompactReplayBuffer(9, PIXELS, ACTIONS, replay="sets")
    for done in (False, True):
        add(buffer, 1, done=done)
        assert set(drawn(buffer).dones.ravel().tolist()) == {float(done)}
    for s, a, r, s_next in ((2, 0, 0.0, 0), (1, 1, 0.0, 0), (1, 0, 0.5, 0), (1, 0, 0.0, 5)):
        add(buffer, s, a, r, s_next)
    assert sorted(buffer.set_sizes.tolist()) == [1, 1, 1, 1, 2]


def test_similar_transitions_are_stored_as_the_first_of_them() -> None:
    buffer = CompactReplayBuffer(4, PIXELS, ACTIONS, similarity=10 * 40**0.5 / 255)
    for value in (100, 105, 130, 109):
        add(buffer, value)
    assert [int(o[0, 0]) for o in buffer.observations[:]] == [100, 100, 130, 100]
    assert sorted(buffer.set_sizes.tolist()) == [1, 3]
    assert len(buffer._pools[""].frames) == 3  # 0, 100 and 130
    add(buffer, 111)  # the first 100 is overwritten, its set lives on, but 111 is too far from it
    add(buffer, 95)
    assert [int(o[0, 0]) for o in buffer.observations[:]] == [111, 100, 130, 100]
    assert buffer._pools[""].frames.check_valid() == (True, "valid")


@pytest.mark.parametrize("name", ["small picture", "vector", "dict"])
def test_sets_of_several_environments_are_drawn_from_all_of_them(name: str) -> None:
    kind = CompactDictReplayBuffer if name == "dict" else CompactReplayBuffer
    buffer = filled(kind(90, SPACES[name], ACTIONS, "cpu", n_envs=3, replay="sets"), 60)
    assert buffer.set_sizes.sum() == 90
    numbers = buffer._sets.rows(np.arange(len(buffer._sets)))
    assert set((numbers % 3).tolist()) == {0, 1, 2}
    keys = [buffer._key(int(number)) for number in numbers]
    assert len(set(keys)) == len(keys) == len({buffer._key(number) for number in range(90)})


# Files.

SAVED: dict[str, tuple[type[CompactReplayBuffer], str, dict[str, Any]]] = {
    "raw": (CompactReplayBuffer, "stack of frames first", {}),
    "zlib": (CompactReplayBuffer, "stack of frames last", {"compression": "zlib", "n_envs": 2}),
    "vector": (CompactReplayBuffer, "vector", {}),
    "numbers": (CompactReplayBuffer, "numbers", {"handle_timeout_termination": False}),
    "bits": (CompactReplayBuffer, "bits", {}),
    "sets": (CompactReplayBuffer, "small picture", {"replay": "sets", "n_envs": 2}),
    "similar": (CompactReplayBuffer, "small picture", {"replay": "sets", "similarity": 4.0}),
    "dict": (CompactDictReplayBuffer, "dict", {"replay": "sets"}),
    "n steps": (CompactNStepReplayBuffer, "stack of frames first", {"n_steps": 2, "gamma": 0.5}),
}


@pytest.mark.parametrize("count", [0, 7, 90])
@pytest.mark.parametrize("name", SAVED)
def test_a_buffer_read_back_goes_on_as_if_it_had_never_stopped(name: str, count: int, tmp_path: Path) -> None:
    kind, space, settings = SAVED[name]
    buffer = filled(kind(60, SPACES[space], ACTIONS, "cpu", **settings), count)
    buffer.save(tmp_path / "saved")
    for other in (kind.load(tmp_path / "saved", "cpu"), copy.deepcopy(buffer)):
        assert (other.observation_space, other.action_space) == (buffer.observation_space, buffer.action_space)
        assert repr(other) == repr(buffer)
        if count:
            assert_same(drawn(buffer), drawn(other))
        again = copy.deepcopy(buffer)
        for each in (again, other):
            filled(each, 30, seed=1)
        assert_same(drawn(again), drawn(other))
        assert again.nbytes == other.nbytes


@pytest.mark.parametrize("name", ["pictures", "dicts"])
def test_sb3_saves_and_loads_the_buffer_with_its_own_calls(name: str, tmp_path: Path) -> None:
    policy, space = CORRIDORS[name]
    kind = CompactDictReplayBuffer if name == "dicts" else CompactReplayBuffer
    model = DQN(policy, Corridor(space), replay_buffer_class=kind, device="cpu", **SMALL).learn(60)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    # Python's hash of bytes differs from process to process: frames must be found again all the same.
    script = f"""
import sys, numpy as np
from stable_baselines3.common.save_util import load_from_pkl
buffer = load_from_pkl({str(tmp_path / "buffer.pkl")!r})
assert all(pool.frames.check_valid()[0] for pool in buffer._pools.values())
np.random.seed(7)
print(repr(buffer), float(buffer.sample(50).rewards.sum()))
"""
    environment = os.environ | {"PYTHONHASHSEED": "123"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert model.replay_buffer is not None
    assert result.stdout.strip() == f"{model.replay_buffer!r} {float(drawn(model.replay_buffer).rewards.sum())}"
    other = DQN(policy, Corridor(space), replay_buffer_class=kind, device="cpu", **SMALL)
    other.load_replay_buffer(tmp_path / "buffer.pkl")
    assert other.replay_buffer is not None
    assert_same(drawn(model.replay_buffer), drawn(other.replay_buffer))
    other.learn(60)


def test_what_sb3_pickles_of_ours_is_arrays_and_numbers() -> None:
    state = filled(CompactReplayBuffer(60, IMAGE, ACTIONS), 30).__getstate__()
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in state.pop("_saved").values())
    plain = (int, float, bool, str, tuple, spaces.Space, torch.device, type(None))
    assert all(isinstance(value, plain) for value in state.values())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    buffer = filled(CompactReplayBuffer(60, SPACES["small picture"], ACTIONS, "cpu", replay="sets"), 40)
    buffer.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_every_file_that_was_changed_is_noticed(saved: Path) -> None:
    for path in sorted(saved.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DamagedFileError):
            CompactReplayBuffer.load(saved)
        path.write_bytes(content)
    CompactReplayBuffer.load(saved)


def test_a_buffer_of_another_kind_is_refused(saved: Path) -> None:
    with pytest.raises(DamagedFileError, match="it holds a CompactReplayBuffer"):
        CompactDictReplayBuffer.load(saved)


def nested_space(depth: int) -> dict[str, Any]:
    space: dict[str, Any] = {"kind": "Discrete", "n": 3, "start": 0}
    for _ in range(depth):
        space = {"kind": "Dict", "spaces": {"a": space}}
    return space


LIES: dict[str, Any] = {
    "pos": lambda about: about | {"pos": 60},
    "pos of no number": lambda about: about | {"pos": "1"},
    "full": lambda about: about | {"full": True},
    "size": lambda about: about | {"buffer_size": 10},
    "no size": lambda about: about | {"buffer_size": 0},
    "setting": lambda about: about | {"settings": about["settings"] | {"surprise": 1}},
    "environments": lambda about: about | {"settings": about["settings"] | {"n_envs": 2}},
    "no settings": lambda about: about | {"settings": None},
    "space": lambda about: about | {"observation_space": {"kind": "Secret"}},
    "other space": lambda about: about | {"observation_space": {"kind": "Discrete", "n": 3, "start": 0}},
    "deep space": lambda about: about | {"observation_space": nested_space(300)},
    "nothing": lambda about: {},
}


@pytest.mark.parametrize("name", LIES)
def test_a_manifest_that_deceives_is_refused(name: str, saved: Path) -> None:
    from comper.memory import array_folder

    manifest = json.loads((saved / "manifest.json").read_text())
    files = manifest.pop("files")
    del manifest["sha256"]
    lie = LIES[name](manifest) | {"files": files}
    (saved / "manifest.json").write_text(json.dumps(lie | {"sha256": array_folder._seal(lie)}))
    with pytest.raises(DamagedFileError):
        CompactReplayBuffer.load(saved)


ARRAYS: dict[str, Any] = {
    "frames_a": lambda a: a.astype(np.int8),
    "observations_a": lambda a: a + 1000,
    "next_observations_a": lambda a: a[:-1],
    "actions": lambda a: a.astype(np.int32),
    "rewards": lambda a: a[:3],
    "set_of": lambda a: a + 50,
    "latest": lambda a: a[::-1].copy(),
    "members": lambda a: np.zeros_like(a),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_deceives_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    from comper.memory import array_folder

    about, arrays = array_folder.read(saved)
    lies = {key: np.array(array) for key, array in arrays.items()}
    lies[name] = ARRAYS[name](lies[name])
    columns = array_folder.stored(lies)
    array_folder.write(tmp_path / "lies", about, columns)
    with pytest.raises(DamagedFileError):
        CompactReplayBuffer.load(tmp_path / "lies")


# Bad input.

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no room": ({"buffer_size": 0}, "buffer_size = 0: must be an integer of 1 or more"),
    "half a row": ({"buffer_size": 0.5}, "buffer_size = 0.5: must be an integer"),
    "no environment": ({"n_envs": 0}, "n_envs = 0: must be"),
    "negative similarity": ({"similarity": -1}, "similarity = -1: must be a number, 0 or more"),
    "no similarity": ({"similarity": None}, "similarity = None: must be a number"),
    "unknown compression": ({"compression": "zip"}, "compression = 'zip': must be None or"),
    "unknown replay": ({"replay": "all"}, "replay = 'all': must be"),
    "memory option": ({"optimize_memory_usage": True}, "leave it out"),
    "dict": ({"observation_space": SPACES["dict"]}, "use replay_buffer_class=CompactDictReplayBuffer"),
    "similar real actions": (
        {"similarity": 0.1, "action_space": spaces.Box(-1, 1, (2,))},
        "needs a Discrete action space, not Box",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_get_a_sentence(name: str) -> None:
    wrong, message = WRONG[name]
    settings: dict[str, Any] = {"buffer_size": 10, "observation_space": IMAGE, "action_space": ACTIONS} | wrong
    with pytest.raises(UsageError, match=message):
        CompactReplayBuffer(**settings)


def test_wrong_kinds_of_buffer_get_a_sentence() -> None:
    with pytest.raises(UsageError, match="use replay_buffer_class=CompactReplayBuffer"):
        CompactDictReplayBuffer(10, IMAGE, ACTIONS)
    with pytest.raises(UsageError, match="have no distance"):
        CompactDictReplayBuffer(10, SPACES["dict"], ACTIONS, similarity=0.5)
    with pytest.raises(UsageError, match='use replay="visits"'):
        CompactNStepReplayBuffer(10, IMAGE, ACTIONS, replay="sets")
    with pytest.raises(UsageError, match="there is nothing to sample"):
        CompactReplayBuffer(10, IMAGE, ACTIONS).sample(3)
    with pytest.raises(UsageError, match="Sets are not kept"):
        _ = CompactReplayBuffer(10, IMAGE, ACTIONS).set_sizes


WRONG_TRANSITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "changed shape": ({"obs": np.zeros((1, 41), np.uint8)}, "made for observations of .40,."),
    "another environment": ({"next_obs": np.zeros((2, 40), np.uint8)}, "expected .1, 40., one per environment"),
    "foreign kind of number": (
        {"obs": np.zeros((1, 40), np.float32)},
        "observations of float32: the buffer was made for uint8",
    ),
    "no numbers": ({"obs": "pixels"}, "made for observations"),
    "two actions": ({"action": np.array([1, 2])}, "action of shape .2,.: expected .1, 1."),
    "half an action": ({"action": np.array([0.5])}, "action of float64: the buffer was made for int64"),
    "two rewards": ({"reward": np.array([1.0, 2.0])}, "reward = .*: must be 1 numbers, one per environment"),
    "no reward": ({"reward": "much"}, "reward = 'much': must be"),
    "no end": ({"done": [None, None]}, "done = .*: must be"),
    "infos of all": ({"infos": {}}, "infos must be a list of one dict per environment"),
    "endless reward": ({"reward": np.array([np.inf])}, "finite rewards"),
}


@pytest.mark.parametrize("name", WRONG_TRANSITIONS)
def test_a_wrong_transition_gets_a_sentence_and_changes_nothing(name: str) -> None:
    wrong, message = WRONG_TRANSITIONS[name]
    buffer = CompactReplayBuffer(4, PIXELS, ACTIONS, "cpu", replay="sets")
    for value in range(6):
        add(buffer, value)
    before = drawn(buffer)
    right: dict[str, Any] = {"obs": pixel(1), "next_obs": pixel(2), "action": np.array([0]), "reward": np.array([0.0])}
    with pytest.raises(UsageError, match=message):
        buffer.add(**({"done": np.array([False]), "infos": [{}]} | right | wrong))
    assert_same(before, drawn(buffer))


def test_a_dict_that_lacks_a_key_gets_a_sentence() -> None:
    buffer = CompactDictReplayBuffer(4, SPACES["dict"], ACTIONS, "cpu")
    with pytest.raises(UsageError, match="with the keys"):
        buffer.add({}, {}, np.array([0]), np.array([0.0]), np.array([False]), [{}])


def test_observations_without_a_distance_get_a_sentence() -> None:
    buffer = CompactReplayBuffer(4, SPACES["vector"], ACTIONS, "cpu", similarity=0.5)
    wrong, right = np.full((1, 4), np.nan, np.float32), np.zeros((1, 4), np.float32)
    with pytest.raises(UsageError, match="finite numbers"):
        buffer.add(wrong, right, np.array([0]), np.array([0.0]), np.array([False]), [{}])


def test_the_buffer_says_what_it_is() -> None:
    text = repr(filled(CompactReplayBuffer(60, IMAGE, ACTIONS, compression="zlib"), 7))
    assert text.startswith("CompactReplayBuffer(7 of 60 transitions, 0.")
    assert text.endswith("MB, similarity=0, compression='zlib', replay='visits')")


def test_a_missing_library_is_named_with_its_extra() -> None:
    script = "import sys; sys.modules['stable_baselines3'] = None; import comper.integrations.sb3"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert 'pip install "comper[sb3]"' in result.stderr.splitlines()[-1]


def test_the_table_of_the_document_is_that_of_the_measurements() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "experiments" / "sb3_memory.py"), "--table", str(root / "results" / "sb3-memory")]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    document = (root / "docs" / "integrations.md").read_text(encoding="utf-8")
    assert f"<!-- table: sb3-memory -->\n{table}<!-- end of table -->" in document
