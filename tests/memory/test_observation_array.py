"""Arrays of observations: equal to what was written, with every frame stored once and forgotten in time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comper.errors import UsageError
from comper.memory.observation_array import EMPTY, ObservationArray, ObservationPool, frame_axis, is_worth_sharing


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((4, 84, 84), 0),
        ((84, 84, 4), 2),
        ((3, 64, 64), 0),
        ((64, 64, 3), 2),
        ((4, 84, 84, 3), 0),
        ((4, 84, 84, 1), 0),
        ((1, 84, 84), 0),
        ((84, 84), None),
        ((7, 7, 3), None),
        ((128,), None),
        ((), None),
    ],
)
def test_the_axis_of_a_stack_is_the_short_one_of_large_pictures(shape: tuple[int, ...], axis: int | None) -> None:
    assert frame_axis(shape, np.uint8) == axis


def test_only_observations_larger_than_their_bookkeeping_are_shared() -> None:
    assert is_worth_sharing((7, 7, 3), np.uint8)
    assert is_worth_sharing((4, 84, 84), np.float32)
    assert not is_worth_sharing((4,), np.float32)
    assert not is_worth_sharing((1,), np.int64)
    assert not is_worth_sharing((1000,), np.complex64)


def stacks(count: int, shape: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    """Consecutive stacks of four frames."""
    frames = np.random.default_rng(0).integers(0, 256, (count + 3, 40, 40), dtype=np.uint8)
    axis = frame_axis(shape, np.uint8)
    return [np.moveaxis(frames[t : t + 4], 0, axis or 0) for t in range(count)]


@pytest.mark.parametrize("shape", [(4, 40, 40), (40, 40, 4)])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_consecutive_stacks_add_one_frame_each(shape: tuple[int, ...], compression: str) -> None:
    pool = ObservationPool(shape, np.uint8, compression=compression)
    array = ObservationArray(pool, (50,))
    observations = stacks(50, shape)
    for row, observation in enumerate(observations):
        array[row] = observation
        assert len(pool.frames) == row + 4
    np.testing.assert_array_equal(array[:], np.stack(observations))
    np.testing.assert_array_equal(np.asarray(array), np.stack(observations))
    np.testing.assert_array_equal(array[np.array([3, 3, 40])], np.stack([observations[i] for i in (3, 3, 40)]))
    assert (array.shape, array.dtype, len(array)) == ((50, *shape), np.dtype(np.uint8), 50)
    assert array.nbytes == 50 * 4 * 4
    assert array[7].flags.c_contiguous


def test_frames_are_looked_up_only_where_the_latest_observation_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ObservationPool((4, 40, 40), np.uint8)
    looked_up = []
    intern = pool.frames.intern

    def counted(frame: np.ndarray[Any, Any]) -> int:
        looked_up.append(frame)
        return intern(frame)

    monkeypatch.setattr(pool.frames, "intern", counted)
    array, after = ObservationArray(pool, (50, 2)), ObservationArray(pool, (50, 2))
    first, second = stacks(51, (4, 40, 40)), [255 - stack for stack in stacks(51, (4, 40, 40))]
    for row in range(50):
        array[row] = np.stack([first[row], second[row]])
        after[row] = np.stack([first[row + 1], second[row + 1]])
    assert len(looked_up) == 2 * (4 + 50)


def test_a_stack_that_grows_by_several_frames_shares_the_others() -> None:
    pool = ObservationPool((6, 40, 40), np.uint8)
    array = ObservationArray(pool, (20,))
    frames = np.random.default_rng(0).integers(0, 256, (100, 40, 40), dtype=np.uint8)
    for row in range(20):
        array[row] = frames[3 * row : 3 * row + 6]
    assert len(pool.frames) == 63
    np.testing.assert_array_equal(array[11], frames[33:39])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.lists(st.integers(0, 2), min_size=3, max_size=3))))
def test_any_order_of_writes_reads_back_and_holds_no_other_frames(writes: list[tuple[int, int, list[int]]]) -> None:
    pool = ObservationPool((3, 32, 32), np.uint8)
    arrays = [ObservationArray(pool, (5,)), ObservationArray(pool, (5,))]
    expected: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    for row, which, values in writes:
        observation = np.repeat(np.array(values, np.uint8), 1024).reshape(3, 32, 32)
        arrays[which][row] = expected[which, row] = observation
    for (which, row), observation in expected.items():
        np.testing.assert_array_equal(arrays[which][row], observation)
    pool.clear()
    held, references = pool.frames.held()
    ids = np.concatenate([array.ids.ravel() for array in arrays])
    np.testing.assert_array_equal(np.bincount(ids[ids != EMPTY], minlength=8)[held], references)
    assert pool.frames.check_valid() == (True, "valid")
    for array in arrays:
        array.clear()
    assert len(pool.frames) == 0


def test_what_is_given_may_change_afterwards() -> None:
    array = ObservationArray(ObservationPool((40,), np.uint8), (3,))
    observation = np.zeros(40, np.uint8)
    array[0] = observation
    observation += 1
    array[1] = observation
    array[0][:] = 9
    assert array[:2, ...].max(1).tolist() == [0, 1]


def test_real_numbers_without_order_are_kept_too() -> None:
    array = ObservationArray(ObservationPool((2,), np.float32), (3,))
    for row in range(3):
        array[row] = np.array([np.nan, -0.0], np.float32)
    assert np.isnan(array[:, :][:, 0]).all()
    assert (array[:][:, 1] == 0).all()


def test_one_observation_can_be_made_equal_to_another() -> None:
    pool = ObservationPool((40,), np.uint8)
    array = ObservationArray(pool, (3, 1))
    for row in range(3):
        array[row] = np.full((1, 40), row, np.uint8)
    array.copy((0, 0), (2, 0))
    pool.clear()
    assert array[:, 0].max(1).tolist() == [0, 1, 0]
    assert len(pool.frames) == 2


def test_wrong_use_gets_a_sentence() -> None:
    array = ObservationArray(ObservationPool((4, 40, 40), np.uint8), (3, 2))
    with pytest.raises(UsageError, match="never written"):
        _ = array[0]
    with pytest.raises(UsageError, match=r"observations of shape \(2, 4, 40, 41\): the buffer was made for"):
        array[0] = np.zeros((2, 4, 40, 41), np.uint8)
    with pytest.raises(UsageError, match=r"observations of \(3, 4, 40, 40\): a row holds"):
        array[0] = np.zeros((3, 4, 40, 40), np.uint8)
    with pytest.raises(UsageError, match="observations of float64: the buffer was made for uint8"):
        array[0] = np.zeros((2, 4, 40, 40))
    array[0] = np.zeros((2, 4, 40, 40), np.uint8)
    with pytest.raises(IndexError, match="take an observation first"):
        _ = array[0, 0, 1]


def test_saved_frames_and_rows_are_restored() -> None:
    pool = ObservationPool((4, 40, 40), np.uint8)
    array = ObservationArray(pool, (60,))
    for row, observation in enumerate(stacks(50, (4, 40, 40))):
        array[row] = observation
    pool.clear()
    ids, frames = pool.held()
    content = np.concatenate([*frames.parts])
    assert content.shape == frames.shape
    places = np.where(array.ids == EMPTY, EMPTY, np.searchsorted(ids, array.ids)).astype(np.int32)
    other_pool = ObservationPool((4, 40, 40), np.uint8, compression="zlib")
    other = ObservationArray(other_pool, (60,))
    other_pool.restore(content, [(other, places)])
    np.testing.assert_array_equal(other[:50], array[:50])
    assert len(other_pool.frames) == len(pool.frames)
    assert other_pool.frames.check_valid() == (True, "valid")
    lies: list[tuple[Any, str]] = [
        (places + 100, "not there"),
        (places[:9], "rows are"),
        (places.astype(np.int64), "rows are"),
    ]
    for wrong, message in lies:
        with pytest.raises(ValueError, match=message):
            pool.restore(content, [(array, wrong)])
    with pytest.raises(ValueError, match="frames are"):
        pool.restore(content[:, 1:], [(array, places)])
