"""States from frames: single, rolling and stacked, and whose frames are held."""

from __future__ import annotations

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.history import ObservationHistory


def frame(value: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((2,), value, np.uint8)


def grey(store: FrameStore, ids: tuple[int, ...]) -> list[int]:
    return [int(store.frames[i][0]) for i in ids]


def test_single_frame_states_follow_each_other() -> None:
    store = FrameStore((2,))
    history = ObservationHistory(store, 1)
    history.reset(frame(1))
    s, s_next = history.advance([frame(2)])
    assert (grey(store, s), grey(store, s_next)) == ([1], [2])
    s, s_next = history.advance([frame(3)])
    assert (grey(store, s), grey(store, s_next)) == ([2], [3])


def test_rolling_states_share_three_of_four_frames() -> None:
    store = FrameStore((2,))
    history = ObservationHistory(store, 4)
    history.reset(frame(1))
    states = [grey(store, history.state)] + [grey(store, history.advance([frame(v)])[1]) for v in (2, 3, 4, 5)]
    assert states == [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]]


def test_stacked_states_share_nothing() -> None:
    store = FrameStore((2,))
    history = ObservationHistory(store, 4)
    history.reset(frame(1))
    s, s_next = history.advance([frame(v) for v in (2, 3, 4, 5)])
    assert (grey(store, s), grey(store, s_next)) == ([1, 1, 1, 1], [2, 3, 4, 5])
    s, s_next = history.advance([frame(v) for v in (6, 6, 6, 7)])
    assert (grey(store, s), grey(store, s_next)) == ([2, 3, 4, 5], [6, 6, 6, 7])


@pytest.mark.parametrize(("length", "per_step"), [(1, 1), (4, 1), (4, 4)])
def test_only_the_two_latest_states_are_held(length: int, per_step: int) -> None:
    store = FrameStore((2,))
    history = ObservationHistory(store, length)
    rng = np.random.default_rng(0)
    for i in range(60):
        if i % 20 == 0:
            history.reset(frame(int(rng.integers(5))))
            assert len(store) == 1
        s, s_next = history.advance([frame(int(rng.integers(5))) for _ in range(per_step)])
        assert len(store) == len({*s, *s_next})
        counts = np.bincount([*s, *s_next], minlength=8)
        assert [store.references(i) for i in range(8)] == counts[:8].tolist()
