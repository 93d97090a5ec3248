"""Autofire: FIRE is pressed at every second step while the network moves the stick, if that has paid more. D7.

In many games a shot needs a button that was let go of before, and no picture shows the button. In 20,000 steps a network
hardly learns what a single press is worth, but what it pays to press by turns shows after some hundred steps. So for some
steps at a time the button is the network's, or it is pressed by turns, and what has paid more is done most of the time: a
bandit with two arms, as Agent57 has one over policies (Badia et al. 2020, arXiv:2003.13350).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.networks.joystick import buttons_of

AS_CHOSEN, BY_TURNS = range(2)
"""Whose the button is: the network's, or pressed at every second step."""
HORIZON_STEPS = 1_000
"""What either pays is its score until the game is over, at most for about so many steps."""
FORGETTING = 0.9
"""What counts of the times before when one has had another turn: the network changes, and so does the game."""
CHANCE_ROOT = 1 / 3
"""In the mth turn it is either of them with the probability 1 / m to this power."""

STEPS, ENDS = 1, 2
"""Columns of what has been paid; the first is the rewards."""


class Autofire:
    """For T trials: whose the button is now, and what either has paid."""

    def __init__(self, rngs: Sequence[np.random.Generator], action_names: Sequence[str], steps: int):
        self._rngs, self._steps = rngs, steps
        self._buttons = buttons_of(action_names)
        self._paid = np.zeros((len(rngs), 2, ENDS + 1))
        self._num_turns = [0] * len(rngs)  # that are over
        self._acting = [AS_CHOSEN] * len(rngs)
        self._now = [(0.0, 0)] * len(rngs)  # rewards and steps of this turn
        self._is_settled = [False] * len(rngs)  # whether the better one acts for good, because nothing is learned any more

    def pressed(self, trial: int, action: int) -> int:
        """The action that is taken in place of the one that was chosen: the same position of the stick."""
        total, steps = self._now[trial]
        if self._is_settled[trial]:
            self._now[trial] = (total, steps + 1)
        elif not steps:
            self._acting[trial] = self._choose(trial)
        return action if self._acting[trial] == AS_CHOSEN else self._buttons[steps % 2][action]

    def is_by_turns(self, trial: int) -> bool:
        """Whether the button is pressed by turns now."""
        return self._acting[trial] == BY_TURNS

    def note(self, trial: int, reward: float, *, is_over: bool, is_last: bool) -> None:
        """Count what an action has paid; after some steps, and when an episode ends, it is asked anew whose the button is."""
        if self._is_settled[trial]:  # weights were taken over, to go on learning with them
            self._is_settled[trial], self._now[trial] = False, (0.0, 0)
        total, steps = self._now[trial][0] + reward, self._now[trial][1] + 1
        self._now[trial] = (total, steps)
        if steps < self._steps and not is_last:
            return
        paid = self._paid[trial, self._acting[trial]]
        paid *= FORGETTING
        paid += (total, steps, is_over)
        self._num_turns[trial] += 1
        self._now[trial] = (0.0, 0)

    def _choose(self, trial: int) -> int:
        """Either, less and less often; else the one that has paid more."""
        rng = self._rngs[trial]
        if rng.random() < (1 + self._num_turns[trial]) ** -CHANCE_ROOT:
            return int(rng.integers(2))
        return self._better(trial)

    def _better(self, trial: int) -> int:
        paid = self._paid[trial]
        return int(values_of(paid).argmax()) if paid[:, STEPS].all() else AS_CHOSEN

    def weights(self, trial: int) -> dict[str, Any]:
        """Whose the button is to be where nothing is learned any more."""
        is_settled = self._is_settled[trial]
        return {"button": np.array([self._acting[trial] if is_settled else self._better(trial)], np.int64)}

    def load_weights(self, trial: int, weights: Mapping[str, Any]) -> None:
        """Take over what `weights` returned, until something is learned again."""
        button = np.asarray(weights.get("button", -1))
        if button.shape != (1,) or button[0] not in (AS_CHOSEN, BY_TURNS):
            raise ValueError("the saved weights are of another network: they do not say whose the button is")
        self._acting[trial], self._is_settled[trial] = int(button[0]), True

    def state_dict(self, trial: int) -> dict[str, Any]:
        """Whose the button is, and what either has paid; the generator is saved beside it."""
        total, steps = self._now[trial]
        return {
            "paid": self._paid[trial].copy(),
            "num_turns": self._num_turns[trial],
            "acting": self._acting[trial],
            "reward": total,
            "steps": steps,
            "weights": self.weights(trial),
        }

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        paid, reward = np.array(state["paid"], np.float64), float(state["reward"])
        acting, steps, num_turns = (int(state[name]) for name in ("acting", "steps", "num_turns"))
        is_whole = paid.shape == self._paid[trial].shape and np.isfinite(paid).all() and (paid[:, STEPS:] >= 0).all()
        fits = is_whole and acting in (AS_CHOSEN, BY_TURNS) and 0 <= steps < self._steps and num_turns >= 0
        if not (fits and np.isfinite(reward)):
            raise ValueError(f"what was paid has shape {paid.shape}, and the button is {acting} after {steps} steps.")
        self._paid[trial], self._num_turns[trial], self._acting[trial] = paid, num_turns, acting
        self._now[trial] = (reward, steps)


def values_of(paid: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score until the game is over of each row of `paid`."""
    reward, steps, ends = paid.T
    values: NDArray[np.float64] = reward / (steps / HORIZON_STEPS + ends)
    return values
