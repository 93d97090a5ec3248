"""Frames of T trials where the networks compute: gathers pixels by frame ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.memory.frames import FrameStore

NEVER = -1


class FrameBank:
    """Gathers frames for a batch. A GPU keeps a copy of each store, brought up to date when a frame is first asked for."""

    def __init__(self, stores: Sequence[FrameStore], device: torch.device):
        self._stores = stores
        self.device = device
        if device.type != "cpu":
            self._mirror = torch.empty((len(stores), 0, *stores[0].shape), dtype=_torch_dtype(stores[0]), device=device)
            self._mirrored = np.full((len(stores), 0), NEVER)  # serial of the content that each mirrored slot holds

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """An array of the batch as a tensor on the device."""
        return torch.as_tensor(array, device=self.device)

    def gather(self, ids: NDArray[np.int64], trials: Sequence[int]) -> Tensor:
        """Frames (n, ..., *frame_shape) of ids (n, ...), a row for each trial."""
        if self.device.type == "cpu":
            return torch.from_numpy(np.stack([self._stores[t].frames[ids[row]] for row, t in enumerate(trials)]))
        self._bring_up_to_date(ids, trials)
        trial_column = self.tensor(np.asarray(trials)).view(-1, *[1] * (ids.ndim - 1))
        return self._mirror[trial_column, self.tensor(ids)]

    def _bring_up_to_date(self, ids: NDArray[np.int64], trials: Sequence[int]) -> None:
        self._grow(int(ids.max(initial=0)) + 1)
        for row, t in enumerate(trials):
            wanted = np.unique(ids[row])
            stale = wanted[self._mirrored[t, wanted] != self._stores[t].serials[wanted]]
            if len(stale):
                self._mirror[t, self.tensor(stale)] = self.tensor(self._stores[t].frames[stale])
                self._mirrored[t, stale] = self._stores[t].serials[stale]

    def _grow(self, needed: int) -> None:
        size = self._mirrored.shape[1]
        if needed <= size:
            return
        new_size = max(needed, 2 * size, max(len(store.frames) for store in self._stores))
        mirror = self._mirror.new_empty((len(self._stores), new_size, *self._mirror.shape[2:]))
        mirror[:, :size] = self._mirror
        self._mirror = mirror
        self._mirrored = np.pad(self._mirrored, ((0, 0), (0, new_size - size)), constant_values=NEVER)


def _torch_dtype(store: FrameStore) -> torch.dtype:
    return torch.from_numpy(np.empty(0, store.dtype)).dtype
