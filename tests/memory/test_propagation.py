"""Values over a graph: by hand, against plain value iteration, chains in one pass, and every way to treat the untried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.memory.propagation import NO_NODE, Layout, ValueRule, layout_of, solve, terms_of, travelled

Edge = tuple[int, int, float, int, int]
"""State, action, reward, state that followed (NO_NODE: game over), count."""


def layout(edges: list[Edge], num_nodes: int) -> Layout:
    source, action, reward, target, count = (np.array(column) for column in zip(*edges, strict=True))
    return layout_of(
        source=source, action=action, reward=reward.astype(float), target=target, count=count, num_nodes=num_nodes
    )


def solved(edges: list[Edge], q: Any, *, start: Any = None, max_passes: int = 10_000, **rule: Any) -> Any:
    """V and the pairs' values as a dictionary, with the number of passes."""
    values = np.asarray(q, np.float32)
    placed = layout(edges, len(values))
    found = solve(terms_of(placed, ValueRule(**rule), values), start, tolerance=1e-10, max_passes=max_passes)
    keys = zip(placed.pair_node.tolist(), placed.pair_action.tolist(), strict=True)
    return found, dict(zip(keys, found.pair_values.tolist(), strict=True))


def value_iteration(edges: list[Edge], q: Any, discount: float, untried: str, *, k: float = 0.0, trust: float = 1.0) -> Any:
    """V by plain loops, from the definition."""
    outcomes: dict[tuple[int, int], list[tuple[float, int, int]]] = {}
    for s, a, r, s_next, n in edges:
        outcomes.setdefault((s, a), []).append((r, s_next, n))
    values = [0.0] * len(q)
    for _ in range(5_000):
        new = []
        for s, row in enumerate(q):
            known = {}
            for a in range(len(row)):
                if (s, a) in outcomes:
                    visits = sum(n for *_, n in outcomes[s, a])
                    total = sum(n * (r + discount * (values[t] if t != NO_NODE else 0.0)) for r, t, n in outcomes[s, a])
                    known[a] = (total + k * row[a]) / (visits + k)
            best = int(np.argmax(row))
            if not known:
                new.append(float(row[best]))
                continue
            if untried == "chosen":
                value = known.get(best, row[best])
            else:
                others = [row[a] for a in range(len(row)) if a not in known] if untried == "max" else []
                value = max([*known.values(), *others])
            new.append(trust * value + (1 - trust) * row[best])
        if max(abs(a - b) for a, b in zip(new, values, strict=True)) < 1e-12:
            break
        values = new
    return np.array(values)


def random_graph(seed: int, num_nodes: int = 30, num_actions: int = 3, num_edges: int = 90) -> tuple[list[Edge], Any]:
    rng = np.random.default_rng(seed)
    edges: dict[tuple[int, int, float, int], int] = {}
    for _ in range(num_edges):
        target = int(rng.integers(-1, num_nodes))
        key = (int(rng.integers(num_nodes)), int(rng.integers(num_actions)), float(rng.integers(-1, 2)), target)
        edges[key] = edges.get(key, 0) + int(rng.integers(1, 4))
    return [(*key, n) for key, n in edges.items()], rng.normal(size=(num_nodes, num_actions)).astype(np.float32)


def test_two_outcomes_are_averaged_by_their_counts() -> None:
    # Action 0 of state 0 paid 1 and ended three times, and once led to state 1, which the network values at 2, after 0.
    edges = [(0, 0, 1.0, NO_NODE, 3), (0, 0, 0.0, 1, 1)]
    found, q = solved(edges, [[0.0, -5.0], [2.0, 1.0]], discount=0.5)
    assert q[0, 0] == pytest.approx(0.75 * 1 + 0.25 * 0.5 * 2)
    assert found.values.tolist() == pytest.approx([1.0, 2.0])


