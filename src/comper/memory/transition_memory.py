"""The Transition Memory TM with its index TMI: sets of similar transitions and their latest Q-values. Sections 4.2 and 4.5.

A set ST_i is known by its number T^i (`set_id`) for as long as it is remembered. It is *in TM* from the moment one of its
transitions is stored until it is taken to train the QLSTM; it re-enters TM, under the same number, when the transition occurs
again or returns from a replay with a new Q-value (Section 4.2). A5: what is taken leaves TM; the rest stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore
from comper.memory.indexes import NO_MATCH, SimilarityIndex, TransitionKey
from comper.memory.transitions import Transition, TransitionBatch, TransitionTable

NO_SUCCESSOR = -1


class TransitionMemory:
    """TM = {[T^i, ST_i]}: one row a set, with its first transition, its latest Q-values and what followed it. Equation 4."""

    def __init__(
        self,
        frames: FrameStore,
        index: SimilarityIndex,
        *,
        capacity: int = 100_000,
        history_length: int = 1,
        sequence_length: int = 1,
    ):
        self.frames = frames
        self.tmi = index
        self.capacity = capacity
        self._table = TransitionTable(frames, capacity=capacity, history_length=history_length)
        # One Q-value more than the QLSTM reads: within a set, the newest is the target of those before it (Equation 5).
        self._q = np.zeros((capacity, sequence_length + 1), np.float32)
        self._num_q = np.zeros(capacity, np.int64)
        self._occurrences = np.zeros(capacity, np.int64)
        self._successor = np.full(capacity, NO_SUCCESSOR, np.int64)
        self._is_in_tm = np.zeros(capacity, np.bool_)
        self._queue: deque[int] = deque()
        self._size = self._peak = 0
        self._next_set_id = 0
        self._listeners: list[Callable[[int], None]] = []
        self.similar_hits = 0
        """Occurrences of similarity: transitions met in the environment whose set was known already."""

    # Algorithm 1

    def store_transition(self, transition: Transition, q: float) -> int:
        """TM-StoreTransition, Algorithm 1: file a transition under its set and return T^i."""
        key = TransitionKey(transition.s, transition.a, transition.r, transition.s_next)
        set_id = self.tmi.get_index(key)  # l. 1
        if set_id == NO_MATCH:  # l. 2
            set_id = self._new_set_id()
            self.tmi.update_index(set_id, key)  # l. 3
            self._insert(set_id, transition, q)  # l. 4
        else:
            self.similar_hits += 1
            self._occurrences[self._row(set_id)] += 1
            self._table.set_terminal(self._row(set_id), transition.is_terminal)
            self._update(set_id, q)  # l. 6
        return set_id

    def _insert(self, set_id: int, transition: Transition, q: float) -> None:
        row = self._row(set_id)
        self._table.write(row, transition)
        self._q[row] = q
        self._num_q[row] = 1
        self._occurrences[row] = 1
        self._successor[row] = NO_SUCCESSOR
        self._enter(set_id)

    def _update(self, set_id: int, q: float) -> None:
        row = self._row(set_id)
        self._q[row, :-1] = self._q[row, 1:]
        self._q[row, -1] = q
        self._num_q[row] += 1
        self._enter(set_id)

    # What the rest of the method asks of TM

    def link(self, set_id: int, successor_id: int) -> None:
        """Record that a transition of one set was followed, in its episode, by one of another."""
        if self._is_known(np.int64(set_id)):
            self._successor[self._row(set_id)] = successor_id

    def refresh(self, set_ids: NDArray[np.int64], q: NDArray[np.float32]) -> None:
        """Return replayed transitions to TM with their new Q-values. Section 4.2; a set drawn twice counts once."""
        last = len(set_ids) - 1 - np.unique(set_ids[::-1], return_index=True)[1]  # where each set was drawn for the last time
        last.sort()
        set_ids, rows = set_ids[last], self._row(set_ids[last])
        self._q[rows, :-1] = self._q[rows, 1:]
        self._q[rows, -1] = q[last]
        self._num_q[rows] += 1
        returning = ~self._is_in_tm[rows]
        self._is_in_tm[rows] = True
        self._queue.extend(set_ids[returning].tolist())
        self._resize(int(returning.sum()))

    def take(self, num_sets: int) -> NDArray[np.int64]:
        """Remove up to so many sets from TM, those longest in it first, and return their numbers."""
        taken: list[int] = []
        while self._queue and len(taken) < num_sets:
            set_id = self._queue.popleft()
            if self._is_known(np.int64(set_id)) and self._is_in_tm[self._row(set_id)]:
                self._is_in_tm[self._row(set_id)] = False
                taken.append(set_id)
        self._size -= len(taken)
        return np.array(taken, np.int64)

    def gather(self, set_ids: NDArray[np.int64]) -> TransitionBatch:
        """The transitions that represent these sets."""
        return self._table.gather(self._row(set_ids))

    def q_history(self, set_ids: NDArray[np.int64], *, skip_newest: bool = False) -> NDArray[np.float32]:
        """(B, sequence length) latest Q-values of these sets, oldest first."""
        rows: NDArray[np.float32] = self._q[self._row(set_ids)]
        return rows[:, :-1] if skip_newest else rows[:, 1:]

    def successor_q(self, set_ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Latest Q-value of the set that followed each of these, and whether one is known (A1)."""
        successors = self._successor[self._row(set_ids)]
        is_known = (successors != NO_SUCCESSOR) & self._is_known(successors)
        return self._q[self._row(np.where(is_known, successors, 0)), -1], is_known

    def next_q_in_set(self, set_ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Q_i(k+1), the latest Q-value of each set, and whether it had an earlier one, k (Equation 5)."""
        rows = self._row(set_ids)
        return self._q[rows, -1], self._num_q[rows] >= 2

    def on_forget(self, listener: Callable[[int], None]) -> None:
        """Call the listener with each set's number when the set is forgotten."""
        self._listeners.append(listener)

    # Sizes and counters, as the paper's figures show them

    def __len__(self) -> int:
        """Sets now in TM."""
        return self._size

    def read_peak(self) -> int:
        """The most sets that were in TM since the last reading."""
        peak, self._peak = self._peak, self._size
        return peak

    @property
    def num_sets(self) -> int:
        """Sets remembered, N_ST: in TM or not."""
        return min(self._next_set_id, self.capacity)

    @property
    def set_sizes(self) -> NDArray[np.int64]:
        """N^i_ST of every remembered set: how often one of its transitions was met."""
        return self._occurrences[: self.num_sets]

    @property
    def nbytes(self) -> int:
        """Bytes held for the remembered sets: frames, index and rows."""
        columns = (self._q, self._num_q, self._occurrences, self._successor, self._is_in_tm)
        per_row = self._table.bytes_per_row + sum(column.nbytes for column in columns) // self.capacity
        return self.frames.nbytes + self.tmi.nbytes + self.num_sets * per_row

    def check_valid(self) -> tuple[bool, str]:
        """Check that TM, TMI and the frame store tell the same story."""
        queued = [s for s in self._queue if self._is_known(np.int64(s)) and self._is_in_tm[self._row(s)]]
        if len(queued) != self._size or len(set(queued)) != self._size:
            return False, f"{self._size} sets in TM, but {len(queued)} in its queue."
        if len(self.tmi) != self.num_sets:
            return False, f"TMI knows {len(self.tmi)} sets, TM {self.num_sets}."
        if self._is_in_tm[self.num_sets :].any():
            return False, "a row that holds no set is marked as in TM."
        if int(self.set_sizes.min(initial=1)) < 1:
            return False, "a remembered set has no member."
        return self.frames.check_valid()

    def state_dict(self) -> dict[str, Any]:
        """Everything but the frames, which the store saves."""
        return {
            "table": self._table.state_dict(),
            "index": self.tmi.state_dict(),
            "queue": np.array(self._queue, np.int64),
            "counters": np.array([self._size, self._peak, self._next_set_id, self.similar_hits], np.int64),
            **{name: column.copy() for name, column in self._columns().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._table.load_state_dict(state["table"])
        self.tmi.load_state_dict(state["index"])
        self._queue = deque(state["queue"].tolist())
        self._size, self._peak, self._next_set_id, self.similar_hits = state["counters"].tolist()
        for name, column in self._columns().items():
            column[...] = state[name]

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {
            "q": self._q,
            "num_q": self._num_q,
            "occurrences": self._occurrences,
            "successor": self._successor,
            "is_in_tm": self._is_in_tm,
        }

    def _row(self, set_id: Any) -> Any:
        return set_id % self.capacity

    def _is_known(self, set_id: Any) -> Any:
        return (set_id >= self._next_set_id - self.capacity) & (set_id < self._next_set_id)

    def _enter(self, set_id: int) -> None:
        row = self._row(set_id)
        if not self._is_in_tm[row]:
            self._is_in_tm[row] = True
            self._queue.append(set_id)
            self._resize(1)

    def _resize(self, change: int) -> None:
        self._size += change
        self._peak = max(self._peak, self._size)

    def _new_set_id(self) -> int:
        """The next number; where its row is taken, the oldest set is forgotten first (A7)."""
        set_id = self._next_set_id
        if set_id >= self.capacity:
            self._forget(set_id - self.capacity)
        self._next_set_id += 1
        return set_id

    def _forget(self, set_id: int) -> None:
        row = self._row(set_id)
        self._size -= int(self._is_in_tm[row])
        self._is_in_tm[row] = False
        self.tmi.forget(set_id)
        self._table.erase(row)
        for listener in self._listeners:
            listener(set_id)
