"""Any game that can be started from a seed, as an Environment whose saved state continues exactly.

Every episode is started from a seed of its own. An episode is then known by its seed and its actions: its state is these two,
and loading it plays the episode again. A digest of all observations, rewards and ends must come out equal, or the state is
refused. Whether that works is tried when an environment is made, on two games of their own: `info.resume` is the outcome.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment, EnvironmentInfo, Step, observation_kind
from comper.environments.floors import known_floor
from comper.errors import DamagedFileError, UsageError

NUM_SEEDS = 2**31
"""Seeds of episodes are below this: every library takes them."""

NUM_TRIED_ACTIONS = 20


class Outcome(NamedTuple):
    """What a game answers to one action."""

    observation: NDArray[Any]
    reward: float
    terminated: bool
    truncated: bool


class Game(Protocol):
    """What a family must offer to become a SeededEnvironment; an observation is never changed after it was returned."""

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    action_names: tuple[str, ...]
    time_limit_frames: int | None
    """The game's own limit, where it has one."""
    identity: Mapping[str, str]

    def reset(self, seed: int) -> NDArray[Any]:
        """Start an episode that depends on nothing but the seed and the actions."""
        ...

    def step(self, action: int) -> Outcome:
        """Take one action, which counts as one frame."""
        ...

    def get_state(self) -> dict[str, Any] | None:
        """The whole state, where the game can tell it; None: it cannot."""
        ...

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        ...

    def render(self) -> Any:
        """The screen in colour (rows, columns, 3), where the game can draw one; else None."""
        ...

    def close(self) -> None:
        """Release what the game holds."""
        ...


class SeededEnvironment:
    """A game behind the project's own interface; `rng` draws the seeds of its episodes."""

    def __init__(
        self,
        name: str,
        make_game: Callable[[], Game],
        *,
        rng: np.random.Generator,
        episode_cap_frames: int | None = None,
        floor: float | None = None,
    ) -> None:
        self._game = make_game()
        self._rng = rng
        self.observations_per_step = 1
        self._episode_seed = 0
        self._is_playing = False
        self._actions: list[int] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._episode_cap_frames = episode_cap_frames
        limits = [limit for limit in (episode_cap_frames, self._game.time_limit_frames) if limit is not None]
        self.info = EnvironmentInfo(
            name=name,
            observation_shape=self._game.observation_shape,
            observation_dtype=self._game.observation_dtype,
            observation_kind=observation_kind(self._game.observation_shape),
            action_names=self._game.action_names,
            episode_cap_frames=min(limits, default=None),
            floor=floor,
            resume=_resume_problem(name, make_game, self._game.action_names),
            identity=self._game.identity,
        )

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation."""
        return self._start(int(self._rng.integers(NUM_SEEDS)))

    def step(self, action: int) -> Step:
        """Take one action, which counts as one frame."""
        if not 0 <= action < self.info.num_actions:
            raise ValueError(f"action = {action!r}: must be 0 to {self.info.num_actions - 1}.")
        if not self._is_playing:
            raise ValueError(f"{self.info.name}: the episode has ended, or none was started; call reset() first.")
        outcome = self._advance(action)
        return Step(outcome.observation[None], outcome.reward, outcome.terminated, outcome.truncated, num_frames=1)

    def state_dict(self) -> dict[str, Any]:
        """Return the episode's seed and actions, or the game's own state where it has one, and the random generator."""
        if self.info.resume:
            raise UsageError(self.info.resume)
        state = {
            "name": self.info.name,
            "identity": dict(self.info.identity),
            "rng": self._rng.bit_generator.state,
            "is_playing": int(self._is_playing),
            "episode_seed": self._episode_seed,
            "actions": np.array(self._actions, np.int32),
        }
        game = self._game.get_state() if self._is_playing else None
        return {**state, "digest": self._digest.hexdigest()} if game is None else {**state, "game": game}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from a state of the same environment and versions."""
        for key, expected in (("name", self.info.name), ("identity", dict(self.info.identity))):
            if state.get(key) != expected:
                raise DamagedFileError(f"The environment's state is of {state.get(key)!r}, but this is {expected!r}.")
        self._rng.bit_generator.state = state["rng"]
        self._is_playing = False
        if state["is_playing"]:
            self._play_again(state)

    def render(self) -> Any:
        """The screen in colour (rows, columns, 3), where the game can draw one; else None."""
        return self._game.render()

    def close(self) -> None:
        """Release what the game holds."""
        self._game.close()

    def _play_again(self, state: dict[str, Any]) -> None:
        seed = state["episode_seed"]
        if type(seed) is not int or not 0 <= seed < NUM_SEEDS:
            raise DamagedFileError(f"The saved seed of {self.info.name} is none: the state is damaged.")
        self._start(seed)
        actions: list[int] = np.asarray(state["actions"]).tolist()
        if "game" in state:
            self._game.set_state(state["game"])
            self._actions = actions
            return
        for action in actions:
            if not (self._is_playing and 0 <= action < self.info.num_actions):
                raise DamagedFileError(f"The saved actions of {self.info.name} cannot be played again: the state is damaged.")
            self._advance(action)
        if not self._is_playing or self._digest.hexdigest() != state["digest"]:
            raise DamagedFileError(
                f"{self.info.name} does not play the saved episode again as it was: the environment has changed, or it keeps"
                " state that its seed does not determine."
            )

    def _start(self, seed: int) -> NDArray[Any]:
        observation = self._game.reset(seed)
        self._episode_seed = seed
        self._is_playing = True
        self._actions = []
        self._digest = hashlib.blake2b(observation.tobytes(), digest_size=16)
        return observation

    def _advance(self, action: int) -> Outcome:
        observation, reward, terminated, truncated = self._game.step(action)
        self._actions.append(action)
        if self._episode_cap_frames is not None and len(self._actions) >= self._episode_cap_frames:
            truncated = True
        # A game over at the time limit is a game over.
        outcome = Outcome(observation, reward, terminated, truncated and not terminated)
        self._is_playing = not (terminated or truncated)
        _add(self._digest, outcome)
        return outcome


