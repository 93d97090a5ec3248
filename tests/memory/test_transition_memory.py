"""TM, TMI and RTM: Algorithm 1 by hand, eviction, links, sampling, invariants; and those of several trials as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.indexes import make_index
from comper.memory.transition_memory import (
    ReducedTransitionMemories,
    ReducedTransitionMemory,
    TransitionMemories,
    TransitionMemory,
)
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

    def store(
        self, s: int, a: int, r: float, s_next: int, q: float, *, terminal: bool = False, is_last: bool | None = None
    ) -> int:
        """Store a transition; with `is_last` as part of an episode, otherwise by itself."""
        ids = [self.frames.intern(frame(value)) for value in (s, s_next)]
        transition = Transition((ids[0],), a, r, (ids[1],), terminal)
        tm = self.tm
        set_id = tm.store_transition(transition, q) if is_last is None else tm.store(transition, q, is_last=is_last)
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


def test_replayed_sets_return_in_the_order_of_their_last_draws_behind_those_in_tm() -> None:
    memory = Memory()
    for s in range(5):
        memory.store(s, 0, 0.0, s + 1, q=0.0)
    memory.tm.take(4)
    memory.tm.read_peak()
    memory.tm.refresh(np.array([3, 1, 4, 0, 1]), np.zeros(5, np.float32))
    assert (len(memory.tm), memory.tm.read_peak()) == (4, 4)
    assert memory.tm.take(9).tolist() == [4, 3, 0, 1]


def test_a_replayed_q_value_is_the_next_of_its_set() -> None:
    memory = Memory(sequence_length=2)
    replayed, other = (memory.store(s, 0, 0.0, s, q=1.0) for s in (0, 1))
    memory.tm.refresh(np.array([replayed]), np.array([5.0], np.float32))
    q, is_known = memory.tm.next_q_in_set(np.array([replayed, other]))
    assert (q[0], is_known.tolist()) == (5.0, [True, False])
    assert memory.tm.q_history(np.array([replayed])).tolist() == [[1.0, 5.0]]
    memory.tm.refresh(np.array([replayed]), np.array([6.0], np.float32))
    assert memory.tm.q_history(np.array([replayed])).tolist() == [[5.0, 6.0]]


def test_successor_is_the_transition_that_really_followed() -> None:
    memory = Memory()
    first, second, third = (memory.store(s, 10 * s, 0.0, s + 1, q=10.0 * s) for s in (1, 2, 3))
    memory.tm.link(first, second)
    q, is_known = memory.tm.successor_q(np.array([first, second, third]))
    assert is_known.tolist() == [True, False, False]
    assert q[0] == 20.0
    assert memory.tm.successor_action(np.array([second, third]))[0].tolist() == [0, 0]  # none followed yet
    memory.tm.link(first, third)  # met again, something else followed: the latest counts
    a, is_known = memory.tm.successor_action(np.array([first, second]))
    assert (a.tolist(), is_known.tolist()) == ([30, 0], [True, False])
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


def test_a_reused_row_has_no_successor_although_the_forgotten_set_had_one() -> None:
    memory = Memory(capacity=2)
    first, second = (memory.store(s, 0, 0.0, s, q=1.0) for s in (0, 1))
    memory.tm.link(first, second)
    memory.tm.link(second, second)
    reusing = memory.store(2, 0, 0.0, 2, q=1.0)  # takes the row of the first, whose successor is still remembered
    assert reusing % 2 == first % 2
    assert memory.tm.successor_q(np.array([reusing, second]))[1].tolist() == [False, True]


def test_a_reused_row_has_only_its_own_q_values_and_occurrences() -> None:
    memory = Memory(capacity=1, sequence_length=2)
    for q in (1.0, 2.0, 3.0):
        memory.store(0, 0, 0.0, 0, q=q, terminal=True)
    reusing = np.array([memory.store(1, 0, 0.0, 1, q=9.0)])
    assert memory.tm.q_history(reusing).tolist() == [[9.0, 9.0]]
    assert not memory.tm.next_q_in_set(reusing)[1][0]
    assert memory.tm.set_sizes.tolist() == [1]
    assert memory.tm.gather(reusing).continues.tolist() == [1.0]


@pytest.mark.parametrize("terminal", [True, False])
def test_sets_follow_each_other_within_an_episode_and_not_beyond_its_end(terminal: bool) -> None:
    memory = Memory()
    for t, is_last in enumerate([False, False, True, False, False]):
        memory.store(t, 0, 0.0, t + 1, q=float(t), terminal=terminal and is_last, is_last=is_last)
    q, is_known = memory.tm.successor_q(np.arange(5))
    assert is_known.tolist() == [True, True, False, True, False]
    assert q[is_known].tolist() == [1.0, 2.0, 4.0]


def test_a_memory_read_back_in_the_middle_of_an_episode_links_across() -> None:
    original, copy = Memory(), Memory()
    original.store(0, 0, 0.0, 1, q=0.0, is_last=False)
    copy.frames.load_state_dict(original.frames.state_dict())
    copy.tm.load_state_dict(original.tm.state_dict())
    copy.store(1, 0, 0.0, 2, q=7.0, is_last=True)
    q, is_known = copy.tm.successor_q(np.array([0]))
    assert (q.tolist(), is_known.tolist()) == ([7.0], [True])


def test_a_memory_read_back_answers_every_question_as_before() -> None:
    original, copy = Memory(capacity=6, sequence_length=2), Memory(capacity=6, sequence_length=2)
    for t in range(9):
        original.store(t % 7, 0, 0.0, t % 7 + 1, q=float(t), terminal=t == 4, is_last=t == 4)
    original.store(6, 0, 0.0, 7, q=0.5)  # met again
    original.rtm.absorb(original.tm.take(3))
    for s in range(20, 26):  # what was there before is gone
        copy.store(s, 1, 0.0, s, q=0.0)
    copy.rtm.absorb(copy.tm.take(6))
    copy.frames.load_state_dict(original.frames.state_dict())
    copy.tm.load_state_dict(original.tm.state_dict())
    copy.rtm.load_state_dict(original.rtm.state_dict())
    copy.check()
    known = np.arange(original.tm._next_set_id - 6, original.tm._next_set_id)

    def answers(memory: Memory) -> list[Any]:
        tm, rtm = memory.tm, memory.rtm
        pairs = [*tm.successor_q(known), *tm.next_q_in_set(known)]
        columns = [*pairs, tm.q_history(known), tm.set_sizes, *vars(tm.gather(known)).values()]
        counts = [len(tm), tm.num_sets, tm.similar_hits, len(rtm), rtm.sample(8, np.random.default_rng(0)).tolist()]
        return [*(column.tolist() for column in columns), *counts, tm.read_peak(), tm.take(9).tolist()]

    expected = answers(original)
    has_successor, has_next_q, peak, taken = expected[1], expected[3], *expected[-2:]
    assert len(set(has_successor)) == len(set(has_next_q)) == 2  # some have one and some do not
    assert peak > len(taken)
    assert answers(copy) == expected


def test_a_set_that_is_forgotten_before_its_successor_comes_is_not_linked() -> None:
    memory = Memory(capacity=1)
    for t in range(4):
        set_id = memory.store(t, 0, 0.0, t + 1, q=0.0, is_last=False)
        assert not memory.tm.successor_q(np.array([set_id]))[1][0]


def test_nothing_similar_gives_one_set_per_transition_and_everything_similar_gives_one_set() -> None:
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


# RTM.


def empty_rtm(capacity: int = 50) -> ReducedTransitionMemory:
    return Memory(capacity).rtm


def test_a_set_is_absorbed_once() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.array([4, 7, 4]))
    rtm.absorb(np.array([7, 1]))
    assert len(rtm) == 3
    assert sorted(rtm.state_dict()["members"].tolist()) == [1, 4, 7]


def test_a_replaced_rtm_holds_the_given_sets_alone() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.array([4, 7, 9]))
    rtm.replace(np.array([7, 2, 7]))
    assert rtm.check_valid() == (True, "")
    assert rtm.state_dict()["members"].tolist() == [7, 2]


def test_the_rtms_of_several_trials_are_replaced_each_for_itself() -> None:
    population, rng = Population(2), np.random.default_rng(1)
    rtm = ReducedTransitionMemories(population.tm, population.rngs, discount=GAMMA, mode="replace")
    for _ in range(2):
        for trial in (0, 1):
            for _ in range(20):
                population.store(trial, rng)
    for trials in ([0, 1], [0]):
        sets = population.tm.take(3, trials)
        rtm.absorb(sets)
    assert rtm[0].state_dict()["members"].tolist() == sets.set_ids[0].tolist()
    assert rtm.size(1) == 3


def test_empty_rtm_refuses_to_sample() -> None:
    with pytest.raises(ValueError, match="RTM is empty"):
        empty_rtm().sample(4, np.random.default_rng(0))


def test_sampling_is_uniform_also_after_sets_were_discarded() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.arange(15))
    for set_id in range(5):
        rtm.discard(set_id)
    counts = np.bincount(rtm.sample(100_000, np.random.default_rng(0)), minlength=15)
    # 10,000 expected of each, standard deviation 95: five of them are 475.
    assert np.abs(counts[5:] - 10_000).max() < 475
    assert not counts[:5].any()


def test_discard_keeps_every_other_member() -> None:
    rtm = empty_rtm()
    rtm.absorb(np.arange(6))
    for set_id in (5, 0, 3, 3):
        rtm.discard(set_id)
        is_valid, message = rtm.check_valid()
        assert is_valid, message
    assert sorted(rtm.state_dict()["members"].tolist()) == [1, 2, 4]


# Several trials.

GAMMA = 0.99


class Population:
    """TMs and RTMs of several trials beside the same memories one by one."""

    def __init__(self, num_trials: int, capacity: int = 50, sequence_length: int = 2):
        self.single = [Memory(capacity, sequence_length) for _ in range(num_trials)]
        self.members = [Memory(capacity, sequence_length) for _ in range(num_trials)]
        self.tm = TransitionMemories([member.tm for member in self.members])
        self.rngs = [np.random.default_rng(100 + trial) for trial in range(num_trials)]
        self.rtm = ReducedTransitionMemories(self.tm, self.rngs, GAMMA)
        self.previous = [-1] * num_trials

    def store(self, trial: int, rng: np.random.Generator) -> None:
        s, a, s_next = rng.integers(4, size=3).tolist()
        q, is_last, terminal = float(rng.normal()), bool(rng.random() < 0.1), bool(rng.random() < 0.05)
        ids = [self.members[trial].frames.intern(frame(value)) for value in (s, s_next)]
        set_id = self.tm.store(trial, Transition((ids[0],), a, 0.5, (ids[1],), terminal), q, is_last=is_last)
        self.members[trial].frames.release(ids)
        # The same by hand: Algorithm 1, then the link from the transition before.
        assert self.single[trial].store(s, a, 0.5, s_next, q, terminal=terminal) == set_id
        if self.previous[trial] >= 0:
            self.single[trial].tm.link(self.previous[trial], set_id)
        self.previous[trial] = -1 if is_last else set_id

    def check(self) -> None:
        for trial, (single, member) in enumerate(zip(self.single, self.members, strict=True)):
            ours, expected = self.tm.state_dict(trial), single.tm.state_dict()
            assert ours.pop("previous") == self.previous[trial]
            del expected["previous"]
            np.testing.assert_equal(ours, expected)
            np.testing.assert_equal(self.rtm.state_dict(trial), single.rtm.state_dict())
            assert self.rtm[trial].check_valid()[0]
            assert member.tm.check_valid()[0]


def test_the_memories_of_several_trials_do_what_those_of_each_do() -> None:
    population = Population(3)
    rng = np.random.default_rng(0)
    by_hand = [np.random.default_rng(100 + trial) for trial in range(3)]
    for t in range(300):
        for trial in range(3):
            population.store(trial, rng)
        if t % 20 == 10:
            sets = population.tm.take(6, [2, 0])
            population.rtm.absorb(sets)
            assert sets.trials == (2, 0)
            for trial, set_ids in sets:
                single = population.single[trial]
                assert single.tm.take(6).tolist() == set_ids.tolist()
                single.rtm.absorb(set_ids)
                transitions = population.tm.gather(trial, set_ids)
                np.testing.assert_equal(vars(transitions), vars(single.tm.gather(set_ids)))
        trials = [trial for trial in (0, 2) if not population.rtm.is_empty(trial)]  # sets may have been forgotten
        if trials and t % 3 == 0:
            batch = population.rtm.sample(8, trials)
            q = rng.normal(size=(len(trials), 8)).astype(np.float32)
            for row, trial in enumerate(trials):
                single = population.single[trial]
                drawn = single.rtm.sample(8, by_hand[trial])
                expected = single.tm.gather(drawn)
                np.testing.assert_array_equal(batch.set_ids[row], drawn)
                for name in ("s", "a", "r", "s_next"):
                    np.testing.assert_array_equal(getattr(batch, name)[row], getattr(expected, name))
                assert batch.discount[row].tobytes() == (np.float32(GAMMA) * expected.continues).tobytes()
                np.testing.assert_array_equal(batch.q_history[row], single.tm.q_history(drawn))
                single.tm.refresh(drawn, q[row])
            population.tm.refresh(batch, q)
        population.check()
    assert population.rtm.is_empty(1)
    assert population.rtm.size(0) == len(population.single[0].rtm) > 0
    assert 0 < (batch.discount == 0).mean() < 1  # game overs were among them


def test_one_trial_is_read_back_alone() -> None:
    population, copy, rng = Population(2), Population(2), np.random.default_rng(1)
    for _ in range(50):
        population.store(0, rng)
    population.rtm.absorb(population.tm.take(10, [0]))
    copy.members[0].frames.load_state_dict(population.members[0].frames.state_dict())
    copy.tm.load_state_dict(0, population.tm.state_dict(0))
    copy.rtm.load_state_dict(0, population.rtm.state_dict(0))
    for ours, theirs in zip(vars(copy.rtm.sample(9, [0])).values(), vars(population.rtm.sample(9, [0])).values(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert copy.rtm.is_empty(1)
    assert copy.tm[1].num_sets == 0


def test_no_trials_take_no_sets() -> None:
    assert list(Population(1).tm.take(5, [])) == []