def test_the_better_of_tried_and_untried_counts_unless_the_untried_are_ignored() -> None:
    edges = [(0, 0, 1.0, NO_NODE, 1)]
    assert solved(edges, [[9.0, 3.0]], discount=0.9, untried="max")[0].values[0] == 3.0
    assert solved(edges, [[9.0, 3.0]], discount=0.9, untried="ignored")[0].values[0] == 1.0


def test_where_the_network_chooses_the_graph_says_what_the_choice_is_worth() -> None:
    edges = [(0, 0, 1.0, NO_NODE, 1)]
    assert solved(edges, [[9.0, 3.0]], discount=0.9, untried="chosen")[0].values[0] == 1.0
    assert solved(edges, [[2.0, 3.0]], discount=0.9, untried="chosen")[0].values[0] == 3.0


def test_the_networks_word_counts_as_visits() -> None:
    edges = [(0, 0, 1.0, NO_NODE, 3)]
    _, q = solved(edges, [[5.0, -9.0]], discount=0.9, prior_visits=1.0)
    assert q[0, 0] == pytest.approx((3 * 1.0 + 1 * 5.0) / 4)


def test_a_bonus_falls_with_the_root_of_the_visits() -> None:
    _, q = solved([(0, 0, 0.0, NO_NODE, 4)], [[0.0]], discount=0.9, bonus=0.6)
    assert q[0, 0] == pytest.approx(0.3)


@pytest.mark.parametrize("untried", ["max", "chosen", "ignored"])
def test_with_a_bonus_an_untried_action_is_as_good_as_the_best_and_the_bonus_more(untried: str) -> None:
    edges = [(0, 0, 0.0, NO_NODE, 4), (1, 0, 0.0, NO_NODE, 1), (1, 1, 0.0, NO_NODE, 9)]
    found, _ = solved(edges, [[2.0, -9.0], [0.0, 0.0]], discount=0.9, bonus=0.6, untried=untried)
    assert found.values.tolist() == pytest.approx([2.6, 0.6])


def test_trust_below_one_gives_the_lambda_returns_of_a_trajectory() -> None:
    rewards, trust, discount = [1.0, 0.0, 2.0], 0.8, 0.9
    q = np.array([[0.3, 0.1], [0.2, 0.5], [0.4, 0.7], [1.0, 0.0]], np.float32)
    edges = [(i, 0, r, i + 1, 1) for i, r in enumerate(rewards)]
    _, found = solved(edges, q, discount=discount, untried="ignored", trust=trust)
    following = float(q[3].max())
    for i in (2, 1, 0):  # G = r + γ V', V = λ G + (1 - λ) max Q
        g = rewards[i] + discount * following
        assert found[i, 0] == pytest.approx(g)
        following = trust * g + (1 - trust) * float(q[i].max())


def test_trust_that_grows_is_lambda_after_one_visit_and_more_after_more() -> None:
    edges = [(0, 0, 1.0, NO_NODE, 1), (1, 0, 1.0, NO_NODE, 2), (1, 1, -1.0, NO_NODE, 2)]
    found, _ = solved(edges, np.zeros((2, 2)), discount=0.9, untried="ignored", trust=0.8, trust_grows="state")
    assert found.values.tolist() == pytest.approx([0.8, 4 / 4.25])


def test_trust_may_grow_with_the_tries_of_the_action_that_the_network_prefers() -> None:
    edges = [(0, 0, 1.0, NO_NODE, 9), (1, 0, 1.0, NO_NODE, 4), (1, 1, 3.0, NO_NODE, 2)]
    q = np.array([[0.0, 0.5], [0.0, 0.5]], np.float32)
    found, _ = solved(edges, q, discount=0.9, untried="ignored", trust=0.8, trust_grows="best-action")
    tried_twice = 2 / 2.25
    assert found.values.tolist() == pytest.approx([0.8 * 1 + 0.2 * 0.5, tried_twice * 3 + (1 - tried_twice) * 0.5])
    with pytest.raises(ValueError, match="trust_grows = 'always': must be one of state, best-action, never"):
        solved(edges, q, discount=0.9, trust_grows="always")


