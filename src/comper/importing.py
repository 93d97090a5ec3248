"""Code from outside comper, by name: `my_module:my_agent`, an agent, an environment or a network of the user's own."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from comper.errors import OutsideCodeError


def is_outside_name(name: str) -> bool:
    """Whether a name has the form `module:attribute`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_object(name: str, *, what: str, trusted: tuple[str, ...] | None = None) -> Any:
    """Import `module:attribute`; a module in the working folder is found too.

    `trusted` lists the modules that may be imported; None: the user has typed the name, so it may be.
    """
    module_name, _, attribute = name.partition(":")
    if trusted is not None and module_name not in trusted:
        raise OutsideCodeError(
            f"This run needs {what} {name}, which is code from outside comper. If you trust it, add --trust {module_name}."
        )
    try:
        module = _import(module_name)
    except Exception as error:  # whatever the user's module raises
        raise OutsideCodeError(
            f"{what} {name}: {module_name} cannot be imported ({type(error).__name__}: {error})."
        ) from error
    if not hasattr(module, attribute):
        raise OutsideCodeError(f"{what} {name}: {module_name} has no {attribute!r}.")
    return getattr(module, attribute)


def _import(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that no installed module is hidden
    return importlib.import_module(name)
