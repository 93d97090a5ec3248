"""Values that outlive a graph: found by pixels, joined, and refused where they are no table."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.graph import TransitionGraph, TransitionGraphs
from comper.memory.known_values import DIGEST_BYTES, KnownValues, state_keys
from comper.memory.propagation import ValueRule
from comper.memory.transitions import Transition


def store(*values: int) -> tuple[FrameStore, list[int]]:
    frames = FrameStore((3,))
    return frames, [frames.intern(np.full(3, value, np.uint8)) for value in values]


def graph_of(*values: int) -> tuple[TransitionGraph, list[int]]:
    """A walk from each value to the next with action 0 and the reward 1 at its end, refreshed."""
    frames, ids = store(*values)
    graph = TransitionGraph(frames, 2)
    for number, (before, after) in enumerate(pairwise(ids)):
        is_last = number == len(ids) - 2
        graph.add(Transition((before,), 0, float(is_last), (after,), is_last))
    graph.refresh(ValueRule(discount=0.5, trust=1.0))
    return graph, ids


def test_keys_are_of_pixels_and_not_of_ids() -> None:
    frames, (one, two) = store(1, 2)
    others, (two_there, one_there) = store(2, 1)
    keys = state_keys(frames, np.array([[one, two], [two, one]]))
    assert keys.shape == (2, 2 * DIGEST_BYTES)
    assert np.array_equal(keys, state_keys(others, np.array([[one_there, two_there], [two_there, one_there]])))
    assert not np.array_equal(keys[0], keys[1])
    assert state_keys(frames, np.zeros((0, 2), np.int64)).shape == (0, 2 * DIGEST_BYTES)


def test_a_graph_gives_the_values_of_what_was_tried() -> None:
    graph, ids = graph_of(7, 8, 9)
    known = graph.known_values()
    assert len(known) == 2  # the last state was only reached
    for value, expected in ((ids[0], 0.5), (ids[1], 1.0)):
        row = known.find(state_keys(graph.frames, np.array([[value]]))[0])
        assert row is not None
        assert known.values[row, 0] == pytest.approx(expected)
        assert known.visits[row].tolist() == [1, 0]
    assert known.find(state_keys(graph.frames, np.array([[ids[2]]]))[0]) is None


def test_what_was_given_is_kept_beside_what_is_met_and_saved_with_it() -> None:
    first, _ = graph_of(7, 8, 9)
    second, ids = graph_of(8, 20)
    graphs = TransitionGraphs([second], [np.random.default_rng(0)])
    graphs.load_weights(0, TransitionGraphs([first], [np.random.default_rng(0)]).weights(0))
    known = second.known_values()
    assert len(known) == 2  # 7 as it was given, 8 as it was met
    row = known.find(state_keys(second.frames, np.array([[ids[0]]]))[0])
    assert row == 0
    seven, unknown = (second.frames.intern(np.full(3, value, np.uint8)) for value in (7, 99))
    given = second.values_of([seven])
    assert given is not None
    assert (given.values[0], given.visits[0]) == (0.5, 1)
    assert given.tries is None, "it is not explored any more"
    assert second.values_of([unknown]) is None
    met = second.values_of([ids[0]])
    assert met is not None
    assert met.values[0] == 1.0  # its own value, not the one that was given
    copy = TransitionGraph(second.frames, 2)
    copy.load_state_dict(second.state_dict())
    for name, column in known.as_arrays().items():
        assert np.array_equal(copy.known_values().as_arrays()[name], column)


def test_what_is_no_table_is_refused() -> None:
    good = KnownValues.none(1, 2).as_arrays()
    for name, wrong in (
        ("states", np.zeros((1, DIGEST_BYTES), np.uint8)),
        ("values", np.zeros((0, 2))),
        ("values", np.zeros((0, 3), np.float32)),
        ("visits", np.zeros(0, np.int32)),
    ):
        with pytest.raises(ValueError, match="not a table"):
            KnownValues(**good | {name: wrong})


def test_an_action_cannot_have_been_tried_fewer_than_0_times() -> None:
    with pytest.raises(ValueError, match="tried fewer than 0 times"):
        KnownValues(np.zeros((1, DIGEST_BYTES), np.uint8), np.zeros((1, 2), np.float32), np.array([[0, -1]], np.int32))
