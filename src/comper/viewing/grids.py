"""MiniGrid's observations as pictures in which the agent's direction, doors and things can be told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.minigrid import AGENT, CHANNELS

COLOURS = np.array([(224, 82, 74), (106, 176, 76), (78, 134, 230), (160, 111, 214), (235, 205, 80), (110, 114, 122)], np.uint8)
"""Of things, in MiniGrid's order: red, green, blue, purple, yellow, grey."""
FLOOR = np.array((26, 28, 34), np.uint8)
UNSEEN = np.array((8, 9, 12), np.uint8)

DOOR = 4
SHAPES = {
    2: "####### ####### ####### ####### ####### ####### #######",  # a wall
    5: "....... .###... .#.#... .###### .###.#. ....... .......",  # a key
    6: "....... ..###.. .#####. .#####. .#####. ..###.. .......",  # a ball
    7: "....... .#####. .#...#. .#####. .#...#. .#####. .......",  # a box
    8: "####### ####### ####### ####### ####### ####### #######",  # a goal
    9: "#.##.## ####### .##.##. ####### #.##.## ####### .##.##.",  # lava
    AGENT[0]: "#...... ###.... #####.. ####### #####.. ###.... #......",  # looks to the right
}
DOORS = (
    "##..... ##..... ##..... ##..... ##..... ##..... ##.....",  # open
    "####### #.....# #.....# #...#.# #.....# #.....# #######",  # closed
    "####### ####### #####.# #####.# #####.# ####### #######",  # locked
)
SIDE = 7
"""Pixels of a cell."""


def is_grid(image: NDArray[Any]) -> bool:
    """Whether an image is one-hot as MiniGrid's are here: an object, a colour and a state in every cell."""
    if image.dtype != np.bool_ or image.shape[2] != sum(CHANNELS):
        return False
    return all((part.sum(axis=2) == 1).all() for part in _parts(image))


def grid_picture(image: NDArray[Any]) -> NDArray[np.uint8]:
    """(rows, columns, 21) as a picture (7 rows, 7 columns, 3)."""
    kinds, colours, states = (part.argmax(axis=2) for part in _parts(image))
    rows, columns = kinds.shape
    picture = np.broadcast_to(FLOOR, (rows, SIDE, columns, SIDE, 3)).copy()
    for row, column in np.ndindex(rows, columns):
        kind, state = int(kinds[row, column]), int(states[row, column])
        cell = picture[row, :, column]
        if kind == 0:
            cell[:] = UNSEEN
        else:
            cell[_shape(kind, state)] = COLOURS[colours[row, column]]
    return picture.reshape(rows * SIDE, columns * SIDE, 3)


def _parts(image: NDArray[Any]) -> list[NDArray[Any]]:
    """The channels of the object, of its colour and of its state."""
    return np.split(image, np.cumsum(CHANNELS)[:-1], axis=2)


def _shape(kind: int, state: int) -> NDArray[np.bool_]:
    text = DOORS[min(state, len(DOORS) - 1)] if kind == DOOR else SHAPES.get(kind, " ".join(["." * SIDE] * SIDE))
    shape = np.array([list(line) for line in text.split()]) == "#"
    return np.rot90(shape, -state) if kind == AGENT[0] else shape
