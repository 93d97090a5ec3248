"""The usual picture of each trial, which is taken away from what its network sees. D7.

Most of an Atari picture never changes, and says nothing about what to do (Bellemare et al. 2013 take it away, too).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.learners.frame_bank import FrameBank
from comper.memory.frames import FrameStore
from comper.networks.stacking import as_floats, copies, overwrite

NUM_PICTURES = 255
"""The median of so many is taken, at most; odd, so that it is one of them."""


class Backgrounds:
    """The median of the first pictures of each of T trials. Part of what is saved as weights, which are learned without it."""

    def __init__(self, stores: Sequence[FrameStore], bank: FrameBank):
        self._stores = stores
        self._is_known = [False] * len(stores)
        self._medians = bank.background = torch.zeros((len(stores), *stores[0].shape), device=bank.device)

    def look(self, trials: Sequence[int]) -> None:
        """Take the median of what was seen so far, once for each trial."""
        for trial in trials:
            if not self._is_known[trial]:
                picture = torch.from_numpy(median_picture(self._stores[trial]))
                self.load_weights(trial, {"median": as_floats(picture)})

    def weights(self, trial: int) -> dict[str, Tensor]:
        """One trial's background, from 0 to 1."""
        return copies({"median": self._medians[trial]})

    def load_weights(self, trial: int, weights: dict[str, Any]) -> None:
        """Take over a background."""
        overwrite({"median": self._medians[trial]}, weights)
        self._is_known[trial] = True

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's background, and whether it was looked for yet."""
        return {"weights": self.weights(trial), "is_known": int(self._is_known[trial])}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self.load_weights(trial, state["weights"])
        self._is_known[trial] = bool(state["is_known"])


def median_picture(store: FrameStore) -> NDArray[np.uint8]:
    """The median, pixel by pixel, of pictures from a store, evenly spaced in it; an even number leaves out the last."""
    ids = store.held()[0]
    size = min(NUM_PICTURES, len(ids))
    size -= 1 - size % 2
    frames = store.gather(ids[np.linspace(0, len(ids) - 1, size).astype(np.int64)])
    median: NDArray[np.uint8] = np.partition(frames, size // 2, axis=0)[size // 2]
    return median
