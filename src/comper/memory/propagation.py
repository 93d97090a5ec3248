"""Values that travel over a graph of transitions: sweeps to convergence, vectorised, in double precision.

Q(s, a) of an action that was tried is the average over its outcomes, each counted as often as it was met: Σ w (r + γ V(s')).
V(s) is the best of these, and of what a network says about actions that were not tried (`ValueRule`). A state that was only
ever reached, and never left, has the network's value alone.

A sweep moves values by one step. Between sweeps chains are followed to their end: where the best action of a state has met
a single outcome, V(s) = R + G V(next), and composing such rules with themselves doubles the steps they cover. So a
trajectory of any length takes one pass, with as many vector operations as the logarithm of its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_NODE = -1
"""What follows a game over."""
UNTRIED = ("max", "chosen", "ignored")
TRUST_GROWS = ("state", "best-action", "never")
NEGLIGIBLE = 1e-9
"""A chain ends where less than this share of what follows would arrive at its beginning."""


class Layout(NamedTuple):
    """Edges in the order of the state and the action that they belong to, and where each action and each state begins."""

    num_nodes: int
    target: Ints
    """(E,) the state that followed; NO_NODE after a game over."""
    reward: Floats
    weight: Floats
    """(E,) share of the outcome among those of its action: the weights of an action sum to 1."""
    pair_start: Ints
    """(P,) first edge of each pair of a state and an action that was tried there."""
    pair_node: Ints
    pair_action: Ints
    pair_visits: Floats
    node_start: Ints
    """(M,) first pair of each state that was left by any action."""
    inner: Ints
    """(M,) these states."""

    @property
    def num_outcomes(self) -> Ints:
        """(P,) different outcomes of each pair."""
        return np.diff(self.pair_start, append=len(self.target))


def layout_of(*, source: Ints, action: Ints, reward: Floats, target: Ints, count: Ints, num_nodes: int) -> Layout:
    """Sort edges, given column by column. States are numbered from 0; nearly sorted edges are quicker."""
    num_actions = int(action.max(initial=0)) + 1
    pair = source * num_actions + action
    order = np.argsort(pair, kind="stable")
    pair, weight = pair[order], count[order].astype(np.float64)
    pair_start = np.flatnonzero(np.diff(pair, prepend=-1))
    pair_visits = np.add.reduceat(weight, pair_start) if len(pair) else weight
    weight /= np.repeat(pair_visits, np.diff(pair_start, append=len(pair)))
    pair_node, pair_action = np.divmod(pair[pair_start], num_actions)
    node_start = np.flatnonzero(np.diff(pair_node, prepend=-1))
    inner = pair_node[node_start]
    return Layout(
        num_nodes, target[order], reward[order], weight, pair_start, pair_node, pair_action, pair_visits, node_start, inner
    )


@dataclass(frozen=True, kw_only=True)
class ValueRule:
    """How what was met and what a network says are put together.

    untried: `max`, V(s) is the best of both; `chosen`, the network chooses the action, and where it was tried the graph
    says what it is worth; `ignored`, only what was tried counts.
    """

    discount: float
    untried: str = "max"
    prior_visits: float = 0.0
    """The network's value of a tried action counts as so many visits of it."""
    trust: float = 1.0
    """λ: V(s) = λ (as above) + (1 - λ) max Q(s, ·) of the network, as in Peng's Q(λ)."""
    trust_grows: str = "never"
    """`state`, `best-action`: λ is that of one visit and goes towards 1 with their number n as n / (n + 1/λ - 1); visits of
    the state, or of the action that is the best there by the network. A state left a hundred times by one action may have a
    better one: by the first rule only what was tried counts there, by the second the network's word keeps its weight."""
    bonus: float = 0.0
    """β: an action pays β/√n more after n visits. With it an untried action is taken for as good as the network's best one,
    and β more: its own value says little, since nobody ever fitted it."""


class Terms(NamedTuple):
    """The equations of a graph: V = λ max(max over pairs of [f (Σ w (r + γ V') ) + p], other) + (1-λ) anchor."""

    layout: Layout
    reward: Floats
    """(E,) with bonus."""
    discount: Floats
    """(E,) γ, or 0 after a game over."""
    factor: Floats
    """(P,) f."""
    prior: Floats
    """(P,) p."""
    is_allowed: NDArray[np.bool_]
    """(P,) pairs that may be the best of their state."""
    other: Floats
    """(N,) what a state is worth without any of its pairs; -inf: nothing is known."""
    anchor: Floats
    """(N,)"""
    trust: Floats
    """(N,) λ."""


