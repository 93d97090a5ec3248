"""RTM: one transition a set, drawn uniformly."""

from __future__ import annotations

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.indexes import make_index
from comper.memory.reduced import ReducedTransitionMemory
from comper.memory.transition_memory import TransitionMemory


def empty_rtm(capacity: int = 50) -> ReducedTransitionMemory:
    frames = FrameStore((1,))
    return ReducedTransitionMemory(TransitionMemory(frames, make_index("exact", frames, 0.0), capacity=capacity))


def test_a_set_is_absorbed_once() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.array([4, 7, 4]))
    rtm.absorb(np.array([7, 1]))
    assert len(rtm) == 3
    assert sorted(rtm.state_dict()["members"].tolist()) == [1, 4, 7]


def test_empty_rtm_refuses_to_sample() -> None:
    with pytest.raises(ValueError, match="RTM is empty"):
        empty_rtm().sample(4, np.random.default_rng(0))


def test_sampling_is_uniform() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.arange(10))
    counts = np.bincount(rtm.sample(100_000, np.random.default_rng(0)), minlength=10)
    # 10,000 expected, standard deviation 95: five of them are 475.
    assert np.abs(counts - 10_000).max() < 475


def test_discard_keeps_every_other_member() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.arange(6))
    for set_id in (5, 0, 3, 3):
        rtm.discard(set_id)
        is_valid, message = rtm.check_valid()
        assert is_valid, message
    assert sorted(rtm.state_dict()["members"].tolist()) == [1, 2, 4]
