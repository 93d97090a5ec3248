"""Similarity indexes against brute force, at the threshold, in ties, and in their degenerate cases."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, ExactIndex, FaissIndex, L2Index, SimilarityIndex, TransitionKey, make_index
from tests.memory.indexes.brute_force import BruteForceIndex, key, random_keys, store_of

pytest.importorskip("faiss").omp_set_num_threads(1)  # on a busy machine its threads wait for each other for long

MAKERS: dict[str, Callable[[FrameStore, float], SimilarityIndex]] = {
    "l2": L2Index,
    "faiss": FaissIndex,
}


# What all kinds have in common.


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_an_empty_index_knows_nothing(kind: str) -> None:
    index = make_index(kind, store_of(0), 0.0)
    assert index.get_index(key(0)) == NO_MATCH
    assert len(index) == 0
    assert index.check_valid() == (True, "valid")
    assert index.nbytes >= 0


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_threshold_zero_means_equal_pixels_action_and_reward(kind: str) -> None:
    index = make_index(kind, store_of(0, 1, 2), 0.0)
    index.update_index(7, key(1, 3, 1.0, 2))
    assert index.get_index(key(1, 3, 1.0, 2)) == 7
    for other in (key(2, 3, 1.0, 2), key(1, 4, 1.0, 2), key(1, 3, 0.5, 2), key(1, 3, 1.0, 1), key(2, 3, 1.0, 1)):
        assert index.get_index(other) == NO_MATCH
    assert index.nbytes > 0


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_the_oldest_of_equal_representatives_answers_and_the_next_when_it_is_forgotten(kind: str) -> None:
    index = make_index(kind, store_of(0, 1), 0.0)
    for set_id in (5, 3, 9):
        index.update_index(set_id, key(1))
    answers = []
    for set_id in (3, 5, 9):
        answers.append(index.get_index(key(1)))
        index.forget(set_id)
    assert answers == [3, 5, 9]
    assert index.get_index(key(1)) == NO_MATCH
    assert index.check_valid() == (True, "valid")


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_an_update_replaces_the_representative_of_its_set(kind: str) -> None:
    index = make_index(kind, store_of(0, 1, 2), 0.0)
    index.update_index(4, key(1))
    index.update_index(4, key(2))
    assert index.get_index(key(1)) == NO_MATCH
    assert index.get_index(key(2)) == 4
    assert len(index) == 1


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_an_index_keeps_the_frames_of_its_representatives(kind: str) -> None:
    store = store_of(0, 1, 2)
    index = make_index(kind, store, 0.0)
    index.update_index(0, key(1))
    store.release([0, 1, 2])
    assert len(store) == 2
    index.update_index(0, key(1))
    assert store.references(1) == 1
    index.forget(0)
    assert len(store) == 0


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_forgetting_an_unknown_set_is_an_error(kind: str) -> None:
    with pytest.raises(KeyError, match="set 3 is not in the index"):
        make_index(kind, store_of(0), 0.0).forget(3)


def test_an_index_that_finds_nothing_keeps_no_frames_and_is_read_back() -> None:
    store = store_of(0, 1)
    index, other = (make_index("none", store, 0.0) for _ in range(2))
    for set_id in (0, 1, 2):
        index.update_index(set_id, key(1))
        assert index.get_index(key(1)) == NO_MATCH
    index.forget(0)
    assert (len(index), index.nbytes, store.references(1)) == (2, 0, 1)
    other.load_state_dict(index.state_dict())
    other.forget(1)
    assert len(other) == 1
    for unknown in (1, 5):
        with pytest.raises(KeyError, match=f"set {unknown} is not in the index"):
            other.forget(unknown)
    assert other.check_valid() == (True, "valid")


def test_wrong_settings_are_errors() -> None:
    with pytest.raises(ValueError, match=r"threshold = 0\.5: must be 0 with kind = 'none'"):
        make_index("none", store_of(0), 0.5)
    with pytest.raises(ValueError, match=r"threshold = 0\.5: must be 0 with kind = 'exact'"):
        make_index("exact", store_of(0), 0.5)
    with pytest.raises(ValueError, match="kind = 'hnsw'"):
        make_index("hnsw", store_of(0), 0.5)
    for maker in MAKERS.values():
        for threshold in (-1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="threshold = "):
                maker(store_of(0), threshold)


def test_the_memory_room_imports_neither_torch_nor_faiss() -> None:
    program = "import sys, comper.memory.indexes; print({'torch', 'faiss', 'scipy', 'cv2'} & set(sys.modules))"
    env = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True).stdout == "set()\n"


# The threshold.


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("threshold", "step", "is_match"),
    # Distance step/255. A squared distance against a root would let 102/255 = 0.4 (0.16 squared) into 0.2.
    [(0.2, 50, True), (0.2, 52, False), (0.2, 102, False), (0.4, 101, True), (0.4, 103, False)],
)
def test_the_threshold_is_a_distance_not_a_squared_one(
    maker: Callable[[FrameStore, float], SimilarityIndex], threshold: float, step: int, is_match: bool
) -> None:
    index = maker(store_of(0, step), threshold)
    index.update_index(0, key(0))
    assert (index.get_index(key(1)) == 0) == is_match


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_action_and_reward_count_unscaled_and_the_threshold_is_inclusive(
    maker: Callable[[FrameStore, float], SimilarityIndex],
) -> None:
    index = maker(store_of(0), 5.0)
    index.update_index(0, key(0, 0, 0.0))
    assert index.get_index(key(0, 3, 4.0)) == 0  # √(3² + 4²) = 5
    assert index.get_index(key(0, 3, 4.0625)) == NO_MATCH


# Degenerate cases.


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_where_everything_is_similar_there_is_one_set(maker: Callable[[FrameStore, float], SimilarityIndex]) -> None:
    store = FrameStore((4,))
    index = maker(store, 100.0)
    for t, k in enumerate(random_keys(store, 200, np.random.default_rng(0), levels=256)):
        set_id = index.get_index(k)
        index.update_index(t if set_id == NO_MATCH else set_id, k)
    assert len(index) == 1


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_where_nothing_is_similar_every_transition_is_a_set(kind: str) -> None:
    store = FrameStore((8,))
    index = make_index(kind, store, 0.0)
    for t, k in enumerate(random_keys(store, 200, np.random.default_rng(0), levels=256)):
        assert index.get_index(k) == NO_MATCH
        index.update_index(t, k)
    assert len(index) == 200


def test_of_many_equally_near_sets_the_oldest_answers() -> None:
    """More than are checked at once: what is found later must not take the place of what is as near and older."""
    store = FrameStore((200,))
    changes = np.random.default_rng(0).choice(np.array([-3, 3]), (200, 200))
    around = [store.intern((100 + change).astype(np.uint8)) for change in changes]
    middle = store.intern(np.full(200, 100, np.uint8))
    for first in (0, 500):
        index = L2Index(store, 1.0)
        for i, frame in enumerate(around):
            index.update_index(abs(first - i), TransitionKey((frame,), 0, 0.0, (middle,)))
        assert index.get_index(TransitionKey((middle,), 0, 0.0, (middle,))) == min(first, abs(first - 199))


# Random histories: all indexes and brute force side by side.

SHAPE = (6,)
"""Small frames of few levels: ties and distances at the threshold come up all the time."""


class IndexMachine(RuleBasedStateMachine):
    """Distances are √n steps, and the threshold lies between two of them or is one of them.

    A step is 1 in float frames, where every index is exact and all must give the same answer. It is 51/255 in 8-bit frames,
    where faiss rounds to float32: of representatives equally near it may name another.
    """

    @initialize(
        sq_steps=st.integers(0, 40),
        is_between=st.booleans(),
        num_frames=st.sampled_from([1, 2]),
        dtype=st.sampled_from([np.uint8, np.float32]),
    )
    def start(self, sq_steps: int, is_between: bool, num_frames: int, dtype: type) -> None:
        self.step = 51 if dtype is np.uint8 else 1
        self.store = FrameStore(SHAPE, dtype, initial_capacity=1)
        # 8-bit: always between, since faiss' float32 squares of 0.2 fall on either side. Zero is zero everywhere.
        is_between &= sq_steps > 0
        between = 0.5 if is_between or (sq_steps and dtype is np.uint8) else 0.0
        self.threshold = math.sqrt(sq_steps + between) * (0.2 if dtype is np.uint8 else 1.0)
        self.num_frames = num_frames
        self.next_set_id = 0
        self.brute = BruteForceIndex(self.store, self.threshold)
        self.make()

    def make(self) -> None:
        self.indexes: dict[str, Any] = {kind: make(self.store, self.threshold) for kind, make in MAKERS.items()}
        if self.threshold == 0:
            self.indexes["exact"] = ExactIndex(self.store)

    def draw_key(self, data: st.DataObject) -> TransitionKey:
        levels = st.lists(st.sampled_from([0, 0, 0, 0, self.step, 2 * self.step]), min_size=SHAPE[0], max_size=SHAPE[0])
        frames = st.lists(levels, min_size=self.num_frames, max_size=self.num_frames)
        s, s_next = (
            tuple(self.store.intern(np.array(frame, self.store.dtype)) for frame in data.draw(frames)) for _ in range(2)
        )
        return TransitionKey(s, data.draw(st.integers(0, 1)), float(data.draw(st.integers(0, 1))), s_next)

    def nearest(self, k: TransitionKey) -> int:
        expected = self.brute.get_index(k)
        for name, index in self.indexes.items():
            answer = index.get_index(k)
            if name == "faiss" and self.step == 51 and NO_MATCH not in (answer, expected):
                assert self.brute.sq_distance(k, answer) == self.brute.sq_distance(k, expected)
            else:
                assert answer == expected, (name, k)
        return expected

    @rule(data=st.data(), should_join=st.booleans())
    def add(self, data: st.DataObject, should_join: bool) -> None:
        k = self.draw_key(data)
        set_id = self.nearest(k)
        if set_id == NO_MATCH or not should_join:
            set_id, self.next_set_id = self.next_set_id, self.next_set_id + 1
        for index in (*self.indexes.values(), self.brute):
            index.update_index(set_id, k)
        self.store.release(k.s + k.s_next)

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        k = self.draw_key(data)
        self.nearest(k)
        self.store.release(k.s + k.s_next)

    @precondition(lambda self: self.brute._vectors)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        set_id = data.draw(st.sampled_from(sorted(self.brute._vectors)))
        for index in (*self.indexes.values(), self.brute):
            index.forget(set_id)

    @rule()
    def read_back(self) -> None:
        store, states = self.store.state_dict(), {name: index.state_dict() for name, index in self.indexes.items()}
        self.store = FrameStore(SHAPE, self.store.dtype, initial_capacity=2)
        self.store.load_state_dict(store)
        self.brute._frames = self.store
        self.make()
        for name, state in states.items():
            self.indexes[name].load_state_dict(state)

    @invariant()
    def all_are_valid(self) -> None:
        assert self.store.check_valid() == (True, "valid")
        for index in self.indexes.values():
            assert index.check_valid() == (True, "valid")
            assert len(index) == len(self.brute._vectors)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("kind", ["exact", "l2", "faiss"])
def test_an_index_read_back_goes_on_as_the_one_that_was_written(kind: str) -> None:
    threshold = 0.0 if kind == "exact" else 0.3
    rng = np.random.default_rng(5)
    store = FrameStore((20,))
    index = make_index(kind, store, threshold)
    keys = random_keys(store, 300, rng, levels=20)
    for t, k in enumerate(keys[:150]):
        index.update_index(t, k)
    copy_store = FrameStore((20,))
    copy_store.load_state_dict(store.state_dict())
    copy = make_index(kind, copy_store, threshold)
    copy.load_state_dict(index.state_dict())
    for t, k in enumerate(keys, start=150):
        assert copy.get_index(k) == index.get_index(k)
        index.update_index(t, k)
        copy.update_index(t, k)
    for name, array in index.state_dict().items():
        np.testing.assert_array_equal(copy.state_dict()[name], array)
    assert copy.check_valid() == (True, "valid")


def test_an_empty_index_reads_back_empty() -> None:
    for kind in ("exact", "l2", "faiss"):
        store = store_of(0, 1)
        index = make_index(kind, store, 0.0)
        index.load_state_dict(make_index(kind, store, 0.0).state_dict())
        assert index.get_index(key(1)) == NO_MATCH
        index.update_index(0, key(1))
        assert index.get_index(key(1)) == 0
