"""The Reduced Transition Memory RTM: one transition for each set that trained the QLSTM. Section 4.3."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.memory.transition_memory import TransitionMemory

ABSENT = -1


class ReducedTransitionMemory:
    """RTM = {τ'_i}: numbers of sets in no order, each at most once; the transitions themselves are kept by TM's rows."""

    def __init__(self, tm: TransitionMemory):
        self._capacity = tm.capacity
        self._members = np.zeros(tm.capacity, np.int64)
        self._place = np.full(tm.capacity, ABSENT, np.int64)  # where in _members a set's row stands
        self._size = 0
        tm.on_forget(self.discard)

    def absorb(self, set_ids: NDArray[np.int64]) -> None:
        """Add the sets that are not in RTM yet. QLSTM.ProduceRTM, Algorithm 2, l. 14."""
        for set_id in set_ids.tolist():
            row = set_id % self._capacity
            if self._place[row] == ABSENT:
                self._members[self._size] = set_id
                self._place[row] = self._size
                self._size += 1

    def sample(self, batch_size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw sets uniformly, with replacement: τ' ~ U(RTM), Algorithm 2, l. 17."""
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
        """Read back what `state_dict` wrote."""
        members = state["members"]
        self._size = len(members)
        self._members[: self._size] = members
        self._place[:] = ABSENT
        self._place[members % self._capacity] = np.arange(self._size)
