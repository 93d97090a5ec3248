"""The joystick as it was last held, drawn below an Atari picture, for agents that should know what they did. D7.

Sticky actions and buttons that must be let go of before they count again make the last action a part of the state, and no
screen shows it. In Asteroids LEFTFIRE and LEFT by turns score 3,900, and either of them at every step no more than 140.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comper.protocol import ACTION_NAMES

MARKS = ("LEFT", "UP", "DOWN", "FIRE", "DOWN", "UP", "RIGHT")
"""From left to right, so that a picture's mirror image shows the mirrored action."""
BRIGHT = 255


def joystick_bands(screen_size: int) -> NDArray[np.uint8]:
    """What is drawn below a picture: (actions, rows, columns), a bright mark for each part of the action."""
    marks = np.array([[part in name for part in MARKS] for name in ACTION_NAMES])
    places = np.arange(screen_size) * len(MARKS) // screen_size
    rows = max(1, screen_size // 10)  # twice as many as pictures are moved by, and all of them seen by DQN's first layer
    return np.repeat(BRIGHT * marks[:, None, places].astype(np.uint8), rows, axis=1)


NO_BANDS = np.zeros((len(ACTION_NAMES), 0, 1), np.uint8)
"""What is drawn where no action is to be shown."""
