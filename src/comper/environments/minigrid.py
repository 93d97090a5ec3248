"""`minigrid:NAME`: the grid worlds of MiniGrid and BabyAI, each cell as a one-hot vector.

An observation is a boolean image (rows, columns, 21): 11 kinds of object, 6 colours, and 4 states (open, closed, locked; for
the agent its direction). The mission, a text, is not used: environments whose task changes with it cannot be solved
by more than chance. The full view does not show what the agent carries; the agent's view does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment, EnvironmentSettings, Family, setting
from comper.environments.gym import GymnasiumGame, import_gymnasium, make_gymnasium
from comper.environments.seeded import make_seeded
from comper.errors import OutsideCodeError, import_library

ID_PREFIX = "MiniGrid-"
CHANNELS = (11, 6, 4)
"""Values of the three numbers that MiniGrid gives for a cell: object, colour, state."""
EMPTY = (1, 0, 0)
AGENT = (10, 0)
"""The object and the colour by which MiniGrid shows the agent; its state is the direction."""
PLACES = np.array([CHANNELS[1] * CHANNELS[2], CHANNELS[2], 1])
ONE_HOT = np.concatenate(
    [np.eye(count, dtype=bool)[numbers.ravel()] for count, numbers in zip(CHANNELS, np.indices(CHANNELS), strict=True)], axis=1
)
"""The one-hot vector of a cell, at the place `numbers @ PLACES`."""


@dataclass(frozen=True, kw_only=True)
class MiniGridSettings(EnvironmentSettings):
    """What the agent sees; the length of an episode is the environment's own."""

    view: str = setting(
        "full", "project's choice", "full: the whole grid; agent: the cells before the agent", ("full", "agent")
    )


class AgentView:
    """The cells before the agent, which MiniGrid gives indexed [column][row] with three numbers each, as a one-hot image."""

    dtype: np.dtype[Any] = np.dtype(np.bool_)

    def __init__(self, world: Any):
        columns, rows, _ = world.observation_space["image"].shape
        self.shape: tuple[int, ...] = (rows, columns, sum(CHANNELS))

    def __call__(self, observation: Any) -> NDArray[np.bool_]:
        return _one_hot(observation["image"].transpose(1, 0, 2))


class FullView:
    """All cells of the world as a one-hot image: what MiniGrid's FullyObsWrapper shows, in a fifth of its time."""

    dtype: np.dtype[Any] = np.dtype(np.bool_)

    def __init__(self, world: Any):
        self._world = world
        self.shape: tuple[int, ...] = (world.height, world.width, sum(CHANNELS))
        # Half of a step went into the cells before the agent, at which nobody looks here.
        world.gen_obs = dict

    def __call__(self, observation: Any) -> NDArray[np.bool_]:
        cells = bytes(chain.from_iterable(EMPTY if cell is None else cell.encode() for cell in self._world.grid.grid))
        numbers = np.frombuffer(cells, np.uint8).reshape(*self.shape[:2], 3).copy()
        column, row = self._world.agent_pos
        numbers[row, column] = (*AGENT, self._world.agent_dir)
        return _one_hot(numbers)


def _one_hot(numbers: NDArray[np.uint8]) -> NDArray[np.bool_]:
    hot: NDArray[np.bool_] = ONE_HOT[numbers @ PLACES]
    return hot


def import_minigrid() -> Any:
    """Import minigrid, which registers its environments, or say how to install it."""
    return import_library("minigrid", "This environment needs MiniGrid", extra="minigrid", kind=OutsideCodeError)


def names() -> tuple[str, ...]:
    """All names; `MiniGrid-` is left out, `BabyAI-` is not."""
    import_minigrid()
    ids = sorted(name for name in import_gymnasium().registry if name.startswith((ID_PREFIX, "BabyAI-")))
    return tuple(name.removeprefix(ID_PREFIX) for name in ids)


def resolve(name: str) -> str | None:
    """The name that a spelling stands for, with or without `MiniGrid-`."""
    return {known.lower(): known for known in names()}.get(name.lower().removeprefix(ID_PREFIX.lower()))


def make_game(name: str, view: str) -> GymnasiumGame:
    """Make one grid world with the chosen view."""
    import_minigrid()
    rest = name.removeprefix("minigrid:")
    env = make_gymnasium(name, rest if rest.startswith("BabyAI-") else f"{ID_PREFIX}{rest}")
    world = env.unwrapped
    game = GymnasiumGame(name, env, FullView(world) if view == "full" else AgentView(world))
    game.action_names = tuple(action.name for action in world.actions)
    game.time_limit_frames = world.max_steps or None  # BabyAI sets it anew for every mission
    return game


def make(
    name: str, settings: MiniGridSettings, *, seed: np.random.SeedSequence, observations_per_step: int = 1
) -> Environment:
    """Make the environment of one trial."""
    return make_seeded(name, lambda: make_game(name, settings.view), seed=seed, observations_per_step=observations_per_step)


FAMILY = Family(
    prefix="minigrid",
    extra="minigrid",
    summary="MiniGrid or BabyAI grid world",
    example="minigrid:DoorKey-6x6-v0",
    settings=MiniGridSettings(),
    make=make,
    names=names,
    resolve=resolve,
)
