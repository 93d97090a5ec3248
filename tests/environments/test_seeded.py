"""Exact resume by playing an episode again, in every family; and actions that are held."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest

from comper.environments.environment import Environment
from comper.environments.families import find_environment
from comper.environments.seeded import Outcome, SeededEnvironment
from comper.environments.stepper import ProcessStepper, SerialStepper
from comper.errors import DamagedFileError, UsageError
from comper.runs.states import pack, unpack

NAMES = [
    "gym:CartPole-v1",
    "gym:FrozenLake-v1",
    "gym:Acrobot-v1",
    "minatar:breakout",
    "minatar:seaquest",
    "minigrid:DoorKey-6x6-v0",
    "minigrid:Dynamic-Obstacles-5x5-v0",
]


def make(name: Any, *, seed: int = 0, observations_per_step: int = 1) -> Environment:
    spec = find_environment(name)
    return spec.factory(seed=np.random.SeedSequence(seed), observations_per_step=observations_per_step)()


def play(env: Environment, num_steps: int, seed: int = 1) -> list[Any]:
    seen: list[Any] = []
    for action in np.random.default_rng(seed).integers(env.info.num_actions, size=num_steps).tolist():
        step = env.step(action)
        seen.append((step.frames.tobytes(), step.reward, step.terminated, step.truncated, step.num_frames))
        if step.is_last:
            seen.append(env.reset().tobytes())
    return seen


class Forgetful(gymnasium.Env[Any, Any]):
    """An environment that a test can give hidden state."""

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.full(1, self.number(), np.float32), 0.0, False, False, {}

    def number(self) -> float:
        return float(self.np_random.random())


class OwnGenerator(Forgetful):
    """Draws from a generator that no seed reaches."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng()

    def number(self) -> float:
        return float(self._rng.random())


