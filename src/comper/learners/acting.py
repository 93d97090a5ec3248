"""ε-Greedy, Algorithm 3."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def act_by(
    q_values: NDArray[np.float32], epsilon: Sequence[float], rngs: Sequence[np.random.Generator]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """a_t, Q_t ← ε-Greedy(s_t, ε, Θ) for several trials, given Q(s_t, ·; Θ) of each (n, actions)."""
    chosen = [epsilon_greedy(q, e, rng) for q, e, rng in zip(q_values, epsilon, rngs, strict=True)]
    return np.array(chosen), q_values[np.arange(len(chosen)), chosen]


def epsilon_greedy(q_values: NDArray[np.float32], epsilon: float, rng: np.random.Generator) -> int:
    """Choose the action of the highest Q-value, or with probability ε any. Algorithm 3."""
    if rng.random() > epsilon:  # l. 2-3
        return int(q_values.argmax())
    return int(rng.integers(len(q_values)))  # l. 6
