"""Sets of similar rows: they live as long as one of their rows, and each has a number to be drawn by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comper.memory.ring_sets import NONE, EqualKeys, RingSets


def filed(sets: RingSets, row: int, key: bytes) -> None:
    sets.remove(row)
    sets.add(row, key, sets.find(key))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([b"a", b"b", b"c"]))))
def test_sets_are_those_of_a_slow_count(writes: list[tuple[int, bytes]]) -> None:
    sets, rows = RingSets(6, EqualKeys()), dict[int, bytes]()
    for row, key in writes:
        filed(sets, row, key)
        rows[row] = key
        latest = sets.rows(np.arange(len(sets))).tolist()
        assert sorted(rows[r] for r in latest) == sorted(set(rows.values()))
        counts = dict(zip([rows[r] for r in latest], sets.sizes.tolist(), strict=True))
        assert counts == {k: list(rows.values()).count(k) for k in counts}


def test_in_a_ring_a_set_is_read_where_it_was_met_last() -> None:
    sets = RingSets(3, EqualKeys())
    for time, key in enumerate([b"a", b"b", b"a", b"a", b"a", b"b"]):
        filed(sets, time % 3, key)
    assert {sets.find(b"a"), sets.find(b"b")} == {1, 2}
    assert sets.find(b"b") == 2
    assert sets.find(b"c") == NONE


def test_the_numbers_of_sets_are_used_again() -> None:
    sets = RingSets(2, EqualKeys())
    for time in range(1000):
        filed(sets, time % 2, str(time).encode())
    assert len(sets) == 2
    assert int(sets._members[:2].max()) <= 2


def test_sets_read_back_go_on_as_if_they_had_never_stopped() -> None:
    rng, keys = np.random.default_rng(0), [b"a", b"b", b"c", b"d", b"e"]
    sets, rows = RingSets(7, EqualKeys()), dict[int, bytes]()
    for time in range(40):
        rows[time % 7] = keys[rng.integers(5)]
        filed(sets, time % 7, rows[time % 7])
    other = RingSets(7, EqualKeys())
    other.load_state_dict(sets.state_dict(), rows)
    for time in range(40, 80):
        key = keys[rng.integers(5)]
        for each in (sets, other):
            filed(each, time % 7, key)
        numbers = np.arange(len(sets))
        assert sets.rows(numbers).tolist() == other.rows(numbers).tolist()
        assert sets.sizes.tolist() == other.sizes.tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("set_of", np.array([0, 0, 9], np.int32)),
        ("set_of", np.array([0, 0], np.int32)),
        ("set_of", np.array([0, 0, 1], np.int64)),
        ("set_of", np.array([0, 0, NONE], np.int32)),
        ("latest", np.array([2, 1], np.int32)),
        ("members", np.array([0, 0], np.int32)),
    ],
)
def test_a_state_that_does_not_agree_with_itself_is_refused(name: str, value: Any) -> None:
    sets = RingSets(3, EqualKeys())
    for row, key in enumerate([b"a", b"a", b"b"]):
        filed(sets, row, key)
    with pytest.raises(ValueError, match="sets"):
        RingSets(3, EqualKeys()).load_state_dict(sets.state_dict() | {name: value}, {1: b"a", 2: b"b"})
