"""The graph of one trial: nodes, edges, forgetting, replay, state; and tabular tasks to their optimal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.memory.frames import FrameStore
from comper.memory.graph import Replay, TransitionGraph, TransitionGraphs
from comper.memory.propagation import NO_NODE, ValueRule
from comper.memory.transitions import Transition

EXACT: dict[str, Any] = {"tolerance": 1e-10, "max_passes": 100_000}


class Walk:
    """A graph whose states are named by numbers."""

    def __init__(self, num_actions: int = 2, **options: Any):
        self.frames = FrameStore((2,), np.int64)
        self.graph = TransitionGraph(self.frames, num_actions, **{"walks": True, **options})

    def add(self, s: int, a: int, r: float, s_next: int, *, terminal: bool = False) -> int:
        ids = [self.frames.intern(np.array([value, 0])) for value in (s, s_next)]
        edge = self.graph.add(Transition((ids[0],), a, r, (ids[1],), terminal))
        self.frames.release(ids)
        self.check()
        return edge

    def node(self, state: int) -> int:
        frame = self.frames.intern(np.array([state, 0]))
        node = self.graph.find((frame,))
        self.frames.release((frame,))
        return node

    def check(self) -> None:
        for part in (self.graph, self.frames):
            is_valid, message = part.check_valid()
            assert is_valid, message

    def tell(self, value: float = 0.0) -> None:
        nodes = self.graph.unasked()
        self.graph.tell(nodes, np.full((len(nodes), self.graph.num_actions), value, np.float32))


def test_similar_transitions_are_one_edge_with_a_count() -> None:
    walk = Walk()
    assert [walk.add(1, 0, 0.0, 2), walk.add(2, 1, 1.0, 1), walk.add(1, 0, -0.0, 2)] == [0, 1, 0]
    assert walk.add(1, 0, 1.0, 2) == 2  # another reward, another outcome
    assert walk.add(1, 0, 0.0, 2, terminal=True) == 3
    graph = walk.graph
    assert (graph.num_nodes, graph.num_edges, graph.num_visits) == (2, 4, 5)
    placed = graph.layout()
    assert placed.pair_visits.tolist() == [4.0, 1.0]
    assert placed.weight.tolist() == [0.5, 0.25, 0.25, 1.0]


def test_a_state_after_a_game_over_is_no_node() -> None:
    walk = Walk()
    walk.add(1, 0, 1.0, 99, terminal=True)
    assert walk.graph.num_nodes == 1
    assert walk.node(99) == NO_NODE


def test_states_within_the_threshold_are_one_node() -> None:
    walk = Walk(threshold=1.5 / 255)
    walk.frames = FrameStore((2,), np.uint8)
    walk.graph = TransitionGraph(walk.frames, 2, threshold=1.5 / 255)
    frames = [walk.frames.intern(np.array([value, 0], np.uint8)) for value in (10, 11, 50)]
    assert walk.graph.add(Transition((frames[0],), 0, 0.0, (frames[2],), False)) == 0
    assert walk.graph.add(Transition((frames[1],), 0, 0.0, (frames[2],), False)) == 0
    assert walk.graph.num_nodes == 2


def test_states_whose_shrunk_pictures_are_alike_are_one_node() -> None:
    frames = FrameStore((4, 4), np.uint8)
    pictures = np.zeros((3, 4, 4), np.uint8)
    pictures[0, 0, 0] = pictures[1, 1, 1] = pictures[2, 3, 3] = 255
    first, moved, other = (frames.intern(picture) for picture in pictures)
    graph = TransitionGraph(frames, 2, cells=2)
    assert graph.add(Transition((first,), 0, 0.0, (other,), False)) == 0
    assert graph.add(Transition((moved,), 0, 0.0, (other,), False)) == 0
    assert graph.num_nodes == 2
    assert graph.find((moved,)) == graph.find((first,)) != graph.find((other,))
    with pytest.raises(ValueError, match="joined by one of them"):
        TransitionGraph(frames, 2, cells=2, threshold=1.0)


def test_the_network_is_asked_about_new_nodes_first_and_then_about_those_asked_the_longest_ago() -> None:
    walk = Walk()
    walk.add(1, 0, 0.0, 2)
    assert walk.graph.unasked(5).tolist() == [0, 1]
    walk.graph.tell(np.array([1]), np.zeros((1, 2), np.float32))
    walk.graph.tell(np.array([0]), np.zeros((1, 2), np.float32))
    walk.add(2, 0, 0.0, 3)
    assert walk.graph.unasked(1).tolist() == [2, 1]
    assert walk.graph.unasked().tolist() == [2]


def test_the_oldest_edges_are_forgotten_when_values_are_refreshed() -> None:
    walk = Walk(capacity=3)
    for i in range(6):
        walk.add(i, 0, 0.0, i + 1)
    walk.add(0, 0, 0.0, 1)
    assert walk.graph.num_edges == 6
    walk.tell()
    walk.graph.refresh(ValueRule(discount=0.9))
    walk.check()
    assert (walk.graph.num_edges, walk.graph.num_nodes) == (3, 4)
    assert [walk.node(i) == NO_NODE for i in range(7)] == [True] * 3 + [False] * 4
    assert len(walk.frames) == 4
    assert walk.add(4, 0, 0.0, 5) == 4  # the edges left keep their numbers
    assert walk.add(0, 0, 0.0, 1) == 6  # a forgotten one is new
    assert walk.node(0) == 0  # in a row that is free again
    assert walk.graph.unasked().tolist() == [0, 1]


def corridor(length: int = 6, **options: Any) -> Walk:
    """States 1 to `length`; action 1 leads on, at the end it pays 1 and ends; action 0 was tried at the first only."""
    walk = Walk(**options)
    walk.add(1, 0, 0.0, 1)
    for i in range(1, length):
        walk.add(i, 1, 0.0, i + 1)
    walk.add(length, 1, 1.0, 0, terminal=True)
    walk.tell()
    return walk


def test_replay_draws_states_with_the_values_of_what_was_tried() -> None:
    walk = corridor()
    travel = walk.graph.refresh(ValueRule(discount=0.5), tolerance=1e-9)
    assert travel.num_passes <= 3
    assert travel.residual <= 1e-9
    assert travel.num_steps > 1
    replay = walk.graph.sample(200, np.random.default_rng(0))
    assert replay.s.shape == (200, 1)
    first = replay.nodes == walk.node(1)
    assert replay.weights[first].tolist() == [[1.0, 1.0]] * int(first.sum())
    assert replay.weights[~first].tolist() == [[0.0, 1.0]] * int((~first).sum())
    np.testing.assert_allclose(replay.targets[first], [[0.5**6, 0.5**5]] * int(first.sum()), rtol=1e-6)
    single = walk.graph.sample(200, np.random.default_rng(0), all_tried=False)
    assert (single.weights.sum(1) == 1).all()


def test_pairs_are_drawn_by_sets_by_visits_or_by_surprise() -> None:
    walk = corridor(2)
    for _ in range(97):
        walk.add(1, 0, 0.0, 1)  # now 98 of the 100 visits

    def share(replay: str) -> float:
        walk.graph.refresh(ValueRule(discount=0.5), replay=replay)
        drawn = walk.graph.sample(20_000, np.random.default_rng(0), all_tried=False)
        return float(((drawn.nodes == walk.node(1)) & (drawn.weights[:, 0] > 0)).mean())

    assert share("set") == pytest.approx(1 / 3, abs=0.02)
    assert share("visit") == pytest.approx(0.98, abs=0.02)
    # The network says 0 where 0.25, 0.5 and 1 are right: half of the draws by the root of that, half by sets.
    assert share("surprise") == pytest.approx((1 / 3 + 0.5 / (0.5 + 0.5**0.5 + 1)) / 2, abs=0.02)


def test_double_lets_the_newest_values_choose_and_those_before_say() -> None:
    walk = Walk(num_actions=3)
    walk.add(1, 0, -1.0, 0, terminal=True)
    for q in ([0.0, 7.0, 0.5], [0.0, 1.0, 2.0]):
        walk.graph.tell(np.array([0]), np.array([q], np.float32))
    walk.graph.refresh(ValueRule(discount=0.9))
    assert walk.graph.state_dict()["nodes"]["value"].tolist() == [2.0]
    walk.graph.refresh(ValueRule(discount=0.9), double=True)
    assert walk.graph.state_dict()["nodes"]["value"].tolist() == [0.5]


def test_a_graph_read_back_goes_on_as_if_nothing_had_happened() -> None:
    rng = np.random.default_rng(3)

    def go_on(walk: Walk, rng: np.random.Generator) -> Replay:
        for _ in range(50):
            s, a, s_next = rng.integers(12), rng.integers(2), rng.integers(12)
            walk.add(int(s), int(a), float(s == 3), int(s_next), terminal=bool(s == 3))
        walk.tell(0.25)
        walk.graph.refresh(ValueRule(discount=0.9), replay="surprise")
        return walk.graph.sample(64, rng)

    walk = Walk(capacity=60)
    for _ in range(3):
        go_on(walk, rng)
    other = Walk(capacity=60)
    other.frames.load_state_dict(walk.frames.state_dict())
    other.graph.load_state_dict(walk.graph.state_dict())
    other.check()
    drawn = [each.graph.sample(64, np.random.default_rng(4)) for each in (walk, other)]
    np.testing.assert_array_equal(drawn[0].nodes, drawn[1].nodes)  # by the same weights, before the next refresh
    for mine, its in zip(*(each.graph.walk(drawn[0].nodes, 4) for each in (walk, other)), strict=True):
        np.testing.assert_array_equal(mine, its)
    ours, theirs = (go_on(each, np.random.default_rng(5)) for each in (walk, other))
    for mine, its in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(mine, its)
    state, again = walk.graph.state_dict(), other.graph.state_dict()
    for name in ("edges", "nodes"):
        for column, values in state[name].items():
            np.testing.assert_array_equal(values, again[name][column])


def two_corridors() -> tuple[list[Walk], TransitionGraphs]:
    walks = [corridor(4), corridor(6)]
    for walk in walks:
        walk.graph.refresh(ValueRule(discount=0.5))
    return walks, TransitionGraphs([walk.graph for walk in walks], [np.random.default_rng(i) for i in range(2)])


def test_graphs_of_several_trials_draw_each_with_its_own_generator() -> None:
    walks, together = two_corridors()
    both = together.sample(8, [0, 1])
    alone = walks[1].graph.sample(8, np.random.default_rng(1))
    np.testing.assert_array_equal(both.nodes[1], alone.nodes)
    together.tell(both, np.ones((2, 8, 2), np.float32), [0, 1])
    state = together.state_dict(1)["nodes"]
    assert (state["q"][alone.nodes] == 1).all()


def states_walked(walk: Walk, start: int, num_steps: int) -> list[tuple[int, int, bool]]:
    """The actions and the states that a walk comes to, and whether it went so far."""
    found = walk.graph.walk(np.array([walk.node(start)]), num_steps)
    assert found.s.shape == (num_steps, 1, 1)
    states = walk.frames.gather(found.s[:, 0, 0].tolist())[:, 0]
    return list(zip(found.actions[:, 0].tolist(), states.tolist(), found.is_met[:, 0].tolist(), strict=True))


def test_a_walk_goes_on_by_what_last_left_each_state_until_nothing_follows() -> None:
    walk = Walk()
    walk.add(1, 0, 0.0, 2)
    walk.add(2, 1, 0.0, 3)
    walk.add(3, 0, 1.0, 9, terminal=True)
    assert states_walked(walk, 1, 2) == [(0, 2, True), (1, 3, True)]
    after_the_end = states_walked(walk, 1, 4)
    assert after_the_end[:2] == [(0, 2, True), (1, 3, True)]
    assert [is_met for _, _, is_met in after_the_end[2:]] == [False, False]
    walk.add(2, 0, 0.0, 4)  # 4 was never left
    walk.add(1, 1, 0.0, 1)
    walk.add(1, 0, 0.0, 2)  # again, and so the last
    assert states_walked(walk, 1, 2) == [(0, 2, True), (0, 4, True)]
    assert [is_met for _, _, is_met in states_walked(walk, 1, 4)] == [True, True, False, False]


def test_a_walk_ends_where_its_edge_was_forgotten_and_a_new_state_in_an_old_row_was_never_left() -> None:
    walk = Walk(capacity=2)
    for i in range(4):
        walk.add(i, 0, 0.0, i + 1)
    walk.add(2, 1, 0.0, 0)
    walk.add(2, 0, 0.0, 3)  # by an edge that is the third of five, and will be forgotten
    walk.tell()
    walk.graph.refresh(ValueRule(discount=0.9))
    walk.check()
    assert [is_met for _, _, is_met in states_walked(walk, 2, 1)] == [False]
    assert states_walked(walk, 3, 1) == [(0, 4, True)]
    walk.add(4, 0, 0.0, 50)  # takes the row of state 1
    assert [is_met for _, _, is_met in states_walked(walk, 50, 1)] == [False]


def test_a_graph_that_is_not_walked_keeps_nothing_for_walks() -> None:
    walked, plain = corridor(), corridor(walks=False)
    # What checkpoints of all times have: one column more, and none of them could be read any longer.
    assert set(plain.graph.state_dict()["nodes"]) == {
        "state", "degree", "value", "q", "q_before", "asked", "target", "visits", "tries"
    }  # fmt: skip
    assert set(walked.graph.state_dict()["nodes"]) - set(plain.graph.state_dict()["nodes"]) == {"onward"}
    assert plain.graph.nbytes == walked.graph.nbytes - 8 * plain.graph.num_nodes


def test_walks_of_several_trials_go_from_each_ones_own_states() -> None:
    walks, together = two_corridors()
    replay = together.sample(8, [0, 1])
    both = together.walk(replay, 3, [0, 1])
    for trial, walk in enumerate(walks):
        alone = walk.graph.walk(replay.nodes[trial], 3)
        for column, own in zip(both, alone, strict=True):
            np.testing.assert_array_equal(column[trial], own)
    of_second = together.walk(replay._replace(nodes=replay.nodes[1:]), 3, [1])
    np.testing.assert_array_equal(of_second.s[0], both.s[1])


def test_an_empty_graph_has_nothing_to_sample_and_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing to sample"):
        Walk().graph.sample(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="capacity = 0"):
        Walk(capacity=0)
    with pytest.raises(ValueError, match="replay = 'x': must be one of set, visit, surprise"):
        corridor().graph.refresh(ValueRule(discount=0.5), replay="x")


# Tabular tasks: value iteration written here, over the process as it was estimated.


def plain_value_iteration(outcomes: dict[tuple[int, int], dict[tuple[float, int, bool], float]], discount: float) -> Any:
    """Q of every pair that has outcomes, by plain loops; what was never tried is worth 0."""
    num_actions = 1 + max(a for _, a in outcomes)
    tried: dict[int, list[int]] = {}
    for s, a in outcomes:
        tried.setdefault(s, []).append(a)
    q = dict.fromkeys(outcomes, 0.0)
    for _ in range(20_000):

        def value(s: int) -> float:
            own = [q[s, a] for a in tried.get(s, [])]
            return max([*own, 0.0] if len(own) < num_actions else own)

        values = {s: value(s) for s in {t for o in outcomes.values() for _, t, _ in o}}
        change = 0.0
        for pair, seen in outcomes.items():
            total = sum(seen.values())
            new = sum(n * (r + discount * values[t] * (not done)) for (r, t, done), n in seen.items()) / total
            change, q[pair] = max(change, abs(new - q[pair])), new
        if change < 1e-11:
            break
    return q


def graph_values(walk: Walk, discount: float) -> dict[tuple[int, int], float]:
    """Q of every pair of the graph, by the states' numbers."""
    walk.tell(0.0)
    walk.graph.refresh(ValueRule(discount=discount), **EXACT)
    state = walk.graph.state_dict()["nodes"]
    numbers = walk.frames.gather(state["state"].astype(np.int64)[:, 0])[:, 0]
    pairs = np.argwhere(state["visits"] > 0).tolist()
    return {(int(numbers[node]), a): float(state["target"][node, a]) for node, a in pairs}


