"""`gym:NAME`: any Gymnasium environment with Discrete actions and Box or Discrete observations.

Refused: continuous or compound actions, and Dict, Tuple and other compound observations. Observations must keep the shape that
their space says. A Discrete observation becomes a one-hot vector; float64 is stored as float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment, EnvironmentSettings, Family, setting
from comper.environments.seeded import Outcome, make_seeded
from comper.errors import OutsideCodeError, UsageError, import_library
from comper.importing import import_module_named

OTHER_FAMILIES = ("ale_py", "shimmy", "minigrid", "minatar")


@dataclass(frozen=True, kw_only=True)
class GymnasiumSettings(EnvironmentSettings):
    """What every Gymnasium environment shares."""

    episode_cap_frames: int = setting(
        0, "the environment's own", "steps after which an episode is cut off; 0: the environment's own limit", least=0
    )


def import_gymnasium() -> Any:
    """Import gymnasium, or say how to install it."""
    return import_library("gymnasium", "This environment needs Gymnasium", extra="gymnasium", kind=OutsideCodeError)


# Observations


@dataclass(frozen=True)
class BoxEncoder:
    """An array as it is, copied: some environments reuse theirs."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, observation: Any) -> NDArray[Any]:
        array = np.array(observation, dtype=self.dtype)
        if array.shape != self.shape:
            raise UsageError(
                f"{self.name} returned an observation of shape {array.shape}, but its space says {self.shape}: observations"
                " must keep their shape."
            )
        return array


@dataclass(frozen=True)
class OneHotEncoder:
    """A number as a vector with one True."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any] = np.dtype(np.bool_)  # noqa: RUF009 -- immutable

    def __call__(self, observation: Any) -> NDArray[Any]:
        vector = np.zeros(self.shape, np.bool_)
        vector[int(observation) - self.start] = True
        return vector


class Encoder(Protocol):
    """Maps what an environment returns to what is stored."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __call__(self, observation: Any) -> NDArray[Any]: ...


def make_encoder(name: str, space: Any) -> Encoder:
    """Choose how observations of a space are stored, or say that they cannot be."""
    spaces = import_gymnasium().spaces
    if isinstance(space, spaces.Discrete):
        return OneHotEncoder(int(space.start), (int(space.n),))
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"{name} has the observations {space}; only a Box or a Discrete space can be learned from. "
            "A wrapper can make it one, such as gymnasium.wrappers.FlattenObservation."
        )
    dtype = np.dtype(np.float32) if space.dtype == np.float64 else np.dtype(space.dtype)
    return BoxEncoder(name, tuple(space.shape), dtype)


# The game


