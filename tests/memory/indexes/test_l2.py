"""The l2 index against brute force: every stage of a lookup, ties, thresholds and rounding."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, L2Index, TransitionKey
from tests.memory.indexes.brute_force import BruteForceIndex, key, near_duplicates, random_keys, store_of


def test_a_transition_with_another_number_of_frames_is_an_error() -> None:
    index = L2Index(store_of(0, 1), 0.5)
    index.update_index(0, key(1))
    with pytest.raises(ValueError, match="transition of 4 frames"):
        index.get_index(TransitionKey((0, 0), 0, 0.0, (1, 1)))


@given(st.integers(0, 255))
def test_every_whole_number_of_255ths_is_within_its_own_threshold(step: int) -> None:
    store = store_of(0, step)
    index = L2Index(store, step / 255)
    index.update_index(0, key(0))
    assert index.get_index(key(len(store) - 1)) == 0


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
