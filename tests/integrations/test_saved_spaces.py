"""Spaces written down and read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from comper.errors import UsageError
from comper.integrations.saved_spaces import Arrays, describe, read

SPACES: list[spaces.Space[Any]] = [
    spaces.Box(0, 255, (4, 8, 8), np.uint8),
    spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Discrete(5),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Dict({"b": spaces.Discrete(2), "A 1": spaces.Box(0, 1, (3,))}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_read_back_is_equal(space: spaces.Space[Any]) -> None:
    arrays: Arrays = {}
    other = read(describe(space, arrays), arrays)
    assert other == space
    assert other.dtype == space.dtype


def test_other_spaces_get_a_sentence() -> None:
    with pytest.raises(UsageError, match="Text: a space of this kind cannot be saved"):
        describe(spaces.Text(5), {})
