"""A game's screen in colour, and observations as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment
from comper.errors import ComperError, OutsideCodeError, UsageError
from comper.viewing.grids import grid_picture, is_grid

Picture = NDArray[np.uint8]
"""(rows, columns, 3), red, green and blue."""

COLOURS = np.array(
    [
        (58, 110, 201), (240, 166, 58), (219, 219, 219), (200, 75, 68), (106, 176, 76), (150, 111, 214), (78, 190, 196),
        (226, 120, 172), (160, 130, 92), (245, 226, 99), (240, 240, 255),
    ],
    np.uint8,
)  # fmt: skip
BACKGROUND = np.array((8, 9, 12), np.uint8)
POSITIVE, NEGATIVE = COLOURS[0], COLOURS[1]
VECTOR_SIDE = 84


def screen_of(env: Environment, observation: NDArray[Any]) -> Picture:
    """What a person would see now: what the environment draws, or the observation where that is a picture."""
    drawn = _rendered(env)
    if drawn is not None:
        return drawn
    if env.info.observation_kind == "pixels":
        return picture_of(observation)
    raise UsageError(
        f"{env.info.name} cannot be watched: it draws no picture, and its observations are none. Let its render() return an"
        ' RGB array, as Gymnasium environments made with render_mode="rgb_array" do.'
    )


def _rendered(env: Environment) -> Picture | None:
    render = getattr(env, "render", None)
    try:
        drawn = None if render is None else render()
    except NotImplementedError:
        return None
    except ComperError:
        raise
    except Exception as error:  # the code of others
        raise OutsideCodeError(f"{env.info.name} cannot draw its screen ({type(error).__name__}: {error}).") from error
    is_picture = isinstance(drawn, np.ndarray) and drawn.ndim == 3 and drawn.shape[2] == 3 and drawn.dtype == np.uint8
    return np.array(drawn) if is_picture else None


def picture_of(observation: NDArray[Any], *, largest: float | None = None) -> Picture:
    """An observation as a picture. Vectors become bars, the longest of which stands for `largest`."""
    if observation.ndim == 2:
        return np.repeat(_bytes(observation)[:, :, None], 3, axis=2)
    if observation.ndim == 3:
        return _image(observation)
    return _bars(observation.astype(np.float64).ravel(), largest)


def _image(observation: NDArray[Any]) -> Picture:
    image = observation.transpose(1, 2, 0) if _has_channels_first(observation.shape) else observation
    num_channels = image.shape[2]
    if image.dtype != np.bool_ and num_channels in (1, 3):
        return np.ascontiguousarray(np.broadcast_to(_bytes(image), (*image.shape[:2], 3)))
    if is_grid(image):
        return grid_picture(image)
    # A channel for each kind of thing, as in MinAtar: the first that is there shows.
    colours = COLOURS[image.argmax(axis=2) % len(COLOURS)]
    return np.where(image.any(axis=2, keepdims=True), colours, BACKGROUND)


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    """The other two axes are equal, or larger than the channels: the rule of the networks, which need torch to be asked."""
    first, rows, last = shape
    return first != rows and (rows == last or first < last)


def _bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype == np.uint8:
        return values
    high = 1.0 if float(values.max(initial=0)) <= 1 else 255.0
    return (np.clip(values.astype(np.float64) / high, 0, 1) * 255).astype(np.uint8)


def _bars(values: NDArray[np.float64], largest: float | None) -> Picture:
    """One bar for each value, from the middle: blue to the right for positive ones, orange to the left for negative ones."""
    picture = np.broadcast_to(BACKGROUND, (VECTOR_SIDE, VECTOR_SIDE, 3)).copy()
    middle, scale = VECTOR_SIDE // 2, largest or float(np.abs(values).max(initial=0)) or 1.0
    edges = np.linspace(0, VECTOR_SIDE, min(len(values), VECTOR_SIDE) + 1).astype(np.int64)
    for value, top, bottom in zip(values, edges, edges[1:], strict=False):
        length = round(min(1.0, abs(value) / scale) * (middle - 2))
        columns = slice(middle, middle + length) if value >= 0 else slice(middle - length, middle)
        picture[top : max(top + 1, bottom - 1), columns] = POSITIVE if value >= 0 else NEGATIVE
    picture[:, middle] = (120, 126, 138)
    return picture
