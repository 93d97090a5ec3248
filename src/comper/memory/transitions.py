"""Transitions as rows of integers (frame ids, action, reward, terminal), and the replay memory of DQN made of them.

The pixels stay in the FrameStore.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from comper.memory.frames import FrameStore, Held


class Transition(NamedTuple):
    """τ_t = (s_t, a_t, r_t, s_t+1), states as frame ids. A2: also whether the game ended there."""

    s: tuple[int, ...]
    a: int
    r: float
    s_next: tuple[int, ...]
    is_terminal: bool

    def clipped(self, bound: float) -> Transition:
        """The same with its reward within ± bound; 0: as it is."""
        return self._replace(r=max(-bound, min(bound, self.r))) if bound and abs(self.r) > bound else self


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions of one trial, column by column."""

    s: NDArray[np.int64]
    """(B, history) frame ids."""
    a: NDArray[np.int64]
    r: NDArray[np.float32]
    s_next: NDArray[np.int64]
    continues: NDArray[np.float32]
    """1, or 0 where the game ended: no value follows."""

    def rows(self, rows: NDArray[np.int64]) -> TransitionBatch:
        """Some of the transitions."""
        return TransitionBatch(self.s[rows], self.a[rows], self.r[rows], self.s_next[rows], self.continues[rows])

    @staticmethod
    def stack(batches: Sequence[TransitionBatch]) -> TransitionBatch:
        """Batches of several trials, with the trial axis in front."""
        columns = zip(*((b.s, b.a, b.r, b.s_next, b.continues) for b in batches), strict=True)
        return TransitionBatch(*(np.stack(column) for column in columns))


class Sample(NamedTuple):
    """What the memory of one trial contributes to a `Batch`."""

    set_ids: NDArray[np.int64]
    s: NDArray[np.int64]
    a: NDArray[np.int64]
    r: NDArray[np.float32]
    s_next: NDArray[np.int64]
    discount: NDArray[np.float32]
    q_history: NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    """B transitions for each of n trials: what a learner fits. Every array has one row per trial in `trials`."""

    trials: tuple[int, ...]
    set_ids: NDArray[np.int64]
    """(n, B) ids of the sets in TM, or row numbers of a replay memory."""
    s: NDArray[np.int64]
    """(n, B, history) frame ids."""
    a: NDArray[np.int64]
    r: NDArray[np.float32]
    """(n, B) rewards; over k steps their discounted sum."""
    s_next: NDArray[np.int64]
    discount: NDArray[np.float32]
    """(n, B) factor of the value that follows: γ^k after k steps, 0 where the game ended (A2)."""
    q_history: NDArray[np.float32]
    """(n, B, L) latest Q-values of each set, oldest first; L = 0 in a replay memory."""

    @staticmethod
    def stack(trials: Sequence[int], samples: Sequence[Sample]) -> Batch:
        """Join the samples of several trials."""
        return Batch(tuple(trials), *(np.stack(column) for column in zip(*samples, strict=True)))


