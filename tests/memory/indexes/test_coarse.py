"""The index of shrunk pictures: what is joined, what is not, and what every index promises."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, CoarseIndex, ExactIndex, TransitionKey
from comper.memory.indexes.coarse import GREYS

Picture = NDArray[np.uint8]


def store_of(*pictures: Picture) -> FrameStore:
    store = FrameStore(pictures[0].shape)
    for picture in pictures:
        store.intern(picture)
    return store


def state(*frames: int, a: int = 0, r: float = 0.0) -> TransitionKey:
    return TransitionKey(frames, a, r, ())


def picture(*, at: tuple[int, int]) -> Picture:
    pixels = np.zeros((6, 6), np.uint8)
    pixels[at] = 255
    return pixels


def test_a_thing_that_moves_within_a_cell_is_the_same_and_in_the_next_cell_another() -> None:
    store = store_of(picture(at=(0, 0)), picture(at=(1, 1)), picture(at=(2, 1)), picture(at=(1, 2)))
    index = CoarseIndex(store, cells=3)
    index.update_index(5, state(0))
    assert [index.get_index(state(i)) for i in range(4)] == [5, 5, NO_MATCH, NO_MATCH]


def test_greys_are_means_in_equal_steps() -> None:
    flat = [np.full((4, 4), value, np.uint8) for value in (0, 15, 16, 255)]
    flat.append(np.where(np.arange(16).reshape(4, 4) % 2, 30, 0).astype(np.uint8))  # 15 on average
    index = CoarseIndex(store_of(*flat), cells=1)
    index.update_index(1, state(0))
    index.update_index(2, state(2))
    assert [index.get_index(state(i)) for i in range(5)] == [1, 1, 2, NO_MATCH, 1]
    assert 256 % GREYS == 0


def test_cells_may_differ_in_size_and_colours_are_kept_apart() -> None:
    first = np.zeros((5, 7, 3), np.uint8)
    others = [first.copy() for _ in range(2)]
    others[0][4, 6, 0] = others[1][4, 6, 1] = 255
    index = CoarseIndex(store_of(first, *others), cells=2)
    index.update_index(1, state(1))
    assert [index.get_index(state(i)) for i in range(3)] == [NO_MATCH, 1, NO_MATCH]


def test_rows_and_columns_of_cells_are_those_of_the_picture() -> None:
    pictures = np.zeros((3, 5, 7), np.uint8)
    pictures[0, 2, 2] = pictures[1, 4, 0] = pictures[2, 1, 2] = 255  # rows begin at 0 and 2, columns at 0 and 3
    index = CoarseIndex(store_of(*pictures), cells=2)
    index.update_index(1, state(0))
    assert [index.get_index(state(i)) for i in range(3)] == [1, 1, NO_MATCH]


def test_actions_rewards_and_the_order_of_frames_count() -> None:
    store = store_of(picture(at=(0, 0)), picture(at=(5, 5)), picture(at=(1, 1)))
    index = CoarseIndex(store, cells=3)
    index.update_index(1, state(0, 1, a=2, r=1.0))
    assert index.get_index(state(2, 1, a=2, r=1.0)) == 1
    for other in (state(1, 0, a=2, r=1.0), state(0, 1, a=1, r=1.0), state(0, 1, a=2), TransitionKey((0,), 2, 1.0, (2,))):
        assert index.get_index(other) == NO_MATCH
    index.update_index(3, TransitionKey((0,), 0, 0.0, (1,)))
    assert index.get_index(TransitionKey((2,), 0, 0.0, (1,))) == 3
    assert index.get_index(TransitionKey((0,), 0, 0.0, (2,))) == NO_MATCH


def test_as_many_cells_as_pixels_are_nearly_equal_pixels() -> None:
    rng = np.random.default_rng(0)
    store = store_of(*(rng.choice([0, 100, 200], (4, 4)).astype(np.uint8) for _ in range(40)))
    coarse, exact = CoarseIndex(store, cells=4), ExactIndex(store)
    for number in range(0, 40, 2):
        coarse.update_index(number, state(number))
        exact.update_index(number, state(number))
    assert [coarse.get_index(state(i)) for i in range(40)] == [exact.get_index(state(i)) for i in range(40)]


def test_what_is_forgotten_or_replaced_is_not_found_and_what_is_saved_is() -> None:
    store = store_of(picture(at=(0, 0)), picture(at=(5, 5)), picture(at=(1, 1)))
    index = CoarseIndex(store, cells=3)
    index.update_index(1, state(0))
    index.update_index(2, state(2))  # the same cells: the older answers
    assert index.get_index(state(0)) == 1
    copy = CoarseIndex(store, cells=3)
    copy.load_state_dict(index.state_dict())
    assert [copy.get_index(state(i)) for i in range(3)] == [1, NO_MATCH, 1]
    index.forget(1)
    assert index.get_index(state(0)) == 2
    index.update_index(2, state(1))
    assert [index.get_index(state(i)) for i in range(3)] == [NO_MATCH, 2, NO_MATCH]
    assert index.check_valid() == (True, "valid")
    with pytest.raises(KeyError, match="set 1 is not in the index"):
        index.forget(1)


def test_what_is_no_picture_or_has_fewer_pixels_is_refused() -> None:
    square = FrameStore((4, 4))
    for store, cells in ((FrameStore((4,)), 2), (FrameStore((4, 4), np.float32), 2), (square, 5), (square, 0)):
        with pytest.raises(ValueError, match="cannot be shrunk"):
            CoarseIndex(store, cells)
