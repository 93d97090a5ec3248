"""Imports what a user names: `my_module` in the working folder, or an installed package."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType

from comper.errors import UsageError


def import_user_module(name: str) -> ModuleType:
    """Import a module that the user asked for by name; what is wrong with it is said in one sentence."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is not the name of a Python module.")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.append(folder)  # at the end: a file there must not replace a module of the standard library
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"The module {name} needs {error.name}, which is not installed.") from error
        raise UsageError(
            f"There is no module {name} in this folder, and none is installed: run the command in the folder of {name}.py,"
            " or install its package."
        ) from error
    except Exception as error:  # the code of others
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}, line {last.lineno}"
        raise UsageError(f"The module {name} fails when it is imported: {type(error).__name__}: {error} ({where}).") from error
