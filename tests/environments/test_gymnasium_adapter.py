"""Gymnasium environments behind the project's own interface."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from comper.environments.gymnasium_adapter import GymnasiumEnvironment, GymnasiumFactory
from comper.errors import UsageError


class Walk(gymnasium.Env[Any, Any]):
    """A random walk over seven places that reuses its observation array, with actions 1 and 2, and can be written down."""

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


def walk(seed: int = 0) -> GymnasiumEnvironment:
    return GymnasiumEnvironment(Walk(), rng=np.random.default_rng(seed))


def play(env: GymnasiumEnvironment, num_steps: int) -> list[Any]:
    seen: list[Any] = []
    for action in np.random.default_rng(1).integers(2, size=num_steps).tolist():
        step = env.step(action)
        seen.append((step.frames.tolist(), step.reward, step.terminated, step.truncated, step.num_frames))
        if step.is_last:
            seen.append(env.reset().tolist())
    return seen


def test_shapes_and_actions_are_those_of_the_spaces() -> None:
    env = walk()
    assert (env.num_actions, env.frame_shape, env.frame_dtype, env.observations_per_step) == (2, (2, 2), np.dtype(np.uint8), 1)
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


def test_restored_state_continues_as_if_nothing_had_happened() -> None:
    original = walk(1)
    original.reset()
    play(original, 7)
    restored = walk(2)
    restored.load_state_dict(original.state_dict())
    assert play(restored, 40) == play(original, 40)


def test_registered_environment_is_made_from_its_id() -> None:
    env = GymnasiumFactory("CartPole-v1", seed=3)()
    assert env.reset().shape == env.frame_shape == (4,)
    assert env.step(1).reward == 1.0


def test_environment_that_cannot_be_written_down_says_so() -> None:
    env = GymnasiumEnvironment("CartPole-v1", rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match=r"CartPole-v1.* cannot be saved in mid-episode: it has no get_state\(\)"):
        env.state_dict()


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("Pendulum-v1", "only Discrete ones can be chosen from"),
        ("FrozenLake-v1", "only a Box can be learned from"),
        ("NoSuchThing-v0", "Gymnasium cannot make 'NoSuchThing-v0'"),
    ],
)
def test_unsuitable_environment_is_refused(env_id: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GymnasiumEnvironment(env_id, rng=np.random.default_rng(0))


def test_action_that_does_not_exist_is_refused() -> None:
    env = walk()
    env.reset()
    with pytest.raises(ValueError, match="action = 2: must be 0 to 1"):
        env.step(2)


def test_missing_gymnasium_is_answered_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError, match=r'pip install "comper\[gymnasium\]"'):
        GymnasiumEnvironment("CartPole-v1", rng=np.random.default_rng(0))
