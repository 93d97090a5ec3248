"""The paper's index: a scan by faiss, on float32 vectors, where faiss is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from comper.errors import UsageError
from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, FaissIndex
from tests.memory.indexes.brute_force import key, store_of


def test_without_faiss_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match=r"pip install \"comper\[faiss\]\""):
        FaissIndex(store_of(0), 0.5)


def test_a_vector_is_the_frames_over_255_with_action_and_reward_between_them() -> None:
    pytest.importorskip("faiss")
    index = FaissIndex(store_of(51, 102, size=2), 0.5)
    assert index._vector(key(0, 3, -1.0, 1)).tolist() == [[pytest.approx(0.2), 0, 3, -1, pytest.approx(0.4), 0]]
    floats = FrameStore((1,), np.float32)
    a, b = (floats.intern(np.array([value], np.float32)) for value in (7.0, 8.0))
    assert FaissIndex(floats, 0.5)._vector(key(a, 3, -1.0, b)).tolist() == [[7, 3, -1, 8]]


def test_its_bytes_are_those_of_the_vectors_with_their_ids() -> None:
    pytest.importorskip("faiss")
    index = FaissIndex(store_of(1, 2, size=3), 0.5)
    assert index.nbytes == 0
    index.update_index(0, key(0))
    index.update_index(1, key(1))
    assert index.nbytes == 2 * (4 * (3 + 3 + 2) + 8)
    index.forget(0)
    assert index.nbytes == 4 * (3 + 3 + 2) + 8


def test_a_difference_that_float32_cannot_see_is_none() -> None:
    """The paper's index is rounded; ours are not: `tests/memory/indexes/test_l2.py`."""
    pytest.importorskip("faiss")
    index = FaissIndex(store_of(0), 0.0)
    index.update_index(0, key(0, r=1e9))
    assert index.get_index(key(0, r=1e9 + 1)) == 0
    assert index.get_index(key(0, r=1e9 + 1_000)) == NO_MATCH
