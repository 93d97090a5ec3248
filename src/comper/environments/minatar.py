"""`minatar:NAME`: the five games of MinAtar (Young and Tian 2019), from its own modules.

All six actions, sticky actions and difficulty ramping as MinAtar has them by default. Two things are set here: an episode
starts with NOOP as the last action, so that it depends on nothing but its seed and its actions (MinAtar carries the last
action over from the episode before), and it is cut off at `episode_cap_frames` (MinAtar has no limit, except in Freeway).
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment, EnvironmentSettings, Family, setting
from comper.environments.seeded import Outcome, make_seeded
from comper.errors import OutsideCodeError, install_command

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
ACTIONS = {"n": "NOOP", "l": "LEFT", "u": "UP", "r": "RIGHT", "d": "DOWN", "f": "FIRE"}
"""MinAtar's letters, spelled out."""


@dataclass(frozen=True, kw_only=True)
class MinAtarSettings(EnvironmentSettings):
    """MinAtar's own defaults; difficulty ramping is on."""

    sticky_probability: float = setting(
        0.1, "MinAtar's default", "chance, per frame, that the game repeats the last executed action", below=1
    )
    episode_cap_frames: int = setting(18_000, "A10", "frames after which an episode is cut off: a truncation, not a game over")


class MinAtarGame:
    """One game as a Game: boolean 10x10 images with a channel for each kind of object."""

    def __init__(self, game: str, sticky_probability: float) -> None:
        self._env = _made(game)
        self._sticky_probability = sticky_probability
        self._last_action = 0
        self.observation_shape = tuple(int(side) for side in self._env.state_shape())
        self.observation_dtype: np.dtype[Any] = np.dtype(np.bool_)
        self.action_names = tuple(ACTIONS[letter] for letter in self._env.action_map)
        self.time_limit_frames: int | None = None
        self.identity: Mapping[str, str] = {"minatar": metadata.version("minatar")}

    def reset(self, seed: int) -> NDArray[np.bool_]:
        self._env.random = np.random.RandomState(seed)  # the game's own draws and those of sticky actions, as in MinAtar
        self._last_action = 0
        self._env.reset()
        return self._observe()

    def step(self, action: int) -> Outcome:
        if self._env.random.rand() >= self._sticky_probability:
            self._last_action = action
        reward, terminated = self._env.act(self._last_action)
        return Outcome(self._observe(), float(reward), bool(terminated), False)

    def get_state(self) -> None:
        """MinAtar cannot tell its state; an episode is played again instead."""

    def set_state(self, state: dict[str, Any]) -> None:
        """Never called, since `get_state` gives none."""
        raise NotImplementedError

    def render(self) -> None:
        """MinAtar draws only in windows of its own; its observation is a picture already."""

    def close(self) -> None:
        """Nothing is open."""

    def _observe(self) -> NDArray[np.bool_]:
        image: NDArray[np.bool_] = self._env.state()  # a new array at every call
        return image


def _made(game: str) -> Any:
    module = _module_of(game)
    try:
        return module.Env(ramping=True)
    except (AttributeError, TypeError) as error:  # another MinAtar than this one knows
        raise OutsideCodeError(f"{module.__file__} is no game of MinAtar ({error}): {install_command('minatar')}") from None


@cache
def _module_of(game: str) -> Any:
    """MinAtar's module of a game, which needs NumPy alone. Its package would import all that draws windows: 2.6 seconds."""
    folder = os.path.join(_folder(), "environments")
    spec = PathFinder.find_spec(f"minatar.environments.{game}", [folder])
    if spec is None or spec.loader is None:
        raise OutsideCodeError(f"There is no {game}.py in {folder}: {install_command('minatar')}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _folder() -> str:
    """Where MinAtar is, found without importing it."""
    spec = importlib.util.find_spec("minatar")
    if spec is None or not spec.submodule_search_locations:
        raise OutsideCodeError(f"MinAtar games need MinAtar: {install_command('minatar')}")
    return spec.submodule_search_locations[0]


def names() -> tuple[str, ...]:
    """The five games, if MinAtar is installed."""
    _folder()
    return GAMES


def resolve(name: str) -> str | None:
    """The name of a game from any usual spelling: `Space-Invaders`, `SpaceInvaders`."""
    return {_letters(game): game for game in names()}.get(_letters(name))


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def make(name: str, settings: MinAtarSettings, *, seed: np.random.SeedSequence, observations_per_step: int = 1) -> Environment:
    """Make the environment of one trial."""
    game = name.removeprefix("minatar:")
    names()
    return make_seeded(
        name,
        lambda: MinAtarGame(game, settings.sticky_probability),
        seed=seed,
        observations_per_step=observations_per_step,
        episode_cap_frames=settings.episode_cap_frames,
        has_floor=settings == MinAtarSettings(),
    )


FAMILY = Family(
    prefix="minatar",
    extra="minatar",
    summary="MinAtar game, 10x10 pixels",
    example="minatar:breakout",
    settings=MinAtarSettings(),
    make=make,
    names=names,
    resolve=resolve,
)
