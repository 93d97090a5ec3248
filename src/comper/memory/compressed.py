"""Frames kept compressed (D4): several times as many transitions in the same memory, for a few microseconds a frame.

Deflate finds little to repeat within one small frame, but nearly all of a frame in others of its game. Each frame is
therefore compressed against a dictionary: four earlier frames, which may lie far back, because rooms and levels return. The
first frames have no dictionary; a new one is taken whenever twice as many frames have been seen, so there are few of them.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comper.memory.frames import FrameStore, Ids

FIRST_DICTIONARY_FRAMES = 64
"""Frames seen when the first dictionary is made."""
LAST_DICTIONARY_FRAMES = 1 << 16
"""Frames seen when the last one is made: 11 in all."""
DICTIONARY_BYTES = 1 << 15
"""What deflate can look back: four frames of 84 x 84."""
LEVEL = 6
STRATEGY = zlib.Z_FIXED
"""Deflate's fixed code: reading a code of its own for each frame would take longer than reading the frame."""
RAW_DEFLATE = -zlib.MAX_WBITS


class CompressedFrameStore(FrameStore):
    """A frame store that keeps its frames compressed and gives the same pixels, ids and states."""

    def _allocate(self, capacity: int) -> None:
        self._parts = [b""] * capacity
        self._dictionary_of = bytearray(capacity)
        self._dictionaries = [b""]
        # As many frames as fit into a dictionary, evenly from the second half of what was seen when it is made.
        self._frame_bytes = math.prod(self.shape) * self.dtype.itemsize
        self._samples: deque[bytes] = deque(maxlen=max(1, DICTIONARY_BYTES // max(1, self._frame_bytes)))
        self._num_written = 0
        self._num_bytes = 0
        self._next_dictionary = FIRST_DICTIONARY_FRAMES

    def _enlarge(self, capacity: int) -> None:
        more = capacity - len(self._parts)
        self._parts += [b""] * more
        self._dictionary_of += bytearray(more)

    def _write(self, i: int, frame: npt.NDArray[Any]) -> None:
        content = frame.tobytes()
        self._compress(i, content, len(self._dictionaries) - 1)
        self._learn_from(content)

    def _compress(self, i: int, content: bytes, dictionary: int) -> None:
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW_DEFLATE, 9, STRATEGY, self._dictionaries[dictionary])
        self._parts[i] = compressor.compress(content) + compressor.flush()
        self._num_bytes += len(self._parts[i])
        self._dictionary_of[i] = dictionary

    def _learn_from(self, content: bytes) -> None:
        """Sample some of the frames, and make the next dictionary when it is time."""
        if self._num_written == LAST_DICTIONARY_FRAMES:
            return
        self._num_written += 1
        period = max(1, self._next_dictionary // (2 * (self._samples.maxlen or 1)))
        if self._num_written % period == 0:
            self._samples.append(content)
        if self._num_written == self._next_dictionary:
            self._dictionaries.append(b"".join(self._samples)[-DICTIONARY_BYTES:])
            self._next_dictionary *= 2

    def _erase(self, i: int) -> None:
        self._num_bytes -= len(self._parts[i])
        self._parts[i] = b""

    def _content(self, i: int) -> bytes:
        dictionary = self._dictionaries[self._dictionary_of[i]]
        return zlib.decompressobj(RAW_DEFLATE, dictionary).decompress(self._parts[i], self._frame_bytes)

    def coding(self, ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Dictionaries and samples, so that a store read back holds, and will hold, the same number of bytes."""
        return {
            "dictionary_of": np.array([self._dictionary_of[i] for i in ids.tolist()], np.int64),
            "dictionary_bytes": np.array([len(dictionary) for dictionary in self._dictionaries], np.int64),
            "dictionaries": np.frombuffer(b"".join(self._dictionaries), np.uint8),
            "sample_bytes": np.array([len(sample) for sample in self._samples], np.int64),
            "samples": np.frombuffer(b"".join(self._samples), np.uint8),
            "counters": np.array([self._num_written, self._next_dictionary], np.int64),
        }

    def _restore(self, ids: list[int], frames: npt.NDArray[Any], coding: dict[str, Any]) -> None:
        if not coding:
            super()._restore(ids, frames, coding)
            return
        self._dictionaries = _split(coding["dictionaries"], coding["dictionary_bytes"])
        self._samples.extend(_split(coding["samples"], coding["sample_bytes"]))
        self._num_written, self._next_dictionary = coding["counters"].tolist()
        for i, frame, dictionary in zip(ids, frames, coding["dictionary_of"].tolist(), strict=True):
            self._compress(i, frame.tobytes(), dictionary)

    @property
    def capacity(self) -> int:
        """Slots there are now; the store grows when they are used up."""
        return len(self._parts)

    def gather(self, ids: Ids, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """The pixels of these frames, in the order and shape of the ids; into `out` where it is given."""
        array = np.asarray(ids)
        if out is None:
            out = np.empty((*array.shape, *self.shape), self.dtype)
        rows = out.reshape(-1, *self.shape)
        row_of: dict[int, int] = {}
        for row, i in enumerate(array.ravel().tolist()):
            first = row_of.setdefault(i, row)  # states share frames: each is read once
            # Straight to its place: collecting them first means new pages from the system, which take longer than zlib does.
            rows[row] = rows[first] if first < row else np.frombuffer(self._content(i), self.dtype).reshape(self.shape)
        return out

    def located(self, ids: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """An array (.., *shape) and the rows in which these frames stand."""
        return self.gather(ids), np.arange(len(ids))

    @property
    def nbytes(self) -> int:
        """Bytes of the frames held, compressed, and of the dictionaries."""
        return self._num_bytes + sum(map(len, self._dictionaries))

    @property
    def frames(self) -> npt.NDArray[Any]:
        """Not there: no array holds the frames."""
        raise TypeError("The frames of this store are compressed; gather them.")


def _split(joined: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> list[bytes]:
    """The byte strings that were joined."""
    return [part.tobytes() for part in np.split(joined, np.cumsum(sizes)[:-1])] if len(sizes) else []


def make_frame_store(
    compression: str, shape: Sequence[int], dtype: npt.DTypeLike = np.uint8, *, initial_capacity: int = 1024
) -> FrameStore:
    """The frame store that a setting of `frame_compression` names (D4)."""
    kind = CompressedFrameStore if compression == "zlib" else FrameStore
    return kind(shape, dtype, initial_capacity=initial_capacity)
