"""Environments from outside comper: `my_module:make_env`, and Python callables.

The callable takes no arguments, or a `seed`, and returns a new Gymnasium environment or an object with the interface of
`comper.environments.environment.Environment`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from comper.environments.environment import Environment, EnvironmentInfo, EnvironmentSpec
from comper.environments.gym import GymnasiumGame, GymnasiumSettings
from comper.environments.seeded import HeldActions, make_seeded
from comper.errors import UsageError
from comper.importing import load_object

PYTHON_PREFIX = "python"
SUMMARY = "environment of your own"
INTERFACE = ("info", "observations_per_step", "reset", "step", "state_dict", "load_state_dict")


def find_in_module(name: str) -> EnvironmentSpec:
    """The environment that `my_module:make_env` names; its module is imported."""
    _load(name)
    return EnvironmentSpec(name, SUMMARY, GymnasiumSettings(), make_from_module)


def from_callable(make_env: Callable[..., Any]) -> EnvironmentSpec:
    """The environment that a Python callable makes, called by its class."""
    kind = make_env if inspect.isclass(make_env) else _class_made_by(make_env)
    make = functools.partial(_make_with, make_env)
    return EnvironmentSpec(f"{PYTHON_PREFIX}:{kind.__name__}", SUMMARY, GymnasiumSettings(), make, is_picklable=False)


def make_from_module(
    name: str, settings: GymnasiumSettings, *, seed: np.random.SeedSequence, observations_per_step: int = 1
) -> Environment:
    """Make the environment of one trial, in any process."""
    return _make_with(_load(name), name, settings, seed=seed, observations_per_step=observations_per_step)


def _make_with(
    make_env: Callable[..., Any],
    name: str,
    settings: GymnasiumSettings,
    *,
    seed: np.random.SeedSequence,
    observations_per_step: int = 1,
) -> Environment:
    make_new = _only_new(name, make_env)
    made = make_new(seed)
    if all(hasattr(made, attribute) for attribute in INTERFACE):
        return _own_interface(name, made, observations_per_step)
    if not all(hasattr(made, attribute) for attribute in ("action_space", "observation_space", "reset", "step")):
        raise UsageError(
            f"{name} returned {type(made).__name__}, which is neither a Gymnasium environment nor one with"
            f" {', '.join(INTERFACE)}."
        )
    ready = [made]
    return make_seeded(
        name,
        lambda: GymnasiumGame(name, ready.pop() if ready else make_new(seed)),
        seed=seed,
        observations_per_step=observations_per_step,
        episode_cap_frames=settings.episode_cap_frames or None,
        has_floor=False,
    )


def _own_interface(name: str, made: Environment, observations_per_step: int) -> Environment:
    if not isinstance(made.info, EnvironmentInfo):
        raise UsageError(f"{name} has an `info` that is not a comper.environments.EnvironmentInfo.")
    if made.observations_per_step == observations_per_step:
        return made
    if made.observations_per_step != 1:
        raise UsageError(
            f"{name} holds an action for {made.observations_per_step} observations, and {observations_per_step} are wanted."
        )
    return HeldActions(made, observations_per_step)


def _only_new(name: str, make_env: Callable[..., Any]) -> Callable[[np.random.SeedSequence], Any]:
    """Refuse a callable that returns the same object again: each trial needs an environment of its own."""
    takes_seed = "seed" in _parameters(make_env)
    if needed := _needed(make_env):
        raise UsageError(f"{name} needs {', '.join(needed)}: it must be callable without arguments, or with a seed alone.")
    made: list[Any] = []

    def make_new(seed: np.random.SeedSequence) -> Any:
        env = make_env(seed=int(seed.generate_state(1)[0])) if takes_seed else make_env()
        if any(env is earlier for earlier in made):
            raise UsageError(f"{name} returns the same object every time: it must make a new environment at every call.")
        made.append(env)
        return env

    return make_new


def _needed(make_env: Callable[..., Any]) -> list[str]:
    """Arguments that a caller must give, besides a seed."""
    try:
        parameters = inspect.signature(make_env).parameters.values()
    except (TypeError, ValueError):
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in several and p.name != "seed"]


def _parameters(make_env: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(make_env).parameters)
    except (TypeError, ValueError):  # some classes written in C have no signature
        return ()


def _class_made_by(make_env: Callable[..., Any]) -> type:
    made = _only_new("The callable", make_env)(np.random.SeedSequence(0))
    kind = type(getattr(made, "unwrapped", made))
    if hasattr(made, "close"):
        made.close()
    return kind


def _load(name: str) -> Callable[..., Any]:
    """Import the callable that a name stands for."""
    found = load_object(name, what="the environment")
    if not callable(found):
        raise UsageError(f"{name} is not a function or class that makes an environment.")
    return found  # type: ignore[no-any-return]
