"""Similarity indexes against brute force, at the threshold, in ties, and in their degenerate cases."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from comper.errors import UsageError
from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, ExactIndex, FaissIndex, L2Index, SimilarityIndex, TransitionKey, make_index
from comper.memory.indexes.exact import packed
from comper.memory.indexes.postings import MAX_PIXELS, Postings

pytest.importorskip("faiss").omp_set_num_threads(1)  # on a busy machine its threads wait for each other for long

MAKERS: dict[str, Callable[[FrameStore, float], SimilarityIndex]] = {
    "l2": L2Index,
    "faiss": FaissIndex,
}


class BruteForceIndex:
    """The definition, literally: every pixel of every representative, in Python's integers."""

    def __init__(self, frames: FrameStore, threshold: float) -> None:
        self._frames, self._threshold = frames, threshold
        self._scale = 255 if frames.dtype == np.uint8 else 1
        self._vectors: dict[int, tuple[list[Any], int, float]] = {}

    def _vector(self, key: TransitionKey) -> tuple[list[Any], int, float]:
        return [x for i in key.s + key.s_next for x in self._frames.gather([i]).ravel().tolist()], key.a, key.r

    def sq_distance(self, key: TransitionKey, set_id: int) -> float:
        """D², times 255² for 8-bit frames."""
        (p, a, r), (q, b, s) = self._vector(key), self._vectors[set_id]
        pixels = sum((x - y) ** 2 for x, y in zip(p, q, strict=True))
        return float(pixels + ((a - b) ** 2 + (r - s) ** 2) * self._scale**2)

    def get_index(self, key: TransitionKey) -> int:
        found = sorted((self.sq_distance(key, set_id), set_id) for set_id in self._vectors)
        return found[0][1] if found and math.sqrt(found[0][0]) / self._scale <= self._threshold else NO_MATCH

    def update_index(self, set_id: int, key: TransitionKey) -> None:
        self._vectors[set_id] = self._vector(key)

    def forget(self, set_id: int) -> None:
        del self._vectors[set_id]


def store_of(*values: int, size: int = 4) -> FrameStore:
    """A store whose frame i is all zero but for its first pixel, values[i]."""
    store = FrameStore((size,))
    for value in values:
        pixels = np.zeros(size, np.uint8)
        pixels[0] = value
        store.intern(pixels)
    return store


def key(s: int, a: int = 0, r: float = 0.0, s_next: int = 0) -> TransitionKey:
    return TransitionKey((s,), a, r, (s_next,))


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


def test_wrong_settings_are_errors() -> None:
    with pytest.raises(ValueError, match=r"threshold = 0\.5: must be 0 with kind = 'exact'"):
        make_index("exact", store_of(0), 0.5)
    with pytest.raises(ValueError, match="kind = 'hnsw'"):
        make_index("hnsw", store_of(0), 0.5)
    for maker in MAKERS.values():
        for threshold in (-1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="threshold = "):
                maker(store_of(0), threshold)


def test_a_transition_with_another_number_of_frames_is_an_error() -> None:
    index = L2Index(store_of(0, 1), 0.5)
    index.update_index(0, key(1))
    with pytest.raises(ValueError, match="transition of 4 frames"):
        index.get_index(TransitionKey((0, 0), 0, 0.0, (1, 1)))


def test_without_faiss_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match=r"pip install \"comper\[faiss\]\""):
        FaissIndex(store_of(0), 0.5)


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


@given(st.integers(0, 255))
def test_every_whole_number_of_255ths_is_within_its_own_threshold(step: int) -> None:
    store = store_of(0, step)
    index = L2Index(store, step / 255)
    index.update_index(0, key(0))
    assert index.get_index(key(len(store) - 1)) == 0


# Degenerate cases.


def random_keys(
    store: FrameStore, n: int, rng: np.random.Generator, *, levels: int, num_frames: int = 1
) -> list[TransitionKey]:
    frames = [store.intern(rng.integers(0, levels, store.shape).astype(store.dtype)) for _ in range(n)]

    def state() -> tuple[int, ...]:
        return tuple(frames[i] for i in rng.integers(0, n, num_frames))

    return [TransitionKey(state(), int(rng.integers(3)), float(rng.integers(2)), state()) for _ in range(n)]


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


# Oracles.


def near_duplicates(n: int, rng: np.random.Generator, *, size: int, changes: int) -> npt.NDArray[np.uint8]:
    frames = np.repeat(rng.integers(0, 256, (1, size), dtype=np.uint8), n, axis=0)
    for frame in frames:
        pixels = rng.integers(0, size, changes)
        frame[pixels] = rng.integers(0, 256, changes)
    return frames


