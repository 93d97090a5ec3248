"""Gymnasium environments behind the project's own interface."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from comper.environments.environment import Environment
from comper.environments.families import find_environment
from comper.environments.gym import GymnasiumGame, GymnasiumSettings
from comper.environments.seeded import SeededEnvironment
from comper.errors import UsageError


class Walk(gymnasium.Env[Any, Any]):
    """A random walk over seven places that reuses its observation array, with actions 1 and 2, and can tell its state."""

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Discrete(2, start=1)
        self.observation_space = gymnasium.spaces.Box(0, 6, (2, 2), np.uint8)
        self._place = np.zeros((2, 2), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place[:] = 3
        return self._place, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (1, 2)
        noise = int(self.np_random.integers(-1, 2))
        self._place[:] = np.clip(int(self._place[0, 0]) + 2 * action - 3 + noise, 0, 6)
        is_end = bool(self._place[0, 0] in (0, 6))
        return self._place, float(self._place[0, 0]), is_end, is_end, {}

    def get_state(self) -> dict[str, Any]:
        return {"place": int(self._place[0, 0])}

    def set_state(self, state: dict[str, Any]) -> None:
        self._place[:] = state["place"]


def walk(seed: int = 0) -> SeededEnvironment:
    return SeededEnvironment("walk", lambda: GymnasiumGame("walk", Walk()), rng=np.random.default_rng(seed))


def make(name: str, *, seed: int = 0, observations_per_step: int = 1, **settings: Any) -> Environment:
    factory = find_environment(name).factory(
        GymnasiumSettings(**settings), seed=np.random.SeedSequence(seed), observations_per_step=observations_per_step
    )
    return factory()


def play(env: Environment, num_steps: int) -> list[Any]:
    seen: list[Any] = []
    for action in np.random.default_rng(1).integers(env.info.num_actions, size=num_steps).tolist():
        step = env.step(action)
        seen.append((step.frames.tolist(), step.reward, step.terminated, step.truncated, step.num_frames))
        if step.is_last:
            seen.append(env.reset().tolist())
    return seen


def test_shapes_and_actions_are_those_of_the_spaces() -> None:
    env = walk()
    assert (env.info.num_actions, env.info.observation_shape, env.info.observation_dtype) == (2, (2, 2), np.dtype(np.uint8))
    assert env.observations_per_step == 1
    assert env.reset().tolist() == [[3, 3], [3, 3]]
    step = env.step(0)
    assert (step.frames.shape, step.frames.dtype, step.num_frames) == ((1, 2, 2), np.dtype(np.uint8), 1)


def test_frames_are_copies() -> None:
    env = walk()
    first = env.reset()
    for _ in range(2):
        env.step(1)
    assert first.tolist() == [[3, 3], [3, 3]]


def test_termination_wins_over_truncation_at_the_same_step() -> None:
    env = walk()
    env.reset()
    step = env.step(1)
    while not step.is_last:
        step = env.step(1)
    assert (step.terminated, step.truncated) == (True, False)


def test_seed_reaches_the_environment() -> None:
    runs = []
    for seed in (1, 1, 2):
        env = walk(seed)
        env.reset()
        runs.append(play(env, 40))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_own_state_of_an_environment_is_saved_and_continues_exactly() -> None:
    original = walk(1)
    original.reset()
    play(original, 7)
    restored = walk(2)
    state = original.state_dict()
    assert state["game"]["environment"] == original._game._env.get_state()  # type: ignore[attr-defined]
    restored.load_state_dict(state)
    assert play(restored, 40) == play(original, 40)


def test_registered_environment_is_made_from_its_id() -> None:
    env = make("gym:CartPole-v1", seed=3)
    assert env.reset().shape == env.info.observation_shape == (4,)
    assert env.info.observation_kind == "vector"
    assert env.info.episode_cap_frames == 500
    assert env.step(1).reward == 1.0


def test_numbers_become_one_hot_vectors() -> None:
    env = make("gym:FrozenLake-v1")
    assert (env.info.observation_shape, env.info.observation_dtype) == ((16,), np.dtype(np.bool_))
    first = env.reset()
    assert first.tolist() == [True] + [False] * 15


def test_float64_is_stored_as_float32() -> None:
    class Precise(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0, 6, (2, 2), np.float64)

    env = find_environment(Precise).factory(seed=np.random.SeedSequence(0))()
    assert env.info.observation_dtype == np.dtype(np.float32)
    assert env.reset().dtype == np.float32


def test_episode_is_cut_off_at_the_cap() -> None:
    env = make("gym:CartPole-v1", episode_cap_frames=3)
    env.reset()
    steps = [env.step(0), env.step(1), env.step(0)]
    assert [step.truncated for step in steps] == [False, False, True]
    assert env.info.episode_cap_frames == 3
    with pytest.raises(ValueError, match="the episode has ended"):
        env.step(0)


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Pendulum-v1", "only Discrete ones can be chosen from"),
        ("Blackjack-v1", "only a Box or a Discrete space can be learned from"),
    ],
)
def test_unsuitable_environment_is_refused(env_id: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(f"gym:{env_id}")


def test_observations_that_change_their_shape_are_refused() -> None:
    class Growing(Walk):
        def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros((2, 3), np.uint8), 0.0, False, False, {}

    env = find_environment(Growing).factory(seed=np.random.SeedSequence(0))
    with pytest.raises(UsageError, match=r"shape \(2, 3\), but its space says \(2, 2\): observations must keep their shape"):
        env()


@pytest.mark.parametrize("action", [-1, 2])
def test_action_that_does_not_exist_is_refused(action: int) -> None:
    env = walk()
    env.reset()
    with pytest.raises(ValueError, match=f"action = {action}: must be 0 to 1"):
        env.step(action)


def test_missing_gymnasium_is_answered_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError, match=r'pip install "comper\[gymnasium\]"'):
        find_environment("gym:CartPole-v1")


def test_missing_dependency_of_an_environment_is_one_sentence() -> None:
    gymnasium.register("comper-test/Broken-v0", entry_point="comper_has_no_such_module:Broken")
    try:
        with pytest.raises(UsageError, match="Gymnasium cannot make gym:comper-test/Broken-v0"):
            make("gym:comper-test/Broken-v0")
    finally:
        del gymnasium.registry["comper-test/Broken-v0"]