def terms_of(layout: Layout, rule: ValueRule, q: NDArray[np.float32], q_chooser: NDArray[np.float32] | None = None) -> Terms:
    """The equations for Q-values (N, A) of a network; another's, `q_chooser`, may choose which of them is the best."""
    if rule.untried not in UNTRIED:
        raise ValueError(f"untried = {rule.untried!r}: must be one of {', '.join(UNTRIED)}.")
    if rule.trust_grows not in TRUST_GROWS:
        raise ValueError(f"trust_grows = {rule.trust_grows!r}: must be one of {', '.join(TRUST_GROWS)}.")
    chooser = q if q_chooser is None else q_chooser
    is_tried = np.zeros(q.shape, np.bool_)
    is_tried[layout.pair_node, layout.pair_action] = True
    is_inner = np.zeros(layout.num_nodes, np.bool_)
    is_inner[layout.inner] = True
    best = chooser.argmax(1)
    anchor = _at(q, best)
    is_allowed = np.ones(len(layout.pair_node), np.bool_)
    if rule.untried == "chosen":
        is_allowed = best[layout.pair_node] == layout.pair_action
        other = np.where(_at(is_tried, best) > 0, -np.inf, anchor)
    elif rule.untried == "max":
        other = np.where(is_tried.all(1), -np.inf, _at(q, np.where(is_tried, -np.inf, chooser).argmax(1)))
    else:
        other = np.where(is_inner, -np.inf, anchor)
    if rule.bonus:
        other = np.where(is_tried.all(1), other, anchor + rule.bonus)
    factor = layout.pair_visits / (layout.pair_visits + rule.prior_visits)
    prior = (1 - factor) * q[layout.pair_node, layout.pair_action]
    edge_bonus = np.repeat(rule.bonus / np.sqrt(np.maximum(layout.pair_visits, 1.0)), layout.num_outcomes)
    discount = np.where(layout.target == NO_NODE, 0.0, rule.discount)
    trust = _trust(layout, rule, best)
    return Terms(layout, layout.reward + edge_bonus, discount, factor, prior, is_allowed, other, anchor, trust)


def _trust(layout: Layout, rule: ValueRule, best: Ints) -> Floats:
    """λ of every state; `best` (N,) is the best action by the network."""
    visits = np.ones(layout.num_nodes)
    if rule.trust_grows == "state" and len(layout.inner):
        visits[layout.inner] = np.add.reduceat(layout.pair_visits, layout.node_start)
    elif rule.trust_grows == "best-action":
        is_best = best[layout.pair_node] == layout.pair_action
        visits[layout.pair_node[is_best]] = layout.pair_visits[is_best]
    return trust_after(visits, rule.trust)


def trust_after(visits: Floats, trust: float) -> Floats:
    """λ after some visits, of which one gives `trust`: n / (n + 1/λ - 1)."""
    return visits / (visits + 1 / trust - 1) if trust else np.zeros_like(visits)


def _at(q: NDArray[np.float32] | NDArray[np.bool_], actions: Ints) -> Floats:
    return q[np.arange(len(q)), actions].astype(np.float64)


class Solution(NamedTuple):
    """Values of all states, of all pairs, and how they were reached."""

    values: Floats
    """(N,) V."""
    pair_values: Floats
    """(P,) Q."""
    num_passes: int
    residual: float
    """By how much the last sweep changed a value, at most."""


def solve(terms: Terms, start: Floats | None = None, *, tolerance: float = 1e-3, max_passes: int = 1_000) -> Solution:
    """Sweep until no value changes by more than the tolerance; `start` are values from which to begin."""
    values = np.where(np.isfinite(terms.other), terms.other, terms.anchor) if start is None else start
    num_passes, enough = 0, np.inf
    while True:
        pair_values = _pair_values(terms, values)
        new = _best(terms, pair_values)
        num_passes += 1
        residual = float(np.abs(new - values).max(initial=0.0))
        if residual <= tolerance or num_passes >= max_passes:
            return Solution(new, pair_values, num_passes, residual)
        # A sweep always comes closer to the solution. Chains cost as much as several sweeps and may lead away from it while
        # choices still change, so they are followed when sweeps have come closer by half since the last time.
        values, enough = (_follow_chains(terms, new, pair_values), residual / 2) if residual < enough else (new, enough)


