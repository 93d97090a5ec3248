"""States that lend their transitions: what is near, with which weight, and what the graph's values become."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.graph import BYTES_PER_EDGE, TransitionGraph
from comper.memory.lending import CELLS, DISTANCES_AT_A_TIME, Lending, needed_bytes, with_loans
from comper.memory.propagation import NO_NODE, ValueRule, layout_of
from comper.memory.transitions import Transition


class Line:
    """A graph of states that are places on a line."""

    def __init__(self, *, num_actions: int = 2, reach: float = 1.0, num_lenders: int = 2, **options: Any):
        self.frames = FrameStore((2,), np.float32)
        self.graph = TransitionGraph(self.frames, num_actions, lending_reach=reach, num_lenders=num_lenders, **options)

    def add(self, s: float, a: int, r: float, s_next: float, *, terminal: bool = False) -> None:
        ids = [self.frames.intern(np.array([place, 0], np.float32)) for place in (s, s_next)]
        self.graph.add(Transition((ids[0],), a, r, (ids[1],), terminal))
        self.frames.release(ids)

    def refresh(self, **rule: Any) -> None:
        nodes = self.graph.unasked()
        self.graph.tell(nodes, np.zeros((len(nodes), self.graph.num_actions), np.float32))
        self.graph.refresh(ValueRule(**{"discount": 0.5, "untried": "ignored", **rule}), tolerance=1e-12)
        is_valid, broken = self.graph.check_valid()
        assert is_valid, broken

    def node(self, place: float) -> int:
        frame = self.frames.intern(np.array([place, 0], np.float32))
        node = self.graph.find((frame,))
        self.frames.release((frame,))
        return node

    def value(self, place: float) -> float:
        return float(self.graph._nodes["value"][self.node(place)])


def layout(edges: list[tuple[int, int, float, int, int]], num_nodes: int) -> Any:
    source, action, reward, target, count = (np.array(column) for column in zip(*edges, strict=True))
    return layout_of(
        source=source, action=action, reward=reward.astype(float), target=target, count=count, num_nodes=num_nodes
    )


def test_a_borrower_has_its_lenders_edges_as_often_as_the_weight_says() -> None:
    own = layout([(0, 0, 1.0, 3, 4), (1, 0, 0.0, 3, 1), (1, 1, 2.0, NO_NODE, 2)], num_nodes=4)
    lent = with_loans(own, np.array([0, 2]), np.array([1, 1]), np.array([0.5, 0.25]))
    pairs = zip(lent.pair_node.tolist(), lent.pair_action.tolist(), lent.pair_visits.tolist(), strict=True)
    assert list(pairs) == [(0, 0, 4.5), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 2.0), (2, 0, 0.25), (2, 1, 0.5)]
    assert lent.weight.tolist() == pytest.approx([4 / 4.5, 0.5 / 4.5, 1, 1, 1, 1, 1])
    assert lent.target.tolist() == [3, 3, NO_NODE, 3, NO_NODE, 3, NO_NODE]
    assert lent.reward.tolist() == [1.0, 0.0, 2.0, 0.0, 2.0, 0.0, 2.0]


def test_nobody_lends_nothing_changes() -> None:
    own = layout([(0, 0, 1.0, 1, 4), (1, 0, 0.0, 0, 1)], num_nodes=2)
    none = np.zeros(0, np.int64)
    lent = with_loans(own, none, none, np.zeros(0))
    for name, column in own._asdict().items():
        assert np.array_equal(column, getattr(lent, name)), name


def test_the_nearest_are_found_among_those_that_were_there_before() -> None:
    frames = FrameStore((3,), np.float32)
    rng = np.random.default_rng(0)
    points = rng.random((600, 3), np.float32)
    states = np.array([[frames.intern(point)] for point in points])
    lending = Lending(frames, 1, reach=1.0, num_lenders=4)
    nodes = np.arange(600)
    lending.look_at(nodes, states)
    found, distances = lending.nearest(nodes[300:], nodes[:300])
    for row in range(300):
        true = np.sqrt(np.square(points[300 + row] - points[:300]).sum(axis=1))
        assert sorted(found[row].tolist()) == sorted(np.argsort(true)[:4].tolist())
        assert distances[row] == pytest.approx(true[found[row]], abs=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e20])
def test_large_numbers_that_differ_by_little_are_told_apart(scale: float) -> None:
    frames = FrameStore((1,), np.float32)
    places = scale * np.array([1000.0, 1000.25, 1002.0, 1000.375], np.float32)
    states = np.array([[frames.intern(place[None])] for place in places])
    lending = Lending(frames, 1, reach=1.0, num_lenders=1)
    lending.look_at(np.arange(4), states)
    found, distances = lending.nearest(np.array([3]), np.arange(3))
    assert found.tolist() == [[1]]
    assert distances[0, 0] == pytest.approx(places[3] - places[1], rel=1e-3)


def test_fewer_states_than_lenders_leave_places_empty() -> None:
    frames = FrameStore((1,), np.float32)
    states = np.array([[frames.intern(np.array([x], np.float32))] for x in (0.0, 1.0)])
    lending = Lending(frames, 1, reach=1.0, num_lenders=3)
    lending.look_at(np.arange(2), states)
    found, distances = lending.nearest(np.array([1]), np.array([0]))
    assert found.tolist() == [[0, NO_NODE, NO_NODE]]
    assert distances.tolist() == [[1.0, 0.0, 0.0]]
    assert lending.nearest(np.array([1]), np.zeros(0, np.int64))[0].tolist() == [[NO_NODE] * 3]


def test_pictures_are_compared_by_the_means_of_their_cells() -> None:
    frames = FrameStore((2 * CELLS, 30), np.uint8)
    pictures = np.random.default_rng(1).integers(0, 256, (2, 2 * CELLS, 30), np.uint8)
    states = np.array([[frames.intern(picture)] for picture in pictures])
    lending = Lending(frames, 1, reach=1.0, num_lenders=1)
    lending.look_at(np.arange(2), states)
    edges = np.arange(CELLS) * 30 // CELLS
    means = np.array(
        [
            [
                [p[2 * i : 2 * i + 2, a:b].mean() / 255 for a, b in zip(edges, [*edges[1:], 30], strict=True)]
                for i in range(CELLS)
            ]
            for p in pictures
        ]
    )
    expected = np.sqrt(np.square(means[0] - means[1]).sum())
    assert lending.nearest(np.array([1]), np.array([0]))[1][0, 0] == pytest.approx(expected, rel=1e-4)


def test_what_a_near_state_met_counts_the_less_the_farther_it_is() -> None:
    """Steps are 1 long. 10.25 is 0.25 steps from 10, so it counts three quarters of what was met there, and the other way."""
    line = Line()
    line.add(10.0, 0, 1.0, 11.0)
    line.refresh()
    line.add(10.25, 0, 0.0, 11.25, terminal=False)
    line.refresh()
    # V(11) = V(11.25) = 0 by the network: they were never left.
    assert line.value(10.25) == pytest.approx(0.75 / 1.75, abs=1e-3)
    assert line.value(10.0) == pytest.approx(1 / 1.75, abs=1e-3)


def test_an_action_that_only_a_lender_tried_is_a_choice_but_no_visit() -> None:
    line = Line()
    line.add(10.0, 1, 1.0, 11.0)
    line.refresh()
    line.add(10.5, 0, 0.0, 11.5)
    line.refresh()
    assert line.value(10.5) == pytest.approx(1.0, abs=1e-3)
    known = line.graph.tried_values(line.node(10.5))
    assert known.visits.tolist() == [1, 0]
    drawn = line.graph.sample(200, np.random.default_rng(0))
    assert set(drawn.nodes.ravel().tolist()) == {line.node(10.0), line.node(10.5)}
    assert (drawn.weights.sum(axis=-1) == 1).all()  # the one action that each of the two tried itself


def test_a_small_share_of_a_visit_pays_no_larger_bonus_than_none() -> None:
    line = Line()
    line.add(10.0, 1, 0.0, 11.0, terminal=True)
    line.add(10.0, 0, 0.0, 11.0)
    line.refresh(bonus=1.0)
    line.add(10.999, 0, 0.0, 11.999, terminal=True)
    line.refresh(bonus=1.0)
    assert line.value(10.999) == pytest.approx(1.0)


def test_states_beyond_the_reach_lend_nothing() -> None:
    line = Line(reach=0.5)
    line.add(10.0, 0, 1.0, 11.0)
    line.refresh()
    line.add(10.5, 0, 0.0, 11.5)
    line.refresh()
    assert line.value(10.5) == 0.0


def test_states_of_one_time_do_not_lend_to_each_other() -> None:
    line = Line(reach=5.0)
    line.add(10.0, 0, 1.0, 11.0)
    line.add(11.0, 0, 0.0, 12.0)
    line.refresh()
    assert line.value(11.0) == 0.0


def test_a_lender_that_is_forgotten_lends_no_longer() -> None:
    line = Line(capacity=2)
    line.add(10.0, 0, 1.0, 11.0)
    line.refresh()
    line.add(10.25, 0, 0.0, 11.25)
    line.refresh()
    line.add(20.0, 0, 0.0, 21.0)  # the first edge goes, and a new state takes over the row of 10
    line.refresh()
    assert line.value(10.25) == 0.0
    line.add(30.0, 0, 0.0, 31.0)
    line.refresh()


def test_a_graph_that_was_saved_goes_on_with_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    places, rewards = rng.random(81).cumsum(), rng.integers(0, 2, 80)
    whole, saved = Line(), Line()
    for number, (s, s_next, r) in enumerate(zip(places, places[1:], rewards.tolist(), strict=False)):
        for line in (whole, saved):
            line.add(s % 7, number % 2, r, s_next % 7)
            if number % 20 == 19:
                line.refresh()
        if number == 45:
            again = Line()
            again.frames.load_state_dict(saved.frames.state_dict())
            again.graph.load_state_dict(saved.graph.state_dict())
            saved = again
    assert whole.graph.nbytes == saved.graph.nbytes  # which is in the log
    mine, theirs = whole.graph.state_dict(), saved.graph.state_dict()
    for name, column in mine["nodes"].items():
        assert np.array_equal(column, theirs["nodes"][name]), name


@pytest.mark.parametrize(("name", "value"), [("lenders", 77), ("lenders", -2), ("distances", -1.0), ("distances", np.nan)])
def test_lenders_that_do_not_exist_and_distances_that_are_none_are_refused(name: str, value: float) -> None:
    line = Line()
    line.add(10.0, 0, 1.0, 11.0)
    line.refresh()
    state = line.graph.state_dict()
    state["nodes"][name][0, 0] = value
    again = Line()
    again.frames.load_state_dict(line.frames.state_dict())
    with pytest.raises(ValueError, match="lenders are nodes"):
        again.graph.load_state_dict(state)


def _most_bytes(act: Callable[[], Any]) -> int:
    tracemalloc.start()
    act()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_many_states_are_compared_with_few_at_a_time() -> None:
    frames = FrameStore((2,), np.uint8)
    frame = frames.intern(np.zeros(2, np.uint8))
    lending = Lending(frames, 1, reach=1.0, num_lenders=5)
    nodes = np.arange(60_000)
    lending.look_at(nodes, np.full((60_000, 1), frame))
    assert _most_bytes(lambda: lending.nearest(nodes[-200:], nodes[:-200])) < 30 * DISTANCES_AT_A_TIME


def test_values_travel_within_the_memory_that_was_foreseen() -> None:
    """The states are a line, all of them near each other; the last fifth of them is new."""
    line, num_steps = Line(reach=1e6, num_lenders=60), 4_000
    for part in range(5):
        for place in range(part * num_steps // 5, (part + 1) * num_steps // 5):
            line.add(place, 0, 0.0, place + 1.0)
        most = _most_bytes(line.refresh)
    foreseen = sum(needed_bytes(2 * 8, 60, num_steps)) + num_steps * BYTES_PER_EDGE
    assert foreseen / 3 < most < foreseen
    assert needed_bytes(2 * 8, 60, num_steps)[0] == num_steps * (60 * (4 + 4) + 2 * 8)


def test_a_row_that_a_new_state_takes_over_lends_what_that_state_met_and_to_those_near_it() -> None:
    line = Line(capacity=3)
    line.add(10.0, 0, 1.0, 11.0)
    line.refresh()
    line.add(10.25, 0, 0.0, 11.25)
    line.refresh()
    row = line.node(10.0)
    line.add(10.25, 1, 0.0, 11.25)
    line.add(40.0, 0, 0.0, 41.0)
    line.refresh()  # the first edge goes, and 10 with it
    line.add(20.0, 0, 1.0, 21.0)
    assert line.node(20.0) == row
    line.refresh()
    assert line.value(10.25) == 0.0  # 20 lends it nothing
    line.add(20.25, 0, 0.0, 21.25)
    line.refresh()
    assert line.value(20.25) == pytest.approx(0.75 / 1.75, abs=1e-3)


def test_a_reach_is_a_number_of_mean_steps_between_different_states() -> None:
    frames = FrameStore((1,), np.float32)
    states = np.array([[frames.intern(np.array([place], np.float32))] for place in (0.0, 2.0, 6.0)])
    lending = Lending(frames, 1, reach=2.0, num_lenders=1)
    lending.look_at(np.arange(3), states)
    edges = [(0, 0, 0.0, 1, 1), (1, 0, 0.0, 2, 9), (1, 1, 0.0, NO_NODE, 1), (2, 0, 0.0, 2, 1)]  # 2 and 4 long: 3
    distances = np.array([[0.0, 1.5, 3.0, 6.0, 9.0]], np.float32)
    assert lending.weights(distances, layout(edges, 3)).tolist() == pytest.approx(np.array([[1, 0.75, 0.5, 0, 0]]))
    assert not lending.weights(distances, layout(edges[2:], 3)).any()  # no step, no unit


def test_all_frames_of_a_state_and_all_their_channels_are_compared() -> None:
    frames = FrameStore((4, 5, 3), np.uint8)
    pictures = np.random.default_rng(2).integers(0, 256, (3, 4, 5, 3), np.uint8)
    first, *others = (frames.intern(picture) for picture in pictures)
    lending = Lending(frames, 2, reach=1.0, num_lenders=1)
    lending.look_at(np.arange(2), np.array([[first, other] for other in others]))
    expected = np.sqrt(np.square((pictures[1] - pictures[2].astype(float)) / 255).sum())
    assert lending.nearest(np.array([1]), np.array([0]))[1][0, 0] == pytest.approx(expected, rel=1e-4)


def test_equal_states_are_at_almost_no_distance_however_their_numbers_are_rounded() -> None:
    frames = FrameStore((97,), np.uint8)
    points = np.random.default_rng(4).integers(0, 256, (64, 97), np.uint8)
    states = np.array([[frames.intern(point)] for point in points])
    lending = Lending(frames, 1, reach=1.0, num_lenders=1)
    lending.look_at(np.arange(128), np.concatenate([states, states]))
    for node in range(64):
        _, distances = lending.nearest(np.array([64 + node]), np.array([node]))
        assert 0 <= distances[0, 0] < 1


def test_the_bytes_held_count_lenders_and_what_states_look_like() -> None:
    lends, lends_not = Line(num_lenders=3), Line(reach=0.0)
    for line in (lends, lends_not):
        for place in range(50):
            line.add(place, 0, 0.0, place + 1)
        line.refresh()
    per_node = 3 * (4 + 4) + 1 + 2 * 8  # lenders, their distances, whether it was compared, and two numbers
    assert lends.graph.nbytes - lends_not.graph.nbytes == 51 * per_node
