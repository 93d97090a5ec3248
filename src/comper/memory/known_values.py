"""Values of states that outlive a graph: found again by the pixels of a state, where its frames are held no longer."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore

DIGEST_BYTES = 16


@dataclass(frozen=True)
class KnownValues:
    """The values of n states' actions, and how often each had been tried when they were computed."""

    states: NDArray[np.uint8]
    """(n, history x 16): what `state_keys` gives."""
    values: NDArray[np.float32]
    """(n, A); anything where an action was not tried."""
    visits: NDArray[np.int32]
    """(n, A)"""

    @classmethod
    def none(cls, history_length: int, num_actions: int) -> KnownValues:
        """Of no state."""
        rows = np.zeros((0, num_actions))
        return cls(np.zeros((0, history_length * DIGEST_BYTES), np.uint8), rows.astype(np.float32), rows.astype(np.int32))

    def __post_init__(self) -> None:
        kinds = [column.dtype.name for column in (self.states, self.values, self.visits)]
        is_table = self.states.ndim == self.values.ndim == 2 and self.values.shape == self.visits.shape
        if kinds != ["uint8", "float32", "int32"] or not is_table or len(self.states) != len(self.values):
            raise ValueError("not a table of known values.")
        if (self.visits < 0).any():
            raise ValueError("an action of a known state was tried fewer than 0 times.")

    def __len__(self) -> int:
        return len(self.states)

    @functools.cached_property
    def _rows(self) -> dict[bytes, int]:
        return {key.tobytes(): row for row, key in enumerate(self.states)}

    def find(self, key: NDArray[np.uint8]) -> int | None:
        """The row of a state; None: it is not known."""
        return self._rows.get(key.tobytes())

    def joined(self, other: KnownValues) -> KnownValues:
        """These, and the others of states that are not among them."""
        new = np.array([row for row, key in enumerate(other.states) if self.find(key) is None], np.int64)
        mine, theirs = self.as_arrays().values(), other.as_arrays().values()
        return KnownValues(*(np.concatenate([a, b[new]]) for a, b in zip(mine, theirs, strict=True)))

    def as_arrays(self) -> dict[str, Any]:
        """The columns by name."""
        return {"states": self.states, "values": self.values, "visits": self.visits}


def state_keys(frames: FrameStore, states: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Digests of the pixels of states, given as frame ids (n, history): (n, history x 16)."""
    ids, places = np.unique(states, return_inverse=True)
    digests = [blake2b(frames.gather([i]).tobytes(), digest_size=DIGEST_BYTES).digest() for i in ids.tolist()]
    table = np.frombuffer(b"".join(digests), np.uint8).reshape(len(ids), DIGEST_BYTES)
    return table[places.reshape(states.shape)].reshape(len(states), states.shape[1] * DIGEST_BYTES)
