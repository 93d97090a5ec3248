"""Frames of T trials where the networks compute: gathers pixels by frame ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.memory.frames import FrameStore
from comper.networks.devices import computes_together


class FrameBank:
    """Gathers frames for a batch. A GPU keeps a copy of each store, brought up to date before each gather."""

    def __init__(self, stores: Sequence[FrameStore], device: torch.device):
        self._stores = stores
        self.device = device
        self._shape = stores[0].shape
        self._has_copy = computes_together(device)
        if self._has_copy:
            self._copy = torch.empty((len(stores), 0, *self._shape), dtype=_torch_dtype(stores[0]), device=device)
            for store in stores:
                store.journal = []

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """An array of the batch as a tensor on the device."""
        return torch.as_tensor(array, device=self.device)

    def gather(self, ids: NDArray[np.int64], trials: Sequence[int]) -> Tensor:
        """Frames (n, ..., *frame_shape) of ids (n, ...), a row for each trial."""
        return self.locate(ids, trials).frames()

    def locate(self, ids: NDArray[np.int64], trials: Sequence[int]) -> Places:
        """Where the frames of ids (n, B, ...) are, for gathering them batch by batch. Valid until a frame is taken in."""
        if not self._has_copy:
            return HostPlaces([self._stores[trial] for trial in trials], ids)
        self._bring_up_to_date()
        trial_column = np.asarray(trials).reshape(-1, *[1] * (ids.ndim - 1))
        return DevicePlaces(self._copy.flatten(0, 1), self.tensor(trial_column * self._copy.shape[1] + ids))

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


class Places(Protocol):
    """Frames that were asked for and not gathered yet."""

    def frames(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The frames of columns start to stop of the ids."""


@dataclass(frozen=True)
class HostPlaces:
    """Frames in main memory, a store for each row of ids."""

    stores: Sequence[FrameStore]
    ids: NDArray[np.int64]

    def frames(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The frames of columns start to stop of the ids."""
        ids = self.ids[:, start:stop]
        frames = np.empty((*ids.shape, *self.stores[0].shape), self.stores[0].dtype)
        for store, row, out in zip(self.stores, ids, frames, strict=True):
            store.gather(row, out)
        return torch.from_numpy(frames)


@dataclass(frozen=True)
class DevicePlaces:
    """Frames in a GPU's memory, all trials' in one row."""

    stores: Tensor
    ids: Tensor

    def frames(self, start: int = 0, stop: int | None = None) -> Tensor:
        """The frames of columns start to stop of the ids."""
        return self.stores[self.ids[:, start:stop]]


def _new_frames(store: FrameStore) -> list[int]:
    """The slots with new content since the last call; one that was let go of again has none."""
    journal, store.journal = store.journal or [], []
    return [i for i in dict.fromkeys(journal) if store.references(i)]


def _torch_dtype(store: FrameStore) -> torch.dtype:
    return torch.from_numpy(np.empty(0, store.dtype)).dtype