def mixed_duplicates(n: int, rng: np.random.Generator, *, size: int) -> npt.NDArray[np.uint8]:
    """A dozen frames again and again, some with few and some with many changed pixels."""
    frames = near_duplicates(12, rng, size=size, changes=200)
    frames[::2] = np.median(frames, axis=0)
    frames[::2, :6] += np.eye(6, dtype=np.uint8)
    return np.tile(frames, (n // 12 + 1, 1))[:n]


def moving_sprites(n: int, rng: np.random.Generator, *, size: int) -> npt.NDArray[np.uint8]:
    frames = np.full((n, size), 90, np.uint8)
    for t, frame in enumerate(frames):
        frame[(np.arange(8) + 3 * t) % size] = 200
        frame[(np.arange(5) - t + int(rng.integers(2))) % size] = 30
    return frames


def noise(n: int, rng: np.random.Generator, *, size: int) -> npt.NDArray[np.uint8]:
    return rng.integers(100, 120, (n, size), dtype=np.uint8)


SCENES: dict[str, Callable[[int, np.random.Generator], npt.NDArray[np.uint8]]] = {
    "few changed pixels": lambda n, rng: near_duplicates(n, rng, size=150, changes=3),
    "many changed pixels": lambda n, rng: near_duplicates(n, rng, size=400, changes=250),
    "few and many changed pixels": lambda n, rng: mixed_duplicates(n, rng, size=800),
    "moving sprites": lambda n, rng: moving_sprites(n, rng, size=150),
    "noise": lambda n, rng: noise(n, rng, size=150),
    "noise in large frames": lambda n, rng: noise(n, rng, size=600),
}


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("num_frames", [1, 4])
def test_l2_answers_as_brute_force_over_hundreds_of_transitions(scene: str, num_frames: int) -> None:
    """Past two trainings of the directions, with every number of survivors of each stage, and with sets forgotten."""
    rng = np.random.default_rng(3)
    frames = SCENES[scene](400, rng)
    store = FrameStore(frames.shape[1:])
    ids = np.array([store.intern(frame) for frame in frames])
    pairs = frames[rng.integers(0, 400, (2, 200))].astype(np.int64)
    typical = float(np.median(np.sqrt(np.square(pairs[0] - pairs[1]).sum(axis=1)))) * math.sqrt(2 * num_frames) / 255
    for fraction in (0.6, 1.0, 4.0):
        num_matches = compare_with_vectors(store, ids, rng, num_frames=num_frames, threshold=fraction * typical)
        assert num_matches > 0 or fraction < 1


def compare_with_vectors(
    store: FrameStore, ids: npt.NDArray[np.int64], rng: np.random.Generator, *, num_frames: int, threshold: float
) -> int:
    """Compare L2Index with integer arithmetic on whole vectors in a random history; return the number of matches."""
    index, num_matches = L2Index(store, threshold), 0
    vectors = np.full((150, 2 * num_frames * math.prod(store.shape) + 2), 10**4, np.int32)  # so far away: not in the index
    for t in range(150):
        s, s_next = (tuple(ids[rng.integers(0, len(ids), num_frames)].tolist()) for _ in range(2))
        k = TransitionKey(s, int(rng.integers(2)), float(rng.integers(2)), s_next)
        vector = np.concatenate([[255 * k.a, 255 * int(k.r)], store.gather([*s, *s_next]).ravel()]).astype(np.int32)
        sq = np.square(vectors - vector).sum(axis=1, dtype=np.int64)
        nearest = int(sq.argmin()) if math.sqrt(sq.min()) / 255 <= threshold else NO_MATCH
        assert index.get_index(k) == nearest, t
        num_matches += nearest != NO_MATCH
        index.update_index(t, k)
        vectors[t] = vector
        if t % 5 == 4:
            forgotten = int(rng.choice(np.flatnonzero(vectors[:, 0] < 10**4)))
            index.forget(forgotten)
            vectors[forgotten] = 10**4
    assert index.check_valid() == (True, "valid")
    return num_matches


@pytest.mark.parametrize("changes", [5, 7000])
def test_a_representative_at_the_threshold_itself_is_never_discarded(changes: int) -> None:
    """Frames of full size, nearly equal or all noise: no rounding of any bound may push out what is exactly δ away."""
    rng = np.random.default_rng(2)
    frames = near_duplicates(150, rng, size=84 * 84, changes=changes)
    store = FrameStore(frames.shape[1:])
    ids = [store.intern(frame) for frame in frames]
    index = L2Index(store, 0.0)
    for set_id in range(140):
        index.update_index(set_id, key(ids[set_id], s_next=ids[0]))
    for t in range(140, 150):
        sq = np.square(frames[:140].astype(np.int64) - frames[t]).sum(axis=1)
        for nearest_sq, expected in ((sq.min(), int(sq.argmin())), (sq.min() - 1, NO_MATCH)):
            index.threshold = math.sqrt(nearest_sq) / 255
            assert index.get_index(key(ids[t], s_next=ids[0])) == expected


def test_rewards_too_large_for_float32_are_still_told_apart() -> None:
    """255·10⁶ has steps of 16 in float32: bounds are that far off, answers are not."""
    index = L2Index(store_of(0), 0.5)
    for n in range(100):
        index.update_index(n, key(0, r=1e6 + 3 * n))
    for n in range(100):
        assert index.get_index(key(0, r=1e6 + 3 * n + 0.5)) == n
        assert index.get_index(key(0, r=1e6 + 3 * n - 0.5)) == n
        assert index.get_index(key(0, r=1e6 + 3 * n + 0.5625)) == NO_MATCH


@pytest.mark.parametrize("threshold", [0.0, 0.02])
def test_l2_drops_dead_rows_without_changing_an_answer(threshold: float) -> None:
    store = FrameStore((12,))
    keys = random_keys(store, 2150, np.random.default_rng(0), levels=3)
    keys = [k._replace(a=0, r=0.0) for k in keys]
    index, brute = L2Index(store, threshold), BruteForceIndex(store, threshold)
    for t, k in enumerate(keys):
        if t > 1950:  # the table is full at about 2,000
            assert index.get_index(k) == brute.get_index(k)
        index.update_index(t, k)
        brute.update_index(t, k)
        if t >= 40:
            index.forget(t - 40)
            brute.forget(t - 40)
    assert len(index) == 40
    assert index.check_valid() == (True, "valid")


def test_postings_give_the_products_with_all_rows_also_after_rows_were_dropped() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.integers(-255, 256, (10, 2, 6)) * (rng.random((10, 2, 6)) < 0.4)
    differences = [[(np.flatnonzero(frame), frame[frame != 0]) for frame in vector] for vector in vectors]
    postings = Postings(6)
    assert all(postings.add(row, differences[row]) for row in range(10))
    for living in (np.arange(10), np.array([7, 1, 4])):
        new_rows = np.full(10, -1, np.int64)
        new_rows[living] = np.arange(len(living))
        postings.renumber(new_rows)
        for query in range(10):
            dots = postings.dots(differences[query], len(living), most_work=1000)
            np.testing.assert_array_equal(dots, (vectors[living] * vectors[query]).sum(axis=(1, 2)))
    assert postings.dots(differences[0], 3, most_work=0) is None
    too_many = np.ones(MAX_PIXELS + 1, np.int64)
    assert not Postings(1000).add(0, [(np.flatnonzero(too_many), too_many)])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("num_sets", [20, 100, 600])
@pytest.mark.parametrize("step", [1, -1])
def test_of_many_equally_near_sets_the_oldest_answers(dtype: npt.DTypeLike, num_sets: int, step: int) -> None:
    store = FrameStore((2,), dtype)
    a, b, c = (store.intern(np.array(pixels, dtype)) for pixels in ([0, 0], [0, 1], [1, 0]))
    index = L2Index(store, 5.0)
    for set_id in range(num_sets)[::step]:
        index.update_index(set_id, key(b if set_id % 3 else c, s_next=a))  # b and c are equally far from a
    assert index.get_index(key(a, s_next=a)) == 0
    index.forget(0)
    assert index.get_index(key(a, s_next=a)) == 1


def test_a_slot_that_got_another_frame_is_not_mistaken_for_the_old_one() -> None:
    store = store_of(0, 10)
    index = L2Index(store, 0.0)
    index.update_index(0, key(0))
    index.update_index(1, key(1))
    index.forget(1)
    store.release([1])
    other = store.intern(np.zeros(4, np.uint8) + 30)
    assert other == 1
    index.threshold = 50 / 255  # the old frame was 10/255 away from frame 0, this one is 60/255
    assert index.get_index(key(other)) == NO_MATCH


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.bool_, np.uint16])
def test_other_pixels_than_8_bit_are_not_scaled(dtype: npt.DTypeLike) -> None:
    rng = np.random.default_rng(1)
    store = FrameStore((3,), dtype)
    keys = random_keys(store, 200, rng, levels=2 if dtype is np.bool_ else 9)
    for threshold in (1.0, 2.0, math.sqrt(5)):
        index, brute = L2Index(store, threshold), BruteForceIndex(store, threshold)
        for t, k in enumerate(keys):
            assert index.get_index(k) == brute.get_index(k)
            index.update_index(t, k)
            brute.update_index(t, k)


