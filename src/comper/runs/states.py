"""Nested states as flat files: arrays by path for safetensors, everything else as JSON. Nothing here can run code."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from comper.errors import DamagedFileError, DivergedError

SEPARATOR = "/"
Arrays = dict[str, NDArray[Any]]

PARSING_ERRORS = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError)
"""What parsing a file of wrong content may raise; the callers turn it into one sentence."""


def pack(state: dict[str, Any]) -> tuple[bytes, bytes]:
    """A nested state as (safetensors, JSON)."""
    arrays: Arrays = {}
    kinds: dict[str, str] = {}
    values: dict[str, Any] = {}
    _flatten(state, (), arrays, kinds, values)
    _require_finite(arrays, values)
    text = json.dumps({"kinds": kinds, "values": values}, allow_nan=False, sort_keys=True)
    return safetensors.numpy.save(arrays), text.encode()


def unpack(tensors: bytes, text: bytes) -> dict[str, Any]:
    """Read back what `pack` wrote."""
    try:
        arrays = safetensors.numpy.load(tensors)
        plain = json.loads(text)
        kinds, values = dict(plain["kinds"]), dict(plain["values"])
        state: dict[str, Any] = {}
        for path, array in arrays.items():
            _put(state, path, _revived(array, kinds.get(path, "array")))
        for path, value in values.items():
            _put(state, path, value)
        return state
    except (safetensors.SafetensorError, *PARSING_ERRORS) as error:
        raise DamagedFileError(f"A saved state cannot be read ({type(error).__name__}).") from None


def weights_of(agent_state: dict[str, Any]) -> Arrays:
    """The networks' weights in an agent's state, by path: everything under a `weights` or `target` entry."""
    arrays: Arrays = {}
    _flatten(agent_state, (), arrays, {}, {})
    found = {path: array for path, array in arrays.items() if {"weights", "target"} & set(path.split(SEPARATOR))}
    _require_finite(found, {})
    return found


def replace_weights(agent_state: dict[str, Any], weights: Arrays) -> None:
    """Put saved weights into an agent's state; names and shapes must be the same."""
    own = weights_of(agent_state)
    shapes = {path: array.shape for path, array in weights.items()}
    if shapes != {path: array.shape for path, array in own.items()}:
        raise DamagedFileError("The saved weights are of other networks than this agent has.")
    for path, array in weights.items():
        _put(agent_state, path, _revived(array, "tensor"))


def _flatten(
    node: dict[str, Any], path: tuple[str, ...], arrays: Arrays, kinds: dict[str, str], values: dict[str, Any]
) -> None:
    for key, value in node.items():
        assert SEPARATOR not in str(key), key
        here = (*path, str(key))
        name = SEPARATOR.join(here)
        if isinstance(value, dict) and value:
            _flatten(value, here, arrays, kinds, values)
        elif isinstance(value, bytes):
            arrays[name], kinds[name] = np.frombuffer(value, np.uint8), "bytes"
        elif isinstance(value, np.ndarray):
            arrays[name] = np.ascontiguousarray(value)
        elif hasattr(value, "detach"):  # a torch tensor; torch itself is not needed here
            arrays[name], kinds[name] = np.ascontiguousarray(value.detach().cpu().numpy()), "tensor"
        else:
            values[name] = value.item() if isinstance(value, np.generic) else value


def _require_finite(arrays: Arrays, values: dict[str, Any]) -> None:
    """Never save what has diverged: the checkpoints before it are the good ones."""
    broken = [name for name, a in arrays.items() if np.issubdtype(a.dtype, np.floating) and not np.isfinite(a).all()]
    broken += [name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
    if broken:
        raise DivergedError(f"learning diverged: {broken[0]} holds NaN or infinity. Try a smaller step_size.")


def _revived(array: NDArray[Any], kind: str) -> Any:
    if kind == "bytes":
        return array.tobytes()
    if kind == "tensor":
        import torch

        return torch.from_numpy(np.array(array))
    return array


def _put(state: dict[str, Any], path: str, value: Any) -> None:
    *parents, name = path.split(SEPARATOR)
    for parent in parents:
        state = state.setdefault(parent, {})
    state[name] = value