@pytest.mark.parametrize("untried", ["max", "chosen", "ignored"])
@pytest.mark.parametrize(("k", "trust"), [(0.0, 1.0), (0.5, 1.0), (0.0, 0.7), (1.0, 0.5)])
@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_come_to_what_value_iteration_comes_to(untried: str, k: float, trust: float, seed: int) -> None:
    edges, q = random_graph(seed)
    expected = value_iteration(edges, q.tolist(), 0.9, untried, k=k, trust=trust)
    found, _ = solved(edges, q, discount=0.9, untried=untried, prior_visits=k, trust=trust)
    np.testing.assert_allclose(found.values, expected, atol=1e-8)
    elsewhere, _ = solved(edges, q, discount=0.9, untried=untried, prior_visits=k, trust=trust, start=50 * np.ones(len(q)))
    np.testing.assert_allclose(elsewhere.values, expected, atol=1e-8)


@pytest.mark.parametrize("length", [1, 2, 3, 5_000])
def test_a_trajectory_of_any_length_takes_one_pass_and_one_to_see_it(length: int) -> None:
    edges = [(i, 0, 0.0, i + 1, 1) for i in range(length - 1)] + [(length - 1, 0, 1.0, NO_NODE, 1)]
    found, _ = solved(edges, np.zeros((length, 2)), discount=0.999, untried="ignored")
    assert found.num_passes <= 3
    np.testing.assert_allclose(found.values, 0.999 ** np.arange(length)[::-1], rtol=1e-9)


def test_a_ring_is_worth_its_reward_for_ever() -> None:
    edges = [(i, 0, float(i == 0), (i + 1) % 4, 1) for i in range(4)]
    found, _ = solved(edges, np.zeros((4, 1)), discount=0.9, untried="ignored")
    assert found.values[0] == pytest.approx(1 / (1 - 0.9**4))
    assert found.num_passes < 10


def test_the_network_that_chooses_may_be_another_than_the_one_that_says() -> None:
    placed = layout([(0, 0, -1.0, NO_NODE, 1)], 1)
    newest, before = np.array([[0.0, 1.0, 2.0]], np.float32), np.array([[0.0, 7.0, 0.5]], np.float32)
    assert solve(terms_of(placed, ValueRule(discount=0.9), before, newest)).values[0] == 0.5


def test_a_value_rests_on_as_many_steps_as_were_observed_before_the_networks_word() -> None:
    edges = [(0, 0, 1.0, 1, 1), (1, 0, 1.0, 2, 1), (2, 0, -9.0, 3, 1)]
    q = np.array([[0, 0], [0, 0], [0, 5], [0, 0]], np.float32)
    terms = terms_of(layout(edges, 4), ValueRule(discount=0.5), q)
    # At 2 the untried action is better: nothing observed. 1 rests on one step, 0 on one and a discounted one more.
    assert travelled(terms, solve(terms)).tolist() == pytest.approx([1.5, 1.0, 0.0, 0.0])


def test_a_graph_without_edges_has_the_networks_values() -> None:
    nothing = np.zeros(0, np.int64)
    empty = layout_of(source=nothing, action=nothing, reward=np.zeros(0), target=nothing, count=nothing, num_nodes=2)
    terms = terms_of(empty, ValueRule(discount=0.9), np.array([[1, 2], [4, 3]], np.float32))
    assert solve(terms).values.tolist() == [2.0, 4.0]
    assert travelled(terms, solve(terms)).tolist() == [0.0, 0.0]


def test_a_pass_limit_is_kept_and_the_rest_is_told() -> None:
    edges, q = random_graph(0)
    found, _ = solved(edges, q, discount=0.99, max_passes=2)
    assert found.num_passes == 2
    assert found.residual > 1e-6


def test_an_unknown_way_to_treat_the_untried_is_refused() -> None:
    with pytest.raises(ValueError, match="untried = 'other': must be one of max, chosen, ignored"):
        solved([(0, 0, 1.0, NO_NODE, 1)], [[0.0]], discount=0.9, untried="other")
