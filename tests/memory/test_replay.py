"""The FIFO replay memory of DQN."""

from __future__ import annotations

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.replay import ReplayMemory
from comper.memory.transitions import Transition


def filled(capacity: int, count: int) -> ReplayMemory:
    frames = FrameStore((3,))
    replay = ReplayMemory(frames, capacity=capacity, history_length=2)
    for i in range(count):
        ids = [frames.intern(np.full(3, value, np.uint8)) for value in (i, i + 1, i + 2)]
        replay.add(Transition((ids[0], ids[1]), i, float(i), (ids[1], ids[2]), i % 4 == 3))
        frames.release(ids)
        is_valid, message = replay.check_valid()
        assert is_valid, message
    return replay


def test_the_oldest_transition_goes_first() -> None:
    replay = filled(capacity=5, count=12)
    assert len(replay) == 5
    drawn = replay.sample(500, np.random.default_rng(0))
    assert set(drawn.a.tolist()) == {7, 8, 9, 10, 11}
    assert len(replay.frames) == 7  # frames 7 to 13: those of forgotten transitions are gone


def test_a_batch_holds_the_frames_that_were_seen() -> None:
    replay = filled(capacity=50, count=20)
    batch = replay.sample(100, np.random.default_rng(0))
    pixels = replay.frames.frames
    assert (pixels[batch.s][..., 0] == np.stack([batch.a, batch.a + 1], -1)).all()
    assert (pixels[batch.s_next][..., 0] == np.stack([batch.a + 1, batch.a + 2], -1)).all()
    assert (batch.continues == (batch.a % 4 != 3)).all()


def test_empty_replay_refuses_to_sample() -> None:
    with pytest.raises(ValueError, match="empty"):
        filled(capacity=5, count=0).sample(1, np.random.default_rng(0))


def test_a_replay_memory_read_back_samples_the_same() -> None:
    original, copy = filled(capacity=8, count=21), filled(capacity=8, count=3)
    copy.frames.load_state_dict(original.frames.state_dict())
    copy.load_state_dict(original.state_dict())
    drawn = [replay.sample(64, np.random.default_rng(3)) for replay in (original, copy)]
    for column in ("s", "a", "r", "s_next", "continues"):
        assert (getattr(drawn[0], column) == getattr(drawn[1], column)).all()
