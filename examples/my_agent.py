"""An agent of your own in one file: tabular Q-learning over remembered states.

    comper train gym:FrozenLake-v1 --agent my_agent:MY_AGENT --frames 20000     # from this folder

Run folder, logs, report, checkpoints and exact resume come with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from comper import Agent, AgentConfig, AgentSpec, Task, TrialSetup, setting


@dataclass(frozen=True, kw_only=True)
class TabularConfig(AgentConfig):
    """Settings become flags, TOML keys and documentation by themselves."""

    discount: float = setting(0.95, "Watkins 1989", "γ, the discount factor", most=1)
    step_size: float = setting(0.2, "Watkins 1989", "share of the error that an update corrects", above=0, most=1)
    exploration: float = setting(0.2, "Watkins 1989", "share of random actions", most=1)


class Tables:
    """One table of Q-values per trial, by the bytes of the observation; a checkpoint keeps its state."""

    def __init__(self, num_trials: int, num_actions: int):
        self.rows: list[dict[bytes, Any]] = [{} for _ in range(num_trials)]
        self._num_actions = num_actions

    def __call__(self, trial: int, key: bytes) -> Any:
        return self.rows[trial].setdefault(key, np.zeros(self._num_actions))

    def state_dict(self, trial: int) -> dict[str, Any]:
        rows = self.rows[trial]
        return {"keys": [key.hex() for key in rows], "values": np.array(list(rows.values()))}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        self.rows[trial] = dict(zip(map(bytes.fromhex, state["keys"]), state["values"], strict=True))


class TabularAgent(Agent):
    """Q-learning in a table, for as many trials at once as there are."""

    def __init__(self, config: TabularConfig, task: Task, trials: Sequence[TrialSetup], *, device: Any):
        self._config, self._trials, self._num_actions = config, trials, task.num_actions
        self._tables = Tables(len(trials), task.num_actions)
        self.parts = {"tables": self._tables}  # saved in checkpoints

    def act(self, states: Any, epsilon: Sequence[float], trials: Sequence[int]) -> Any:
        """ε-greedy; ties are broken at random."""
        chosen = [self._choose(i, state, e) for i, state, e in zip(trials, states, epsilon, strict=True)]
        return np.array([action for action, _ in chosen]), np.array([q for _, q in chosen], np.float32)

    def _choose(self, trial: int, state: Any, epsilon: float) -> tuple[int, float]:
        rng, q = self._trials[trial].exploration, self._tables(trial, self._key(trial, state))
        best = rng.choice(np.flatnonzero(q == q.max()))
        action = int(rng.integers(self._num_actions) if rng.random() < epsilon else best)
        return action, float(q[action])

    def store(self, trial: int, transition: Any, q: float, *, is_last: bool) -> None:
        """Q(s, a) ← Q(s, a) + α (r + γ max Q(s', ·) - Q(s, a)); after a game over nothing follows."""
        s, a, r, s_next, is_terminal = transition
        following = 0.0 if is_terminal else self._tables(trial, self._key(trial, s_next)).max()
        row = self._tables(trial, self._key(trial, s))
        row[a] += self._config.step_size * (r + self._config.discount * following - row[a])

    def epsilon(self, *, frames: int, steps: int) -> float:
        return self._config.exploration

    def _key(self, trial: int, frame_ids: Any) -> bytes:
        return bytes(self._trials[trial].frames.gather(np.asarray(frame_ids)).tobytes())


MY_AGENT = AgentSpec("tabular", "Q-learning in a table", TabularAgent, TabularConfig())
