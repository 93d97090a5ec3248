"""What the l2 index keeps of a frame: exact products and distances, and projections that never exceed them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from comper.memory.frames import FrameStore
from comper.memory.indexes.codes import FrameCodes, principal_axes
from tests.memory.indexes.brute_force import near_duplicates

Ids = npt.NDArray[np.int64]


def coded(
    *, changes: int, size: int = 300, count: int = 40, dtype: npt.DTypeLike = np.uint8, trained: bool = True
) -> tuple[FrameCodes, npt.NDArray[np.float64], Ids]:
    """Codes of nearly equal frames, their pixels, and their ids."""
    frames = near_duplicates(count, np.random.default_rng(0), size=size, changes=changes).astype(dtype)
    store = FrameStore((size,), dtype)
    ids = np.array([store.intern(frame) for frame in frames])
    codes = FrameCodes(store)
    if trained:
        codes.train(ids)
    codes.ensure(tuple(ids.tolist()))
    return codes, frames.astype(np.float64), ids


@pytest.mark.parametrize("trained", [True, False])
def test_a_short_difference_is_the_frame_without_its_background(trained: bool) -> None:
    codes, frames, ids = coded(changes=4, trained=trained)
    background = np.median(frames, axis=0) if trained else np.zeros(300)
    for i, frame in zip(ids.tolist(), frames, strict=True):
        if codes.is_short[i]:
            assert np.array_equal(codes.dense((i,)), frame - background)
        assert codes.sq_norms[i] == np.square(frame - background).sum()
    assert codes.is_short[ids].all() == trained  # against black nearly every pixel differs


@pytest.mark.parametrize("changes", [4, 290])
def test_images_are_never_further_apart_than_their_frames(changes: int) -> None:
    codes, frames, ids = coded(changes=changes)
    assert codes.num_directions > 0
    images = codes.images[ids].astype(np.float64)
    bounds = np.square(images[:, None] - images[None]).sum(axis=-1)
    true = np.square(frames[:, None] - frames[None]).sum(axis=-1)
    slack = 2 * codes.relative_error * math.sqrt(codes.sq_norms.max())
    assert (np.sqrt(bounds) <= np.sqrt(true) + slack).all()
    assert bounds.sum() > 0.5 * true.sum()  # and not so much nearer that they would discard nothing


def test_products_of_transitions_are_exact() -> None:
    codes, frames, ids = coded(changes=4)
    y = frames - np.median(frames, axis=0)
    pairs, query = np.stack([ids[:20], ids[20:]], axis=1), (int(ids[3]), int(ids[30]))
    expected = (y[:20] @ y[3]) + (y[20:] @ y[30])
    assert codes.dots(pairs, codes.dense(query)).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_distances_from_the_pixels_are_exact_or_beyond_their_limit(dtype: npt.DTypeLike) -> None:
    codes, frames, ids = coded(changes=900, size=1_200, dtype=dtype)  # three blocks of pixels
    pairs, query = np.stack([ids[:20], ids[20:]], axis=1), (int(ids[3]), int(ids[30]))
    true = np.square(frames[:20] - frames[3]).sum(axis=1) + np.square(frames[20:] - frames[30]).sum(axis=1)
    limits = np.where(np.arange(20) % 2, true, true - 1)  # its own distance is within the limit
    found = codes.sq_distances_within(pairs, query, limits)
    assert np.array_equal(found, np.where(limits >= true, true, np.inf))


def test_a_slot_with_another_frame_is_encoded_again_and_a_grown_store_is_followed() -> None:
    store = FrameStore((4,), initial_capacity=1)
    codes = FrameCodes(store)
    first = store.intern(np.array([9, 0, 0, 0], np.uint8))
    codes.ensure((first,))
    store.release([first])
    again = store.intern(np.array([0, 5, 0, 0], np.uint8))
    assert again == first
    others = [store.intern(np.array([0, 0, 0, value], np.uint8)) for value in range(1, 8)]
    codes.ensure((again, *others))
    assert codes.dense((again, others[-1])).tolist() == [0, 5, 0, 0, 0, 0, 0, 7]
    assert codes.sq_norms[others].tolist() == [value**2 for value in range(1, 8)]


def test_only_8_bit_pixels_are_255ths() -> None:
    for dtype, scale, is_integral in ((np.uint8, 255, True), (np.bool_, 1, True), (np.int8, 1, True), (np.float32, 1, False)):
        codes = FrameCodes(FrameStore((2,), dtype))
        assert (codes.scale, codes.is_integral) == (scale, is_integral)


def test_principal_axes_find_the_directions_of_the_data_and_never_lengthen() -> None:
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((30, 2)))[0]
    sample = rng.standard_normal((50, 2)) * [100.0, 10.0] @ basis.T + 7.0
    axes = principal_axes(sample, 5)
    assert axes.shape == (30, 2)  # there are no more
    assert np.linalg.norm(axes, 2) <= 1
    assert np.abs(axes.T @ basis).max(axis=1) == pytest.approx([1, 1], abs=0.05)
    along = np.var((sample - sample.mean(axis=0)) @ axes, axis=0)
    assert along[0] > along[1]  # the longest first
    assert principal_axes(np.ones((4, 6)), 3).shape == (6, 0)
