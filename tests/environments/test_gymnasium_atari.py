"""The Atari protocol as a registered Gymnasium environment."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from comper.environments.atari import AtariEnvironment
from comper.environments.gymnasium_atari import ENV_ID, OBSERVATIONS


def make(game: str = "asterix", **options: Any) -> Any:
    return gymnasium.make(ENV_ID, game=game, **options)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_gymnasium_finds_nothing_to_object_to(observation: str) -> None:
    check_env(make("freeway", observation=observation, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize(
    ("observation", "shape", "frames"), [("single", (84, 84), 5), ("stacked", (4, 84, 84), 20), ("rolling", (4, 84, 84), 5)]
)
def test_observations_and_frames_are_those_of_the_protocol(observation: str, shape: tuple[int, ...], frames: int) -> None:
    env = make(observation=observation)
    first, info = env.reset(seed=1)
    assert (first.shape, first.dtype, info) == (shape, np.dtype(np.uint8), {"frames": 0})
    later, reward, terminated, truncated, info = env.step(2)
    assert (later.shape, info["frames"]) == (shape, frames)
    assert (type(reward), terminated, truncated) == (float, False, False)


def test_rolling_observation_moves_by_one_frame() -> None:
    env, single = make(observation="rolling"), make()
    frames = [single.reset(seed=4)[0]] * 4
    np.testing.assert_array_equal(env.reset(seed=4)[0], frames)
    for action in (2, 3, 4, 5, 6):
        frames = [*frames[1:], single.step(action)[0]]
        np.testing.assert_array_equal(env.step(action)[0], frames)


def test_game_is_the_one_that_comper_trains_on() -> None:
    env = make("seaquest", sticky_probability=0.25)
    observation, _ = env.reset(seed=3)
    ours = AtariEnvironment("seaquest", rng=gymnasium.utils.seeding.np_random(3)[0])
    np.testing.assert_array_equal(observation, ours.reset())
    for action in range(18):
        observation, reward, *_ = env.step(action)
        step = ours.step(action)
        np.testing.assert_array_equal(observation, step.frames[0])
        assert reward == step.reward


def test_seed_makes_an_episode_exact_whatever_was_played_before() -> None:
    used, new = make("asterix"), make("asterix")
    used.reset(seed=8)
    for action in range(100):
        if any(used.step(action % 18)[2:4]):
            used.reset()
    for env in (used, new):
        env.reset(seed=5)
    for action in range(60):
        for ours, theirs in zip(used.step(action % 18), new.step(action % 18), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_settings_are_those_of_the_environment_and_wrong_ones_are_refused() -> None:
    env = make("freeway", episode_cap_frames=12, frame_skip=4, screen_size=42)
    env.reset()
    assert [env.step(2)[3] for _ in range(3)] == [False, False, True]
    assert env.observation_space.shape == (42, 42)
    for options, message in (
        ({"observation": "all"}, "observation = 'all': must be one of single, stacked, rolling"),
        ({"pooling": "mean"}, "pooling = 'mean'"),
    ):
        with pytest.raises(ValueError, match=message):
            make("freeway", **options)


def test_rendered_game_is_in_colour() -> None:
    env = make("freeway", render_mode="rgb_array")
    env.reset(seed=0)
    screen = env.render()
    assert (screen.shape, screen.dtype) == ((210, 160, 3), np.dtype(np.uint8))
    assert (screen.min(axis=-1) != screen.max(axis=-1)).any()


def test_gymnasium_imports_the_registration_by_the_name_of_the_module() -> None:
    script = """
import gymnasium
env = gymnasium.make("comper.environments.gymnasium_atari:comper/Atari-v0", game="freeway")
print(env.reset(seed=0)[0].shape, env.unwrapped.get_action_meanings()[2])
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "(84, 84) UP"
