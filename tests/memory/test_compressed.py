"""Compressed frames: a store with them gives the same answers in fewer bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from comper import native
from comper.memory.compressed import (
    FIRST_DICTIONARY_FRAMES,
    LEVEL,
    RAW_DEFLATE,
    STRATEGY,
    CompressedPixels,
    make_frame_store,
)
from comper.memory.frames import FrameStore
from tests.memory.test_frames import StoreMachine


def scenes(num_frames: int, *, seed: int = 0) -> npt.NDArray[np.uint8]:
    """A random picture of 84 x 84 with a small block that moves over it."""
    rng = np.random.default_rng(seed)
    frames = np.repeat(rng.integers(0, 256, (1, 84, 84), dtype=np.uint8), num_frames, axis=0)
    for frame, (y, x, grey) in zip(frames, rng.integers(0, 76, (num_frames, 3)), strict=True):
        frame[y : y + 8, x : x + 8] = grey
    return frames


def filled(num_frames: int) -> tuple[FrameStore, npt.NDArray[np.uint8], list[int]]:
    store, frames = make_frame_store("zlib", (84, 84), initial_capacity=4), scenes(num_frames)
    return store, frames, [store.intern(frame) for frame in frames]


def test_frames_come_back_as_they_were_before_and_after_there_are_dictionaries() -> None:
    store, frames, ids = filled(5 * FIRST_DICTIONARY_FRAMES)
    np.testing.assert_array_equal(store.gather(ids), frames)
    assert store.check_valid() == (True, "valid")


def test_a_dictionary_makes_frames_of_one_scene_small() -> None:
    store, frames, _ = filled(5 * FIRST_DICTIONARY_FRAMES)
    after = store.nbytes
    store.intern(scenes(6 * FIRST_DICTIONARY_FRAMES)[-1])
    assert store.nbytes - after < frames[0].nbytes / 20  # the picture itself is noise: without a dictionary nothing is saved


def test_gathers_have_the_shape_of_the_ids_and_are_written_where_asked() -> None:
    plain, (store, frames, ids) = FrameStore((84, 84)), filled(100)
    assert [plain.intern(frame) for frame in frames] == ids
    wanted = np.array([[3, 99, 3], [0, 70, 64]])
    for one in (plain, store):
        out = np.empty((2, 3, 84, 84), np.uint8)
        assert one.gather(wanted, out) is out
        np.testing.assert_array_equal(out, frames[wanted])
        np.testing.assert_array_equal(one.gather(wanted), out)
        array, rows = one.array_and_rows(wanted[0])
        np.testing.assert_array_equal(array[rows], frames[wanted[0]])
    assert store.gather([]).shape == (0, 84, 84)
    store.gather([1])[:] = 0  # a copy: the store does not change
    np.testing.assert_array_equal(store.gather([1])[0], frames[1])


def test_a_state_can_change_between_stores() -> None:
    store, frames, ids = filled(200)
    store.release([ids[5]])
    plain, copy = FrameStore((84, 84)), make_frame_store("zlib", (84, 84))
    plain.load_state_dict(store.state_dict())
    copy.load_state_dict(plain.state_dict())
    np.testing.assert_array_equal(copy.gather([0, 199]), frames[[0, 199]])
    assert copy.intern(scenes(201)[200]) == plain.intern(scenes(201)[200]) == 5
    for name, array in plain.state_dict().items():
        np.testing.assert_array_equal(copy.state_dict()[name], array)


def test_forgotten_frames_take_no_bytes() -> None:
    store, _, ids = filled(FIRST_DICTIONARY_FRAMES - 1)
    assert store.nbytes > 0
    store.release(ids)
    assert store.nbytes == 0


def test_an_unknown_compression_is_an_error() -> None:
    with pytest.raises(ValueError, match="compression = 'lzma': must be one of none, zlib"):
        make_frame_store("lzma", (2,))


needs_compiler = pytest.mark.skipif(native.compiled() is None, reason=native.loops().status)


def inflated(part: bytes, dictionary: bytes, size: int) -> bytes | None:
    """What the compiled code reads from a compressed frame; None where it refuses."""
    storage, out = CompressedPixels((size,), np.dtype(np.uint8), 1), np.zeros((1, size), np.uint8)
    storage._parts[0], storage._dictionaries[0] = part, dictionary
    return out.tobytes() if storage._gather_compiled([0], [0], out) else None


def deflated(content: bytes, dictionary: bytes = b"", *, level: int = LEVEL, strategy: int = STRATEGY) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, RAW_DEFLATE, 9, strategy, dictionary)
    return compressor.compress(content) + compressor.flush()


def contents() -> Iterator[tuple[bytes, bytes]]:
    """Frames and dictionaries of many kinds: noise, runs, repetitions near and far, matches across the dictionary's end."""
    rng = np.random.default_rng(0)
    for size in (1, 2, 257, 258, 259, 7_056, 100_000):
        noise = rng.integers(0, 256, size, np.uint8).tobytes()
        words = rng.integers(0, 4, 1 << 15, np.uint8).tobytes()
        few = rng.integers(0, 3, size, np.uint8).tobytes()
        for content in (
            noise,
            bytes(size),
            few,
            (noise[:50] * size)[:size],
            (words[-300:] * size)[:size],
            (words * 4)[5:][:size],
        ):
            for dictionary in (b"", words, words[:100], noise[-(1 << 15) :]):
                yield content, dictionary