class GymnasiumGame:
    """A Gymnasium environment as a Game.

    Its own state is saved if the object has `get_state()`, which returns plain values, and `set_state(state)`. A wrapper
    hides those of what it wraps on purpose: it may hold state of its own, such as the steps left until a time limit.
    """

    def __init__(self, name: str, env: Any, encoder: Encoder | None = None) -> None:
        gymnasium = import_gymnasium()
        if not isinstance(env.action_space, gymnasium.spaces.Discrete):
            raise UsageError(
                f"{name} has the actions {env.action_space}; only Discrete ones can be chosen from. Wrap it in a "
                "gymnasium.ActionWrapper whose action_space is Discrete: each number stands for one of its actions."
            )
        self._name, self._env = name, env
        self._encode = make_encoder(name, env.observation_space) if encoder is None else encoder
        self._first_action = int(env.action_space.start)
        self._has_state = hasattr(env, "get_state") and hasattr(env, "set_state")
        self.observation_shape: tuple[int, ...] = self._encode.shape
        self.observation_dtype: np.dtype[Any] = self._encode.dtype
        self.action_names = _action_names(env)
        self.time_limit_frames: int | None = env.spec.max_episode_steps if getattr(env, "spec", None) else None
        self.identity: Mapping[str, str] = _versions(env)

    def _reset(self, seed: int) -> Any:
        try:
            return self._env.reset(seed=seed)
        except TypeError as error:
            if "seed" not in str(error):
                raise
            raise UsageError(
                f"{self._name}: reset() must take seed and options by name, as Gymnasium has it ({error})."
            ) from None

    def _checked(self, method: str, length: int, result: Any) -> Any:
        if not isinstance(result, tuple) or len(result) != length:
            found = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
            raise UsageError(f"{self._name}: {method}() must return {length} values, as Gymnasium has it, not {found}.")
        return result

    def reset(self, seed: int) -> NDArray[Any]:
        observation, _ = self._checked("reset", 2, self._reset(seed))
        return self._encode(observation)

    def step(self, action: int) -> Outcome:
        result = self._checked("step", 5, self._env.step(self._first_action + action))
        observation, reward, terminated, truncated, _ = result
        return Outcome(self._encode(observation), float(reward), bool(terminated), bool(truncated))

    def get_state(self) -> dict[str, Any] | None:
        if not self._has_state:
            return None
        return {"environment": self._env.get_state(), "environment_rng": self._env.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self._env.set_state(state["environment"])
        self._env.np_random.bit_generator.state = state["environment_rng"]

    def render(self) -> Any:
        inner = self._env.unwrapped
        # Gymnasium wants the mode when an environment is made; training makes them without, as some draw at every step then.
        modes = (getattr(inner, "metadata", None) or {}).get("render_modes", ())
        if getattr(inner, "render_mode", None) is None and "rgb_array" in modes:
            inner.render_mode = "rgb_array"
        return self._env.render() if hasattr(self._env, "render") else None

    def close(self) -> None:
        self._env.close()


def _action_names(env: Any) -> tuple[str, ...]:
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    if meanings is not None:
        return tuple(str(name) for name in meanings())
    return tuple(str(action) for action in range(int(env.action_space.n)))


def _versions(env: Any) -> dict[str, str]:
    """Versions of Gymnasium and of the package that the environment comes from."""
    versions = {"gymnasium": str(import_gymnasium().__version__)}
    package = type(env.unwrapped).__module__.partition(".")[0]
    with contextlib.suppress(metadata.PackageNotFoundError):  # a module of the user's own has no version
        versions[package] = metadata.version(package)
    return versions


# The family


def names() -> tuple[str, ...]:
    """All ids that Gymnasium knows, without those that have a family of their own here."""
    specs = import_gymnasium().registry.values()
    return tuple(sorted(spec.id for spec in specs if not str(spec.entry_point).startswith(OTHER_FAMILIES)))


def resolve(name: str) -> str | None:
    """The id that a spelling stands for; `package:Name-v0` imports the package first, which registers it."""
    import_gymnasium()
    package, colon, env_id = name.rpartition(":")
    if colon:
        import_module_named(package)
    known_ids = import_gymnasium().registry if colon else names()
    found = {known.lower(): known for known in known_ids}.get(env_id.lower())
    return None if found is None else f"{package}{colon}{found}"


def make_gymnasium(name: str, env_id: str, **options: Any) -> Any:
    """Make a registered environment, or say in one sentence why it cannot be made."""
    gymnasium = import_gymnasium()
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError, TypeError) as error:  # TypeError: it needs options that a name cannot give
        raise UsageError(f"Gymnasium cannot make {name}: {error}") from error


def make(
    name: str, settings: GymnasiumSettings, *, seed: np.random.SeedSequence, observations_per_step: int = 1
) -> Environment:
    """Make the environment of one trial."""
    env_id = name.removeprefix("gym:")
    return make_seeded(
        name,
        lambda: GymnasiumGame(name, make_gymnasium(name, env_id)),
        seed=seed,
        observations_per_step=observations_per_step,
        episode_cap_frames=settings.episode_cap_frames or None,
        has_floor=settings == GymnasiumSettings(),
    )


FAMILY = Family(
    prefix="gym",
    extra="gymnasium",
    summary="Gymnasium environment with discrete actions",
    example="gym:CartPole-v1",
    settings=GymnasiumSettings(),
    make=make,
    names=names,
    resolve=resolve,
)
