"""The graph of an environment as far as one trial has met it: states, and sets of similar transitions between them.

A node is a state; with a threshold above 0 a state joins the nearest node within it, and with cells the one whose shrunk
picture is the same. An edge is a set of similar transitions:
a state, an action, a reward and the state that followed, or a game over, with the number of times it was met. The end of an
episode by a time limit is no game over: the state that followed is a node like every other.

`refresh` lets values travel over the graph (`propagation.py`). They are then data: `sample` draws states with the values of
the actions that were tried there, towards which a network is fitted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore, Held
from comper.memory.indexes import NO_MATCH, CoarseIndex, TransitionKey, held_by, make_index
from comper.memory.known_values import KnownValues, state_keys
from comper.memory.lending import Lending, with_loans
from comper.memory.propagation import NO_NODE, Layout, ValueRule, layout_of, solve, terms_of, travelled
from comper.memory.transitions import Memories, Transition

REPLAY = ("set", "visit", "surprise")
BYTES_PER_EDGE = 250
"""Approximate: the columns and the dictionary's entry."""


class Replay(NamedTuple):
    """Drawn states with the values of what was tried there: B rows for each trial of the call."""

    nodes: NDArray[np.int64]
    """(n, B)"""
    s: NDArray[np.int64]
    """(n, B, history) frame ids."""
    targets: NDArray[np.float32]
    """(n, B, A) values of the actions; anything where an action was not tried."""
    weights: NDArray[np.float32]
    """(n, B, A) 1 for the actions to be fitted, 0 for the others."""


class Walk(NamedTuple):
    """What followed states: K steps from each of B states, those of the trials of a call side by side."""

    actions: NDArray[np.int64]
    """(n, K, B)"""
    s: NDArray[np.int64]
    """(n, K, B, history) frame ids of the states that were come to."""
    is_met: NDArray[np.bool_]
    """(n, K, B) whether the walk went so far; the rest is anything."""


class TriedActions(NamedTuple):
    """What is known of the actions of a state, (A,) each."""

    values: NDArray[np.float32]
    """Anything where an action was not tried."""
    visits: NDArray[np.int32]
    """How often each had been tried when the values were computed."""
    tries: NDArray[np.int32] | None
    """How often up to now; None of a policy that learns no longer, and does not explore."""


@dataclass
class Travel:
    """What the last refresh did."""

    num_passes: int = 0
    residual: float = 0.0
    num_steps: float = 0.0
    """Mean over the states of the observed steps that a value rests on, discounted."""


