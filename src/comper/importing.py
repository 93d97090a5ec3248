"""Code from outside comper: `my_module:my_agent`, a user's own by its name, and the libraries that the extras bring."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from comper.errors import EXTRAS, OutsideCodeError, UsageError, install_command


def require_extras(*extras: str) -> None:
    """Say in one sentence everything that is not installed, and the one command that installs it."""
    wanted = dict.fromkeys(extras)
    missing = [extra for extra in wanted if any(importlib.util.find_spec(module) is None for module in EXTRAS[extra])]
    absent = [m for extra in missing for m in EXTRAS[extra] if importlib.util.find_spec(m) is None]
    if missing:
        raise UsageError(f"Not installed: {', '.join(dict.fromkeys(absent))}. {install_command(*missing)}")


def is_outside_name(name: str) -> bool:
    """Whether a name has the form `module:attribute`."""
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_object(name: str, *, what: str, trusted: tuple[str, ...] | None = None) -> Any:
    """Import `module:attribute`. `trusted` lists the modules that may be imported; None: the user has typed the name."""
    module_name, _, attribute = name.partition(":")
    require_trust(module_name, trusted, what=f"{what} {name}")
    module = import_module_named(module_name)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, [key for key in vars(module) if not key.startswith("_")], n=3)
        hint = f" Did you mean {' or '.join(f'{module_name}:{key}' for key in near)}?" if near else ""
        raise OutsideCodeError(f"The module {module_name} has no {attribute!r}.{hint}")
    return getattr(module, attribute)


def require_trust(module: str, trusted: tuple[str, ...] | None, *, what: str) -> None:
    """Refuse a module that a file names and the user did not."""
    if trusted is not None and module not in trusted:
        raise OutsideCodeError(
            f"This run needs {what}, which is code from outside comper. If you trust it, add --trust {module}."
        )


def import_module_named(name: str) -> ModuleType:
    """Import a module that the user asked for, installed or in the working folder; what is wrong is said in one sentence."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise OutsideCodeError(f"{name!r} is not the name of a Python module.")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)  # at the end: a file there must not replace a module of the standard library
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise OutsideCodeError(f"The module {name} needs {error.name}, which is not installed.") from error
        if name.endswith(".py"):
            raise OutsideCodeError(f"{name} is a file: name its module, {name.removesuffix('.py')}, without .py.") from error
        raise OutsideCodeError(
            f"There is no module {name} in this folder, and none is installed: run the command in the folder of {name}.py,"
            " or install its package."
        ) from error
    except SyntaxError as error:
        where = f"{os.path.basename(error.filename or name)}, line {error.lineno}"
        raise OutsideCodeError(f"The module {name} is not Python: {error.msg} ({where}).") from error
    except Exception as error:  # the code of others
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}, line {last.lineno}"
        reason = f"{type(error).__name__}: {error} ({where})"
        raise OutsideCodeError(f"The module {name} fails when it is imported: {reason}.") from error
