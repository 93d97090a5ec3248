"""Replay buffers for Stable-Baselines3 that give the same samples as its own and take a fraction of the memory.

    from comper.integrations.sb3 import CompactReplayBuffer
    model = DQN("CnnPolicy", env, replay_buffer_class=CompactReplayBuffer)
    model.learn(100_000)

    CompactReplayBuffer         for observation spaces that are one array: Box, Discrete, MultiDiscrete, MultiBinary
    CompactDictReplayBuffer     for Dict spaces (MultiInputPolicy)
    CompactNStepReplayBuffer    returns over n steps, as SB3's NStepReplayBuffer

They are SB3's own buffers with other arrays for the observations: how it draws, what it does at time limits and with
VecNormalize is its own code. CleanRL's scripts use a buffer with the same interface.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

try:
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
    from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
    from stable_baselines3.common.vec_env import VecNormalize
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f'{error.name} is missing: pip install "comper[sb3]".', name=error.name) from None

from comper.errors import DamagedFileError, UsageError
from comper.integrations import saved_spaces
from comper.memory import array_folder
from comper.memory.array_folder import StoredArray, letters, stored
from comper.memory.indexes import TransitionKey, make_index
from comper.memory.observation_array import EMPTY, ObservationArray, ObservationPool, checked, is_worth_sharing
from comper.memory.ring_sets import NONE, EqualKeys, RingSets

FORMAT = "comper buffer for Stable-Baselines3, version 1"
MAX_INITIAL_FRAMES = 100_000
"""Slots for frames that are reserved at once; the store grows beyond them when they are used up."""
OWN_COLUMNS = ("actions", "rewards", "dones", "timeouts")
"""The arrays of SB3 that are kept as they are."""

Observations = npt.NDArray[Any] | ObservationArray
Indices = npt.NDArray[np.integer[Any]]


class CompactReplayBuffer(ReplayBuffer):
    """A drop-in replacement of SB3's ReplayBuffer: frames are stored once, and the samples are the same, draw for draw.

    Args beyond SB3's:
        compression: None, or "zlib": frames take several times less memory, and reading one a few microseconds more.
        similarity: transitions whose Euclidean distance over [s/255, a, r, s'/255] is at most this much (1 in place of
            255 unless observations are 8-bit) are stored as the first of them. 0: only what is equal.
        replay: "visits", every transition is equally likely, as in SB3; or "sets", every set of similar transitions is,
            however often it was met.
    """

    observations: Any
    next_observations: Any

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        similarity: float = 0.0,
        compression: Literal["zlib"] | None = None,
        replay: Literal["visits", "sets"] = "visits",
        **others: Any,
    ) -> None:
        self._refuse(buffer_size, n_envs, observation_space, action_space, similarity, compression, replay)
        if optimize_memory_usage:
            raise UsageError(
                "optimize_memory_usage=True: leave it out; a compact buffer shares the frames of s and s' anyway."
            )
        # SB3 makes its arrays for one step, so that it neither reserves memory nor warns of too little.
        settings = {"handle_timeout_termination": handle_timeout_termination, **others}
        super().__init__(n_envs, observation_space, action_space, device, n_envs=n_envs, **settings)
        self.buffer_size = max(buffer_size // n_envs, 1)
        for name in OWN_COLUMNS:
            column = getattr(self, name)
            setattr(self, name, np.zeros((self.buffer_size, *column.shape[1:]), column.dtype))
        self.similarity, self.compression, self.replay = float(similarity), compression, replay
        self._allocate()

    def _refuse(
        self,
        buffer_size: int,
        n_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        similarity: float,
        compression: str | None,
        replay: str,
    ) -> None:
        """Raise an error that says what is wrong, if anything is."""
        for name, value in (("buffer_size", buffer_size), ("n_envs", n_envs)):
            if not isinstance(value, int | np.integer) or value < 1:
                raise UsageError(f"{name} = {value!r}: must be an integer of 1 or more.")
        if isinstance(observation_space, spaces.Dict) != isinstance(self, DictReplayBuffer):
            wanted = "CompactDictReplayBuffer" if isinstance(observation_space, spaces.Dict) else "CompactReplayBuffer"
            raise UsageError(f"{type(observation_space).__name__} observations: use replay_buffer_class={wanted}.")
        if compression not in (None, "zlib"):
            raise UsageError(f'compression = {compression!r}: must be None or "zlib".')
        if replay not in ("visits", "sets"):
            raise UsageError(f'replay = {replay!r}: must be "visits" or "sets".')
        if not isinstance(similarity, int | float | np.number) or not (similarity >= 0 and math.isfinite(similarity)):
            raise UsageError(f"similarity = {similarity!r}: must be a number, 0 or more.")
        if similarity and not isinstance(action_space, spaces.Discrete):
            kind = type(action_space).__name__
            raise UsageError(f"similarity = {similarity}: needs a Discrete action space, not {kind}; use similarity=0.")
        if similarity and isinstance(observation_space, spaces.Dict):
            raise UsageError(f"similarity = {similarity}: Dict observations have no distance; use similarity=0.")

    # Arrays of observations in place of SB3's.

    def _allocate(self) -> None:
        self._pools: dict[str, ObservationPool] = {}
        if isinstance(self.observation_space, spaces.Dict):
            pairs = {key: self._pair(key, space) for key, space in self.observation_space.spaces.items()}
            self.observations = {key: pair[0] for key, pair in pairs.items()}
            self.next_observations = {key: pair[1] for key, pair in pairs.items()}
        else:
            self.observations, self.next_observations = self._pair("", self.observation_space)
        self._sets = self._make_sets()

    def _pair(self, key: str, space: spaces.Space[Any]) -> tuple[Observations, Observations]:
        """The arrays for s and s' of a space, with common frames where that is likely to save memory."""
        shape, dtype = self._shape_of(key), np.dtype(space.dtype)
        lead = (self.buffer_size, self.n_envs)
        if not (self.similarity or is_worth_sharing(shape, dtype)):
            return np.zeros((*lead, *shape), dtype), np.zeros((*lead, *shape), dtype)
        capacity = min(self.buffer_size * self.n_envs + 1, MAX_INITIAL_FRAMES)
        pool = ObservationPool(shape, dtype, compression=self.compression or "none", initial_capacity=capacity)
        self._pools[key] = pool
        return ObservationArray(pool, lead), ObservationArray(pool, lead)

    def _shape_of(self, key: str) -> tuple[int, ...]:
        shape: Any = self.obs_shape
        return tuple(shape[key] if isinstance(shape, dict) else shape)

    def _make_sets(self) -> RingSets | None:
        """Sets are kept where something depends on them; equal transitions share their frames without."""
        if not self.similarity and self.replay == "visits":
            return None
        finder = make_index("l2", self._pools[""].frames, self.similarity) if self.similarity else EqualKeys()
        return RingSets(self.buffer_size * self.n_envs, finder)

    def _arrays(self) -> list[tuple[str, Observations, Observations]]:
        """The key of each part of an observation, "" if there is one, with its arrays for s and s'."""
        if isinstance(self.observations, dict):
            return [(key, array, self.next_observations[key]) for key, array in self.observations.items()]
        return [("", self.observations, self.next_observations)]

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._allocate()

    # Transitions in.

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Remember one transition of each environment. A wrong one is an error and changes nothing."""
        obs, next_obs = self._checked(obs), self._checked(next_obs)
        rewards, dones = self._one_per_environment("reward", reward), self._one_per_environment("done", done)
        action = self._checked_actions(action)
        if self.handle_timeout_termination and (isinstance(infos, dict) or len(infos) != self.n_envs):
            raise UsageError("infos must be a list of one dict per environment, unless handle_timeout_termination=False.")
        if self._sets is not None and not np.isfinite(rewards).all():
            raise UsageError(f"reward = {reward}: similar transitions need finite rewards.")
        row = self.pos
        if self._sets is not None:
            for number in self._numbers(row):
                self._sets.remove(number)
        super().add(obs, next_obs, action, rewards, dones, list(infos))
        if self._sets is not None:
            for number in self._numbers(row):
                self._group(self._sets, number)

    def _checked(self, observations: Any) -> Any:
        if isinstance(self.observation_space, spaces.Dict):
            items = self.observation_space.spaces.items()
            if not isinstance(observations, dict) or any(key not in observations for key, _ in items):
                raise UsageError(f"observations must be a dict of arrays with the keys {', '.join(map(str, self.obs_shape))}.")
            return {key: self._checked_array(observations[key], key, space) for key, space in items}
        return self._checked_array(observations, "", self.observation_space)

    def _checked_array(self, observations: Any, key: str, space: spaces.Space[Any]) -> npt.NDArray[Any]:
        array, shape = np.asarray(observations), self._shape_of(key)
        if isinstance(space, spaces.Discrete) and array.size == self.n_envs:
            array = array.reshape(self.n_envs, *shape)
        if array.shape == shape and self.n_envs == 1:
            array = array[None]  # SB3 broadcasts a single observation
        array = checked(array, shape, np.dtype(space.dtype))
        if array.shape != (self.n_envs, *shape):
            raise UsageError(f"observations of shape {array.shape}: expected {(self.n_envs, *shape)}, one per environment.")
        if self.similarity and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UsageError("observations must be finite numbers where similar transitions are one.")
        return array

    def _checked_actions(self, action: Any) -> npt.NDArray[Any]:
        array = np.asarray(action)
        if array.size != self.n_envs * self.action_dim:
            raise UsageError(f"action of shape {array.shape}: expected {(self.n_envs, self.action_dim)}.")
        if not np.can_cast(array.dtype, self.actions.dtype, "same_kind"):
            raise UsageError(f"action of {array.dtype}: the buffer was made for {self.actions.dtype}.")
        return array

    def _one_per_environment(self, name: str, values: Any) -> npt.NDArray[np.float32]:
        try:
            return np.asarray(values, np.float32).reshape(self.n_envs)
        except (TypeError, ValueError):
            raise UsageError(f"{name} = {values!r}: must be {self.n_envs} numbers, one per environment.") from None

    def _numbers(self, row: int) -> range:
        """The numbers of the transitions in a row, one per environment."""
        return range(row * self.n_envs, (row + 1) * self.n_envs)

    def _group(self, sets: RingSets, number: int) -> None:
        """Put a transition that was just written into its set. It then is the first one of the set."""
        key = self._key(number)
        similar = sets.find(key)
        sets.add(number, key, similar)
        if self.similarity and similar != NONE:
            source, target = divmod(similar, self.n_envs), divmod(number, self.n_envs)
            for array in (self.observations, self.next_observations):
                array.copy(source, target)
            self.actions[target], self.rewards[target] = self.actions[source], self.rewards[source]

    def _key(self, number: int) -> Any:
        """What makes a transition similar to another: (s, a, r, s')."""
        at = divmod(number, self.n_envs)
        if self.similarity:
            s, s_next = (tuple(array.ids[at].tolist()) for array in (self.observations, self.next_observations))
            return TransitionKey(s, int(self.actions[at][0]), float(self.rewards[at]), s_next)
        arrays = [array for _, s, s_next in self._arrays() for array in (s, s_next)]
        parts = [array.ids[at] if isinstance(array, ObservationArray) else array[at] for array in arrays]
        return b"".join(part.tobytes() for part in (*parts, self.actions[at], self.rewards[at]))

    # Samples out.

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Draw transitions as SB3 does, from NumPy's global generator; with `replay="sets"`, sets."""
        if not self.size():
            raise UsageError("The buffer is empty: there is nothing to sample.")
        if self._sets is None or self.replay == "visits":
            return super().sample(batch_size, env)
        drawn = np.random.randint(0, len(self._sets), size=batch_size)  # noqa: NPY002 - SB3 seeds this generator
        return self._read(*np.divmod(self._sets.rows(drawn), self.n_envs), env)

    def _get_samples(self, batch_inds: Indices, env: VecNormalize | None = None) -> Any:
        # The draw that SB3 makes here, so that a seed gives the same samples.
        env_indices = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))  # noqa: NPY002
        return self._read(batch_inds, env_indices, env)

    def _read(self, rows: Indices, envs: Indices, env: VecNormalize | None) -> Any:
        pairs = {key: _gather_both(s, s_next, (rows, envs)) for key, s, s_next in self._arrays()}
        observations, next_observations = (
            self._as_tensors({key: pair[i] for key, pair in pairs.items()}, env) for i in (0, 1)
        )
        dones = (self.dones[rows, envs] * (1 - self.timeouts[rows, envs])).reshape(-1, 1)
        rewards = self._normalize_reward(self.rewards[rows, envs].reshape(-1, 1), env)
        a, d, r = (self.to_torch(array, copy=False) for array in (self.actions[rows, envs], dones, rewards))
        samples = DictReplayBufferSamples if isinstance(self.observations, dict) else ReplayBufferSamples
        return samples(observations, a, next_observations, d, r)

    def _as_tensors(self, parts: dict[str, npt.NDArray[Any]], env: VecNormalize | None) -> Any:
        if isinstance(self.observations, dict):
            normalized: Any = self._normalize_obs(parts, env)
            return {key: self.to_torch(array, copy=False) for key, array in normalized.items()}
        array: Any = self._normalize_obs(parts[""], env)
        return self.to_torch(array, copy=False)

    # What is remembered.

    @property
    def set_sizes(self) -> npt.NDArray[np.int32]:
        """How many of the remembered transitions each set of similar ones has."""
        if self._sets is None:
            raise UsageError('Sets are not kept with similarity = 0 and replay = "visits": nothing would depend on them.')
        return self._sets.sizes

    @property
    def nbytes(self) -> int:
        """Bytes of the transitions remembered: frames and rows, without Python's bookkeeping."""
        per_row = sum(getattr(self, name).nbytes for name in OWN_COLUMNS) // self.buffer_size
        arrays = [array for _, s, s_next in self._arrays() for array in (s, s_next)]
        shared = sum(array.nbytes for array in arrays if isinstance(array, ObservationArray))
        plain = sum(array.nbytes for array in arrays if not isinstance(array, ObservationArray)) // self.buffer_size
        return int(shared + self.size() * (per_row + plain) + sum(pool.nbytes for pool in self._pools.values()))

    def __repr__(self) -> str:
        kept = f"{self.size() * self.n_envs} of {self.buffer_size * self.n_envs} transitions, {self.nbytes / 1e6:.1f} MB"
        settings = f"similarity={self.similarity:g}, compression={self.compression!r}, replay={self.replay!r}"
        return f"{type(self).__name__}({kept}, {settings})"

    # Files. `save` and `load` write and read arrays alone. SB3's save_replay_buffer pickles this object: what is pickled
    # of ours is a dictionary of arrays and numbers, but reading a pickle runs what is in it, so read only your own.

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the buffer to a folder, replacing one saved there before. An interruption leaves one of the two."""
        bounds: saved_spaces.Arrays = {}
        about = {
            "format": FORMAT,
            "class": type(self).__name__,
            "observation_space": saved_spaces.describe(self.observation_space, bounds),
            "action_space": saved_spaces.describe(self.action_space, bounds),
            "settings": {name: getattr(self, name) for name in self._setting_names()},
            "buffer_size": self.buffer_size * self.n_envs,
            "pos": self.pos,
            "full": self.full,
        }
        array_folder.write(Path(folder), about, self._columns() | stored(bounds))

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: torch.device | str = "auto") -> Self:
        """Read back a saved buffer, which goes on as if it had never stopped. Safe with files of others."""
        about, arrays = array_folder.read(Path(folder))
        try:
            if (about["format"], about["class"]) != (FORMAT, cls.__name__):
                raise ValueError(f"it holds a {about['class']}, {about['format']!r}")
            observation_space, action_space = (
                saved_spaces.read(about[name], arrays) for name in ("observation_space", "action_space")
            )
            settings = {str(name): value for name, value in about["settings"].items()}
            buffer = cls(about["buffer_size"], observation_space, action_space, device, **settings)
            buffer._restore(arrays, about["pos"], about["full"])
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            AssertionError,
            OverflowError,
            RecursionError,
            MemoryError,
            UsageError,
        ) as error:
            message = f"{folder}: not what {cls.__name__}.save writes ({type(error).__name__}: {error})."
            raise DamagedFileError(message) from None
        return buffer

    def _setting_names(self) -> tuple[str, ...]:
        return ("n_envs", "handle_timeout_termination", "similarity", "compression", "replay")

    def _columns(self) -> dict[str, StoredArray]:
        """Every array, with observations as positions among the frames where frames are shared."""
        size = self.size()
        arrays = {name: getattr(self, name)[:size] for name in OWN_COLUMNS}
        if self._sets is not None:
            arrays |= self._sets.state_dict()
        frames = {}
        for i, (_, s, s_next) in enumerate(self._arrays()):
            name = letters(i)
            if isinstance(s, ObservationArray) and isinstance(s_next, ObservationArray):
                s.pool.clear()
                ids, frames[f"frames_{name}"] = s.pool.held()
                s, s_next = (np.searchsorted(ids, array.ids[:size]).astype(np.int32) for array in (s, s_next))
            arrays |= {f"observations_{name}": s[:size], f"next_observations_{name}": s_next[:size]}
        return frames | stored(arrays)

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], pos: int, full: bool) -> None:
        """Fill this new buffer with what was saved, after checking it."""
        if not (isinstance(pos, int) and 0 <= pos < self.buffer_size and full in (True, False)):
            raise ValueError(f"pos = {pos}, full = {full}")
        self.pos, self.full = pos, full
        size = self.size()
        for name in OWN_COLUMNS:
            _copy_into(getattr(self, name)[:size], arrays[name])
        for i, (_, s, s_next) in enumerate(self._arrays()):
            saved = [arrays[f"{kind}_{letters(i)}"] for kind in ("observations", "next_observations")]
            if isinstance(s, ObservationArray) and isinstance(s_next, ObservationArray):
                pairs = [
                    (array, _padded(places, size, array.ids.shape)) for array, places in zip((s, s_next), saved, strict=True)
                ]
                s.pool.restore(arrays[f"frames_{letters(i)}"], pairs)
                continue
            for array, values in zip((s, s_next), saved, strict=True):
                _copy_into(array[:size], values)
        if self._sets is not None:
            latest = np.asarray(arrays["latest"]).tolist()
            if not all(isinstance(number, int) and 0 <= number < size * self.n_envs for number in latest):
                raise ValueError("sets name rows that are not there")
            self._sets.load_state_dict(arrays, {number: self._key(number) for number in latest})

    def __getstate__(self) -> dict[str, Any]:
        replaced = ("observations", "next_observations", "_pools", "_sets", *OWN_COLUMNS)
        rest = {name: value for name, value in vars(self).items() if name not in replaced}
        return {**rest, "_saved": {name: column.whole() for name, column in self._columns().items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state.pop("_saved")
        self.__dict__.update(state)
        for name in OWN_COLUMNS:
            setattr(self, name, np.zeros((self.buffer_size, *saved[name].shape[1:]), saved[name].dtype))
        self._allocate()
        self._restore(saved, self.pos, self.full)


class CompactDictReplayBuffer(CompactReplayBuffer, DictReplayBuffer):
    """The compact buffer for Dict observations; each of their arrays shares its own frames."""


class CompactNStepReplayBuffer(CompactReplayBuffer, NStepReplayBuffer):
    """The compact buffer with returns over `n_steps` steps; `replay` is always "visits".

    DQN(n_steps=3) sets up only SB3's own class: give replay_buffer_kwargs=dict(n_steps=3, gamma=0.99) instead.
    """

    def __init__(self, *args: Any, n_steps: int = 3, gamma: float = 0.99, **kwargs: Any) -> None:
        if kwargs.get("replay", "visits") != "visits":
            raise UsageError('replay = "sets": returns over several steps follow visits; use replay="visits".')
        super().__init__(*args, n_steps=n_steps, gamma=gamma, **kwargs)

    _get_samples = NStepReplayBuffer._get_samples

    def _setting_names(self) -> tuple[str, ...]:
        return (*super()._setting_names(), "n_steps", "gamma")


def _gather_both(s: Observations, s_next: Observations, index: tuple[Indices, Indices]) -> tuple[Any, Any]:
    """The observations s and s' of some transitions. A frame that both have is read once."""
    if isinstance(s, ObservationArray) and isinstance(s_next, ObservationArray):
        both = s.pool.gather(np.concatenate([s.ids[index], s_next.ids[index]]))
        return both[: len(both) // 2], both[len(both) // 2 :]
    return s[index], s_next[index]


def _copy_into(array: npt.NDArray[Any], saved: npt.NDArray[Any]) -> None:
    if (saved.dtype, saved.shape) != (array.dtype, array.shape):
        raise ValueError(f"an array is {saved.dtype}{saved.shape}, expected {array.dtype}{array.shape}")
    array[...] = saved


def _padded(places: npt.NDArray[Any], size: int, shape: tuple[int, ...]) -> npt.NDArray[np.int32]:
    """Positions of frames for all rows of an array, of which the first `size` were saved."""
    if places.dtype != np.int32 or places.shape != (size, *shape[1:]) or places.min(initial=0) < 0:
        raise ValueError(f"rows are {places.dtype}{places.shape}, expected int32{(size, *shape[1:])}")
    return np.concatenate([places, np.full((shape[0] - size, *shape[1:]), EMPTY, np.int32)])