class Columns:
    """Arrays of one length by name, which grow together."""

    def __init__(self, capacity: int = 1024, **kinds: tuple[Any, tuple[int, ...]]):
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.zeros((capacity, *shape), dtype) for name, (dtype, shape) in kinds.items()
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def reserve(self, size: int) -> None:
        """Make room for this many rows."""
        capacity = len(next(iter(self.arrays.values())))
        if size > capacity:
            for name, array in self.arrays.items():
                self.arrays[name] = np.concatenate([array, np.zeros((size, *array.shape[1:]), array.dtype)])

    def state_dict(self, size: int) -> dict[str, Any]:
        """The first rows."""
        return {name: array[:size].copy() for name, array in self.arrays.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self.reserve(len(state[next(iter(self.arrays))]))
        for name, array in self.arrays.items():
            if state[name].shape[1:] != array.shape[1:]:
                raise ValueError(f"{name}: saved with shape {state[name].shape[1:]}, expected {array.shape[1:]}.")
            array[...] = 0
            array[: len(state[name])] = state[name]


class TransitionGraph:
    """The states and similar transitions that one trial has met, and their values."""

    def __init__(
        self,
        frames: FrameStore,
        num_actions: int,
        *,
        capacity: int = 100_000,
        history_length: int = 1,
        threshold: float = 0.0,
        cells: int = 0,
        lending_reach: float = 0.0,
        num_lenders: int = 5,
        walks: bool = False,
    ):
        if capacity < 1:
            raise ValueError(f"capacity = {capacity}: a graph has at least one edge.")
        if threshold and cells:
            raise ValueError(f"threshold = {threshold}, cells = {cells}: states are joined by one of them.")
        self.frames = frames
        self.num_actions = num_actions
        self.capacity = capacity
        kind = "exact" if threshold == 0 else "l2"
        self._index = CoarseIndex(frames, cells) if cells else make_index(kind, frames, threshold)
        self._walks = walks
        self._lending: Lending | None = None
        more_columns: dict[str, Any] = {}
        if walks:  # 1 + the number of the edge by which the row's state was last left; 0: never left
            more_columns["onward"] = (np.int64, ())
        if lending_reach:
            self._lending = Lending(frames, history_length, reach=lending_reach, num_lenders=num_lenders)
            more_columns |= {
                "is_compared": (np.bool_, ()),
                "lenders": (np.int32, (num_lenders,)),  # the nearest of the states that were there before
                "distances": (np.float32, (num_lenders,)),
            }
        self._nodes = Columns(
            state=(np.int32, (history_length,)),
            degree=(np.int32, ()),  # edges that begin or end here; 0: the row is free
            value=(np.float64, ()),
            q=(np.float32, (num_actions,)),  # of the network, when it was last asked
            q_before=(np.float32, (num_actions,)),  # when it was asked before that
            asked=(np.int64, ()),  # the number of that question; 0: not asked yet
            target=(np.float32, (num_actions,)),  # of the tried actions, since the last refresh
            visits=(np.int32, (num_actions,)),  # of each action, up to the last refresh
            tries=(np.int32, (num_actions,)),  # of each action, up to now
            **more_columns,
        )
        anew = ("degree", "value", "asked", "visits", "tries", "is_compared")
        self._begun_anew = [name for name in anew if name in self._nodes.arrays]  # where a row is another state's from now on
        self._edges = Columns(
            source=(np.int32, ()),
            action=(np.int32, ()),
            reward=(np.float64, ()),
            target=(np.int32, ()),
            count=(np.int64, ()),
        )
        self._edge_rows: dict[tuple[int, int, float, int], int] = {}
        self._num_forgotten = 0  # edges; an edge's number is its row and this
        self._end = 0  # nodes from here on were never used
        self._free: list[int] = []
        self._num_questions = 0
        self.num_visits = 0
        """Transitions met so far."""
        self.travel = Travel()
        self.given = KnownValues.none(history_length, num_actions)
        """What another graph knew, of states that are not met yet."""
        self._pairs: tuple[NDArray[np.int64], NDArray[np.int64]] = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        self._replay_weights = np.zeros(0)  # cumulative, of the pairs

    # Met in the environment.

    def add(self, transition: Transition) -> int:
        """Count a transition; return the number of its edge."""
        source = self._node(transition.s)
        target = NO_NODE if transition.is_terminal else self._node(transition.s_next)
        key = (source, transition.a, transition.r + 0.0, target)  # -0.0 equals 0.0
        self.num_visits += 1
        edge = self._edge_rows.get(key)
        if edge is None:
            edge = self._edge_rows[key] = self._num_forgotten + self.num_edges
            row = edge - self._num_forgotten
            self._edges.reserve(row + 1)
            for name, value in zip(("source", "action", "reward", "target"), key, strict=True):
                self._edges[name][row] = value
            self._edges["count"][row] = 0
            self._count_ends(key, 1)
        self._edges["count"][edge - self._num_forgotten] += 1
        self._nodes["tries"][source, transition.a] += 1
        if self._walks:
            self._nodes["onward"][source] = edge + 1
        return edge

    def find(self, state: Sequence[int]) -> int:
        """The node of a state, or NO_NODE."""
        found = self._index.get_index(TransitionKey(tuple(state), 0, 0.0, ()))
        return NO_NODE if found == NO_MATCH else found

    def _node(self, state: tuple[int, ...]) -> int:
        node = self.find(state)
        if node != NO_NODE:
            return node
        node = heapq.heappop(self._free) if self._free else self._end
        self._end = max(self._end, node + 1)
        self._nodes.reserve(self._end)
        for name in self._begun_anew:
            self._nodes[name][node] = 0
        self._nodes["state"][node] = state
        self._index.update_index(node, TransitionKey(state, 0, 0.0, ()))  # it keeps the frames
        return node

    def _count_ends(self, key: tuple[int, int, float, int], change: int) -> None:
        degree = self._nodes["degree"]
        ends = [node for node in (key[0], key[3]) if node != NO_NODE]
        for node in ends:
            degree[node] += change
        for node in dict.fromkeys(ends):
            if not degree[node]:
                self._index.forget(node)
                heapq.heappush(self._free, node)

    def _forget_oldest(self) -> None:
        """Keep as many edges as the capacity says; those met first for the first time go. Nodes without an edge go too."""
        excess = self.num_edges - self.capacity
        if excess <= 0:
            return
        keys = list(self._edge_rows)[:excess]  # dictionaries remember the order in which keys came
        for key, count in zip(keys, self._edges["count"].tolist(), strict=False):
            del self._edge_rows[key]
            self._nodes["tries"][key[0], key[1]] -= count
        for array in self._edges.arrays.values():
            array[: len(array) - excess] = array[excess:].copy()
        self._num_forgotten += excess
        for key in keys:
            self._count_ends(key, -1)
        if self._lending:
            lenders = self._nodes["lenders"]
            lenders[self._nodes["degree"][lenders] == 0] = NO_NODE

    # What the network says about states.

    def unasked(self, num_oldest: int = 0) -> NDArray[np.int64]:
        """Nodes whose Q-values were never given, and at most so many of those that were given them the longest ago."""
        nodes = np.flatnonzero(self._nodes["degree"][: self._end])
        asked = self._nodes["asked"][nodes]
        new, old = nodes[asked == 0], nodes[asked > 0]
        order = np.argsort(self._nodes["asked"][old], kind="stable")[:num_oldest]
        return np.concatenate([new, old[order]])

    def states(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Frame ids (..., history) of nodes."""
        return self._nodes["state"][nodes].astype(np.int64)

    def tell(self, nodes: NDArray[np.int64], q: NDArray[np.float32]) -> None:
        """Note a network's Q-values (n, A) of nodes."""
        own = self._nodes["q"][nodes]
        self._nodes["q_before"][nodes] = np.where(self._nodes["asked"][nodes, None] > 0, own, q)
        self._nodes["q"][nodes] = q
        self._num_questions += 1
        self._nodes["asked"][nodes] = self._num_questions

    # Values.

    def layout(self) -> Layout:
        """The edges, sorted."""
        n = self.num_edges
        source, action, target = (self._edges[name][:n].astype(np.int64) for name in ("source", "action", "target"))
        reward, count = self._edges["reward"][:n], self._edges["count"][:n]
        return layout_of(source=source, action=action, reward=reward, target=target, count=count, num_nodes=self._end)

    def refresh(
        self,
        rule: ValueRule,
        *,
        double: bool = False,
        replay: str = "set",
        tolerance: float = 1e-3,
        max_passes: int = 100,
    ) -> Travel:
        """Let values travel over the whole graph, beginning with those of the last time, and weigh the pairs for replay.

        `double`: the network's newest values choose among untried actions, the ones before say what they are worth.
        `replay`: pairs are drawn by their number of sets, by their visits, or half of the time by how wrong the network is.
        """
        if replay not in REPLAY:
            raise ValueError(f"replay = {replay!r}: must be one of {', '.join(REPLAY)}.")
        self._forget_oldest()
        layout, nodes, end = self.layout(), self._nodes, self._end
        q = nodes["q"][:end]
        lent = self._lent(self._lending, layout) if self._lending else layout
        terms = terms_of(lent, rule, nodes["q_before"][:end] if double else q, q)
        start = np.where(nodes["value"][:end] == 0, terms.anchor, nodes["value"][:end])
        solution = solve(terms, start, tolerance=tolerance, max_passes=max_passes)
        nodes["value"][:end] = solution.values
        nodes["visits"][:end] = 0
        nodes["visits"][layout.pair_node, layout.pair_action] = layout.pair_visits
        nodes["target"][lent.pair_node, lent.pair_action] = solution.pair_values
        self._pairs = (layout.pair_node, layout.pair_action)
        self._replay_weights = np.cumsum(self._weights(layout, replay))
        steps = travelled(terms, solution)[layout.inner]
        mean_steps = float(steps.mean()) if len(steps) else 0.0
        self.travel = Travel(solution.num_passes, solution.residual, mean_steps)
        return self.travel

    def _lent(self, lending: Lending, layout: Layout) -> Layout:
        """The graph in which every state has what like states lend it: each those that it found near, and the other way."""
        nodes, columns = np.flatnonzero(self._nodes["degree"][: self._end]), self._nodes
        is_new = ~columns["is_compared"][nodes]
        lending.look_at(nodes[is_new], self.states(nodes[is_new]))
        found = lending.nearest(nodes[is_new], nodes[~is_new])
        columns["lenders"][nodes[is_new]], columns["distances"][nodes[is_new]] = found
        columns["is_compared"][nodes] = True
        lenders = columns["lenders"][nodes].astype(np.int64)
        weights = lending.weights(columns["distances"][nodes], layout)
        row, place = np.nonzero((lenders != NO_NODE) & (weights > 0))
        near, far, weight = nodes[row], lenders[row, place], weights[row, place]
        return with_loans(layout, np.concatenate([near, far]), np.concatenate([far, near]), np.tile(weight, 2))

    def _weights(self, layout: Layout, replay: str) -> NDArray[np.float64]:
        """How often each pair is to be drawn."""
        if replay == "visit":
            return layout.pair_visits.copy()
        by_set = layout.num_outcomes.astype(np.float64)
        if replay == "set":
            return by_set
        targets, q = (self._nodes[name][layout.pair_node, layout.pair_action] for name in ("target", "q"))
        surprise = np.sqrt(np.abs(targets - q)).astype(np.float64)
        return np.asarray(by_set / max(by_set.sum(), 1.0) + surprise / max(float(surprise.sum()), 1e-9))

    def tried_values(self, node: int) -> TriedActions:
        """What is known of a node's actions."""
        return TriedActions(self._nodes["target"][node], self._nodes["visits"][node], self._nodes["tries"][node])

    def values_of(self, state: Sequence[int]) -> TriedActions | None:
        """The same of a state, from its node or as it was given; None: it is not known."""
        if (node := self.find(state)) != NO_NODE:
            return self.tried_values(node)
        row = self.given.find(state_keys(self.frames, np.array([state]))[0]) if len(self.given) else None
        return None if row is None else TriedActions(self.given.values[row], self.given.visits[row], None)

    def known_values(self) -> KnownValues:
        """The values of all tried actions, and of what was given for states that are not met yet."""
        nodes = np.flatnonzero(self._nodes["visits"][: self._end].any(axis=1))
        keys = state_keys(self.frames, self.states(nodes))
        return KnownValues(keys, self._nodes["target"][nodes], self._nodes["visits"][nodes]).joined(self.given)

    def tries(self, node: int) -> NDArray[np.int32]:
        """How often each action of a node was tried up to now; never, where there is no such node."""
        return np.zeros(self.num_actions, np.int32) if node == NO_NODE else np.array(self._nodes["tries"][node])

    def sample(self, batch_size: int, rng: np.random.Generator, *, all_tried: bool = True) -> Replay:
        """Draw pairs of a state and an action; with `all_tried` every action tried at the state is to be fitted."""
        if not len(self._replay_weights):
            raise ValueError("The graph is empty, or was never refreshed: there is nothing to sample.")
        cumulative = self._replay_weights
        drawn = np.searchsorted(cumulative, rng.random(batch_size) * cumulative[-1], side="right")
        nodes, actions = (column[np.minimum(drawn, len(cumulative) - 1)] for column in self._pairs)
        visits = self._nodes["visits"][nodes]
        weights = visits > 0 if all_tried else np.arange(self.num_actions) == actions[:, None]
        return Replay(nodes, self.states(nodes), self._nodes["target"][nodes], weights.astype(np.float32))

    def walk(self, nodes: NDArray[np.int64], num_steps: int) -> Walk:
        """Go on from nodes (B,), each by the transition that last left it, until a game over or a state never left.

        For a graph that was made with `walks`.
        """
        actions, passed, met = [], [], []
        for _ in range(num_steps):
            row = self._nodes["onward"][nodes] - 1 - self._num_forgotten
            edge = np.maximum(row, 0)
            following = self._edges["target"][edge]
            is_met = (row >= 0) & (following != NO_NODE)
            nodes = np.where(is_met, following, nodes)  # where a walk has ended, it stays
            actions.append(self._edges["action"][edge].astype(np.int64))
            passed.append(self.states(nodes))
            met.append(is_met)
        return Walk(np.stack(actions), np.stack(passed), np.stack(met))

    # Sizes.

    @property
    def num_edges(self) -> int:
        return len(self._edge_rows)

    @property
    def num_nodes(self) -> int:
        return self._end - len(self._free)

    @property
    def mean_visits(self) -> float:
        """Mean number of times that a remembered edge was met."""
        return float(self._edges["count"][: self.num_edges].mean()) if self.num_edges else 0.0

    @property
    def nbytes(self) -> int:
        """Bytes held: frames, index, nodes and edges, approximately."""
        per_node = sum(array.nbytes for array in self._nodes.arrays.values()) // len(self._nodes["degree"])
        per_node += self._lending.bytes_per_node if self._lending else 0
        return self.frames.nbytes + self._index.nbytes + self.num_nodes * per_node + self.num_edges * BYTES_PER_EDGE

    def check_valid(self) -> tuple[bool, str]:
        """Whether the invariants hold, and the first that does not."""
        n, nodes = self.num_edges, self._pairs[0]
        source, target = self._edges["source"][:n], self._edges["target"][:n]
        if not (_are_within(source, 0, self._end) and _are_within(target, NO_NODE, self._end)):
            return False, "edges join nodes"
        degree = np.bincount(source, minlength=self._end) + np.bincount(target[target != NO_NODE], minlength=self._end)
        claims = {
            "nodes know the number of their edges": bool((degree == self._nodes["degree"][: self._end]).all()),
            "a node without an edge is free": sorted(self._free) == np.flatnonzero(degree == 0).tolist(),
            "the index knows the nodes": np.array_equal(np.sort(held_by(self._index)[0]), np.flatnonzero(degree)),
            "states are of frames that are held": self._are_held(np.flatnonzero(degree)),
            "pairs to replay are of nodes": _are_within(nodes, 0, self._end)
            and nodes.shape == self._pairs[1].shape == self._replay_weights.shape,
            "replay is drawn from rising weights": bool((np.diff(self._replay_weights, prepend=0.0) >= 0).all()),
            "counters count": _are_within(np.array([self._num_forgotten, self._num_questions, self.num_visits]), 0, 2**62),
            "edges are numbered in the order in which they came": list(self._edge_rows.values())
            == list(range(self._num_forgotten, self._num_forgotten + n)),
            "tries are the visits of the edges": int(self._nodes["tries"][: self._end].sum())
            == int(self._edges["count"][:n].sum()),
            "states were left by edges": not self._walks or self._are_left_by_edges(source),
            "every edge was met": int(self._edges["count"][:n].min(initial=1)) > 0,
            "lenders are nodes at a distance": self._lending is None
            or (
                _are_within(self._nodes["lenders"][: self._end], NO_NODE, self._end)
                and float(self._nodes["distances"][: self._end].min(initial=0.0)) >= 0
            ),
        }
        broken = [claim for claim, holds in claims.items() if not holds]
        return (False, broken[0]) if broken else self._index.check_valid()

    def _are_left_by_edges(self, source: NDArray[np.int32]) -> bool:
        rows = self._nodes["onward"][: self._end] - 1 - self._num_forgotten
        nodes = np.flatnonzero(rows >= 0)
        return _are_within(rows, -self._num_forgotten - 1, len(source)) and np.array_equal(source[rows[nodes]], nodes)

    def _are_held(self, nodes: NDArray[np.int64]) -> bool:
        ids = np.unique(self._nodes["state"][nodes])
        return _are_within(ids, 0, self.frames.capacity) and all(map(self.frames.references, ids.tolist()))

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Everything but the frames, which the store saves."""
        return {
            "nodes": self._nodes.state_dict(self._end),
            "edges": self._edges.state_dict(self.num_edges),
            "index": self._index.state_dict(),
            "counters": np.array([self._num_forgotten, self._num_questions, self.num_visits], np.int64),
            "pairs": np.stack(self._pairs),
            "replay_weights": self._replay_weights.copy(),
            "travel": np.array([*vars(self.travel).values()], np.float64),
            "given": self.given.as_arrays(),
            "weights": self.known_values().as_arrays(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote. The frame store must have been read back before."""
        self._nodes.load_state_dict(state["nodes"])
        self._edges.load_state_dict(state["edges"])
        self._index.load_state_dict(state["index"])
        self._num_forgotten, self._num_questions, self.num_visits = state["counters"].tolist()
        self._end = len(state["nodes"]["degree"])
        self._free = np.flatnonzero(self._nodes["degree"][: self._end] == 0).tolist()  # ascending, which is a heap
        columns = (state["edges"][name].tolist() for name in ("source", "action", "reward", "target"))
        self._edge_rows = {key: i for i, key in enumerate(zip(*columns, strict=True), start=self._num_forgotten)}
        nodes, actions = state["pairs"].astype(np.int64)
        self._pairs, self._replay_weights = (nodes, actions), np.array(state["replay_weights"], np.float64)
        self.given = KnownValues(**state["given"])
        num_passes, *rest = state["travel"].tolist()
        self.travel = Travel(int(num_passes), *rest)
        is_valid, broken = self.check_valid()
        if not is_valid:
            raise ValueError(f"not so: {broken}.")
        if self._lending:
            compared = np.flatnonzero(self._nodes["is_compared"][: self._end] & (self._nodes["degree"][: self._end] > 0))
            self._lending.look_at(compared, self.states(compared))

    def held(self) -> Held:
        """The frames of its states and the actions of its edges; the index alone refers to frames."""
        return Held(held_by(self._index)[1], np.concatenate([self._edges["action"][: self.num_edges], self._pairs[1]]))


def _are_within(numbers: NDArray[Any], low: int, end: int) -> bool:
    return not numbers.size or bool(low <= numbers.min() and numbers.max() < end)


def _under_one_axis(of_trials: Sequence[tuple[NDArray[Any], ...]]) -> Iterator[NDArray[Any]]:
    """The columns of several trials, with an axis for the trials in front; those of a single one are not copied."""
    for column in zip(*of_trials, strict=True):
        yield column[0][None] if len(column) == 1 else np.stack(column)


class TransitionGraphs(Memories[TransitionGraph]):
    """The graphs of T trials as one."""

    def __init__(self, graphs: Sequence[TransitionGraph], rngs: Sequence[np.random.Generator]):
        super().__init__(graphs)
        self._rngs = rngs

    def sample(self, batch_size: int, trials: Sequence[int], *, all_tried: bool = True) -> Replay:
        """Draw for each of the trials, each with its own generator."""
        drawn = [self._memories[i].sample(batch_size, self._rngs[i], all_tried=all_tried) for i in trials]
        return Replay(*_under_one_axis(drawn))

    def walk(self, replay: Replay, num_steps: int, trials: Sequence[int]) -> Walk:
        """Go on from the drawn states of each of the trials."""
        walks = [self._memories[i].walk(nodes, num_steps) for i, nodes in zip(trials, replay.nodes, strict=True)]
        return Walk(*_under_one_axis(walks))

    def tell(self, replay: Replay, q: NDArray[np.float32], trials: Sequence[int]) -> None:
        """Note the network's Q-values (n, B, A) of replayed states, as they were computed for the update."""
        for trial, nodes, values in zip(trials, replay.nodes, q, strict=True):
            self._memories[trial].tell(nodes, values)

    def weights(self, trial: int) -> dict[str, Any]:
        """What a policy that learns no longer needs of one trial's graph."""
        return self._memories[trial].known_values().as_arrays()

    def load_weights(self, trial: int, weights: Mapping[str, Any]) -> None:
        """Take over what `weights` returned, for states that are not met yet."""
        self._memories[trial].given = KnownValues(*(np.asarray(weights[name]) for name in ("states", "values", "visits")))

    def held(self, trial: int) -> Held:
        """The frames and actions that one trial refers to."""
        return self._memories[trial].held()
