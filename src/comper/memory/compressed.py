"""Frames kept compressed (D4): several times as many transitions in the same memory, for a few microseconds per frame.

Deflate finds little repetition within one small frame, but nearly all of a frame occurs in other frames of its game.
Each frame is therefore compressed with a dictionary of four earlier frames, which may lie far back, because rooms and
levels return. The first frames have no dictionary. A new dictionary is made whenever twice as many frames have been
seen, so there are few of them.
"""

from __future__ import annotations

import ctypes
import math
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comper import native
from comper.memory.frames import FrameStore, Ids, PlainPixels, StorageFactory

FIRST_DICTIONARY_FRAMES = 64
"""Frames seen when the first dictionary is made."""
LAST_DICTIONARY_FRAMES = 1 << 16
"""Frames seen when the last one is made: 11 in all."""
DICTIONARY_BYTES = 1 << 15
"""How far deflate can look back: four frames of 84 x 84."""
LEVEL = 6
STRATEGY = zlib.Z_FIXED
"""Deflate's fixed code: reading a separate code for each frame would take longer than reading the frame."""
RAW_DEFLATE = -zlib.MAX_WBITS


class CompressedPixels:
    """The storage of a frame store that keeps each frame compressed."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int) -> None:
        self._shape, self._dtype = shape, dtype
        self._frame_bytes = math.prod(shape) * dtype.itemsize
        self._parts = [b""] * capacity
        self._dictionary_of = bytearray(capacity)
        self._dictionaries = [b""]
        # As many frames as fit into a dictionary, evenly from the second half of what was seen when it is made.
        self._samples: deque[bytes] = deque(maxlen=max(1, DICTIONARY_BYTES // max(1, self._frame_bytes)))
        self._num_written = 0
        self._num_bytes = 0
        self._next_dictionary = FIRST_DICTIONARY_FRAMES

    def enlarge(self, capacity: int) -> None:
        more = capacity - len(self._parts)
        self._parts += [b""] * more
        self._dictionary_of += bytearray(more)

    def write(self, slot: int, frame: npt.NDArray[Any]) -> None:
        content = frame.tobytes()
        self._compress(slot, content, len(self._dictionaries) - 1)
        self._learn_from(content)

    def _compress(self, slot: int, content: bytes, dictionary: int) -> None:
        compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW_DEFLATE, 9, STRATEGY, self._dictionaries[dictionary])
        self._parts[slot] = compressor.compress(content) + compressor.flush()
        self._num_bytes += len(self._parts[slot])
        self._dictionary_of[slot] = dictionary

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

    def erase(self, slot: int) -> None:
        self._num_bytes -= len(self._parts[slot])
        self._parts[slot] = b""

    def content(self, slot: int) -> bytes:
        dictionary = self._dictionaries[self._dictionary_of[slot]]
        return zlib.decompressobj(RAW_DEFLATE, dictionary).decompress(self._parts[slot], self._frame_bytes)

    def gather(self, slots: Ids, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        array = np.asarray(slots)
        if out is None:
            out = np.empty((*array.shape, *self._shape), self._dtype)
        wanted: list[int] = array.ravel().tolist()
        row_of: dict[int, int] = {}
        first_rows = [row_of.setdefault(i, row) for row, i in enumerate(wanted)]  # states share frames: each is read once
        if not self._gather_compiled(wanted, first_rows, out):
            rows = out.reshape(-1, *self._shape)
            for row, (i, first) in enumerate(zip(wanted, first_rows, strict=True)):
                # Directly into its row: collecting the frames first needs new memory pages, which take longer than zlib.
                rows[row] = rows[first] if first < row else np.frombuffer(self.content(i), self._dtype).reshape(self._shape)
        return out

    def _gather_compiled(self, slots: list[int], first_rows: list[int], out: npt.NDArray[Any]) -> bool:
        """Decompress all frames in compiled code, which reads what zlib writes here; return whether that was possible."""
        library = native.compiled()
        if library is None or not out.flags.c_contiguous:
            return False
        parts = [self._parts[i] for i in slots]
        dictionaries = [self._dictionaries[self._dictionary_of[i]] for i in slots]
        arguments = (len(slots), _numbers(first_rows), *_strings(parts), *_strings(dictionaries), out.ctypes.data)
        inflate = library.comper_inflate
        inflate.argtypes, inflate.restype = INFLATE_ARGUMENTS, ctypes.c_int64
        return bool(inflate(*arguments, self._frame_bytes) == len(slots))

    def array_and_rows(self, slots: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        return self.gather(slots), np.arange(len(slots))

    @property
    def nbytes(self) -> int:
        """Bytes of the compressed frames and of the dictionaries."""
        return self._num_bytes + sum(map(len, self._dictionaries))

    def coding(self, slots: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Dictionaries and samples, so that a store read back takes the same number of bytes, now and later."""
        return {
            "dictionary_of": np.array([self._dictionary_of[i] for i in slots.tolist()], np.int64),
            "dictionary_bytes": np.array([len(dictionary) for dictionary in self._dictionaries], np.int64),
            "dictionaries": np.frombuffer(b"".join(self._dictionaries), np.uint8),
            "sample_bytes": np.array([len(sample) for sample in self._samples], np.int64),
            "samples": np.frombuffer(b"".join(self._samples), np.uint8),
            "counters": np.array([self._num_written, self._next_dictionary], np.int64),
        }

    def restore(self, slots: Sequence[int], frames: npt.NDArray[Any], coding: dict[str, Any]) -> None:
        if not coding:  # a plain store wrote this state
            for slot, frame in zip(slots, frames, strict=True):
                self.write(slot, frame)
            return
        self._dictionaries = _split(coding["dictionaries"], coding["dictionary_bytes"])
        self._samples.extend(_split(coding["samples"], coding["sample_bytes"]))
        self._num_written, self._next_dictionary = coding["counters"].tolist()
        for slot, frame, dictionary in zip(slots, frames, coding["dictionary_of"].tolist(), strict=True):
            self._compress(slot, frame.tobytes(), dictionary)


INFLATE_ARGUMENTS: list[Any] = [ctypes.c_int64, *[ctypes.c_void_p] * 6, ctypes.c_int64]


def _numbers(values: Iterable[int]) -> ctypes.Array[ctypes.c_int64]:
    plain = list(values)
    return (ctypes.c_int64 * len(plain))(*plain)


def _strings(strings: Sequence[bytes]) -> tuple[ctypes.Array[ctypes.c_char_p], ctypes.Array[ctypes.c_int64]]:
    """Addresses and sizes of byte strings, as C takes them."""
    return (ctypes.c_char_p * len(strings))(*strings), _numbers(map(len, strings))


def _split(joined: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> list[bytes]:
    """The byte strings that were joined."""
    return [part.tobytes() for part in np.split(joined, np.cumsum(sizes)[:-1])] if len(sizes) else []


STORAGES: dict[str, StorageFactory] = {"none": PlainPixels, "zlib": CompressedPixels}


def make_frame_store(
    compression: str, shape: Sequence[int], dtype: npt.DTypeLike = np.uint8, *, initial_capacity: int = 1024
) -> FrameStore:
    """Make the frame store for a value of the setting `frame_compression` (D4)."""
    if compression not in STORAGES:
        raise ValueError(f"compression = {compression!r}: must be one of {', '.join(STORAGES)}.")
    return FrameStore(shape, dtype, initial_capacity=initial_capacity, storage=STORAGES[compression])
