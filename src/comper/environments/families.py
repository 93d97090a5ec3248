"""The one registry of environments: a family is one file, and one line here. Nothing heavy is imported until a name needs it.

freeway                    an Atari game with the paper's protocol
gym:CartPole-v1            a Gymnasium environment; `gym:package:Name-v0` imports the package that registers it
minatar:breakout           MinAtar
minigrid:DoorKey-6x6-v0    MiniGrid and BabyAI
my_module:make_env         a function or class of your own; in Python also the callable itself
"""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import re
from collections.abc import Callable, Iterable
from typing import Any

from comper.environments import atari, gym, minatar, minigrid, user
from comper.environments.environment import EnvironmentSettings, EnvironmentSpec, Family
from comper.environments.games import letters
from comper.errors import UsageError
from comper.importing import require_trust

FAMILIES = {family.prefix: family for family in (atari.FAMILY, gym.FAMILY, minatar.FAMILY, minigrid.FAMILY)}


def find_environment(name_or_callable: str | Callable[..., Any], *, trusted: tuple[str, ...] | None = None) -> EnvironmentSpec:
    """Find an environment by its name, or from what makes it.

    `trusted` lists the modules from outside comper that may be imported for it; None: the user has typed the name, so any.
    """
    if callable(name_or_callable):
        return user.from_callable(name_or_callable)
    name = name_or_callable.strip()
    family, rest = split_name(name)
    module = outside_module(name)
    if module is not None:
        require_trust(module, trusted, what=f"the environment {name}")
    if family is None:
        return _find_outside(name)
    found = family.resolve(rest)
    if found is None:
        raise _unknown(name)
    return family.spec(found)


def split_name(name: str) -> tuple[Family | None, str]:
    """The family of a name, by its prefix, and the name without it; None: it is a user's own."""
    prefix, colon, rest = name.partition(":")
    if not colon:
        return FAMILIES[""], name
    family = FAMILIES.get(prefix.strip().lower())
    return (None, name) if family is None else (family, rest.strip())


def outside_module(name: str) -> str | None:
    """The module from outside comper that a name imports: `my_module` of `my_module:make_env`; None: it imports none."""
    family, rest = split_name(name.strip())
    module, colon, _ = rest.partition(":")
    is_python_object = family is None and module == user.PYTHON_PREFIX
    return module if colon and not is_python_object else None


def needed_extras(names: Iterable[object]) -> list[str]:
    """The extras whose libraries these environments need; what a user brings along needs Gymnasium."""
    families = [split_name(name.strip())[0] if isinstance(name, str) else None for name in names]
    return [FAMILIES["gym"].extra if family is None else family.extra for family in families]


def all_names() -> list[str]:
    """Names of all families whose libraries are installed."""
    found: list[str] = []
    for family in FAMILIES.values():
        try:
            found += [family.full_name(rest) for rest in family.names()]
        except UsageError:  # its library is missing, so its environments are too
            continue
    return found


def _find_outside(name: str) -> EnvironmentSpec:
    prefix = name.partition(":")[0]
    if prefix == user.PYTHON_PREFIX:
        raise UsageError(
            f"{name} was made by a Python callable, which cannot be found by a name: give the callable again from Python, or"
            " put it into a module and use my_module:make_env."
        )
    try:
        return user.find_in_module(name)
    except UsageError as error:
        root = prefix.partition(".")[0]
        if root.isidentifier() and importlib.util.find_spec(root) is not None:
            raise  # the module is there: its name was no slip
        near = _nearest(name)
        raise UsageError(f"{error} Did you mean {' or '.join(near)}?" if near else str(error)) from error


def _unknown(name: str) -> UsageError:
    near = _in_other_families(name) or _nearest(name)
    families = ", ".join(family.example for family in FAMILIES.values())
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Names look like {families} or my_module:make_env."
    return UsageError(f"No environment is called {name!r}. {hint}")


def _in_other_families(name: str) -> list[str]:
    """What a name means without its prefix: `gym:ALE/Pong-v5` is `pong` here."""
    own, rest = split_name(name)
    found = []
    for family in FAMILIES.values():
        with contextlib.suppress(UsageError):  # its library is missing
            if family is not own and ":" not in rest and (other := family.resolve(rest)) is not None:
                found.append(family.full_name(other))
    return found


def _nearest(name: str) -> list[str]:
    """The names that are spelled most like a wrong one, with or without prefix and version."""
    keys: dict[str, str] = {}
    for known in all_names():
        prefix, _, rest = known.rpartition(":")
        for spelling in (known, rest, re.sub(r"-v\d+$", "", rest)):
            earlier = keys.setdefault(letters(spelling), known)
            if earlier.rpartition(":")[0] == prefix:  # the newest version of an environment, but of the first family
                keys[letters(spelling)] = known
    nearest = difflib.get_close_matches(letters(name), keys, n=3, cutoff=0.7)
    return list(dict.fromkeys(keys[key] for key in nearest))


def extra_of(settings: EnvironmentSettings) -> str:
    """The extra of the family whose settings these are (a user's own environments have Gymnasium's); empty: of none."""
    return next((family.extra for family in FAMILIES.values() if isinstance(settings, type(family.settings))), "")


def family_settings() -> dict[str, EnvironmentSettings]:
    """The settings of every family, by what its environments are called."""
    return {family.summary: family.settings for family in FAMILIES.values()}
