"""What a saved memory holds, read from its state alone: no agent and no network is made for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.propagation import NO_NODE
from comper.memory.transitions import TransitionBatch


@dataclass(frozen=True)
class Remembered:
    """The n transitions of a memory; of a transition memory, one for each set of similar ones."""

    ids: NDArray[np.int64]
    """Numbers of the sets, which they keep for as long as they are remembered; rows of a replay memory."""
    transitions: TransitionBatch
    visits: NDArray[np.int64] | None = None
    """How often a transition of each set was met; None: the memory does not count."""
    q: NDArray[np.float32] | None = None
    """(n, L) latest Q-values of each set, oldest first; None: the memory keeps none."""
    similar_hits: int | None = None
    """Transitions that joined a set which was there already."""

    def __len__(self) -> int:
        return len(self.ids)


def read_remembered(state: Mapping[str, Any]) -> Remembered | None:
    """The memory in the state of a part of an agent; None: the part is no memory of transitions."""
    if isinstance(state.get("nodes"), Mapping) and isinstance(state.get("edges"), Mapping):
        return _read_graph(state["nodes"], state["edges"], state["counters"])
    table = state.get("table")
    if not isinstance(table, Mapping) or not {"s", "a", "r", "s_next", "continues", "is_written"} <= set(table):
        return None
    rows = np.flatnonzero(table["is_written"])
    s, a, s_next = (np.asarray(table[name])[rows].astype(np.int64) for name in ("s", "a", "s_next"))
    transitions = TransitionBatch(s, a, table["r"][rows], s_next, table["continues"][rows])
    if "occurrences" not in state:
        return Remembered(rows, transitions)
    _, _, next_id, similar_hits = np.asarray(state["counters"]).tolist()
    # A set is in the row of its number modulo the capacity, and only the latest sets are remembered.
    ids = next_id - 1 - (next_id - 1 - rows) % len(table["a"])
    visits, q = state["occurrences"][rows], _known_q(state["q"][rows], state["num_q"][rows])
    return Remembered(ids, transitions, visits, q, similar_hits)


def _read_graph(nodes: Mapping[str, Any], edges: Mapping[str, Any], counters: NDArray[np.int64]) -> Remembered:
    """The edges of a graph. What followed a game over is no node, so the state before it stands in its place."""
    source, a, target = (np.asarray(edges[name]).astype(np.int64) for name in ("source", "action", "target"))
    states, n = np.asarray(nodes["state"]).astype(np.int64), len(source)
    places, num_actions = np.concatenate([source, target]), nodes["target"].shape[1]
    if source.min(initial=0) < 0 or places.min(initial=0) < NO_NODE or places.max(initial=-1) >= len(states):
        raise ValueError("edges between nodes that are not there")
    if a.min(initial=0) < 0 or a.max(initial=-1) >= num_actions:
        raise ValueError("edges of actions that are not there")
    continues = target != NO_NODE
    s_next = states[np.where(continues, target, source)]
    transitions = TransitionBatch(states[source], a, edges["reward"], s_next, continues.astype(np.float32))
    num_forgotten, _, num_visits = np.asarray(counters).tolist()
    ids, q = num_forgotten + np.arange(n), nodes["target"][source, a][:, None]
    return Remembered(ids, transitions, np.asarray(edges["count"]), q, int(num_visits) - int(num_forgotten) - n)


def _known_q(q: NDArray[np.float32], num_q: NDArray[np.int64]) -> NDArray[np.float32]:
    """NaN in place of what only fills the row of a set that had fewer Q-values yet."""
    places = np.arange(q.shape[1], 0, -1)
    return np.where(places <= num_q[:, None], q, np.float32(np.nan))
