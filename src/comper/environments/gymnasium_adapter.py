"""Any Gymnasium environment with Discrete actions and Box observations, as an Environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.interface import Step
from comper.errors import UsageError

INSTALL_COMMAND = 'pip install "comper[gymnasium]"'


class GymnasiumEnvironment:
    """A Gymnasium environment, or the id of one; `rng` seeds it at its first reset.

    Its state can be written down only if the object given has `get_state()`, returning plain values, and `set_state(state)`. A
    wrapper hides those of what it wraps on purpose: it may hold state of its own, such as the steps left until a time limit.
    """

    def __init__(self, env_or_id: Any, *, rng: np.random.Generator) -> None:
        gymnasium = _import_gymnasium()
        self._env: Any = _make(gymnasium, env_or_id) if isinstance(env_or_id, str) else env_or_id
        self._rng = rng
        self._is_seeded = False
        actions, observations = self._env.action_space, self._env.observation_space
        if not isinstance(actions, gymnasium.spaces.Discrete):
            raise UsageError(f"{self._env} has the actions {actions}; only Discrete ones can be chosen from.")
        if not isinstance(observations, gymnasium.spaces.Box):
            raise UsageError(f"{self._env} has the observations {observations}; only a Box can be learned from.")
        self.num_actions = int(actions.n)
        self.frame_shape: tuple[int, ...] = tuple(observations.shape)
        self.frame_dtype: np.dtype[Any] = np.dtype(observations.dtype)
        self.observations_per_step = 1
        self._first_action = int(actions.start)

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation."""
        seed = None if self._is_seeded else int(self._rng.integers(2**31))
        self._is_seeded = True
        return self._frame(self._env.reset(seed=seed)[0])

    def step(self, action: int) -> Step:
        """Take one action, which counts as one frame."""
        if not 0 <= action < self.num_actions:
            raise ValueError(f"action = {action!r}: must be 0 to {self.num_actions - 1}.")
        observation, reward, terminated, truncated, _ = self._env.step(self._first_action + action)
        # A game over at the time limit is a game over.
        return Step(
            self._frame(observation)[None],
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated) and not terminated,
            num_frames=1,
        )

    def state_dict(self) -> dict[str, Any]:
        """Write down what the environment's own `get_state` returns, and the random generators."""
        self._require_state()
        return {
            "environment": self._env.get_state(),
            "environment_rng": self._env.np_random.bit_generator.state,
            "rng": self._rng.bit_generator.state,
            "is_seeded": int(self._is_seeded),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` wrote."""
        self._require_state()
        self._env.set_state(state["environment"])
        self._env.np_random.bit_generator.state = state["environment_rng"]
        self._rng.bit_generator.state = state["rng"]
        self._is_seeded = bool(state["is_seeded"])

    def _frame(self, observation: Any) -> NDArray[Any]:
        return np.array(observation, dtype=self.frame_dtype)  # a copy: some environments reuse their array

    def _require_state(self) -> None:
        if not (hasattr(self._env, "get_state") and hasattr(self._env, "set_state")):
            raise UsageError(f"{self._env} cannot be saved in mid-episode: it has no get_state() and set_state().")


@dataclass(frozen=True)
class GymnasiumFactory:
    """What a worker process needs to make a registered Gymnasium environment."""

    env_id: str
    seed: int | tuple[int, ...]

    def __call__(self) -> GymnasiumEnvironment:
        return GymnasiumEnvironment(self.env_id, rng=np.random.default_rng(self.seed))


def _import_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UsageError(f"This environment needs Gymnasium: {INSTALL_COMMAND}") from error
    return gymnasium


def _make(gymnasium: Any, env_id: str) -> Any:
    try:
        return gymnasium.make(env_id)
    except gymnasium.error.Error as error:
        raise UsageError(f"Gymnasium cannot make {env_id!r}: {error}") from error