def _pair_values(terms: Terms, values: Floats) -> Floats:
    """Q of every pair, from V of the states that followed."""
    layout = terms.layout
    if not len(layout.target):
        return np.zeros(0)
    outcomes = layout.weight * (terms.reward + terms.discount * values[layout.target])  # NO_NODE: the last, times 0
    return np.asarray(terms.factor * np.add.reduceat(outcomes, layout.pair_start) + terms.prior)


def _best(terms: Terms, pair_values: Floats) -> Floats:
    """V of every state, from Q of its pairs."""
    inner, values = terms.layout.inner, terms.other.copy()
    if len(inner):
        best = np.maximum.reduceat(np.where(terms.is_allowed, pair_values, -np.inf), terms.layout.node_start)
        trust = terms.trust[inner]
        values[inner] = trust * np.maximum(best, terms.other[inner]) + (1 - trust) * terms.anchor[inner]
    return values


def _choices(terms: Terms, pair_values: Floats) -> tuple[Ints, NDArray[np.bool_]]:
    """(M,) the best pair of each state that was left, the first of equals, and whether it beats the network's `other`."""
    layout = terms.layout
    allowed = np.where(terms.is_allowed, pair_values, -np.inf)
    best = np.maximum.reduceat(allowed, layout.node_start)
    sizes = np.diff(layout.node_start, append=len(pair_values))
    places = np.where(allowed == np.repeat(best, sizes), np.arange(len(pair_values)), len(pair_values))
    return np.minimum.reduceat(places, layout.node_start), best >= terms.other[layout.inner]


def _follow_chains(terms: Terms, values: Floats, pair_values: Floats) -> Floats:
    """V where states whose best action has met one outcome take over the value at the end of their chain."""
    layout = terms.layout
    if not len(layout.inner):
        return values
    choice, is_graph = _choices(terms, pair_values)
    is_link = is_graph & (layout.num_outcomes[choice] == 1) & (layout.target[layout.pair_start[choice]] != NO_NODE)
    nodes, pairs = layout.inner[is_link], choice[is_link]
    edges = layout.pair_start[pairs]
    # V(node) = R + G V(next); everywhere else V = R.
    rest, gain, following = values.copy(), np.zeros(layout.num_nodes), np.arange(layout.num_nodes)
    own = terms.factor[pairs] * terms.reward[edges] + terms.prior[pairs]
    trust = terms.trust[nodes]
    rest[nodes] = trust * own + (1 - trust) * terms.anchor[nodes]
    gain[nodes] = trust * terms.factor[pairs] * terms.discount[edges]
    following[nodes] = layout.target[edges]
    while len(nodes):
        ahead = following[nodes]
        rest[nodes] += gain[nodes] * rest[ahead]
        gain[nodes], following[nodes] = gain[nodes] * gain[ahead], following[ahead]
        nodes = nodes[gain[nodes] > NEGLIGIBLE]
    return np.asarray(rest + gain * values[following])


def travelled(terms: Terms, solution: Solution, *, max_passes: int = 5) -> Floats:
    """(N,) how many observed steps a value rests on before the network's word, discounted as the values themselves are.

    It is for a log, so it takes few passes: where ways branch often it is less than the truth.
    """
    if not len(terms.layout.inner):
        return np.zeros(terms.layout.num_nodes)
    choice, is_graph = _choices(terms, solution.pair_values)
    is_chosen = np.zeros(len(solution.pair_values), np.bool_)
    is_chosen[choice[is_graph]] = True
    other = np.zeros(terms.layout.num_nodes)
    other[terms.layout.inner[is_graph]] = -np.inf
    ones = np.ones(len(terms.reward))
    counted = terms._replace(reward=ones, prior=0 * terms.prior, is_allowed=is_chosen, other=other, anchor=0 * terms.anchor)
    return solve(counted, np.zeros(terms.layout.num_nodes), tolerance=0.1, max_passes=max_passes).values
