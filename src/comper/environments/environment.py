"""What an environment is to the rest of the project: frames out, actions in, a description, and a state that can be saved."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comper.errors import UsageError
from comper.settings import Settings, require, setting

__all__ = [
    "Environment", "EnvironmentFactory", "EnvironmentInfo", "EnvironmentSettings", "EnvironmentSpec", "Family", "Step",
    "observation_kind", "require", "setting",
]  # fmt: skip

MIN_PIXEL_SIDE = 5
"""An image with a shorter side is treated as a vector: convolutions would find nothing in it."""


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one action."""

    frames: NDArray[Any]
    """The K observations made while the action was held, oldest first: (K, *observation_shape)."""
    reward: float
    """Raw sum."""
    terminated: bool
    """Whether the game is over."""
    truncated: bool
    """Whether the frame cap ended the episode, not the game."""
    num_frames: int
    """Frames of the game that this step took."""

    @property
    def is_last(self) -> bool:
        """Whether the episode has ended, for either reason."""
        return self.terminated or self.truncated


@dataclass(frozen=True, kw_only=True)
class EnvironmentInfo:
    """What an environment says about itself."""

    name: str
    """The one name of the environment: `freeway`, `gym:CartPole-v1`, `minatar:breakout`, `my_module:make_env`."""
    observation_shape: tuple[int, ...]
    """Of one observation, as it is stored."""
    observation_dtype: np.dtype[Any]
    observation_kind: str
    """`pixels` (channels first, last, or none) or `vector`."""
    action_names: tuple[str, ...]
    episode_cap_frames: int | None = None
    """Frames after which an episode is truncated; None: never."""
    num_scored_episodes: int = 10
    """A trial's score is the mean of so many of its last episodes."""
    floor: float | None = None
    """What scores without learning, where it was measured with these settings."""
    resume: str = ""
    """Empty where a saved state continues exactly; otherwise one sentence that says why it does not."""
    identity: Mapping[str, str] = field(default_factory=dict)
    """What exact resume depends on besides the settings: a ROM's checksum, versions of libraries."""

    @property
    def num_actions(self) -> int:
        return len(self.action_names)


class Environment(Protocol):
    """One episode after another: reset, then step until a step is the last."""

    @property
    def info(self) -> EnvironmentInfo:
        """What the environment says about itself."""
        ...

    @property
    def observations_per_step(self) -> int:
        """Observations made while one action is held."""
        ...

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation."""
        ...

    def step(self, action: int) -> Step:
        """Take one action."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything the future depends on: arrays, ints, strings, bytes and dicts of them."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from what `state_dict` returned."""
        ...


def close(environment: Environment) -> None:
    """Close an environment that holds something: Gymnasium's may hold a window or a simulator."""
    with contextlib.suppress(Exception):  # the code of others: its trouble at the very end is no reason to fail
        getattr(environment, "close", lambda: None)()


EnvironmentFactory = Callable[[], Environment]
"""Makes the environment of one trial, perhaps in a worker process."""


def observation_kind(shape: tuple[int, ...]) -> str:
    """Tell images, with channels first, last or without any, from vectors."""
    sides = [shape] if len(shape) == 2 else [shape[:2], shape[1:]] if len(shape) == 3 else []
    return "pixels" if any(min(pair) >= MIN_PIXEL_SIDE for pair in sides) else "vector"


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings(Settings):
    """Base of a family's settings."""

    @property
    def frames_per_observation(self) -> int:
        """Frames of the game between two observations."""
        return 1


class MakeEnvironment(Protocol):
    """Makes an environment from its canonical name; a module's function, so that worker processes can import it."""

    def __call__(
        self, name: str, settings: Any, *, seed: np.random.SeedSequence, observations_per_step: int
    ) -> Environment: ...


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment found by its name; nothing is made yet."""

    name: str
    summary: str
    settings: EnvironmentSettings
    """The defaults of its family."""
    make: MakeEnvironment
    is_picklable: bool = True
    """Whether worker processes can make it; what a Python callable makes stays in this process."""

    def factory(
        self, settings: Any = None, *, seed: np.random.SeedSequence, observations_per_step: int = 1
    ) -> EnvironmentFactory:
        """Prepare the environment of one trial; each action is held for `observations_per_step` observations."""
        if observations_per_step < 1:
            raise ValueError(f"observations_per_step = {observations_per_step!r}: must be 1 or more.")
        chosen = self.settings if settings is None else settings
        if type(chosen) is not type(self.settings):
            raise UsageError(f"{self.name} takes {type(self.settings).__name__}, not {type(chosen).__name__}.")
        return functools.partial(self.make, self.name, chosen, seed=seed, observations_per_step=observations_per_step)

    def info(self, settings: Any = None) -> EnvironmentInfo:
        """What the environment says about itself; one is made to ask it."""
        environment = self.factory(settings, seed=np.random.SeedSequence(0))()
        try:
            return environment.info
        finally:
            close(environment)


@dataclass(frozen=True)
class Family:
    """Environments that share a prefix, a library and settings: what `families.py` lists."""

    prefix: str
    """`gym` of `gym:CartPole-v1`; empty for Atari games."""
    extra: str
    """The extra of this package that installs its library."""
    summary: str
    example: str
    settings: EnvironmentSettings
    make: MakeEnvironment
    names: Callable[[], tuple[str, ...]]
    """All names without the prefix. Imports the family's library, or says how to install it."""
    resolve: Callable[[str], str | None]
    """The one name, without the prefix, that a spelling stands for; None where there is none."""

    def full_name(self, rest: str) -> str:
        """Put the prefix before a name."""
        return f"{self.prefix}:{rest}" if self.prefix else rest

    def spec(self, rest: str) -> EnvironmentSpec:
        """Describe one environment by its canonical name without the prefix."""
        return EnvironmentSpec(self.full_name(rest), self.summary, self.settings, self.make)
