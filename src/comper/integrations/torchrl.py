"""A storage for TorchRL's replay buffers that keeps equal frames once, and a sampler of sets of similar transitions.

    from comper.integrations.torchrl import CompactStorage
    buffer = TensorDictReplayBuffer(storage=CompactStorage(100_000), batch_size=32)
    buffer.extend(data)

Every writer and sampler of TorchRL works with the storage, and its `dumps`, `loads` and `state_dict` save and restore
it. With `CompactSampler` each set of similar transitions is equally likely, however often it was met.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

try:
    import torch
    from tensordict import TensorDict, TensorDictBase, is_tensor_collection
    from torchrl.data.replay_buffers.checkpointers import StorageCheckpointerBase
    from torchrl.data.replay_buffers.samplers import RandomSampler
    from torchrl.data.replay_buffers.storages import LazyStackStorage, Storage
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "comper[torchrl]".', name=error.name) from None

from comper.errors import DamagedFileError, UsageError
from comper.memory import array_folder
from comper.memory.array_folder import StoredArray, letters, stored
from comper.memory.indexes import TransitionKey, make_index
from comper.memory.observation_array import EMPTY, ObservationArray, ObservationPool, is_worth_sharing
from comper.memory.ring_sets import NONE, EqualKeys, RingSets

FORMAT = "comper storage for TorchRL, version 1"
MAX_INITIAL_FRAMES = 100_000
"""Slots for frames that are reserved at once; the store grows beyond them when they are used up."""

Key = tuple[str, ...]
"""The path of a tensor in a TensorDict: ("action",), ("next", "reward")."""
ACTION, REWARD = ("action",), ("next", "reward")


class CompactCheckpointer(StorageCheckpointerBase):  # type: ignore[misc]
    """Writes a storage as a folder of arrays, whole or not at all, and checks it before it is read. No pickle."""

    def dumps(self, storage: CompactStorage, path: str | Path) -> None:
        """Save to a folder."""
        if self._save_hooks:
            raise UsageError("Save hooks are not supported by CompactStorage: it saves frames, not TensorDicts.")
        array_folder.write(Path(path), storage._about(), storage._saved_columns())

    def loads(self, storage: CompactStorage, path: str | Path) -> None:
        """Fill the storage with what was saved."""
        about, arrays = array_folder.read(Path(path))
        try:
            storage._restore(about, arrays)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
            message = f"{path}: not what CompactStorage saves ({type(error).__name__}: {error})."
            raise DamagedFileError(message) from None


class CompactStorage(LazyStackStorage):  # type: ignore[misc]
    """A storage of at most `max_size` TensorDicts in main memory; every tensor read is equal to the one written.

    A tensor and the one of the same name under "next" share their frames. Stacks of frames share them with each other.

    Args:
        compression: None, or "zlib": frames take several times less memory, and reading one a few microseconds more.
        similarity: transitions whose Euclidean distance over [s/255, a, r, s'/255] is at most this much (1 in place of
            255 unless observations are 8-bit) are stored as the first of them; needs one observation, a discrete
            "action" (a number or one-hot) and a ("next", "reward"). 0: only what is equal.
    """

    # It derives from LazyStackStorage because TorchRL knows of that class that `get` returns a batch, not a list.

    _default_checkpointer = CompactCheckpointer
    device = torch.device("cpu")

    def __init__(self, max_size: int, *, compression: Literal["zlib"] | None = None, similarity: float = 0.0) -> None:
        if not isinstance(max_size, int | np.integer) or not 1 <= max_size < 2**31:
            raise UsageError(f"max_size = {max_size!r}: must be an integer of 1 or more.")
        if compression not in (None, "zlib"):
            raise UsageError(f'compression = {compression!r}: must be None or "zlib".')
        if not isinstance(similarity, int | float | np.number) or not (similarity >= 0 and math.isfinite(similarity)):
            raise UsageError(f"similarity = {similarity!r}: must be a number, 0 or more.")
        Storage.__init__(self, int(max_size))
        self.compression, self.similarity = compression, float(similarity)
        self._empty()

    def _empty(self) -> None:
        """Forget everything, also which tensors there are."""
        self._columns: dict[Key, npt.NDArray[Any] | ObservationArray] = {}
        self._dtypes: dict[Key, torch.dtype] = {}
        self._is_written = np.zeros(self.max_size, np.bool_)
        self._size = 0
        self._sets: RingSets | None = None
        self._bump_mutation_revision()

    def __len__(self) -> int:
        return self._size

    # Writing.

    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Write a TensorDict to a row, or a batch of them to as many rows. A wrong one changes nothing."""
        is_one = isinstance(cursor, int | np.integer) or getattr(cursor, "ndim", 1) == 0
        batch = _as_batch(data, is_one=is_one)
        rows = [int(cursor)] if is_one else _row_numbers(cursor, self.max_size)
        tensors = {key: _as_array(tensor) for key, tensor in _leaves(batch).items()}
        if len(rows) != batch.batch_size[0]:
            raise UsageError(f"{batch.batch_size[0]} TensorDicts for {len(rows)} rows.")
        if rows and not 0 <= min(rows) <= max(rows) < self.max_size:
            raise UsageError(f"rows {min(rows)} to {max(rows)}: the storage has {self.max_size}, counted from 0.")
        if not self._columns:
            self._allocate({key: (array.shape[1:], array.dtype) for key, array in tensors.items()})
            self._dtypes = {key: tensor.dtype for key, tensor in _leaves(batch).items()}
        self._check(tensors, batch)
        for i, row in enumerate(rows):
            self._write(row, {key: array[i] for key, array in tensors.items()})
        if set_cursor:
            self._set_last_cursor(cursor)
        self._bump_mutation_revision()

    def _allocate(self, layout: Mapping[Key, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
        """Make the columns; a tensor and its successor under "next" get frames in common."""
        pools: dict[Key, ObservationPool] = {}
        columns: dict[Key, npt.NDArray[Any] | ObservationArray] = {}
        for key, (shape, dtype) in layout.items():
            name = key[1:] if key[0] == "next" else key
            is_pair = layout.get(("next", *name)) == layout.get(name)
            if is_pair and (is_worth_sharing(shape, dtype) or (self.similarity and name[-1] not in _FLAGS)):
                if name not in pools:
                    capacity = min(self.max_size + 1, MAX_INITIAL_FRAMES)
                    pools[name] = ObservationPool(
                        shape, dtype, compression=self.compression or "none", initial_capacity=capacity
                    )
                columns[key] = ObservationArray(pools[name], (self.max_size,))
            else:
                columns[key] = np.zeros((self.max_size, *shape), dtype)
        if self.similarity:
            self._require_distance(columns, list(pools))
        self._columns = columns
        self._sets = self._make_sets() if self.similarity else None

    def _require_distance(self, columns: Mapping[Key, Any], shared: list[Key]) -> None:
        if len(shared) != 1 or ACTION not in columns or REWARD not in columns or columns[REWARD][0].size != 1:
            raise UsageError(
                f"similarity = {self.similarity}: needs one observation with its successor under 'next', an 'action' and a "
                "('next', 'reward'); use similarity=0 for other data."
            )
        if columns[ACTION].dtype.kind not in "bi":
            raise UsageError(f"similarity = {self.similarity}: needs discrete actions; use similarity=0.")

    def _check(self, tensors: Mapping[Key, npt.NDArray[Any]], batch: TensorDictBase) -> None:
        if set(tensors) != set(self._columns):
            different = sorted(".".join(key) for key in set(tensors) ^ set(self._columns))
            raise UsageError(f"{', '.join(different)}: the TensorDicts of a storage all have the same keys.")
        for key, tensor in _leaves(batch).items():
            expected = self._columns[key].shape[1:], self._dtypes[key]
            if (tuple(tensor.shape[1:]), tensor.dtype) != expected:
                found = f"{tensor.dtype}{tuple(tensor.shape[1:])}"
                raise UsageError(f"{'.'.join(key)} is {found}: the storage was filled with {expected[1]}{expected[0]}.")
            array = tensors[key]
            if self.similarity and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise UsageError(f"{'.'.join(key)} must be finite where similar transitions are one.")

    def _write(self, row: int, values: Mapping[Key, npt.NDArray[Any]]) -> None:
        if self._sets is not None:
            self._sets.remove(row)
        for key, value in values.items():
            self._columns[key][row] = value
        self._size += not self._is_written[row]
        self._is_written[row] = True
        if self._sets is not None:
            self._group(self._sets, row)

    # Reading.

    def get(self, index: Any) -> TensorDict:
        """A copy of what is in a row (a number), or in several (a slice, a tensor, a list): a batch."""
        if isinstance(index, tuple) and len(index) == 1:
            index = index[0]
        is_one = isinstance(index, int | np.integer) or getattr(index, "ndim", 1) == 0
        rows = np.asarray([int(index)] if is_one else _row_numbers(index, self._size), np.int64)
        rows = np.where(rows < 0, rows + self._size, rows)
        if not (((rows >= 0) & (rows < self.max_size)).all() and self._is_written[rows].all()):
            raise UsageError(f"rows {rows[:8].tolist()}: not all of them were written.")
        arrays = self._gather(rows)
        batch = TensorDict({key: self._as_tensor(key, array) for key, array in arrays.items()}, batch_size=[len(rows)])
        return batch[0] if is_one else batch

    def _gather(self, rows: npt.NDArray[np.int64]) -> dict[Key, npt.NDArray[Any]]:
        """The rows of every column. A frame that a tensor and its successor have in common is read once."""
        arrays: dict[Key, npt.NDArray[Any]] = {}
        for key, column in self._columns.items():
            if not isinstance(column, ObservationArray):
                arrays[key] = column[rows]
            elif key not in arrays:
                other = key[1:] if key[0] == "next" else ("next", *key)
                partner: Any = self._columns[other]
                both = column.pool.gather(np.concatenate([column.ids[rows], partner.ids[rows]]))
                arrays[key], arrays[other] = both[: len(rows)], both[len(rows) :]
        return arrays

    def _as_tensor(self, key: Key, array: npt.NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if self._dtypes[key] == torch.bfloat16 else tensor

    def contains(self, item: Any) -> Any:
        """Whether a row was written; for a tensor of rows, a tensor of answers."""
        if isinstance(item, torch.Tensor) and item.ndim:
            return torch.tensor([self.contains(int(i)) for i in item.flatten()], dtype=torch.bool).reshape(item.shape)
        row = int(item) + (self._size if int(item) < 0 else 0)
        return 0 <= row < self.max_size and bool(self._is_written[row])

    @property
    def nbytes(self) -> int:
        """Bytes of the rows written: frames, and columns, without Python's bookkeeping."""
        shared = [column for column in self._columns.values() if isinstance(column, ObservationArray)]
        plain = sum(c.nbytes for c in self._columns.values() if not isinstance(c, ObservationArray)) // self.max_size
        pools = {id(column.pool): column.pool.nbytes for column in shared}
        return int(self._size * plain + sum(column.nbytes for column in shared) + sum(pools.values()))

    def __repr__(self) -> str:
        settings = f"similarity={self.similarity:g}, compression={self.compression!r}"
        return f"CompactStorage({self._size} of {self.max_size} rows, {self.nbytes / 1e6:.1f} MB, {settings})"

    # Sets of similar transitions.

    @property
    def sets(self) -> RingSets:
        """The sets of equal or similar transitions; kept from the first time that they are asked for."""
        if self._sets is None:
            self._sets = self._make_sets()
            for row in np.flatnonzero(self._is_written).tolist():
                self._group(self._sets, row)
        return self._sets

    def _make_sets(self) -> RingSets:
        pools = [column.pool for column in self._columns.values() if isinstance(column, ObservationArray)]
        finder = make_index("l2", pools[0].frames, self.similarity) if self.similarity else EqualKeys()
        return RingSets(self.max_size, finder)

    def _group(self, sets: RingSets, row: int) -> None:
        """Put a row that was just written into its set. It then is the first transition of the set."""
        key = self._key(row)
        similar = sets.find(key)
        sets.add(row, key, similar)
        if self.similarity and similar != NONE:
            for name, column in self._columns.items():
                if isinstance(column, ObservationArray):
                    column.copy((similar,), (row,))
                elif name in (ACTION, REWARD):
                    column[row] = column[similar]

    def _key(self, row: int) -> Any:
        """What makes a transition similar to another: (s, a, r, s'). Flags and bookkeeping are no part of it."""
        shared = {key: column for key, column in self._columns.items() if isinstance(column, ObservationArray)}
        if self.similarity:
            s, s_next = (next(c for key, c in shared.items() if (key[0] == "next") is is_next) for is_next in (False, True))
            action = self._columns[ACTION][row].ravel()
            a = int(action[0] if action.size == 1 else action.argmax())
            ids, next_ids = (tuple(column.ids[row].tolist()) for column in (s, s_next))
            return TransitionKey(ids, a, float(self._columns[REWARD][row].item()), next_ids)
        parts = [column.ids[row] for column in shared.values()]
        parts += [c[row] for key, c in self._columns.items() if key not in shared and not _is_bookkeeping(key)]
        return b"".join(part.tobytes() for part in parts)

    # Files and states. All of them hold the same arrays.

    def state_dict(self) -> dict[str, Any]:
        """Everything as tensors, numbers and strings."""
        arrays = {name: torch.from_numpy(column.whole()) for name, column in self._saved_columns().items()}
        return {"about": self._about(), "arrays": arrays}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Become the storage that wrote this state."""
        self._restore(state_dict["about"], {name: tensor.numpy() for name, tensor in state_dict["arrays"].items()})

    def _about(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "max_size": self.max_size,
            "columns": [[list(key), str(self._dtypes[key]), list(c.shape[1:])] for key, c in self._columns.items()],
            "keeps_sets": self._sets is not None,
        }

    def _saved_columns(self) -> dict[str, StoredArray]:
        """The written rows, with frames once and tensors that share them as positions among them."""
        arrays: dict[str, npt.NDArray[Any]] = {"rows": np.flatnonzero(self._is_written).astype(np.int32)}
        frames: dict[str, StoredArray] = {}
        held: dict[int, npt.NDArray[np.int64]] = {}
        for i, column in enumerate(self._columns.values()):
            if not isinstance(column, ObservationArray):
                arrays[f"column_{letters(i)}"] = column[arrays["rows"]]
                continue
            if id(column.pool) not in held:
                column.pool.clear()
                held[id(column.pool)], frames[f"frames_{letters(i)}"] = column.pool.held()
            places = np.searchsorted(held[id(column.pool)], column.ids[arrays["rows"]])
            arrays[f"column_{letters(i)}"] = places.astype(np.int32)
        if self._sets is not None:
            arrays |= self._sets.state_dict()
        return frames | stored(arrays)

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace everything by what was saved, after checking it."""
        if about["format"] != FORMAT:
            raise ValueError(f"its format is {about['format']!r}")
        if about["max_size"] != self.max_size:
            raise ValueError(f"it has room for {about['max_size']} rows, this storage for {self.max_size}")
        self._empty()
        try:
            self._fill(about, arrays)
        except BaseException:
            self._empty()
            raise

    def _fill(self, about: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._dtypes = {tuple(key): _torch_dtype(dtype) for key, dtype, _ in about["columns"]}
        if not all(key and all(part and isinstance(part, str) for part in key) for key in self._dtypes):
            raise ValueError("a column without a name")
        if self._dtypes:
            shapes = {tuple(key): tuple(shape) for key, _, shape in about["columns"]}
            self._allocate({key: (shapes[key], _numpy_dtype(dtype)) for key, dtype in self._dtypes.items()})
        rows = np.asarray(arrays["rows"])
        if rows.dtype != np.int32 or rows.ndim != 1 or (np.diff(rows) <= 0).any():
            raise ValueError("rows are not in order")
        if rows.size and not (rows[0] >= 0 and rows[-1] < self.max_size):
            raise ValueError("rows are outside of the storage")
        saved: dict[int, list[tuple[ObservationArray, npt.NDArray[np.int32]]]] = {}
        frames: dict[int, npt.NDArray[Any]] = {}
        for i, column in enumerate(self._columns.values()):
            values = np.asarray(arrays[f"column_{letters(i)}"])
            if isinstance(column, ObservationArray):
                shape, dtype = (len(rows), column.pool.frames_per_observation), np.dtype(np.int32)
            else:
                shape, dtype = (len(rows), *column.shape[1:]), column.dtype
            if (values.shape, values.dtype) != (shape, dtype):
                raise ValueError(f"an array is {values.dtype}{values.shape}, expected {dtype}{shape}")
            if not isinstance(column, ObservationArray):
                column[rows] = values
                continue
            if values.min(initial=0) < 0:
                raise ValueError("a row names a frame that is not there")
            places = np.full(column.ids.shape, EMPTY, np.int32)
            places[rows] = values
            if id(column.pool) not in frames:
                frames[id(column.pool)] = arrays[f"frames_{letters(i)}"]
            saved.setdefault(id(column.pool), []).append((column, places))
        for pool_id, pairs in saved.items():
            pairs[0][0].pool.restore(frames[pool_id], pairs)
        self._is_written[rows], self._size = True, len(rows)
        if about["keeps_sets"]:
            latest = np.asarray(arrays["latest"]).tolist()
            if not set(latest) <= set(rows.tolist()):
                raise ValueError("sets name rows that are not there")
            self._sets = self._make_sets()
            self._sets.load_state_dict(dict(arrays), {row: self._key(row) for row in latest})

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        for name in ("_columns", "_dtypes", "_is_written", "_size", "_sets"):
            del state[name]
        return {**state, "_saved": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved")
        super().__setstate__(state)
        self.load_state_dict(saved)


class CompactSampler(RandomSampler):  # type: ignore[misc]
    """Draws sets of similar transitions of a CompactStorage, all equally likely; each is replayed as it was met last."""

    def sample(self, storage: Storage, batch_size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """Row numbers of transitions, and no further information."""
        if not isinstance(storage, CompactStorage):
            raise UsageError(f"CompactSampler draws from a CompactStorage, not from a {type(storage).__name__}.")
        if not len(storage):
            raise UsageError("The storage is empty: there is nothing to sample.")
        drawn = torch.randint(0, len(storage.sets), (batch_size,), generator=self._rng)
        return torch.from_numpy(storage.sets.rows(drawn.numpy()).astype(np.int64)), {}


_FLAGS = ("done", "terminated", "truncated", "is_init")


def _is_bookkeeping(key: Key) -> bool:
    return key[-1] in (*_FLAGS, "index", "td_error", "priority", "_weight") or key[0] == "collector" or "collector" in key


def _leaves(batch: TensorDictBase) -> dict[Key, torch.Tensor]:
    items = batch.items(include_nested=True, leaves_only=True, is_leaf=lambda kind: not issubclass(kind, TensorDictBase))
    return {(key,) if isinstance(key, str) else tuple(key): tensor for key, tensor in items}


def _as_batch(data: Any, *, is_one: bool) -> TensorDictBase:
    if isinstance(data, list | tuple) and data and all(map(is_tensor_collection, data)):
        data = torch.stack(list(data))
    if not is_tensor_collection(data):
        raise UsageError(f"{type(data).__name__}: a CompactStorage holds TensorDicts; wrap tensors in one.")
    batch: TensorDictBase = data.to_tensordict() if not isinstance(data, TensorDictBase) else data
    batch = batch.unsqueeze(0) if is_one else batch
    if len(batch.batch_size) < 1:
        raise UsageError("A TensorDict without batch size for several rows: give it one.")
    for key, value in _leaves(batch).items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"{'.'.join(key)} is a {type(value).__name__}: a CompactStorage holds tensors alone.")
    return batch


def _row_numbers(index: Any, size: int) -> list[int]:
    if isinstance(index, slice):
        return list(range(*index.indices(size)))
    if index is Ellipsis or index is None:
        return list(range(size))
    array = index.cpu().numpy() if isinstance(index, torch.Tensor) else np.asarray(index)
    if array.dtype == np.bool_:
        array = np.flatnonzero(array)
    if array.size and array.dtype.kind not in "iu":
        raise UsageError(f"rows of {array.dtype}: must be integers.")
    rows: list[int] = array.reshape(-1).tolist()
    return rows


def _as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu()
    array: npt.NDArray[Any] = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, str(name).removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no kind of number")
    return dtype


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return _as_array(torch.empty(0, dtype=dtype)).dtype
