"""The Transition Memory TM with its index TMI (Sections 4.2, 4.5) and the Reduced Transition Memory RTM (Section 4.3).

A set ST_i of similar transitions has the number T^i (`set_id`) for as long as it is remembered. It is *in TM* from
the moment one of its transitions is stored until it is taken to train the QLSTM. It re-enters TM, with the same
number, when one of its transitions occurs again or is replayed and gets a new Q-value (Section 4.2). A5: what is
taken leaves TM; the rest stays.

`TransitionMemory` and `ReducedTransitionMemory` belong to one trial; `TransitionMemories` and
`ReducedTransitionMemories` are those of T trials as one, which is how Algorithm 2 uses them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore, Held
from comper.memory.indexes import NO_MATCH, SimilarityIndex, TransitionKey, held_by
from comper.memory.transitions import Batch, Memories, Sample, Transition, TransitionBatch, TransitionTable

NO_SET = -1
ABSENT = -1


class TransitionMemory:
    """TM = {[T^i, ST_i]}, Equation 4: per set a row with its first transition, latest Q-values and what followed it."""

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
        # One Q-value more than the QLSTM reads: in Equation 5 the newest is the target of the ones before it.
        self._q = np.zeros((capacity, sequence_length + 1), np.float32)
        self._num_q = np.zeros(capacity, np.int64)
        self._occurrences = np.zeros(capacity, np.int64)
        self._successor = np.full(capacity, NO_SET, np.int64)
        self._is_in_tm = np.zeros(capacity, np.bool_)
        self._queue: deque[int] = deque()
        self._size = self._peak = 0
        self._next_set_id = 0
        self._previous = NO_SET  # the set of the transition before, in the same episode
        self._listeners: list[Callable[[int], None]] = []
        self.similar_hits = 0
        """Occurrences of similarity: transitions met in the environment whose set was known already."""

    # Algorithm 1

    def store(self, transition: Transition, q: float, *, is_last: bool) -> int:
        """File a transition under its set, which follows the one stored before it in the same episode (A1)."""
        set_id = self.store_transition(transition, q)
        if self._previous != NO_SET:
            self.link(self._previous, set_id)
        self._previous = NO_SET if is_last else set_id
        return set_id

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
        self._successor[row] = NO_SET
        self._enter(set_id)

    def _update(self, set_id: int, q: float) -> None:
        row = self._row(set_id)
        self._q[row, :-1] = self._q[row, 1:]
        self._q[row, -1] = q
        self._num_q[row] += 1
        self._enter(set_id)

    # What the rest of Algorithm 2 needs of TM

    def link(self, set_id: int, successor_id: int) -> None:
        """Record that a transition of the second set followed one of the first in its episode."""
        if self._is_known(np.int64(set_id)):
            self._successor[self._row(set_id)] = successor_id

    def refresh(self, set_ids: NDArray[np.int64], q: NDArray[np.float32]) -> None:
        """Return replayed transitions to TM with their new Q-values. Section 4.2; a set drawn twice counts once."""
        last = len(set_ids) - 1 - np.unique(set_ids[::-1], return_index=True)[1]  # the last draw of each set
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
        """Remove at most this many sets from TM, those longest in it first, and return their numbers."""
        taken: list[int] = []
        while self._queue and len(taken) < num_sets:
            set_id = self._queue.popleft()
            if self._is_known(np.int64(set_id)) and self._is_in_tm[self._row(set_id)]:
                self._is_in_tm[self._row(set_id)] = False
                taken.append(set_id)
        self._size -= len(taken)
        return np.array(taken, np.int64)

    def gather(self, set_ids: NDArray[np.int64]) -> TransitionBatch:
        """The representative transition of each of these sets."""
        return self._table.gather(self._row(set_ids))

    def q_history(self, set_ids: NDArray[np.int64], *, skip_newest: bool = False) -> NDArray[np.float32]:
        """(B, sequence length) latest Q-values of these sets, oldest first."""
        rows: NDArray[np.float32] = self._q[self._row(set_ids)]
        return rows[:, :-1] if skip_newest else rows[:, 1:]

    def successor_q(self, set_ids: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Latest Q-value of the set that followed each of these, and whether one is known (A1)."""
        rows, is_known = self._successor_rows(set_ids)
        return self._q[rows, -1], is_known

    def successor_action(self, set_ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Action of the transition that followed each of these, and whether one is known (A1); 0 where none is."""
        rows, is_known = self._successor_rows(set_ids)
        return np.where(is_known, self._table.gather(rows).a, 0), is_known

    def _successor_rows(self, set_ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        successors = self._successor[self._row(set_ids)]
        is_known = (successors != NO_SET) & self._is_known(successors)
        return self._row(np.where(is_known, successors, 0)), is_known

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
        """Check that TM, TMI and the frame store agree."""
        broken = self._broken()
        return (False, broken) if broken else self.frames.check_valid()

    def _broken(self) -> str:
        """What TM and TMI do not agree on."""
        queue = np.array(self._queue, np.int64)
        known = np.arange(self._next_set_id - self.num_sets, self._next_set_id)
        queued = queue[self._is_known(queue) & self._is_in_tm[self._row(queue)]]
        claims = {
            f"{self._size} sets in TM, but {len(queued)} in its queue.": len(np.unique(queued)) == len(queued) == self._size,
            f"TMI knows {len(self.tmi)} sets, TM {self.num_sets}.": np.array_equal(np.sort(held_by(self.tmi)[0]), known),
            "a row that holds no set is marked as in TM.": not self._is_in_tm[self.num_sets :].any(),
            "a remembered set has no transition.": self._table.has_rows(self.num_sets),
            "a remembered set has no member.": int(self.set_sizes.min(initial=1)) >= 1,
            "a set has no Q-value.": int(self._num_q[: self.num_sets].min(initial=1)) >= 1,
            "a counter is none.": 0 <= self._size <= self._peak < 2**62 and 0 <= self.similar_hits < 2**62,
            "a set is followed by one that never was.": self._successor.max() < max(1, self._next_set_id)
            and self._successor.min() >= NO_SET,
        }
        return next((claim for claim, holds in claims.items() if not holds), "")

    def state_dict(self) -> dict[str, Any]:
        """Everything but the frames, which the store saves."""
        return {
            "table": self._table.state_dict(),
            "index": self.tmi.state_dict(),
            "queue": np.array(self._queue, np.int64),
            "counters": np.array([self._size, self._peak, self._next_set_id, self.similar_hits], np.int64),
            "previous": self._previous,
            **{name: column.copy() for name, column in self._columns().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._table.load_state_dict(state["table"])
        self.tmi.load_state_dict(state["index"])
        self._queue = deque(state["queue"].tolist())
        self._size, self._peak, self._next_set_id, self.similar_hits = state["counters"].tolist()
        self._previous = int(state["previous"])
        if not NO_SET <= self._previous < max(1, self._next_set_id):
            raise ValueError("the set before is none of those stored")
        for name, column in self._columns().items():
            column[...] = state[name]
        if not 0 <= self._next_set_id < 2**62:
            raise ValueError("more sets than there can be.")
        if broken := self._broken():
            raise ValueError(broken)

    def held(self) -> Held:
        """The frames and actions of its sets, and the frames of their representatives."""
        table = self._table.held()
        return Held(np.concatenate([table.frames, held_by(self.tmi)[1]]), table.actions)

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

    def knows(self, set_ids: NDArray[np.int64]) -> bool:
        """Whether all of these sets are remembered."""
        return bool(self._is_known(set_ids).all())

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
        """The next number; if its row is taken, the oldest set is forgotten first (A7)."""
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


class ReducedTransitionMemory:
    """RTM = {τ'_i}: one transition for each set that trained the QLSTM.

    It holds the numbers of the sets, in no order, each at most once; the transitions are those in TM's rows.
    """

    def __init__(self, tm: TransitionMemory):
        self._tm, self._capacity = tm, tm.capacity
        self._members = np.zeros(tm.capacity, np.int64)
        self._place = np.full(tm.capacity, ABSENT, np.int64)  # the position in _members of the set in each row
        self._size = 0
        tm.on_forget(self.discard)

    def absorb(self, set_ids: NDArray[np.int64]) -> None:
        """Add the sets that are not in RTM yet; those in it stay (A19). QLSTM.ProduceRTM, Algorithm 2, l. 14."""
        for set_id in set_ids.tolist():
            row = set_id % self._capacity
            if self._place[row] == ABSENT:
                self._members[self._size] = set_id
                self._place[row] = self._size
                self._size += 1

    def replace(self, set_ids: NDArray[np.int64]) -> None:
        """Hold these sets and no others: the other reading of Algorithm 2, l. 14 (A19)."""
        self._place[:] = ABSENT
        self._size = 0
        self.absorb(set_ids)

    def sample(self, batch_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw sets uniformly, with replacement (A20): τ' ~ U(RTM), Algorithm 2, l. 17."""
        if not self._size:
            raise ValueError("RTM is empty: there is nothing to sample.")
        return self._members[rng.integers(self._size, size=batch_size)]

    def discard(self, set_id: int) -> None:
        """Remove a set that TM forgets; the last member takes its place."""
        row = set_id % self._capacity
        place = self._place[row]
        if place == ABSENT:
            return
        self._size -= 1
        last = self._members[self._size]
        self._members[place] = last
        self._place[last % self._capacity] = place
        self._place[row] = ABSENT

    def __len__(self) -> int:
        return self._size

    @property
    def is_empty(self) -> bool:
        return not self._size

    def check_valid(self) -> tuple[bool, str]:
        """Check that members and places agree."""
        members = self._members[: self._size]
        if len(np.unique(members)) != self._size:
            return False, "a set is in RTM twice."
        if (self._place[members % self._capacity] != np.arange(self._size)).any():
            return False, "a member of RTM is not where its place says."
        if int((self._place != ABSENT).sum()) != self._size:
            return False, "RTM keeps a place for a set it does not hold."
        return True, ""

    def state_dict(self) -> dict[str, Any]:
        """Members in their order."""
        return {"members": self._members[: self._size].copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote. TM must have been read back before."""
        if not self._tm.knows(state["members"]):
            raise ValueError("RTM holds a set that TM does not know.")
        self.replace(state["members"])


@dataclass(frozen=True)
class Sets:
    """Numbers of sets of some trials. Iterating gives (trial, its set ids)."""

    trials: tuple[int, ...]
    set_ids: list[NDArray[np.int64]]
    """One array per trial in `trials`, of any length."""

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        return iter(zip(self.trials, self.set_ids, strict=True))


class TransitionMemories(Memories[TransitionMemory]):
    """The TMs of T trials as one; their TMIs are saved with them."""

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> int:
        """TM.StoreTransition([τ_t, Q_t], δ), Algorithm 1; `is_last` when the episode ends there. Return T^i."""
        return self._memories[trial].store(transition, q, is_last=is_last)

    def take(self, num_sets: int, trials: Sequence[int]) -> Sets:
        """Remove at most this many sets of each trial from TM, those longest in it first."""
        return Sets(tuple(trials), [self._memories[trial].take(num_sets) for trial in trials])

    def gather(self, trial: int, set_ids: NDArray[np.int64]) -> TransitionBatch:
        """The representative transition of each of these sets."""
        return self._memories[trial].gather(set_ids)

    def refresh(self, batch: Batch, q: NDArray[np.float32]) -> None:
        """Return the replayed transitions to TM with their new Q-values (n, B). Section 4.2."""
        for trial, set_ids, values in zip(batch.trials, batch.set_ids, q, strict=True):
            self._memories[trial].refresh(set_ids, values)

    def held(self, trial: int) -> Held:
        """The frames and actions that one trial refers to."""
        return self._memories[trial].held()


class ReducedTransitionMemories(Memories[ReducedTransitionMemory]):
    """The RTMs of T trials as one."""

    def __init__(
        self, tm: TransitionMemories, rngs: Sequence[np.random.Generator], discount: float, *, mode: str = "accumulate"
    ):
        super().__init__([ReducedTransitionMemory(tm[trial]) for trial in range(len(tm))])
        self._tm, self._rngs = tm, rngs
        self._replaces = mode == "replace"
        self._discount = np.float32(discount)

    def absorb(self, sets: Sets) -> None:
        """Add the sets that trained the QLSTM, or replace the others with them (A19). Algorithm 2, l. 14."""
        for trial, set_ids in sets:
            memory = self._memories[trial]
            (memory.replace if self._replaces else memory.absorb)(set_ids)

    def sample(self, batch_size: int, trials: Sequence[int]) -> Batch:
        """Draw sets uniformly, with replacement, each trial with its own generator. Algorithm 2, l. 16-17."""
        return Batch.stack(trials, [self._sample(batch_size, trial) for trial in trials])

    def _sample(self, batch_size: int, trial: int) -> Sample:
        set_ids, tm = self._memories[trial].sample(batch_size, self._rngs[trial]), self._tm[trial]
        t = tm.gather(set_ids)
        return Sample(set_ids, t.s, t.a, t.r, t.s_next, self._discount * t.continues, tm.q_history(set_ids))

    def is_empty(self, trial: int) -> bool:
        """Whether there is nothing to sample."""
        return self._memories[trial].is_empty

    def size(self, trial: int) -> int:
        """Sets in a trial's RTM."""
        return len(self._memories[trial])
