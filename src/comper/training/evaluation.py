"""After training: a run's agent as a policy, and what it scores without learning on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comper.agents.agent import AgentSpec, TrialSetup
from comper.environments.environment import Environment, EnvironmentInfo
from comper.environments.floors import Floors, all_floors, floor_for
from comper.errors import DivergedError, UsageError, counted
from comper.memory.frames import FrameStore, ObservationHistory
from comper.progress import show_progress as shown_progress
from comper.runs.folder import MANIFEST_FILE, find_runs
from comper.runs.manifest import Manifest
from comper.training.options import NetworkMaker, OwnCode, RunOptions, RunSettings, recorded_environment, recorded_settings
from comper.training.randomness import evaluation_seed, streams
from comper.training.weights import naming, saved_weights, take_over

MAX_EPISODES = 1_000_000
MAX_DRAWN = 1_000_000


class Policy:
    """A trained agent that no longer learns. It remembers the last observations of the episode; `reset` forgets them."""

    def __init__(
        self,
        settings: RunSettings,
        info: EnvironmentInfo,
        weights: dict[str, Any],
        *,
        seed: int,
        device: str,
        step: int | None = None,
    ):
        self.settings, self.info = settings, info
        self.step = step
        """Agent steps of training behind the weights; None: the agent has none."""
        self._frames = FrameStore(info.observation_shape, info.observation_dtype, initial_capacity=64)
        self._streams = streams(seed)
        setup = TrialSetup(self._frames, *self._streams[:3])
        torch_device = RunOptions(device=device).torch_device()
        self._agent = settings.agent.agent(settings.config, settings.task(info), [setup], device=torch_device)
        take_over(self._agent, 0, weights)
        self._history = ObservationHistory(self._frames, settings.config.history_length)
        self._is_new = True

    def reset(self) -> None:
        """Begin an episode: forget the observations of the last one."""
        self._is_new = True

    def predict(self, observation: ArrayLike, *, epsilon: float = 0.0) -> int:
        """The action for the newest observation, which is remembered; with probability ε a random one.

        Give every observation of an episode once, and call `reset` before the next episode. Several at once, oldest first,
        are those made while one action was held. A whole number is an observation of a Discrete space.
        """
        if not 0 <= epsilon <= 1:
            raise ValueError(f"epsilon = {epsilon!r}: must be 0 to 1.")
        frames = self._frames_of(observation)
        if self._is_new:
            self._history.reset(frames[0])
            frames, self._is_new = frames[1:], False
        if len(frames):
            self._history.advance(frames)
        actions, q = self._agent.act(np.array([self._history.state], np.int64), [epsilon], [0])
        self._require_finite(q)
        return int(actions[0])

    def q_values(self, observation: ArrayLike | None = None) -> NDArray[np.float32]:
        """Q(s, ·) in the state of the last `predict`, or as if this observation came next; nothing is remembered."""
        if observation is None and self._is_new:
            raise ValueError("No observation yet: call predict(observation), or q_values(observation).")
        ids = [self._frames.intern(frame) for frame in self._frames_of(observation)] if observation is not None else []
        before = self._history.state if not self._is_new else (ids[0],) * self.settings.config.history_length
        state = (*before, *(ids[1:] if self._is_new else ids))[-self.settings.config.history_length :]
        if not self.has_q_values:
            raise UsageError(f"The agent {self.settings.agent_name} has no Q-values.")
        values: NDArray[np.float32] = self._agent.q_values(np.array([state], np.int64), [0])[0]
        self._frames.release(ids)
        self._require_finite(values)
        return values

    def _require_finite(self, values: NDArray[np.float32]) -> None:
        """Refuse to play on without numbers: every action would look alike, and its score like a result."""
        if not np.isfinite(values).all():
            weights = "" if self.step is None else f" of step {self.step:,}"
            raise DivergedError(
                f"{self!r}: with the weights{weights}, a Q-value is NaN or infinite. Try another --checkpoint."
            )

    @property
    def has_q_values(self) -> bool:
        """Whether the agent can say what it expects of each action."""
        return self._agent.has_q_values

    def _frames_of(self, observation: ArrayLike) -> NDArray[Any]:
        shape, dtype = self.info.observation_shape, self.info.observation_dtype
        given = np.asarray(observation)
        if given.shape == () and np.issubdtype(given.dtype, np.integer) and dtype == np.bool_ and len(shape) == 1:
            given = _one_hot(int(given), shape[0])
        frames = given[None] if given.shape == shape else given
        if frames.shape[1:] != shape or not len(frames):
            raise ValueError(f"observation of shape {given.shape}: expected {shape}, or several of them.")
        converted = frames.astype(dtype)
        is_same = np.isfinite(converted).all() if np.issubdtype(dtype, np.floating) else np.array_equal(converted, frames)
        if not is_same:
            raise ValueError(f"observation of {given.dtype} with values that {dtype} has not: this policy reads {dtype}.")
        return converted

    def __repr__(self) -> str:
        return f"Policy({self.settings.agent_name!r} on {self.info.name!r})"


def _one_hot(number: int, size: int) -> NDArray[np.bool_]:
    if not 0 <= number < size:
        raise ValueError(f"observation {number}: expected 0 to {size - 1}.")
    hot: NDArray[np.bool_] = np.arange(size) == number
    return hot


@dataclass(frozen=True)
class Evaluation:
    """Scores of a policy, and the score without learning to read them against."""

    agent: str
    environment: str
    epsilon: float
    scores: tuple[float, ...]
    floor: float | None
    run: str = ""
    step: int | None = None
    """Agent steps of training behind the weights; None: the agent has none."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def is_above_floor(self) -> bool | None:
        """Whether the whole interval lies above the score without learning; None: that was not measured."""
        return None if self.floor is None else self.interval()[0] > self.floor

    def interval(self, *, seed: int = 0, num_resamples: int = 10_000) -> tuple[float, float]:
        """A 95 % bootstrap interval of the mean."""
        rng, scores = np.random.default_rng(seed), np.array(self.scores)
        rows = max(1, MAX_DRAWN // len(scores))  # as many resamples at once as fit into some megabytes
        sizes = [min(rows, num_resamples - first) for first in range(0, num_resamples, rows)]
        means = np.concatenate([rng.choice(scores, (size, len(scores))).mean(axis=1) for size in sizes])
        low, high = np.quantile(means, [0.025, 0.975])
        return float(low), float(high)

    def to_json(self) -> dict[str, Any]:
        """Everything, as `comper evaluate --json` prints it."""
        summary = {"mean": self.mean, "interval": self.interval(), "is_above_floor": self.is_above_floor}
        return {**dataclasses.asdict(self), **summary}

    def __str__(self) -> str:
        low, high = self.interval()
        verdict = "" if self.floor is None else " (above it)" if self.is_above_floor else " (not above it)"
        floor = "not measured" if self.floor is None else f"{self.floor:,.1f}{verdict}"
        weights = "" if self.step is None else f", weights of step {self.step:,}"
        return (
            f"{self.agent} on {self.environment}{weights}: mean score {self.mean:,.1f}"
            f" (95 % interval {low:,.1f} to {high:,.1f}) of {counted(len(self.scores), 'episode')}, ε = {self.epsilon:g};"
            f" score without learning: {floor}"
        )


def load(
    run: str | os.PathLike[str],
    *,
    checkpoint: int | None = None,
    seed: int = 0,
    device: str = "auto",
    agent: AgentSpec | None = None,
    environment: Callable[[], Any] | None = None,
    network: NetworkMaker | None = None,
    trust: Sequence[str] = (),
) -> Policy:
    """The agent of a run as a policy, with its final weights or those of its newest checkpoint.

    `checkpoint` is the agent step of another checkpoint; `seed` is that of random actions. `agent`, `environment` and
    `network` are needed where the run was given them as Python objects; `trust` names modules from outside comper that the
    run needs and that may be imported.
    """
    own = OwnCode(agent, environment, network, tuple(trust))
    return open_policy(Path(run), own, checkpoint=checkpoint, seed=seed, device=device)[0]


def evaluate(
    run: str | os.PathLike[str],
    *,
    episodes: int = 10,
    epsilon: float = 0.001,
    checkpoint: int | None = None,
    seed: int = 0,
    device: str = "auto",
    agent: AgentSpec | None = None,
    environment: Callable[[], Any] | None = None,
    network: NetworkMaker | None = None,
    trust: Sequence[str] = (),
    floors: str | os.PathLike[str] | None = None,
    show_progress: bool = True,
) -> Evaluation:
    """Play episodes with a run's weights, without learning. The other arguments are those of `load`.

    `floors` is a file that `comper floors --out FILE` wrote, for environments whose floor does not come with the package.
    """
    if not 1 <= episodes <= MAX_EPISODES:
        raise UsageError(f"episodes = {episodes}: must be 1 or more.")
    if not 0 <= epsilon <= 1 or seed < 0:
        raise UsageError(f"epsilon = {epsilon}, seed = {seed}: epsilon must be 0 to 1, and seed 0 or more.")
    own = OwnCode(agent, environment, network, tuple(trust))
    known = None if floors is None else all_floors(Path(floors))
    policy, env = open_policy(Path(run), own, checkpoint=checkpoint, seed=seed, device=device)
    scores = []
    with shown_progress("Episodes", wanted=show_progress) as progress:
        for number in range(episodes):
            scores.append(_play(policy, env, epsilon))
            progress.update(number + 1, episodes)
    name = policy.settings.agent_name
    floor = _floor(policy, Path(run), known)
    return Evaluation(name, policy.info.name, epsilon, tuple(scores), floor, str(run), policy.step)


def _floor(policy: Policy, run: Path, measured: Floors | None) -> float | None:
    """The score without learning: as the user has measured it, as the package knows it, or as the run was given it."""
    settings = policy.settings
    frames = settings.environment.frames_per_observation * settings.config.observations_per_step
    if measured and (found := floor_for(measured, policy.info.name, frames, vars(settings.environment))):
        return found.value
    return policy.info.floor if policy.info.floor is not None else Manifest.read(run).floor


def _nearest_run(folder: Path) -> str:
    below = find_runs([folder]) if folder.is_dir() else []
    return f"Did you mean {below[0]}?" if below else "One is called like runs/dqn/freeway/seed-0."


def open_policy(
    run: Path,
    own: OwnCode,
    *,
    checkpoint: int | None = None,
    seed: int = 0,
    device: str = "auto",
    observations_per_step: int | None = None,
) -> tuple[Policy, Environment]:
    """The policy of a run, and an environment to play in, which holds each action as long as in training or as wanted."""
    if not os.path.lexists(run / MANIFEST_FILE):
        raise UsageError(f"{run}: not a run folder. {_nearest_run(run)}")
    manifest = Manifest.read(run)
    manifest.require_this_format(run)
    settings = recorded_settings(run, manifest, own)
    per_step = observations_per_step or settings.config.observations_per_step
    spec = recorded_environment(manifest, own)
    env = spec.factory(settings.environment, seed=evaluation_seed(seed), observations_per_step=per_step)()
    settings.check_recorded(run, env.info)
    if not settings.agent.agent.learns:
        if checkpoint is not None:
            raise UsageError(f"{run}: the agent {manifest.agent} learns nothing, so all its checkpoints play alike.")
        return Policy(settings, env.info, {}, seed=seed, device=device), env
    weights, about = saved_weights(run, manifest, step=checkpoint)
    with naming(run):
        return Policy(settings, env.info, weights, seed=seed, device=device, step=about["step"]), env


def _play(policy: Policy, env: Environment, epsilon: float) -> float:
    policy.reset()
    frames, score, is_over = env.reset()[None], 0.0, False
    while not is_over:
        step = env.step(policy.predict(frames, epsilon=epsilon))
        frames, score, is_over = step.frames, score + step.reward, step.is_last
    return score
