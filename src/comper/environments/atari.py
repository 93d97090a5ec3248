"""The paper's emulator set-up (Tables 3, 7 and 9): from 18 joystick actions to grey 84x84 observations.

D2: ALE only emulates here, one frame at a time. Frame skip, sticky actions, colour averaging and the episode's cap are done
on top of it: its state lacks the last executed action and the last two screens, so only what is kept here can be restored
exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.area_resize import compiled_picture
from comper.environments.emulator_state import has_form_of
from comper.environments.environment import EnvironmentInfo, EnvironmentSettings, Family, Step, require, setting
from comper.environments.floors import known_floor
from comper.environments.games import available_games, find_game, import_ale, resolve_game, rom_checksum, rom_path
from comper.environments.palette import palette, pooling_table
from comper.errors import DamagedFileError, OutsideCodeError, import_library
from comper.protocol import ACTION_NAMES, FRAME_SKIP, NUM_ACTIONS, num_scored_episodes

NOOP = 0

ALE_SEED = 0
"""Seed of ALE's own generator: a constant, because all chance comes from `rng`."""

INEXACT_GAMES = frozenset({"qbert", "tetris", "tic_tac_toe_3d"})
"""Games whose restored state does not continue exactly, measured with ale-py 0.12.1; the other 101 do."""

SMALLEST_SCREEN = 8


@dataclass(frozen=True, kw_only=True)
class AtariSettings(EnvironmentSettings):
    """How a game is played and seen; the defaults are the paper's."""

    frame_skip: int = setting(FRAME_SKIP, "Table 3", "frames an action lasts before the next observation")
    sticky_probability: float = setting(
        0.25, "Table 3", "chance, per frame, that the emulator repeats the last executed action", below=1
    )
    episode_cap_frames: int = setting(18_000, "A10", "frames after which an episode is cut off: a truncation, not a game over")
    pooling: str = setting(
        "average",
        "Table 7",
        "how the last two frames become one: ALE's colour averaging, or the maximum",
        ("average", "max", "none"),
    )
    screen_size: int = setting(
        84,
        "Table 9, A18",
        "height and width of an observation after the area resize, pixels",
        least=SMALLEST_SCREEN,
        most=4_096,
    )

    @property
    def frames_per_observation(self) -> int:
        """Frames of the game between two observations."""
        return self.frame_skip


PAPER_SETTINGS = AtariSettings()


