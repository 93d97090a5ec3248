"""Screens in colour, and observations as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.environments.families import find_environment
from comper.errors import OutsideCodeError, UsageError
from comper.viewing.screens import BACKGROUND, COLOURS, NEGATIVE, POSITIVE, VECTOR_SIDE, picture_of, screen_of
from tests.training.lamp import Light


def made(name: Any) -> Any:
    return find_environment(name).factory(seed=np.random.SeedSequence(0))()


def test_an_atari_game_shows_its_own_screen_in_colour() -> None:
    env = made("freeway")
    screen = screen_of(env, env.reset())
    assert screen.shape == (210, 160, 3)
    assert np.array_equal(screen, env._ale.getScreenRGB())


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "gym:FrozenLake-v1", "minigrid:Empty-5x5-v0"])
def test_gymnasium_draws_though_the_environment_was_made_for_training(name: str) -> None:
    env = made(name)
    first = screen_of(env, env.reset())
    assert first.ndim == 3
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 2
    for action in (2, 1, 2) if env.info.num_actions > 2 else (1, 1, 1):
        env.step(action)
    assert not np.array_equal(screen_of(env, env.reset()), 0 * first)


def test_minatar_is_drawn_from_its_observation() -> None:
    env = made("minatar:breakout")
    observation = env.reset()
    screen = screen_of(env, observation)
    assert screen.shape == (10, 10, 3)
    row, column = np.argwhere(observation[:, :, 0])[0]  # the paddle
    assert (screen[row, column] == COLOURS[0]).all()
    empty = ~observation.any(axis=2)
    assert (screen[empty] == BACKGROUND).all()


def test_an_environment_that_draws_nothing_and_shows_no_pictures_is_refused() -> None:
    env = made(Light)
    with pytest.raises(UsageError, match=r'python:Light cannot be watched: .* made with render_mode="rgb_array"'):
        screen_of(env, env.reset())


def test_an_environment_that_fails_to_draw_is_named() -> None:
    class Broken(Light):
        def render(self) -> Any:
            raise RuntimeError("no window")

    env = made(Broken)
    with pytest.raises(OutsideCodeError, match=r"python:Broken cannot draw its screen \(RuntimeError: no window\)"):
        screen_of(env, env.reset())


def test_observations_of_every_shape_become_pictures() -> None:
    grey = np.arange(42, dtype=np.uint8).reshape(6, 7)
    assert (picture_of(grey) == grey[:, :, None]).all()
    colour = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
    assert np.array_equal(picture_of(colour), colour)
    assert np.array_equal(picture_of(colour.transpose(2, 0, 1)), colour)
    assert picture_of(np.full((6, 7, 1), 0.5, np.float32))[0, 0].tolist() == [127, 127, 127]
    grid = np.zeros((6, 6, 21), np.bool_)  # more channels than rows, as in MiniGrid
    grid[2, 3, 4] = True
    assert (picture_of(grid)[2, 3] == COLOURS[4]).all()


def test_a_vector_becomes_bars_whose_lengths_mean_the_same_in_every_picture() -> None:
    half, whole = (picture_of(np.array([value, -value], np.float32), largest=1.0) for value in (0.5, 1.0))
    assert half.shape == (VECTOR_SIDE, VECTOR_SIDE, 3)
    for picture, share in ((half, 0.5), (whole, 1.0)):
        for row, colour in ((10, POSITIVE), (VECTOR_SIDE - 10, NEGATIVE)):
            length = int((picture[row] == colour).all(axis=1).sum())
            assert abs(length - share * (VECTOR_SIDE // 2 - 2)) <= 1
