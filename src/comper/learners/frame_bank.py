"""Frames of T trials where the networks compute: gathers pixels by frame ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.memory.frames import FrameStore
from comper.networks import stacking

FrameReader = Callable[[slice], Tensor]
"""Gives the frames of some columns of the ids it was made for."""


class FrameBank:
    """Gathers frames for a batch. A GPU keeps a copy of each store, brought up to date before each gather."""

    def __init__(self, stores: Sequence[FrameStore], device: torch.device):
        self._stores = stores
        self.device = device
        self._shape = stores[0].shape
        self._has_copy = stacking.computes_together(device)
        if self._has_copy:
            self._copy = torch.empty((len(stores), 0, *self._shape), dtype=_torch_dtype(stores[0]), device=device)
            for store in stores:
                store.journal = store.held()[0].tolist()

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """An array of the batch as a tensor on the device."""
        return torch.as_tensor(array, device=self.device)

    def gather(self, ids: NDArray[np.int64], trials: Sequence[int]) -> Tensor:
        """Frames (n, ..., *frame_shape) of ids (n, ...), a row for each trial."""
        return self.reader(ids, trials)(slice(None))

    def reader(self, ids: NDArray[np.int64], trials: Sequence[int]) -> FrameReader:
        """A function that gathers frames of ids (n, B, ...) batch by batch. Valid until a store takes in another frame."""
        if not self._has_copy:
            stores = [self._stores[trial] for trial in trials]
            return lambda columns: _read(stores, ids[:, columns])
        self._bring_up_to_date()
        frames, capacity = self._copy.flatten(0, 1), self._copy.shape[1]
        slots = self.tensor(np.asarray(trials).reshape(-1, *[1] * (ids.ndim - 1)) * capacity + ids)
        return lambda columns: frames[slots[:, columns]]

    def _bring_up_to_date(self) -> None:
        """Copy to the device what the stores have taken in since the last time, all trials in one transfer."""
        new = [(trial, ids) for trial, store in enumerate(self._stores) if (ids := _new_frames(store))]
        if not new:
            return
        self._grow(max(store.capacity for store in self._stores))
        slots = np.concatenate([trial * self._copy.shape[1] + np.array(ids) for trial, ids in new])
        frames = np.concatenate([self._stores[trial].gather(ids) for trial, ids in new])
        self._copy.flatten(0, 1)[self.tensor(slots)] = self.tensor(frames)

    def _grow(self, size: int) -> None:
        old_size = self._copy.shape[1]
        if size > old_size:
            larger = self._copy.new_empty((len(self._stores), size, *self._shape))
            larger[:, :old_size] = self._copy
            self._copy = larger


def _read(stores: Sequence[FrameStore], ids: NDArray[np.int64]) -> Tensor:
    """The frames of ids (n, ...), a store for each row."""
    frames = np.empty((*ids.shape, *stores[0].shape), stores[0].dtype)
    for store, row, out in zip(stores, ids, frames, strict=True):
        store.gather(row, out)
    return torch.from_numpy(frames)


def _new_frames(store: FrameStore) -> list[int]:
    """The slots with new content since the last call; one that was let go of again has none."""
    journal, store.journal = store.journal or [], []
    return [i for i in dict.fromkeys(journal) if store.references(i)]


def _torch_dtype(store: FrameStore) -> torch.dtype:
    return torch.from_numpy(np.empty(0, store.dtype)).dtype
