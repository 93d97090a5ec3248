"""TM and TMI: Algorithm 1 by hand, eviction, links, invariants."""

from __future__ import annotations

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.indexes import make_index
from comper.memory.reduced import ReducedTransitionMemory
from comper.memory.transition_memory import TransitionMemory
from comper.memory.transitions import Transition


def frame(value: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.full((2, 2), value, np.uint8)


class Memory:
    """TM over 2x2 frames, with transitions named by the grey levels of their states."""

    def __init__(self, capacity: int = 100, sequence_length: int = 1):
        self.frames = FrameStore((2, 2))
        index = make_index("exact", self.frames, 0.0)
        self.tm = TransitionMemory(self.frames, index, capacity=capacity, sequence_length=sequence_length)
        self.rtm = ReducedTransitionMemory(self.tm)

    def store(self, s: int, a: int, r: float, s_next: int, q: float, *, terminal: bool = False) -> int:
        ids = [self.frames.intern(frame(value)) for value in (s, s_next)]
        set_id = self.tm.store_transition(Transition((ids[0],), a, r, (ids[1],), terminal), q)
        self.frames.release(ids)
        self.check()
        return set_id

    def check(self) -> None:
        for memory in (self.tm, self.rtm):
            is_valid, message = memory.check_valid()
            assert is_valid, message


def test_algorithm_1_by_hand() -> None:
    memory = Memory()
    tm = memory.tm
    # T^i == 0 (nothing similar): UpdateIndex, Insert.
    assert memory.store(10, 3, 1.0, 20, q=0.5) == 0
    # Another action, another reward, another state: each a set of its own.
    assert memory.store(10, 4, 1.0, 20, q=0.6) == 1
    assert memory.store(10, 3, 0.0, 20, q=0.7) == 2
    assert memory.store(10, 3, 1.0, 30, q=0.8) == 3
    assert (len(tm), tm.num_sets, tm.similar_hits) == (4, 4, 0)
    # T^i found: Update, no new row, the latest Q-value counts.
    assert memory.store(10, 3, 1.0, 20, q=-1.0) == 0
    assert (len(tm), tm.num_sets, tm.similar_hits) == (4, 4, 1)
    assert tm.set_sizes.tolist() == [2, 1, 1, 1]
    assert tm.q_history(np.arange(4)).ravel() == pytest.approx([-1.0, 0.6, 0.7, 0.8])


def test_sets_are_taken_oldest_first_and_leave_tm_but_keep_their_number() -> None:
    memory = Memory()
    for s in range(5):
        memory.store(s, 0, 0.0, s + 1, q=float(s))
    assert memory.tm.take(3).tolist() == [0, 1, 2]
    assert len(memory.tm) == 2
    assert [memory.tm.read_peak(), memory.tm.read_peak()] == [5, 2]
    assert memory.store(1, 0, 0.0, 2, q=9.0) == 1  # known, though no longer in TM: it re-enters, behind the others
    assert memory.tm.take(10).tolist() == [3, 4, 1]
    assert memory.tm.take(10).tolist() == []


def test_replayed_transitions_return_to_tm_with_their_new_q_value() -> None:
    memory = Memory()
    for s in range(3):
        memory.store(s, 0, 0.0, s + 1, q=0.0)
    memory.tm.take(3)
    memory.tm.refresh(np.array([2, 0, 2]), np.array([5.0, 7.0, 6.0], np.float32))
    assert memory.tm.q_history(np.array([0, 1, 2])).ravel().tolist() == [7.0, 0.0, 6.0]
    assert memory.tm.take(3).tolist() == [0, 2]
    assert memory.tm.set_sizes.tolist() == [1, 1, 1]  # a replay is no new occurrence
    memory.check()


def test_successor_is_the_transition_that_really_followed() -> None:
    memory = Memory()
    first, second, third = (memory.store(s, 0, 0.0, s + 1, q=10.0 * s) for s in (1, 2, 3))
    memory.tm.link(first, second)
    q, is_known = memory.tm.successor_q(np.array([first, second, third]))
    assert is_known.tolist() == [True, False, False]
    assert q[0] == 20.0
    memory.tm.link(first, third)  # met again, something else followed: the latest counts
    assert memory.tm.successor_q(np.array([first]))[0][0] == 30.0
    memory.tm.refresh(np.array([third]), np.array([-1.0], np.float32))
    assert memory.tm.successor_q(np.array([first]))[0][0] == -1.0  # and so does its latest Q-value


def test_equation_5_pairs_a_set_with_its_own_next_q_value() -> None:
    memory = Memory(sequence_length=2)
    once = memory.store(1, 0, 0.0, 2, q=1.0)
    thrice = [memory.store(3, 0, 0.0, 4, q=q) for q in (1.0, 2.0, 3.0)][-1]
    q, is_known = memory.tm.next_q_in_set(np.array([once, thrice]))
    assert is_known.tolist() == [False, True]
    assert q[1] == 3.0
    assert memory.tm.q_history(np.array([thrice])).tolist() == [[2.0, 3.0]]
    assert memory.tm.q_history(np.array([thrice]), skip_newest=True).tolist() == [[1.0, 2.0]]


def test_latest_occurrence_decides_whether_a_set_is_terminal() -> None:
    memory = Memory()
    set_id = memory.store(1, 0, 0.0, 2, q=0.0)
    assert memory.tm.gather(np.array([set_id])).continues.tolist() == [1.0]
    memory.store(1, 0, 0.0, 2, q=0.0, terminal=True)
    assert memory.tm.gather(np.array([set_id])).continues.tolist() == [0.0]


def test_oldest_set_is_forgotten_everywhere_when_the_memory_is_full() -> None:
    memory = Memory(capacity=3)
    for s in range(3):
        memory.store(s, 0, 0.0, s, q=0.0)
    memory.rtm.absorb(memory.tm.take(2))
    memory.tm.link(2, 0)
    assert memory.store(7, 0, 0.0, 7, q=0.0) == 3
    assert memory.tm.num_sets == 3
    assert len(memory.rtm) == 1  # set 0 left RTM as well
    assert not memory.tm.successor_q(np.array([2]))[1][0]  # and nobody's successor any more
    assert len(memory.frames) == 3  # its frame is gone
    assert memory.store(0, 0, 0.0, 0, q=0.0) == 4  # met again, it is new
    assert len(memory.rtm) == 0


def test_nothing_similar_gives_one_set_a_transition_and_everything_similar_gives_one_set() -> None:
    memory = Memory()
    for s in range(20):
        memory.store(s, 0, 0.0, s, q=0.0)
    assert memory.tm.num_sets == 20
    memory = Memory()
    for _ in range(20):
        memory.store(1, 0, 0.0, 1, q=0.0)
    assert (memory.tm.num_sets, memory.tm.similar_hits) == (1, 19)


def test_invariants_hold_and_capacity_is_kept_under_many_random_operations() -> None:
    rng = np.random.default_rng(5)
    memory = Memory(capacity=17)
    previous = 0
    for _ in range(2000):
        s, a, s_next = rng.integers(6, size=3).tolist()
        set_id = memory.store(s, a, float(rng.integers(2)), s_next, q=float(rng.normal()))
        memory.tm.link(previous, set_id)
        previous = set_id
        if rng.random() < 0.1:
            memory.rtm.absorb(memory.tm.take(int(rng.integers(1, 8))))
        if not memory.rtm.is_empty and rng.random() < 0.2:
            drawn = memory.rtm.sample(4, rng)
            memory.tm.refresh(drawn, rng.normal(size=4).astype(np.float32))
        assert len(memory.tm) <= memory.tm.num_sets <= 17
        assert len(memory.rtm) <= memory.tm.num_sets
        memory.check()


def test_a_memory_read_back_continues_as_if_it_had_never_stopped() -> None:
    def play(memory: Memory, rng: np.random.Generator) -> list[object]:
        seen: list[object] = []
        for _ in range(200):
            s, a, s_next = rng.integers(5, size=3).tolist()
            seen.append(memory.store(s, a, 0.0, s_next, q=float(rng.normal())))
            if rng.random() < 0.1:
                taken = memory.tm.take(5)
                memory.rtm.absorb(taken)
                seen += taken.tolist()
            if not memory.rtm.is_empty:
                drawn = memory.rtm.sample(3, rng)
                memory.tm.refresh(drawn, rng.normal(size=3).astype(np.float32))
                seen += [drawn.tolist(), memory.tm.successor_q(drawn)[0].tolist(), memory.tm.gather(drawn).s.tolist()]
        return [*seen, len(memory.tm), memory.tm.similar_hits, memory.tm.nbytes]

    original, copy = Memory(capacity=19, sequence_length=3), Memory(capacity=19, sequence_length=3)
    play(original, np.random.default_rng(1))
    copy.frames.load_state_dict(original.frames.state_dict())
    copy.tm.load_state_dict(original.tm.state_dict())
    copy.rtm.load_state_dict(original.rtm.state_dict())
    copy.check()
    assert play(original, np.random.default_rng(2)) == play(copy, np.random.default_rng(2))


def test_a_memory_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one transition"):
        Memory(capacity=0)