@settings(max_examples=40, deadline=None)
@given(
    frames=st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=3, max_size=3), min_size=1, max_size=12),
    threshold=st.floats(0, 2e3),
    data=st.data(),
)
def test_float_observations_are_discarded_only_when_too_far(
    frames: list[list[float]], threshold: float, data: st.DataObject
) -> None:
    """In float32 observations a distance may fall on the threshold by rounding: only clear cases are compared."""
    store = FrameStore((3,), np.float32)
    ids = [store.intern(np.array(frame, np.float32)) for frame in frames]
    index, brute = L2Index(store, threshold), BruteForceIndex(store, threshold)
    for t in range(20):
        s, s_next = data.draw(st.tuples(st.sampled_from(ids), st.sampled_from(ids)))
        k = key(s, 0, 0.0, s_next)
        answer = index.get_index(k)
        distances = {i: math.sqrt(brute.sq_distance(k, i)) for i in range(t)}
        nearest = min(distances.values(), default=math.inf)
        if answer == NO_MATCH:
            assert nearest >= threshold * (1 - 1e-12)
        else:
            assert distances[answer] <= min(threshold, nearest) * (1 + 1e-12)
        index.update_index(t, k)
        brute.update_index(t, k)


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


def test_ids_that_no_store_gives_are_refused() -> None:
    with pytest.raises(ValueError, match="31 bits"):
        packed(TransitionKey((2**40,), 0, 0.0, (1,)))
