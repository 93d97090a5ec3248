"""The index for δ = 0: keys as bytes, and representatives that hold their frames."""

from __future__ import annotations

import pytest

from comper.memory.indexes import NO_MATCH, ExactIndex, TransitionKey
from comper.memory.indexes.exact import Representatives, packed, unpacked
from tests.memory.indexes.brute_force import key, store_of


def test_ids_that_no_store_gives_are_refused() -> None:
    with pytest.raises(ValueError, match="31 bits"):
        packed(TransitionKey((2**40,), 0, 0.0, (1,)))


@pytest.mark.parametrize(
    "given",
    [
        TransitionKey((1,), 2, 0.5, (3,)),
        TransitionKey((1, 2, 3, 4), 17, -1e300, (5, 6, 7, 2**31 - 1)),
        TransitionKey((), 0, 0.0, (1,)),
    ],
)
def test_a_packed_key_unpacks_to_itself(given: TransitionKey) -> None:
    assert unpacked(packed(given)) == given


def test_packed_keys_are_equal_exactly_where_the_keys_are() -> None:
    keys = [
        TransitionKey((1, 2), 0, 0.0, (3,)), TransitionKey((1,), 2, 0.0, (3,)), TransitionKey((1,), 0, 0.0, (2, 3)),
        TransitionKey((1, 2), 0, 1.0, (3,)), TransitionKey((1, 2), 3, 0.0, (0,)), TransitionKey((1, 2), 0, 1e-300, (3,)),
    ]  # fmt: skip
    assert len({packed(one) for one in keys}) == len(keys)
    assert packed(key(1, r=-0.0)) == packed(key(1, r=0.0))


def test_representatives_hold_each_frame_once_for_each_place_it_stands_in() -> None:
    store = store_of(0, 1, 2)
    kept = Representatives(store)
    kept.put(5, TransitionKey((0, 0), 0, 0.0, (1,)))
    assert [store.references(i) for i in range(3)] == [3, 2, 1]  # one reference each was there before
    kept.put(5, TransitionKey((0, 1), 0, 0.0, (2,)))
    assert [store.references(i) for i in range(3)] == [2, 2, 2]
    assert (list(kept), kept[5].s_next, 5 in kept, 4 in kept) == ([5], (2,), True, False)
    assert kept.check_valid() == (True, "valid")
    store.release([0, 1])
    store.release([1])  # as nobody should
    assert kept.check_valid()[0] is False


def test_representatives_come_in_the_order_of_their_latest_update() -> None:
    kept = Representatives(store_of(0, 1))
    for set_id in (7, 3, 7):
        kept.put(set_id, key(0))
    assert list(kept) == [3, 7]
    state = kept.state_dict()
    assert state["set_ids"].tolist() == [3, 7]
    again = Representatives(kept.frames)
    again.load_state_dict(state)
    assert [again[set_id] for set_id in again] == [kept[set_id] for set_id in kept]


def test_check_valid_notices_sets_listed_under_a_wrong_key() -> None:
    index = ExactIndex(store_of(0, 1))
    index.update_index(0, key(0))
    index.update_index(1, key(1))
    assert index.check_valid() == (True, "valid")
    index._sets = {packed(key(0)): 1, packed(key(1)): 0}
    assert index.check_valid() == (False, "a set is listed under a key that is not its representative")
    index._sets = {packed(key(0)): 0}
    assert index.check_valid()[0] is False
    assert index.get_index(key(1)) == NO_MATCH