TASKS = [("FrozenLake-v1", 0.97), ("FrozenLake8x8-v1", 0.95), ("CliffWalking-v1", 0.97), ("Taxi-v4", 0.95)]


@pytest.mark.parametrize(("name", "discount"), TASKS)
def test_a_tabular_task_comes_to_the_optimal_values_of_the_estimated_process(name: str, discount: float) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make(name)
    walk = Walk(env.action_space.n)
    rng = np.random.default_rng(0)
    outcomes: dict[tuple[int, int], dict[tuple[float, int, bool], float]] = {}
    s = int(env.reset(seed=0)[0])
    for _ in range(3_000):
        a = int(rng.integers(env.action_space.n))
        s_next, r, terminated, truncated, _ = env.step(a)
        walk.graph.add(_transition(walk, s, a, float(r), int(s_next), bool(terminated)))
        seen = outcomes.setdefault((s, a), {})
        key = (float(r), int(s_next), bool(terminated))
        seen[key] = seen.get(key, 0) + 1
        s = int(env.reset()[0]) if terminated or truncated else int(s_next)
    walk.check()
    found, expected = graph_values(walk, discount), plain_value_iteration(outcomes, discount)
    assert found.keys() == expected.keys()
    assert max(abs(found[pair] - expected[pair]) for pair in expected) < 1e-5  # targets are single precision


