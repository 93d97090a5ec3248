"""The paper's emulator set-up (Tables 3, 7 and 9): from 18 joystick actions to grey 84x84 observations.

D2: ALE only emulates here, one frame at a time. Frame skip, sticky actions, colour averaging and the episode's cap are done
on top of it: its state lacks the last executed action and the last two screens, so only what is kept here can be restored
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.games import INSTALL_COMMAND, import_ale, resolve_game, rom_checksum, rom_path
from comper.environments.interface import Step
from comper.environments.palette import pooling_table
from comper.errors import DamagedFileError, UsageError
from comper.protocol import NUM_ACTIONS, ProtocolConfig

NOOP = 0

ALE_SEED = 0
"""Seed of ALE's own generator: a constant, because all chance comes from `rng`."""


class AtariEnvironment:
    """One game, with the paper's settings by default.

    Each step holds its action for `observations_per_step` observations of `frame_skip` frames, and returns them. Only a game
    over terminates an episode; the loss of a life does not show. At `episode_cap_frames` the episode is truncated (A10).

    An observation pools the last two screens. After a reset there is only one: the frames that ALE plays before it hands
    over are not visible, so the first observation of an episode is that screen pooled with itself, where ALE's own colour
    averaging would still mix in the screen before it. (Of the paper's games that shows in Asterix and Asteroids.)

    A restored state continues exactly in 101 of the 104 games; with ale-py 0.12.1 not in Q*bert, Tetris and 3-D Tic-Tac-Toe.
    """

    def __init__(
        self,
        game: str,
        *,
        rng: np.random.Generator,
        frame_skip: int = 5,
        sticky_probability: float = 0.25,
        pooling: str = "average",
        observations_per_step: int = 1,
        episode_cap_frames: int = 18_000,
        screen_size: int = 84,
    ) -> None:
        for name, value in (
            ("frame_skip", frame_skip),
            ("observations_per_step", observations_per_step),
            ("episode_cap_frames", episode_cap_frames),
            ("screen_size", screen_size),
        ):
            if value < 1:
                raise ValueError(f"{name} = {value!r}: must be 1 or more.")
        if not 0 <= sticky_probability < 1:
            raise ValueError(f"sticky_probability = {sticky_probability!r}: must be 0 or more and less than 1.")
        self.game = resolve_game(game)
        self.rom_checksum = rom_checksum(self.game)
        self.num_actions = NUM_ACTIONS
        self.frame_shape: tuple[int, ...] = (screen_size, screen_size)
        self.frame_dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.observations_per_step = observations_per_step
        self._rng = rng
        self._frame_skip = frame_skip
        self._sticky_probability = sticky_probability
        self._episode_cap_frames = episode_cap_frames
        self._ale = _load_emulator(self.game)
        num_rows, num_columns = self._ale.getScreenDims()
        self._pool = ScreenPooling(pooling, num_rows=num_rows, screen_size=screen_size)
        self._previous_screen = np.zeros((num_rows, num_columns), np.uint8)
        self._current_screen = np.zeros_like(self._previous_screen)
        self._last_action = NOOP
        self._episode_frames = 0
        self._terminated = False
        self._is_playing = False

    def reset(self) -> NDArray[np.uint8]:
        """Start an episode and return its first observation."""
        self._ale.reset_game()
        self._ale.getScreen(self._current_screen)
        # A14: neither the paper nor ALE says what the screen before the first one is; here the first one itself.
        self._previous_screen[:] = self._current_screen
        self._last_action = NOOP
        self._episode_frames = 0
        self._terminated = False
        self._is_playing = True
        return self._observe()

    def step(self, action: int) -> Step:
        """Hold an action for `observations_per_step` observations, or until the episode ends."""
        self._check_can_take(action)
        frames = np.empty((self.observations_per_step, *self.frame_shape), np.uint8)
        reward, frames_before = 0, self._episode_frames
        for k in range(self.observations_per_step):
            if self._is_playing:
                reward += self._hold(action)
                frames[k] = self._observe()
            else:
                frames[k] = frames[k - 1]  # A8: the game ended on the way; the last observation stands for the missing ones
        return Step(
            frames,
            reward=float(reward),
            terminated=self._terminated,
            truncated=not (self._is_playing or self._terminated),
            num_frames=self._episode_frames - frames_before,
        )

    def state_dict(self) -> dict[str, Any]:
        """Write down the emulator, the two screens, the counters and the random generator."""
        return {
            **self._identity(),
            "emulator": self._ale.cloneState(include_rng=True).serialize(),
            "previous_screen": self._previous_screen.copy(),
            "current_screen": self._current_screen.copy(),
            "last_action": self._last_action,
            "episode_frames": self._episode_frames,
            "terminated": int(self._terminated),
            "is_playing": int(self._is_playing),
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from a state of the same game, ROM and ale-py version."""
        for key, expected in self._identity().items():
            if state.get(key) != expected:
                raise DamagedFileError(f"The emulator state is of {key} {state.get(key)!r}, but {expected!r} is playing.")
        self._restore_emulator(state["emulator"])
        self._previous_screen[:] = state["previous_screen"]
        self._current_screen[:] = state["current_screen"]
        self._last_action = int(state["last_action"])
        self._episode_frames = int(state["episode_frames"])
        self._terminated = bool(state["terminated"])
        self._is_playing = bool(state["is_playing"])
        self._rng.bit_generator.state = state["rng"]

    def _check_can_take(self, action: int) -> None:
        if not 0 <= action < self.num_actions:
            raise ValueError(f"action = {action!r}: must be 0 to {self.num_actions - 1}.")
        if not self._is_playing:
            raise ValueError(f"{self.game}: the episode has ended, or none was started; call reset() first.")

    def _hold(self, action: int) -> int:
        """Play `frame_skip` frames, or fewer if the episode ends, and return their reward."""
        reward = 0
        for _ in range(self._frame_skip):
            # The law of Machado et al. 2018, per frame: the request gets through, or the last executed action goes on.
            if self._rng.random() >= self._sticky_probability:
                self._last_action = action
            reward += self._ale.act(self._last_action)
            self._turn_screens()
            self._episode_frames += 1
            self._terminated = self._ale.game_over()
            self._is_playing = not self._terminated and self._episode_frames < self._episode_cap_frames
            if not self._is_playing:
                break
        return reward

    def _turn_screens(self) -> None:
        # Every frame's screen is fetched, though two of five are used: it costs 1 µs, and a game over may come at any frame.
        self._previous_screen, self._current_screen = self._current_screen, self._previous_screen
        self._ale.getScreen(self._current_screen)

    def _observe(self) -> NDArray[np.uint8]:
        return self._pool(self._previous_screen, self._current_screen)

    def _identity(self) -> dict[str, str]:
        version: str = import_ale().__version__
        return {"game": self.game, "rom_checksum": self.rom_checksum, "ale_py_version": version}

    def _restore_emulator(self, content: bytes) -> None:
        try:
            self._ale.restoreState(import_ale().ALEState(content))
        except (SystemError, RuntimeError, ValueError) as error:  # ale-py does not translate its own exception
            raise DamagedFileError(f"The emulator state of {self.game} cannot be read.") from error


@dataclass(frozen=True)
class AtariFactory:
    """What a worker process needs to make the environment of one trial."""

    game: str
    seed: int | tuple[int, ...] | np.random.SeedSequence
    config: ProtocolConfig = field(default_factory=ProtocolConfig)

    def __call__(self) -> AtariEnvironment:
        return AtariEnvironment(
            self.game,
            rng=np.random.default_rng(self.seed),
            frame_skip=self.config.frame_skip,
            sticky_probability=self.config.sticky_probability,
            pooling=self.config.pooling,
            observations_per_step=self.config.observations_per_step,
            episode_cap_frames=self.config.episode_cap_frames,
            screen_size=self.config.screen_size,
        )


def _load_emulator(game: str) -> Any:
    ale = import_ale().ALEInterface()
    ale.setInt("random_seed", ALE_SEED)
    ale.setInt("frame_skip", 1)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(rom_path(game))
    return ale


class ScreenPooling:
    """Two screens of palette indices to one grey observation: pool pixel by pixel, then resize by area. Tables 7 and 9."""

    def __init__(self, pooling: str, *, num_rows: int, screen_size: int) -> None:
        try:
            import cv2
        except ImportError as error:
            raise UsageError(f"Atari games need OpenCV: {INSTALL_COMMAND}") from error
        self._cv2: Any = cv2
        self._size = (screen_size, screen_size)
        self._table = pooling_table(pooling, num_rows)
        self._unchanged = np.ascontiguousarray(self._table.diagonal())

    def __call__(self, previous: NDArray[np.uint8], current: NDArray[np.uint8]) -> NDArray[np.uint8]:
        grey = self.pool(previous, current)
        # Exact arithmetic in 1/200ths agrees except in ties, which OpenCV's rounding errors decide; and it is slower.
        small: NDArray[np.uint8] = self._cv2.resize(grey, self._size, interpolation=self._cv2.INTER_AREA)
        return small

    def pool(self, previous: NDArray[np.uint8], current: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Luminance of the two screens together, at full size."""
        grey: NDArray[np.uint8] = self._cv2.LUT(current, self._unchanged)
        # Little changes between two frames: only those pixels need the table of pairs.
        changed = np.flatnonzero(previous != current)
        grey.ravel()[changed] = self._table[previous.ravel()[changed], current.ravel()[changed]]
        return grey