@needs_compiler
def test_compiled_code_reads_all_that_zlib_writes_here() -> None:
    for content, dictionary in contents():
        assert inflated(deflated(content, dictionary), dictionary, len(content)) == content
    assert inflated(deflated(bytes(500), level=0), b"", 500) == bytes(500)  # a stored block


@needs_compiler
def test_compiled_code_refuses_what_is_cut_short_or_of_another_size_or_code() -> None:
    content = scenes(1)[0].tobytes()
    part = deflated(content)
    assert inflated(part[:-20], b"", len(content)) is None
    assert inflated(b"", b"", len(content)) is None
    assert inflated(part, b"", len(content) - 1) is None
    assert inflated(part, b"", len(content) + 1) is None
    text = b"a code of its own for every frame " * 200
    assert inflated(deflated(text, strategy=zlib.Z_DEFAULT_STRATEGY), b"", len(text)) in (None, text)
    assert inflated(deflated(bytes(300), bytes(300)), b"", 300) is None  # a dictionary that is not there


@needs_compiler
def test_compiled_code_reads_damaged_frames_without_a_crash() -> None:
    rng = np.random.default_rng(0)
    part = deflated(scenes(1)[0].tobytes(), b"some words" * 100)
    for _ in range(3_000):
        damaged = bytearray(part if rng.random() < 0.5 else rng.bytes(int(rng.integers(1, 200))))
        for place in rng.integers(0, min(len(damaged), 300), 3):
            damaged[place] = rng.integers(256)
        inflated(bytes(damaged), b"some words" * 100, 7_056)


def test_gathers_are_the_same_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    store, frames, _ = filled(100)
    wanted = np.array([[3, 99, 3], [0, 70, 64]])
    np.testing.assert_array_equal(store.gather(wanted), frames[wanted])
    monkeypatch.setattr(native, "compiled", lambda: None)
    np.testing.assert_array_equal(store.gather(wanted), frames[wanted])
    out = np.empty((84, 84, 6), np.uint8).transpose(2, 0, 1)  # a place that is not contiguous
    monkeypatch.undo()
    np.testing.assert_array_equal(store.gather(wanted.ravel(), out), frames[wanted.ravel()])


class CompressedStoreMachine(StoreMachine):
    """The random calls of the plain store's test."""

    storage = CompressedPixels


TestCompressedStoreMachine = CompressedStoreMachine.TestCase
TestCompressedStoreMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
