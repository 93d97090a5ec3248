"""MiniGrid's observations as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.environments.families import find_environment
from comper.viewing.grids import COLOURS, FLOOR, SIDE, grid_picture, is_grid
from comper.viewing.screens import picture_of


def made(name: str) -> Any:
    return find_environment(name).factory(seed=np.random.SeedSequence(0))()


def cell(picture: Any, row: int, column: int) -> Any:
    return picture[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE]


def test_a_grid_is_told_from_other_pictures() -> None:
    observation = made("minigrid:DoorKey-5x5-v0").reset()
    assert is_grid(observation)
    assert not is_grid(np.zeros_like(observation))
    assert not is_grid(made("minatar:breakout").reset())
    assert not is_grid(observation.astype(np.uint8))


def test_walls_are_grey_and_the_goal_is_green() -> None:
    picture = picture_of(made("minigrid:Empty-5x5-v0").reset())
    assert picture.shape == (5 * SIDE, 5 * SIDE, 3)
    assert (cell(picture, 0, 0) == COLOURS[5]).all()
    assert (cell(picture, 3, 3) == COLOURS[1]).all()
    assert (cell(picture, 2, 2) == FLOOR).all()


@pytest.mark.parametrize(("turns", "tip"), [(0, (3, 6)), (1, (6, 3)), (2, (3, 0)), (3, (0, 3))])
def test_the_agent_points_where_it_looks(turns: int, tip: tuple[int, int]) -> None:
    env = made("minigrid:Empty-5x5-v0")
    observation = env.reset()
    for _ in range(turns):
        observation = env.step(1).frames[-1]  # to the right
    agent = (cell(picture_of(observation), 1, 1) == COLOURS[0]).all(axis=2)
    edge = {(3, 6): agent[:, 6], (6, 3): agent[6], (3, 0): agent[:, 0], (0, 3): agent[0]}[tip]
    assert agent[tip]
    assert edge.sum() == 1


def test_a_key_a_door_and_each_state_of_a_door_look_different() -> None:
    observation = np.zeros((1, 4, 21), bool)
    for column, (kind, state) in enumerate([(5, 0), (4, 0), (4, 1), (4, 2)]):
        observation[0, column, [kind, 11 + 4, 17 + state]] = True
    picture = grid_picture(observation)
    assert len({cell(picture, 0, column).tobytes() for column in range(4)}) == 4
