"""Habits: what can be done without looking. An action held, a button pressed by turns, or any action at random. D7.

In 20,000 steps a network hardly learns what a single press of a button is worth, but what a habit pays shows after some
hundred steps. So whoever acts, the network or a habit, acts for a while, and is chosen by what it has paid: a bandit over
behaviours, as Agent57 has one over policies (Badia et al. 2020, arXiv:2003.13350). Some turns are kept for the network, ever
fewer of them, so that it learns from what it does. Whatever acts, it learns from that, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.networks.joystick import parts_of

Habit = tuple[int, ...]
"""Actions that are taken by turns; none: any action at random."""

NETWORK = 0
"""The behaviour that is no habit; the habits are numbered from 1."""
HORIZON_STEPS = 1_000
"""What a behaviour pays is its score until the game is over, at most for about so many steps."""
FORGETTING = 0.9
"""What counts of the times before when a behaviour has acted again: the network changes, and so does the game."""
NETWORKS_ROOT = 1 / 3
"""The mth turn is kept for the network with the probability 1 / m to this power."""
OPTIMISM = 0.5
"""Standard errors by which a habit may be better than it has shown to be."""
NETWORKS_OPTIMISM = 2.0
"""The same of the network, which gets better with what it learns."""

REWARD, STEPS, ENDS, SQUARES, TIMES = range(5)
"""Columns of what a behaviour has paid: rewards, steps, ends of games, rewards² / steps of each time that it acted, times."""


def habits_of(action_names: Sequence[str]) -> list[Habit]:
    """Each action held; each action with FIRE and without it by turns, where names are a joystick's; any at random."""
    parts = parts_of(action_names)
    released = {(along, across): action for action, (along, across, fire) in enumerate(parts) if not fire}
    pressed = {(along, across): action for action, (along, across, fire) in enumerate(parts) if fire}
    by_turns = [(action, released[stick]) for stick, action in pressed.items() if stick in released]
    return [*((action,) for action in range(len(action_names))), *by_turns, ()]


class Habits:
    """For T trials: who acts now, and what each behaviour has paid."""

    def __init__(self, rngs: Sequence[np.random.Generator], action_names: Sequence[str], steps: int):
        self._rngs, self._num_actions, self._steps = rngs, len(action_names), steps
        self._habits = habits_of(action_names)
        self._paid = np.zeros((len(rngs), 1 + len(self._habits), TIMES + 1))
        self._num_turns = [0] * len(rngs)  # that are over
        self._acting = [NETWORK] * len(rngs)
        self._now = [(0.0, 0)] * len(rngs)  # rewards and steps of the behaviour that acts, since it began to
        self._is_settled = [False] * len(rngs)  # whether the best one acts for good, because nothing is learned any more

    def action(self, trial: int, epsilon: float = 0.0) -> int | None:
        """What the habit that acts does next; None: the network is to choose.

        Where it acts for good, it goes on from one episode to the next, and does any action with probability ε.
        """
        total, steps = self._now[trial]
        if self._is_settled[trial]:
            self._now[trial] = (total, steps + 1)
        elif not steps:
            self._acting[trial] = self._choose(trial)
        if self._acting[trial] == NETWORK:
            return None
        habit, rng = self._habits[self._acting[trial] - 1], self._rngs[trial]
        if not habit or (self._is_settled[trial] and epsilon and rng.random() < epsilon):
            return int(rng.integers(self._num_actions))
        return habit[steps % len(habit)]

    def acting(self, trial: int) -> int:
        """Who acts: 0 is the network."""
        return self._acting[trial]

    def note(self, trial: int, reward: float, *, is_over: bool, is_last: bool) -> None:
        """Count what an action has paid; after some steps, and when an episode ends, it is asked anew who acts."""
        if self._is_settled[trial]:  # weights were taken over, to go on learning with them
            self._is_settled[trial], self._now[trial] = False, (0.0, 0)
        total, steps = self._now[trial][0] + reward, self._now[trial][1] + 1
        self._now[trial] = (total, steps)
        if steps < self._steps and not is_last:
            return
        paid = self._paid[trial, self._acting[trial]]
        paid *= FORGETTING
        paid += (total, steps, is_over, total**2 / steps, 1)
        self._num_turns[trial] += 1
        self._now[trial] = (0.0, 0)

    def _choose(self, trial: int) -> int:
        """The network, less and less often; else a behaviour that never acted, or the one that may be the best."""
        rng, paid = self._rngs[trial], self._paid[trial]
        if rng.random() < self._networks_share(trial):
            return NETWORK
        new = np.flatnonzero(paid[:, STEPS] == 0)
        return int(rng.choice(new)) if len(new) else int(np.sum(values_of(paid, prior_steps=self._steps), 0).argmax())

    def _networks_share(self, trial: int) -> float:
        """The probability that the next turn is kept for the network."""
        return float((1 + self._num_turns[trial]) ** -NETWORKS_ROOT)

    def weights(self, trial: int) -> dict[str, Any]:
        """Who is to act where nothing is learned any more: the one that has paid the most."""
        paid, best = self._paid[trial], NETWORK
        if self._is_settled[trial]:
            best = self._acting[trial]
        elif paid[:, STEPS].all():
            best = int(values_of(paid, prior_steps=self._steps)[0].argmax())
        return {"behaviour": np.array([best], np.int64)}

    def load_weights(self, trial: int, weights: Mapping[str, Any]) -> None:
        """Take over what `weights` returned: that behaviour acts until something is learned again."""
        behaviour = np.asarray(weights.get("behaviour", -1))
        if behaviour.shape != (1,) or not 0 <= behaviour[0] <= len(self._habits):
            raise ValueError("the saved weights are of another network: they name no behaviour that this agent has")
        self._acting[trial], self._is_settled[trial] = int(behaviour[0]), True

    def state_dict(self, trial: int) -> dict[str, Any]:
        """Who acts, and what each has paid; the generator is saved beside it."""
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
        fits = is_whole and 0 <= acting <= len(self._habits) and 0 <= steps < self._steps and num_turns >= 0
        if not (fits and np.isfinite(reward)):
            raise ValueError(f"what behaviours paid has shape {paid.shape}, and number {acting} acts for {steps} steps.")
        self._paid[trial], self._num_turns[trial], self._acting[trial] = paid, num_turns, acting
        self._now[trial] = (reward, steps)


def values_of(paid: NDArray[np.float64], *, prior_steps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each behaviour its score until the game is over, and how much higher it may be; `paid` has a row for each.

    Each is taken to have acted for `prior_steps` more as all of them did together, so that nothing rests on a few steps.
    """
    reward, steps, ends, squares, times = paid.T
    per_step = paid.sum(0) / steps.sum()
    prior = prior_steps * per_step
    values = (reward + prior[REWARD]) / ((steps + prior_steps) / HORIZON_STEPS + ends + prior[ENDS])
    # Rewards of n steps have the variance n σ² around what their behaviour pays in n steps.
    variance = (squares - reward**2 / steps).sum() / max(1.0, (times - 1).sum())
    scale = 1 / (1 / HORIZON_STEPS + per_step[ENDS])
    optimism = np.full(len(paid), OPTIMISM)
    optimism[NETWORK] = NETWORKS_OPTIMISM
    return values, optimism * scale * np.sqrt(max(variance, 0.0) / steps)