class CountsItsLife(Forgetful):
    """What it shows depends on all episodes before."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def number(self) -> float:
        self._count += 1
        return self._count / 1_000


class TurnsLate(Forgetful):
    """Hidden state that the trial at construction is too short to see."""

    def __init__(self) -> None:
        super().__init__()
        self._rng, self._count = np.random.default_rng(), 0

    def number(self) -> float:
        self._count += 1
        return float(self._rng.random()) if self._count > 60 else 0.0


@pytest.mark.parametrize("held", [1, 4])
@pytest.mark.parametrize("name", NAMES)
def test_restored_state_continues_as_if_nothing_had_happened(name: str, held: int) -> None:
    original = make(name, seed=5, observations_per_step=held)
    assert original.info.resume == ""
    original.reset()
    play(original, 70, seed=2)
    state = original.state_dict()
    restored = make(name, seed=99, observations_per_step=held)
    restored.reset()
    play(restored, 11, seed=3)
    restored.load_state_dict(unpack(*pack(state)))  # through a checkpoint's files, as in a run
    assert play(restored, 300) == play(original, 300)


def test_state_before_the_first_episode_and_after_the_end_of_one_can_be_restored() -> None:
    original, restored = make("gym:CartPole-v1", seed=5), make("gym:CartPole-v1", seed=9)
    restored.load_state_dict(original.state_dict())
    np.testing.assert_array_equal(restored.reset(), original.reset())
    while not original.step(0).is_last:
        pass
    restored.load_state_dict(original.state_dict())
    with pytest.raises(ValueError, match="call reset"):
        restored.step(0)
    np.testing.assert_array_equal(restored.reset(), original.reset())
    assert play(restored, 50) == play(original, 50)


def test_state_holds_plain_values_and_does_not_change_with_the_game() -> None:
    env = make("minatar:breakout")
    env.reset()
    play(env, 3)
    state = env.state_dict()
    assert {type(value) for value in state.values()} <= {int, str, dict, np.ndarray}
    actions = state["actions"].copy()
    env.step(0)
    np.testing.assert_array_equal(state["actions"], actions)


@pytest.mark.parametrize("kind", [OwnGenerator, CountsItsLife])
def test_hidden_state_is_found_at_construction_and_stated(kind: type) -> None:
    env = make(kind)
    assert "the same seed and the same actions do not lead to the same observations" in env.info.resume
    env.reset()
    with pytest.raises(UsageError, match="cannot be resumed"):
        env.state_dict()


def test_hidden_state_that_shows_later_is_refused_when_a_state_is_loaded() -> None:
    env = make(TurnsLate)
    assert env.info.resume == ""
    env.reset()
    play(env, 80)
    state = env.state_dict()
    with pytest.raises(DamagedFileError, match="does not play the saved episode again as it was"):
        make(TurnsLate).load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "gym:Acrobot-v1"}, "state is of 'gym:Acrobot-v1', but this is 'gym:CartPole-v1'"),
        ({"identity": {"gymnasium": "0.1"}}, "state is of {'gymnasium': '0.1'}"),
        ({"digest": "00"}, "does not play the saved episode again"),
        ({"episode_seed": 1}, "does not play the saved episode again"),
        *(({"episode_seed": seed}, "saved seed of gym:CartPole-v1 is none") for seed in (-1, None, 2**40, "1")),
        ({"actions": np.array([0, 7])}, "cannot be played again: the state is damaged"),
        ({"actions": np.zeros(400, np.int32)}, "cannot be played again: the state is damaged"),
    ],
)
def test_state_that_does_not_fit_is_refused_in_one_sentence(change: dict[str, Any], message: str) -> None:
    env = make("gym:CartPole-v1")
    env.reset()
    env.step(0)
    with pytest.raises(DamagedFileError, match=message):
        env.load_state_dict({**env.state_dict(), **change})


@pytest.mark.parametrize("name", NAMES)
def test_no_global_generator_is_touched(name: str) -> None:
    find_environment(name)
    before = np.random.get_state(), random.getstate()  # noqa: NPY002 -- it is what must not change
    env = make(name)
    env.reset()
    play(env, 30)
    if not env.info.resume:
        env.load_state_dict(env.state_dict())
    after = np.random.get_state(), random.getstate()  # noqa: NPY002
    assert repr(before) == repr(after)


class Countdown:
    """A game that is over after some steps, each of which pays 1."""

    def __init__(self, length: int):
        self._length, self._steps = length, 0
        self.observation_shape: tuple[int, ...] = (1,)
        self.observation_dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.action_names: tuple[str, ...] = ("wait",)
        self.time_limit_frames: int | None = None
        self.identity: Mapping[str, str] = {}

    def reset(self, seed: int) -> Any:
        self._steps = 0
        return np.zeros(1, np.uint8)

    def step(self, action: int) -> Outcome:
        self._steps += 1
        return Outcome(np.full(1, self._steps, np.uint8), 1.0, self._steps == self._length, False)

    def render(self) -> None:
        """It draws nothing."""

    def get_state(self) -> None:
        return None

    def set_state(self, state: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize(("length", "last"), [(9, (False, True)), (4, (True, False)), (2, (True, False))])
def test_the_frame_cap_truncates_and_a_game_over_at_the_cap_is_a_game_over(length: int, last: tuple[bool, bool]) -> None:
    env = SeededEnvironment("countdown", lambda: Countdown(length), rng=np.random.default_rng(0), episode_cap_frames=4)
    assert env.info.episode_cap_frames == 4
    for _ in range(2):  # every episode has the whole cap
        env.reset()
        steps = [env.step(0)]
        while not steps[-1].is_last:
            steps.append(env.step(0))
        assert len(steps) == min(length, 4)
        assert (steps[-1].terminated, steps[-1].truncated) == last


def test_held_action_makes_k_observations_and_sums_their_rewards() -> None:
    held, single = make("gym:CartPole-v1", observations_per_step=4), make("gym:CartPole-v1")
    np.testing.assert_array_equal(held.reset(), single.reset())
    four, ones = held.step(1), [single.step(1) for _ in range(4)]
    assert (held.observations_per_step, four.num_frames, four.reward) == (4, 4, 4.0)
    np.testing.assert_array_equal(four.frames, np.concatenate([one.frames for one in ones]))


def test_held_action_that_is_cut_short_repeats_its_last_observation() -> None:
    env = make("gym:CartPole-v1", observations_per_step=4)
    env.reset()
    step = env.step(1)
    while not step.is_last:
        step = env.step(1)
    assert step.num_frames < 4
    assert step.frames.shape == (4, 4)
    np.testing.assert_array_equal(step.frames[-1], step.frames[step.num_frames - 1])


def test_workers_and_one_process_play_the_same_episodes() -> None:
    factories = [
        find_environment("minigrid:Empty-5x5-v0").factory(seed=np.random.SeedSequence(trial), observations_per_step=2)
        for trial in range(3)
    ]
    serial = SerialStepper([factory() for factory in factories])
    with ProcessStepper(factories, num_workers=2) as processes:
        assert processes.infos == serial.infos
        for trial in range(3):
            np.testing.assert_array_equal(serial.reset(trial), processes.reset(trial))
        for action in (2, 1, 2, 0):
            for ours, theirs in zip(serial.step([action] * 3, range(3)), processes.step([action] * 3, range(3)), strict=True):
                np.testing.assert_array_equal(ours.frames, theirs.frames)
        serial.load_state_dict(1, processes.state_dict(1))
    serial.close()
