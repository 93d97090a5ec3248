"""Nested states as flat files: arrays by path for safetensors, everything else as JSON. Nothing here can run code."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from comper.errors import DamagedFileError, DivergedError

SEPARATOR = "/"
MAX_DEPTH = 32
Arrays = dict[str, NDArray[Any]]
Nested = Mapping[str, Any]
"""A dictionary of dictionaries; its leaves are arrays, tensors, bytes or what JSON can hold."""

PARSING_ERRORS = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)
"""What parsing a file of wrong content may raise; the callers turn it into one sentence. A want of memory is none of it."""


def pack(state: Nested) -> tuple[bytes, bytes]:
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
        if (broken := _not_finite(arrays, values)) is not None:  # `pack` writes no such state
            raise DamagedFileError(f"A saved state holds NaN or infinity ({broken!r}).")
        return nest({path: _revived(array, kinds.get(path, "array")) for path, array in arrays.items()} | values)
    except (safetensors.SafetensorError, *PARSING_ERRORS) as error:
        raise DamagedFileError(f"A saved state cannot be read ({type(error).__name__}).") from None


def pack_weights(weights: Nested) -> bytes:
    """Nested weights, arrays or tensors, as safetensors; a path in it is the keys joined by "/"."""
    arrays = flatten(weights)
    _require_finite(arrays, {})
    return safetensors.numpy.save(arrays)


def unpack_weights(content: bytes) -> dict[str, Any]:
    """Read back what `pack_weights` wrote, as nested arrays."""
    try:
        arrays = safetensors.numpy.load(content)
        if (broken := _not_finite(arrays, {})) is not None:
            raise DamagedFileError(f"Saved weights hold NaN or infinity ({broken!r}).")
        return nest(arrays)
    except (safetensors.SafetensorError, *PARSING_ERRORS) as error:
        raise DamagedFileError(f"Saved weights cannot be read ({type(error).__name__}).") from None


def flatten(state: Nested) -> Arrays:
    """The arrays and tensors of a nested dictionary by path."""
    arrays: Arrays = {}
    _flatten(state, (), arrays, {}, {})
    return arrays


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dictionary of values by path."""
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split(SEPARATOR)
        if len(parents) > MAX_DEPTH:
            raise DamagedFileError(f"A saved state has a value {len(parents)} levels deep.")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return nested


def first_difference(state: Nested, other: Nested) -> str | None:
    """The first path at which two states are not the same: kind, form or content; None where they are."""
    one, two = _leaves(state), _leaves(other)
    return next((path for path in sorted({*one, *two}) if not _is_same(one.get(path), two.get(path))), None)


def _leaves(state: Nested) -> dict[str, tuple[str, Any]]:
    """Path -> kind, and an array or JSON."""
    arrays: Arrays = {}
    kinds: dict[str, str] = {}
    values: dict[str, Any] = {}
    _flatten(state, (), arrays, kinds, values)
    texts = {path: ("value", json.dumps(value, sort_keys=True)) for path, value in values.items()}
    return texts | {path: (kinds.get(path, "array"), array) for path, array in arrays.items()}


def _is_same(one: tuple[str, Any] | None, two: tuple[str, Any] | None) -> bool:
    if one is None or two is None or one[0] != two[0]:
        return False
    a, b = one[1], two[1]
    return bool(a == b) if one[0] == "value" else a.dtype == b.dtype and np.array_equal(a, b)


def check_same_shapes(weights: Nested, own: Nested) -> None:
    """Refuse weights of other networks than an agent has; a part's empty tables take any rows, all of them equally many."""
    found, expected = flatten(weights), flatten(own)
    if found.keys() != expected.keys() or not all(_fits(found[path], array) for path, array in expected.items()):
        raise DamagedFileError("The saved weights are of other networks than this agent has.")
    tables = {(path.rpartition(SEPARATOR)[0], len(found[path])) for path, array in expected.items() if _is_empty(array)}
    if len(tables) > len({part for part, _ in tables}):
        raise DamagedFileError("The tables in the saved weights do not have equally many rows.")


def _fits(found: NDArray[Any], own: NDArray[Any]) -> bool:
    takes_any_rows = _is_empty(own) and found.ndim == own.ndim and found.shape[1:] == own.shape[1:]
    return found.dtype == own.dtype and (found.shape == own.shape or takes_any_rows)


def _is_empty(table: NDArray[Any]) -> bool:
    return table.shape[:1] == (0,)


def _flatten(node: Nested, path: tuple[str, ...], arrays: Arrays, kinds: dict[str, str], values: dict[str, Any]) -> None:
    for key, value in node.items():
        assert SEPARATOR not in str(key), key
        here = (*path, str(key))
        name = SEPARATOR.join(here)
        if isinstance(value, Mapping) and value:
            _flatten(value, here, arrays, kinds, values)
        elif isinstance(value, bytes):
            arrays[name], kinds[name] = np.frombuffer(value, np.uint8), "bytes"
        elif isinstance(value, np.ndarray):
            arrays[name] = np.asarray(value, order="C")
        elif hasattr(value, "detach"):  # a torch tensor; torch itself is not needed here
            arrays[name], kinds[name] = np.asarray(value.detach().cpu().numpy(), order="C"), "tensor"
        else:
            values[name] = value.item() if isinstance(value, np.generic) else value


def _require_finite(arrays: Arrays, values: dict[str, Any]) -> None:
    """Never save what has diverged: the checkpoints before it are the good ones."""
    if (broken := _not_finite(arrays, values)) is not None:
        raise DivergedError(f"learning diverged: {broken} holds NaN or infinity. Try a smaller step_size.")


def _not_finite(arrays: Arrays, values: dict[str, Any]) -> str | None:
    """The first path of a NaN or an infinity."""
    broken = [name for name, a in arrays.items() if np.issubdtype(a.dtype, np.floating) and not np.isfinite(a).all()]
    broken += [name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)]
    return broken[0] if broken else None


def _revived(array: NDArray[Any], kind: str) -> Any:
    if kind == "bytes":
        if array.dtype != np.uint8 or array.ndim != 1:
            raise ValueError(f"bytes kept as {array.ndim} dimensions of {array.dtype}")
        return array.tobytes()
    if kind == "tensor":
        import torch

        return torch.from_numpy(np.array(array))
    return array