class TransitionTable:
    """A fixed number of rows, each empty or one transition; the store holds the frames of a written row."""

    def __init__(self, frames: FrameStore, *, capacity: int, history_length: int):
        if capacity < 1:
            raise ValueError(f"capacity = {capacity}: a memory holds at least one transition.")
        self.frames = frames
        self.capacity = capacity
        self.history_length = history_length
        self._s = np.zeros((capacity, history_length), np.int32)
        self._a = np.zeros(capacity, np.int32)
        self._r = np.zeros(capacity, np.float32)
        self._s_next = np.zeros((capacity, history_length), np.int32)
        self._continues = np.zeros(capacity, np.float32)
        self._is_written = np.zeros(capacity, np.bool_)

    def write(self, row: int, transition: Transition) -> None:
        """Put a transition into a row, in place of what was there."""
        self.frames.retain(transition.s)
        self.frames.retain(transition.s_next)
        self.erase(row)
        self._s[row], self._a[row], self._r[row], self._s_next[row], is_terminal = transition
        self._continues[row] = not is_terminal
        self._is_written[row] = True

    def erase(self, row: int) -> None:
        """Empty a row and release its frames."""
        if self._is_written[row]:
            self.frames.release(self._s[row])
            self.frames.release(self._s_next[row])
            self._is_written[row] = False

    def set_terminal(self, row: int, is_terminal: bool) -> None:
        """Record whether the game ended at the row's latest occurrence."""
        self._continues[row] = not is_terminal

    def gather(self, rows: NDArray[np.int64]) -> TransitionBatch:
        """The transitions of these rows."""
        s, a, s_next = (column[rows].astype(np.int64) for column in (self._s, self._a, self._s_next))
        return TransitionBatch(s, a, self._r[rows], s_next, self._continues[rows])

    def rewards(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rewards of these rows, in double precision for sums."""
        return self._r[rows].astype(np.float64)

    def frame_references(self) -> NDArray[np.int32]:
        """Every frame id held, once for each time it is held."""
        written = self._is_written
        return np.concatenate([self._s[written].ravel(), self._s_next[written].ravel()])

    def held(self) -> Held:
        """The frames and actions of the rows that are written."""
        return Held(self.frame_references(), self._a[self._is_written])

    @property
    def bytes_per_row(self) -> int:
        return sum(column.nbytes for column in self._columns().values()) // self.capacity

    def state_dict(self) -> dict[str, Any]:
        """The columns; the store saves the frames."""
        return {name: column.copy() for name, column in self._columns().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote. The frame store's own state has counted these references already."""
        for name, column in self._columns().items():
            if state[name].shape != column.shape:
                raise ValueError(f"{name}: saved with shape {state[name].shape}, expected {column.shape}.")
            column[...] = state[name]
        if not np.isin(self._continues, (0, 1)).all():
            raise ValueError("a transition neither ends nor continues.")

    def has_rows(self, num_rows: int) -> bool:
        """Whether the first rows, so many, are written and no others."""
        return bool(self._is_written[:num_rows].all()) and not self._is_written[num_rows:].any()

    def _columns(self) -> dict[str, NDArray[Any]]:
        return {
            "s": self._s,
            "a": self._a,
            "r": self._r,
            "s_next": self._s_next,
            "continues": self._continues,
            "is_written": self._is_written,
        }


class ReplayMemory:
    """A ring of the latest transitions with uniform sampling. Mnih et al. 2015; Table 8."""

    def __init__(self, frames: FrameStore, *, capacity: int = 100_000, history_length: int = 4):
        self.frames = frames
        self.capacity = capacity
        self._table = TransitionTable(frames, capacity=capacity, history_length=history_length)
        self._is_last = np.zeros(capacity, np.bool_)
        self._num_added = 0

    def add(self, transition: Transition, *, is_last: bool) -> None:
        """Store a transition in place of the oldest; `is_last` when its episode ends there, terminated or truncated."""
        row = self._num_added % self.capacity
        self._table.write(row, transition)
        self._is_last[row] = is_last or transition.is_terminal
        self._num_added += 1

    def draw(self, batch_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw rows uniformly, with replacement."""
        if not self._num_added:
            raise ValueError("The replay memory is empty: there is nothing to sample.")
        return rng.integers(len(self), size=batch_size)

    def sample(self, batch_size: int, rng: np.random.Generator) -> TransitionBatch:
        """Draw transitions uniformly, with replacement."""
        return self._table.gather(self.draw(batch_size, rng))

    def gather_returns(self, rows: NDArray[np.int64], *, discount: float, num_steps: int = 1) -> Sample:
        """Returns over the next `num_steps` transitions from each of these rows, or as many as its episode still has.

        A window ends early at the last transition of an episode, terminated or truncated, and at the newest row.
        """
        first, ends, lengths = self._table.gather(rows), rows, np.ones(len(rows), np.int64)
        returns = self._table.rewards(rows)
        newest = (self._num_added - 1) % self.capacity
        for k in range(1, num_steps):
            goes_on = ~self._is_last[ends] & (ends != newest)
            ends = np.where(goes_on, (ends + 1) % self.capacity, ends)
            returns += np.where(goes_on, discount**k * self._table.rewards(ends), 0.0)  # Σ γ^k r_t+k
            lengths += goes_on
        last = first if num_steps == 1 else self._table.gather(ends)
        powers = np.array([discount**k for k in range(num_steps + 1)], np.float32)
        no_history = np.empty((len(rows), 0), np.float32)
        follows = powers[lengths] * last.continues
        return Sample(rows, first.s, first.a, returns.astype(np.float32), last.s_next, follows, no_history)

    def __len__(self) -> int:
        return min(self._num_added, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes held: frames and rows."""
        return self.frames.nbytes + len(self) * (self._table.bytes_per_row + self._is_last.itemsize)

    def check_valid(self) -> tuple[bool, str]:
        """Check that every row up to the size holds a transition."""
        broken = self._broken()
        return (False, broken) if broken else self.frames.check_valid()

    def _broken(self) -> str:
        """What is wrong with the rows."""
        if self._num_added < 0 or not self._table.has_rows(len(self)):
            return f"not the first {len(self)} rows are written."
        return "a row that holds no transition ends an episode." if self._is_last[len(self) :].any() else ""

    def state_dict(self) -> dict[str, Any]:
        """Everything but the frames, which the store saves."""
        return {"table": self._table.state_dict(), "is_last": self._is_last.copy(), "num_added": self._num_added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._table.load_state_dict(state["table"])
        self._is_last[...] = state["is_last"]
        self._num_added = int(state["num_added"])
        if broken := self._broken():
            raise ValueError(broken)

    def held(self) -> Held:
        """The frames and actions of its transitions."""
        return self._table.held()


class TrialMemory(Protocol):
    """What the memory of one trial has: a state that is saved beside its frames and its generator."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


Memory = TypeVar("Memory", bound=TrialMemory)


class Memories(Generic[Memory]):
    """The memories of T trials as one; `[trial]` gives one of them."""

    def __init__(self, memories: Sequence[Memory]):
        self._memories = memories

    def __getitem__(self, trial: int) -> Memory:
        return self._memories[trial]

    def __len__(self) -> int:
        """The number of trials."""
        return len(self._memories)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """What one trial remembers; its frames and generator are saved beside it."""
        return self._memories[trial].state_dict()

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self._memories[trial].load_state_dict(state)


class ReplayMemories(Memories[ReplayMemory]):
    """The replay memories of T trials as one, with returns over `num_steps` steps."""

    def __init__(
        self,
        stores: Sequence[FrameStore],
        rngs: Sequence[np.random.Generator],
        *,
        capacity: int,
        history_length: int,
        discount: float,
        num_steps: int = 1,
    ):
        if num_steps < 1:
            raise ValueError(f"num_steps = {num_steps}: must be 1 or more.")
        super().__init__([ReplayMemory(store, capacity=capacity, history_length=history_length) for store in stores])
        self._rngs = rngs
        self._discount, self._num_steps = discount, num_steps

    def add(self, trial: int, transition: Transition, *, is_last: bool) -> None:
        """Store a transition of a trial; `is_last` when its episode ends there, terminated or truncated."""
        self._memories[trial].add(transition, is_last=is_last)

    def sample(self, batch_size: int, trials: Sequence[int]) -> Batch:
        """Draw transitions uniformly, with replacement, each trial with its own generator."""
        return Batch.stack(trials, [self._sample(batch_size, trial) for trial in trials])

    def _sample(self, batch_size: int, trial: int) -> Sample:
        memory = self._memories[trial]
        rows = memory.draw(batch_size, self._rngs[trial])
        return memory.gather_returns(rows, discount=self._discount, num_steps=self._num_steps)

    def size(self, trial: int) -> int:
        """Transitions that a trial remembers."""
        return len(self._memories[trial])

    def nbytes(self, trial: int) -> int:
        """Bytes that a trial's frames and rows take."""
        return self._memories[trial].nbytes

    def held(self, trial: int) -> Held:
        """The frames and actions that one trial refers to."""
        return self._memories[trial].held()
