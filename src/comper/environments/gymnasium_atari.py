"""The paper's Atari protocol as a Gymnasium environment, so that other libraries can train with it.

    import comper.environments.gymnasium_atari                                # registers it
    env = gymnasium.make("comper/Atari-v0", game="freeway", observation="stacked")

Gymnasium imports this module by itself in `gymnasium.make("comper.environments.gymnasium_atari:comper/Atari-v0", ...)`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from comper.environments.atari import AtariEnvironment, AtariSettings
from comper.protocol import NUM_ACTIONS

ENV_ID = "comper/Atari-v0"
OBSERVATIONS = {"single": (1, 1), "stacked": (4, 4), "rolling": (4, 1)}
"""Name -> frames in an observation, and new ones at every step."""
FRAMES_PER_SECOND = 60


class AtariGymnasium(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """One Atari game; keyword arguments are the fields of `AtariSettings`.

    `observation`: `single`, one frame (84, 84); `stacked`, four new frames (4, 84, 84) while the action is held; `rolling`,
    the last four, one of them new. `info["frames"]` counts the emulator's frames of a step.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": FRAMES_PER_SECOND}  # noqa: RUF012 -- Gymnasium's

    def __init__(self, game: str, *, observation: str = "single", render_mode: str | None = None, **settings: Any) -> None:
        if observation not in OBSERVATIONS:
            raise ValueError(f"observation = {observation!r}: must be one of {', '.join(OBSERVATIONS)}.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode = {render_mode!r}: must be None or rgb_array.")
        self.render_mode = render_mode
        self._game, self._settings = game, AtariSettings(**settings)
        self._num_frames, self._num_new = OBSERVATIONS[observation]
        self._history: deque[NDArray[np.uint8]] = deque(maxlen=self._num_frames)
        side = self._settings.screen_size
        shape = (side, side) if self._num_frames == 1 else (self._num_frames, side, side)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.metadata = {**self.metadata, "render_fps": FRAMES_PER_SECOND // self._settings.frame_skip // self._num_new or 1}
        self._environment = self._make()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start an episode; with a seed, exactly as a new environment with that seed would."""
        super().reset(seed=seed)
        if seed is not None:
            self._environment = self._make()
        self._history.extend([self._environment.reset()] * self._num_frames)
        return self._observe(), {"frames": 0}

    def step(self, action: int | np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Take one action."""
        step = self._environment.step(int(action))
        self._history.extend(step.frames)
        return self._observe(), step.reward, step.terminated, step.truncated, {"frames": step.num_frames}

    def render(self) -> NDArray[np.uint8] | None:
        """The game's screen in colour."""
        return self._environment.render() if self.render_mode == "rgb_array" else None

    def get_action_meanings(self) -> list[str]:
        """Names of the actions, as ALE's own environments give them."""
        return list(self._environment.info.action_names)

    def _make(self) -> AtariEnvironment:
        return AtariEnvironment(self._game, self._settings, rng=self.np_random, observations_per_step=self._num_new)

    def _observe(self) -> NDArray[np.uint8]:
        return self._history[0] if self._num_frames == 1 else np.stack(self._history)


if ENV_ID not in gymnasium.registry:
    gymnasium.register(ENV_ID, entry_point="comper.environments.gymnasium_atari:AtariGymnasium")