class AtariEnvironment:
    """One game, with the paper's settings by default.

    Each step holds its action for `observations_per_step` observations of `frame_skip` frames, and returns them. Only a game
    over terminates an episode; the loss of a life does not show. At `episode_cap_frames` the episode is truncated (A10).

    An observation pools the last two screens. After a reset there is only one: the frames that ALE plays before it hands
    over are not visible, so the first observation of an episode is that screen pooled with itself, where ALE's own colour
    averaging would still mix in the screen before it. (Of the paper's games that shows in Asterix and Asteroids.)

    A restored state continues exactly, except in the games of `INEXACT_GAMES`; `info.resume` says so.
    """

    def __init__(
        self,
        game: str,
        settings: AtariSettings = PAPER_SETTINGS,
        *,
        rng: np.random.Generator,
        observations_per_step: int = 1,
    ) -> None:
        require(observations_per_step >= 1, "observations_per_step", observations_per_step, "1 or more")
        self.game = resolve_game(game)
        self.rom_checksum = rom_checksum(self.game)
        self.observations_per_step = observations_per_step
        self._rng = rng
        self._frame_skip = settings.frame_skip
        self._sticky_probability = settings.sticky_probability
        self._episode_cap_frames = settings.episode_cap_frames
        self._ale = _load_emulator(self.game)
        num_rows, num_columns = self._ale.getScreenDims()
        self._pool = ScreenPooling(settings.pooling, num_rows=num_rows, screen_size=settings.screen_size)
        screen = (num_rows, num_columns)
        self._compiled_picture = compiled_picture(self._pool.table, screen, settings.screen_size, self._pool)
        self._frames_shape = (observations_per_step, settings.screen_size, settings.screen_size)
        self._previous_screen, self._current_screen = np.zeros((2, num_rows, num_columns), np.uint8)
        self._observation = np.empty(self._frames_shape[1:], np.uint8)
        # Asking NumPy for an address takes longer than reading a screen.
        self._addresses = (self._previous_screen.ctypes.data, self._current_screen.ctypes.data)
        self._observation_address = self._observation.ctypes.data
        self._last_action = NOOP
        self._episode_frames = 0
        self._terminated = False
        self._is_playing = False
        self.info = self._describe(settings)

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
        return self._observe().copy()

    def step(self, action: int) -> Step:
        """Hold an action for `observations_per_step` observations, or until the episode ends."""
        self._check_can_take(action)
        frames = np.empty(self._frames_shape, np.uint8)
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

    def render(self) -> NDArray[np.uint8]:
        """The current screen in colour: (rows, columns, 3), as ALE shows it."""
        rgb: NDArray[np.uint8] = palette(len(self._current_screen))[self._current_screen].astype(np.uint8)
        return rgb

    def state_dict(self) -> dict[str, Any]:
        """Return the emulator, the two screens, the counters and the random generator."""
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
        if not 0 <= self._last_action < NUM_ACTIONS:
            raise DamagedFileError(f"The emulator's last action is {self._last_action}: the state is damaged.")
        self._episode_frames = int(state["episode_frames"])
        self._terminated = bool(state["terminated"])
        self._is_playing = bool(state["is_playing"])
        self._rng.bit_generator.state = state["rng"]

    def _describe(self, settings: AtariSettings) -> EnvironmentInfo:
        # A floor does not depend on what the agent sees, only on how long an action is held and how the game is played.
        is_measured = all(
            getattr(settings, name) == getattr(PAPER_SETTINGS, name) for name in ("sticky_probability", "episode_cap_frames")
        )
        frames_per_decision = settings.frame_skip * self.observations_per_step
        return EnvironmentInfo(
            name=self.game,
            observation_shape=self._frames_shape[1:],
            observation_dtype=np.dtype(np.uint8),
            observation_kind="pixels",
            action_names=ACTION_NAMES,
            episode_cap_frames=settings.episode_cap_frames,
            num_scored_episodes=num_scored_episodes(self.game),
            floor=known_floor(self.game, frames_per_decision) if is_measured else None,
            resume=_resume_problem(self.game),
            identity={
                "rom_md5": self.rom_checksum,
                "ale_py": str(import_ale().__version__),
                "opencv": self._pool.opencv_version,
            },
        )

    def _check_can_take(self, action: int) -> None:
        if not 0 <= action < NUM_ACTIONS:
            raise ValueError(f"action = {action!r}: must be 0 to {NUM_ACTIONS - 1}.")
        if not self._is_playing:
            raise ValueError(f"{self.game}: the episode has ended, or none was started; call reset() first.")

    def _hold(self, action: int) -> int:
        """Play `frame_skip` frames, or fewer if the episode ends, and return their reward."""
        reward = 0
        for _ in range(self._frame_skip):
            # Machado et al. 2018, per frame: the requested action is executed, or the last executed one is repeated.
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
        # Every frame's screen is read, though two of five are used: it costs 1 µs, and a game over may come at any frame.
        self._previous_screen, self._current_screen = self._current_screen, self._previous_screen
        self._addresses = self._addresses[::-1]
        self._ale.getScreen(self._current_screen)

    def _observe(self) -> NDArray[np.uint8]:
        """The observation, to be copied before the next one is made."""
        if self._compiled_picture is None:
            return self._pool(self._previous_screen, self._current_screen)
        self._compiled_picture.draw(*self._addresses, self._observation_address)
        return self._observation

    def _identity(self) -> dict[str, str]:
        version: str = import_ale().__version__
        return {"game": self.game, "rom_checksum": self.rom_checksum, "ale_py_version": version}

    def _restore_emulator(self, content: Any) -> None:
        own = self._ale.cloneState(include_rng=True).serialize()
        try:
            if not (isinstance(content, bytes) and has_form_of(content, own)):
                raise ValueError("not the form that this emulator writes")
            self._ale.restoreState(import_ale().ALEState(content))
        except (SystemError, RuntimeError, ValueError) as error:  # ale-py does not translate its own exception
            raise DamagedFileError(f"The emulator state of {self.game} cannot be read.") from error


def make(
    name: str, settings: AtariSettings, *, seed: np.random.SeedSequence, observations_per_step: int = 1
) -> AtariEnvironment:
    """Make the environment of one trial."""
    rng = np.random.default_rng(seed)
    return AtariEnvironment(name, settings, rng=rng, observations_per_step=observations_per_step)


FAMILY = Family(
    prefix="",
    extra="atari",
    summary="Atari game with the paper's protocol",
    example="freeway",
    settings=PAPER_SETTINGS,
    make=make,
    names=available_games,
    resolve=find_game,
)


def _resume_problem(game: str) -> str:
    if game in INEXACT_GAMES:
        return f"ALE does not restore {game} exactly (measured with ale-py 0.12.1)."
    return ""


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
        self._cv2 = import_library("cv2", "Atari games need OpenCV", extra="atari", kind=OutsideCodeError)
        self.opencv_version: str = self._cv2.__version__
        self._size = (screen_size, screen_size)
        self.table = pooling_table(pooling, num_rows)
        self._unchanged = np.ascontiguousarray(self.table.diagonal())

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
        grey.ravel()[changed] = self.table[previous.ravel()[changed], current.ravel()[changed]]
        return grey
