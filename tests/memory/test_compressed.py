"""Compressed frames: a store with them gives the same answers in fewer bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from comper.memory.compressed import FIRST_DICTIONARY_FRAMES, CompressedPixels, make_frame_store
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


class CompressedStoreMachine(StoreMachine):
    """The random calls of the plain store's test."""

    storage = CompressedPixels


TestCompressedStoreMachine = CompressedStoreMachine.TestCase
TestCompressedStoreMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
