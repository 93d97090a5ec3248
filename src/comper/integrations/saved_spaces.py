"""Gymnasium's spaces as JSON and arrays, so that a saved buffer can be read back without a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from comper.errors import UsageError
from comper.memory.array_folder import letters

Arrays = dict[str, npt.NDArray[Any]]


def describe(space: spaces.Space[Any], arrays: Arrays) -> dict[str, Any]:
    """Describe a space in JSON; its arrays are added to `arrays` under names that the description holds."""
    match space:
        case spaces.Dict():
            return {"kind": "Dict", "spaces": {key: describe(part, arrays) for key, part in space.spaces.items()}}
        case spaces.Box():
            return {"kind": "Box", "low": _add(space.low, arrays), "high": _add(space.high, arrays)}
        case spaces.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"kind": "MultiDiscrete", "nvec": _add(space.nvec, arrays), "start": _add(space.start, arrays)}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.shape)}
    raise UsageError(f"{type(space).__name__}: a space of this kind cannot be saved.")


def read(about: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> spaces.Space[Any]:
    """Make the space that was described."""
    match about["kind"]:
        case "Dict":
            return spaces.Dict({key: read(part, arrays) for key, part in about["spaces"].items()})
        case "Box":
            low, high = (np.array(arrays[about[name]]) for name in ("low", "high"))
            return spaces.Box(low, high, low.shape, low.dtype.type)
        case "Discrete":
            return spaces.Discrete(about["n"], start=about["start"])
        case "MultiDiscrete":
            nvec, start = (np.array(arrays[about[name]]) for name in ("nvec", "start"))
            return spaces.MultiDiscrete(nvec, nvec.dtype.type, start=start)
        case "MultiBinary":
            return spaces.MultiBinary(about["n"])
    raise ValueError(f"a space of the kind {about['kind']!r}")


def _add(array: npt.NDArray[Any], arrays: Arrays) -> str:
    name = f"space_{letters(len(arrays))}"
    arrays[name] = array
    return name
