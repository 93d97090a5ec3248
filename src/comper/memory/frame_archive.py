"""The frames of a trial as a checkpoint keeps them: each is compressed once, when it is new, and written every time.

So a checkpoint depends on nothing outside its own folder, and compressing takes only as long as the frames since the
last checkpoint need. Slots of the store are reused: an archive is read in order, and the last frame of a slot counts.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.errors import DamagedFileError
from comper.memory.frames import FrameStore

LEVEL = 1
SLACK = 1024
"""An archive may hold as many forgotten frames as the store holds frames, and this many more."""


class FrameArchive:
    """Parts of compressed frames which together hold every frame of the store."""

    def __init__(self, store: FrameStore) -> None:
        self._store = store
        self._slots: list[NDArray[np.int64]] = []
        self._parts: list[bytes] = []
        self._next_serial = 0

    def take_in(self) -> None:
        """Compress the frames that are new in the store since the last call."""
        if sum(map(len, self._slots)) > 2 * len(self._store) + SLACK:
            self._slots, self._parts, self._next_serial = [], [], 0
        new = np.flatnonzero(self._store.serials >= self._next_serial)
        if len(new):
            self._slots.append(new)
            self._parts.append(zlib.compress(self._store.gather(new).tobytes(), LEVEL))
            self._next_serial = int(self._store.serials.max()) + 1

    @property
    def content(self) -> bytes:
        """All parts, one after another."""
        return b"".join(self._parts)

    def state_dict(self) -> dict[str, Any]:
        """Which frames the store holds, and to which slots the parts belong."""
        ids, counts = self._store.held()
        return {
            "ids": ids,
            "counts": counts,
            "slots": np.concatenate([np.empty(0, np.int64), *self._slots]),
            "frames_of_part": np.array([len(slots) for slots in self._slots], np.int64),
            "bytes_of_part": np.array([len(part) for part in self._parts], np.int64),
            "coding": self._store.coding(ids),
        }

    def load_state_dict(self, state: dict[str, Any], content: bytes) -> None:
        """Restore the frames of the store, and continue with these parts."""
        frames_of, bytes_of = state["frames_of_part"].tolist(), state["bytes_of_part"].tolist()
        if (
            min([*frames_of, *bytes_of], default=0) < 0
            or sum(frames_of) != len(state["slots"])
            or sum(bytes_of) != len(content)
        ):
            raise DamagedFileError("The archive of frames is not as long as it says.")
        self._slots = np.split(state["slots"], np.cumsum(frames_of)[:-1]) if frames_of else []
        ends = np.cumsum(bytes_of).tolist()
        self._parts = [content[end - size : end] for end, size in zip(ends, bytes_of, strict=True)]
        ids = state["ids"]
        frames = self._frames_of(ids)
        self._store.load_state_dict({"ids": ids, "counts": state["counts"], "frames": frames, "coding": state["coding"]})
        self._next_serial = int(self._store.serials.max(initial=-1)) + 1

    def _frames_of(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        if (np.diff(ids) <= 0).any() or ids.min(initial=0) < 0 or ids.max(initial=0) >= self._largest_store(len(ids)):
            raise DamagedFileError("The archive of frames has ids that no store gives.")
        frames = np.zeros((len(ids), *self._store.shape), self._store.dtype)
        is_found = np.zeros(len(ids), np.bool_)
        for slots, part in zip(self._slots, self._parts, strict=True):
            is_held = np.isin(slots, ids)
            rows = np.searchsorted(ids, slots[is_held])
            frames[rows] = self._decompressed(part, len(slots))[is_held]
            is_found[rows] = True
        if not is_found.all():
            raise DamagedFileError("The archive of frames lacks some of them.")
        return frames

    def _largest_store(self, num_frames: int) -> int:
        """A store gives out its lowest free slot: far higher ids are a wrong file's. Room for a million is no harm."""
        return max(self._store.capacity, 16 * num_frames, 1 << 20)

    def _decompressed(self, part: bytes, num_frames: int) -> NDArray[Any]:
        num_bytes = num_frames * int(np.prod(self._store.shape)) * self._store.dtype.itemsize
        try:
            raw = zlib.decompressobj().decompress(part, num_bytes + 1)  # never more than was announced
        except zlib.error as error:
            raise DamagedFileError(f"The archive of frames cannot be decompressed ({error}).") from None
        if len(raw) != num_bytes:
            raise DamagedFileError("The archive of frames is not as long as it says.")
        return np.frombuffer(raw, self._store.dtype).reshape(num_frames, *self._store.shape)
