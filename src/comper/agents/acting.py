"""ε-Greedy, Algorithm 3."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def epsilon_greedy(q_values: NDArray[np.float32], epsilon: float, rng: np.random.Generator) -> int:
    """Choose the action of the highest Q-value, or with probability ε any. Algorithm 3."""
    if rng.random() > epsilon:  # l. 2-3
        return int(q_values.argmax())
    return int(rng.integers(len(q_values)))  # l. 6