@pytest.mark.parametrize(("name", "discount"), TASKS)
def test_a_tabular_task_wholly_met_comes_to_its_true_optimal_values(name: str, discount: float) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make(name).unwrapped
    walk = Walk(env.action_space.n)
    outcomes: dict[tuple[int, int], dict[tuple[float, int, bool], float]] = {}
    for s, actions in env.P.items():
        for a, listed in actions.items():
            for probability, s_next, r, done in listed:
                key = (float(r), int(s_next), bool(done))
                outcomes.setdefault((s, a), {})[key] = outcomes.get((s, a), {}).get(key, 0.0) + probability
                for _ in range(round(30 * probability)):
                    walk.graph.add(_transition(walk, s, a, *key))
    walk.check()
    found, expected = graph_values(walk, discount), plain_value_iteration(outcomes, discount)
    assert found.keys() == expected.keys()
    assert max(abs(found[pair] - expected[pair]) for pair in expected) < 1e-4


def _transition(walk: Walk, s: int, a: int, r: float, s_next: int, done: bool) -> Transition:
    ids = [walk.frames.intern(np.array([value, 0])) for value in (s, s_next)]
    return Transition((ids[0],), a, r, (ids[1],), done)


def _wrong(path: str, value: Any) -> Any:
    def change(state: dict[str, Any]) -> None:
        *parents, name = path.split("/")
        for parent in parents:
            state = state[parent]
        state[name] = np.full_like(state[name], value)

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("edges/source", 10**6), ("edges/source", -1), ("edges/target", 10**6), ("edges/count", 0), ("nodes/degree", 1),
        ("nodes/state", 10**6), ("nodes/state", -1), ("nodes/tries", 7), ("index/set_ids", 3), ("pairs", 10**6), ("pairs", -1),
        ("nodes/onward", 2), ("nodes/onward", 10**6), ("nodes/onward", -1),
        ("replay_weights", -1.0), ("counters", -1), ("counters", 2**63 - 1),
    ],
)  # fmt: skip
def test_a_state_that_contradicts_itself_is_refused(path: str, value: Any) -> None:
    walk = corridor()
    walk.tell(0.25)
    walk.graph.refresh(ValueRule(discount=0.9))
    other = Walk()
    other.frames.load_state_dict(walk.frames.state_dict())
    state = walk.graph.state_dict()
    other.graph.load_state_dict(state)
    _wrong(path, value)(state)
    with pytest.raises((ValueError, KeyError)):
        other.graph.load_state_dict(state)
