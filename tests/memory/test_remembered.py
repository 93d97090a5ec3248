"""What a saved memory holds, compared with the memory that wrote it."""

from __future__ import annotations

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.graph import TransitionGraph
from comper.memory.indexes import make_index
from comper.memory.propagation import ValueRule
from comper.memory.remembered import read_remembered
from comper.memory.transition_memory import TransitionMemory
from comper.memory.transitions import ReplayMemory, Transition


def frames_of(num_frames: int) -> tuple[FrameStore, list[int]]:
    frames = FrameStore((3,))
    return frames, [frames.intern(np.full(3, value, np.uint8)) for value in range(num_frames)]


def test_sets_are_read_with_their_numbers_visits_and_q_values() -> None:
    frames, ids = frames_of(8)
    tm = TransitionMemory(frames, make_index("exact", frames, 0.0), capacity=4)
    for number in (0, 1, 2, 3, 4, 5, 4):  # 0 and 1 are forgotten, 4 is met twice
        t = Transition((ids[number],), number, float(number), (ids[number + 1],), number == 5)
        tm.store_transition(t, q=10.0 * number)
    tm.store_transition(Transition((ids[4],), 4, 4.0, (ids[5],), False), q=43.0)
    found = read_remembered(tm.state_dict())
    assert found is not None
    by_id = {int(set_id): row for row, set_id in enumerate(found.ids)}
    assert sorted(by_id) == [2, 3, 4, 5]
    row = by_id[4]
    assert found.visits is not None
    assert found.q is not None
    assert [int(found.visits[by_id[i]]) for i in (2, 3, 4, 5)] == [1, 1, 3, 1]
    assert found.q[row].tolist() == [40.0, 43.0]
    assert np.isnan(found.q[by_id[3], 0])  # it had one Q-value only
    assert found.q[by_id[3], 1] == 30.0
    expected = tm.gather(np.array([4]))
    assert (found.transitions.s[row], found.transitions.a[row]) == (expected.s[0], 4)
    assert found.transitions.continues[by_id[5]] == 0
    assert found.similar_hits == tm.similar_hits == 2


def test_a_replay_memory_counts_no_visits_and_keeps_no_q_values() -> None:
    frames, ids = frames_of(4)
    memory = ReplayMemory(frames, capacity=2, history_length=1)
    for number in range(3):
        memory.add(Transition((ids[number],), number, 0.0, (ids[number + 1],), False), is_last=False)
    found = read_remembered(memory.state_dict())
    assert found is not None
    assert (found.visits, found.q, len(found)) == (None, None, 2)
    assert sorted(found.transitions.a.tolist()) == [1, 2]


def test_edges_of_a_graph_are_sets_with_their_visits_and_values() -> None:
    store, (a, b, c) = frames_of(3)
    graph = TransitionGraph(store, 2, capacity=2)
    for transition in (Transition((a,), 0, 0.0, (b,), False), Transition((b,), 1, 1.0, (c,), True)):
        graph.add(transition)
    graph.add(Transition((a,), 0, 0.0, (b,), False))
    graph.refresh(ValueRule(discount=0.5, trust=1.0))
    found = read_remembered(graph.state_dict())
    assert found is not None
    assert found.ids.tolist() == [0, 1]
    assert found.transitions.s.tolist() == [[a], [b]]
    assert found.transitions.s_next.tolist() == [[b], [b]]  # what followed the game over is not remembered
    assert found.transitions.continues.tolist() == [1.0, 0.0]
    assert found.visits is not None
    assert found.visits.tolist() == [2, 1]
    assert found.q is not None
    assert found.q.tolist() == [[0.5], [1.0]]
    assert found.similar_hits == 1


@pytest.mark.parametrize(
    ("column", "value"), [("source", 9), ("source", -1), ("target", -2), ("target", 9), ("action", 2), ("action", -1)]
)
def test_edges_of_what_is_not_there_are_refused(column: str, value: int) -> None:
    store, (a, b) = frames_of(2)
    graph = TransitionGraph(store, 2)
    graph.add(Transition((a,), 0, 0.0, (b,), False))
    state = graph.state_dict()
    state["edges"][column][0] = value
    with pytest.raises(ValueError, match="not there"):
        read_remembered(state)


def test_the_state_of_a_network_is_no_memory() -> None:
    assert read_remembered({"weights": {"w": np.zeros(2)}}) is None
    assert read_remembered({"table": {"s": np.zeros(2)}}) is None