def _add(digest: hashlib.blake2b, outcome: Outcome) -> None:
    digest.update(outcome.observation.tobytes())
    digest.update(struct.pack("<d??", outcome.reward, outcome.terminated, outcome.truncated))


def make_seeded(
    name: str,
    make_game: Callable[[], Game],
    *,
    seed: np.random.SeedSequence,
    observations_per_step: int,
    episode_cap_frames: int | None = None,
    has_floor: bool = True,
) -> Environment:
    """Put a game behind the project's interface, with actions that are held if need be."""
    floor = known_floor(name, observations_per_step) if has_floor else None
    rng = np.random.default_rng(seed)
    environment = SeededEnvironment(name, make_game, rng=rng, episode_cap_frames=episode_cap_frames, floor=floor)
    return environment if observations_per_step == 1 else HeldActions(environment, observations_per_step, floor=floor)


# Whether an episode can be played again


def _resume_problem(name: str, make_game: Callable[[], Game], action_names: Sequence[str]) -> str:
    """One sentence that says why a new game does not repeat an episode of a used one; empty where it does."""
    actions = np.random.default_rng(0).integers(len(action_names), size=NUM_TRIED_ACTIONS).tolist()
    try:
        used, new = make_game(), make_game()
        try:
            _digest_of(used, 1, actions)
            if used.get_state() is not None or _digest_of(used, 2, actions) == _digest_of(new, 2, actions):
                return ""
        finally:
            used.close()
            new.close()
    except UsageError:
        raise
    except Exception as error:  # the code of others: it may refuse to be made or played twice in many ways
        return f"{name} cannot be made and played a second time ({type(error).__name__}: {error})."
    return f"{name} cannot be resumed: the same seed and the same actions do not lead to the same observations."


def _digest_of(game: Game, seed: int, actions: Sequence[int]) -> str:
    digest = hashlib.blake2b(game.reset(seed).tobytes(), digest_size=16)
    for action in actions:
        outcome = game.step(action)
        _add(digest, outcome)
        if outcome.terminated or outcome.truncated:
            break
    return digest.hexdigest()


# Actions that are held


class HeldActions:
    """An environment whose every action is held for K observations, as the Atari games do it for stacked frames."""

    def __init__(self, environment: Environment, observations_per_step: int, *, floor: float | None = None) -> None:
        self._environment = environment
        self.observations_per_step = observations_per_step
        self.info = replace(environment.info, floor=floor)

    def reset(self) -> NDArray[Any]:
        """Start an episode and return its first observation."""
        return self._environment.reset()

    def step(self, action: int) -> Step:
        """Hold an action for K observations, or until the episode ends."""
        steps = [self._environment.step(action)]
        while len(steps) < self.observations_per_step and not steps[-1].is_last:
            steps.append(self._environment.step(action))
        # A8: the episode ended on the way; the last observation stands for the missing ones.
        missing = [steps[-1].frames] * (self.observations_per_step - len(steps))
        return Step(
            np.concatenate([*(step.frames for step in steps), *missing]),
            reward=sum(step.reward for step in steps),
            terminated=steps[-1].terminated,
            truncated=steps[-1].truncated,
            num_frames=sum(step.num_frames for step in steps),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the environment; between two actions there is no more."""
        return self._environment.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from what `state_dict` returned."""
        self._environment.load_state_dict(state)

    def render(self) -> Any:
        """The screen in colour, where the environment can draw one; else None."""
        return self._environment.render() if hasattr(self._environment, "render") else None

    def close(self) -> None:
        """Release what the environment holds."""
        close = getattr(self._environment, "close", None)
        if close is not None:
            close()
