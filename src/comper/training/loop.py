"""The loop of Algorithm 2 that drives every agent: T trials in lockstep, each until its frames are used up."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent
from comper.environments.environment import Step
from comper.errors import DivergedError
from comper.memory.frames import ObservationHistory
from comper.memory.transitions import Transition
from comper.protocol import AgentConfig
from comper.runs.folder import EpisodeRecord


class Environments(Protocol):
    """T environments, stepped together."""

    def reset(self, trial: int) -> Any: ...

    def step(self, actions: Sequence[int], trials: Sequence[int]) -> list[Step]: ...


class Record(Protocol):
    """Where a trial's results go."""

    def episode(self, record: EpisodeRecord) -> None: ...

    def metrics(self, record: dict[str, Any]) -> None: ...

    def finish(self, totals: dict[str, Any], weights: Mapping[str, Any]) -> None: ...


class Observer(Protocol):
    """Who is called while trials run: progress, checkpoints."""

    def after_step(self, trials: Sequence[Trial], step: int) -> None: ...

    def after_trial(self, trial: Trial) -> None: ...


@dataclass
class Trial:
    """One trial's counters; `number` is its place in the population."""

    number: int
    environment: str
    seed: int
    history: ObservationHistory
    record: Record
    is_running: bool = True
    total_frames: int = 0
    num_episodes: int = 0
    episode_score: float = 0.0
    episode_frames: int = 0
    episode_steps: int = 0
    last_score: float | None = None
    latest_metrics: dict[str, Any] | None = None
    latest_action: int = 0
    latest_step: Step | None = None

    def count(self, step: Step) -> None:
        """Add a step to the counters."""
        self.latest_step = step
        self.total_frames += step.num_frames
        self.episode_frames += step.num_frames
        self.episode_score += step.reward
        self.episode_steps += 1

    def end_episode(self, *, truncated: bool) -> None:
        """Record the episode and begin the next one's counters."""
        self.num_episodes += 1
        self.last_score = self.episode_score
        self.record.episode(
            EpisodeRecord(
                episode=self.num_episodes,
                score=self.episode_score,
                frames=self.episode_frames,
                steps=self.episode_steps,
                total_frames=self.total_frames,
                truncated=truncated,
            )
        )
        self.episode_score, self.episode_frames, self.episode_steps = 0.0, 0, 0


class Loop:
    """Algorithm 2, l. 4-10 and 26-34, around an agent that does l. 11-25."""

    def __init__(self, config: AgentConfig, agent: Agent, environments: Environments, trials: Sequence[Trial], t: int = 0):
        self._config = config
        self._agent = agent
        self._environments = environments
        self._trials = trials
        self.t = t
        """Agent steps so far; trials that have some already are in mid-episode."""

    def run(self, observers: Sequence[Observer] = ()) -> None:
        """Run every trial to its end."""
        if self.t == 0:
            for trial in self._trials:
                self._reset(trial)  # l. 4
        clock = time.perf_counter()
        while running := [trial for trial in self._trials if trial.is_running]:  # l. 6
            self._tick(running)
            if self.t % self._config.log_period_steps == 0:
                now = time.perf_counter()
                self._log(running, steps_per_second=self._config.log_period_steps / (now - clock))
                clock = now
            for trial in running:
                if not trial.is_running:
                    self._finish(trial, observers)
            for observer in observers:
                observer.after_step(self._trials, self.t)

    def _finish(self, trial: Trial, observers: Sequence[Observer]) -> None:
        totals = {"steps": self.t, "total_frames": trial.total_frames, "episodes": trial.num_episodes}
        trial.record.finish(totals, self._agent.weights(trial.number))
        for observer in observers:
            observer.after_trial(trial)

    def _tick(self, running: Sequence[Trial]) -> None:
        """One agent step of every running trial."""
        numbers = [trial.number for trial in running]
        states = np.array([trial.history.state for trial in running], np.int64)
        epsilon = [self._agent.epsilon(frames=trial.total_frames, steps=self.t) for trial in running]
        actions, q = self._agent.act(states, epsilon, numbers)  # l. 5 and 34
        self._require_finite(bool(np.isfinite(q).all()), "a Q-value")
        self._require_finite(self._agent.is_finite(), "a loss")
        steps = self._environments.step(actions.tolist(), numbers)  # l. 7
        for trial, step in zip(running, steps, strict=True):
            self._require_numbers(trial, "a reward", math.isfinite(step.reward))
            self._require_numbers(trial, "an observation", _are_numbers(step.frames))
        for trial, a, q_t, step in zip(running, actions.tolist(), q.tolist(), steps, strict=True):
            trial.latest_action = a
            s, s_next = trial.history.advance(step.frames)  # l. 9
            transition = Transition(s, a, step.reward, s_next, step.terminated)
            self._agent.store(trial.number, transition, q_t, is_last=step.terminated or step.truncated)  # l. 8
        self.t += 1  # l. 10
        self._agent.learn(self.t, numbers)  # l. 11-25
        for trial, step in zip(running, steps, strict=True):
            trial.count(step)  # l. 26
            if step.terminated or step.truncated:  # l. 27; A10: the frame cap ends an episode too
                self._end_episode(trial, truncated=not step.terminated)

    def _end_episode(self, trial: Trial, *, truncated: bool) -> None:
        trial.end_episode(truncated=truncated)
        trial.is_running = trial.total_frames <= self._config.frames  # l. 28
        if trial.is_running:
            self._reset(trial)  # l. 30-31

    def _reset(self, trial: Trial) -> None:
        first = self._environments.reset(trial.number)
        self._require_numbers(trial, "an observation", _are_numbers(first))
        trial.history.reset(first)

    def _require_numbers(self, trial: Trial, what: str, are_numbers: bool) -> None:
        """Blame the environment for what is its own, not learning, where it would be met next."""
        if not are_numbers:
            text = f"{trial.environment} (seed {trial.seed}) gave {what} that is no number (NaN or infinite)"
            raise DivergedError(f"{text}, after {self.t} steps. Mend the environment: learning has nothing to do with it.")

    def _require_finite(self, is_finite: bool, what: str) -> None:
        if not is_finite:
            raise DivergedError(f"learning diverged: {what} is NaN or infinite after {self.t} steps. Try a smaller step_size.")

    def _log(self, running: Sequence[Trial], *, steps_per_second: float) -> None:
        self._require_finite(self._agent.is_finite(), "a loss")
        for trial in running:
            trial.latest_metrics = {
                "steps": self.t,
                "total_frames": trial.total_frames,
                "episodes": trial.num_episodes,
                "epsilon": self._agent.epsilon(frames=trial.total_frames, steps=self.t),
                **self._agent.metrics(trial.number),
                "steps_per_second": round(steps_per_second, 2),
            }
            trial.record.metrics(trial.latest_metrics)


def _are_numbers(observation: NDArray[Any]) -> bool:
    return observation.dtype.kind != "f" or bool(np.isfinite(observation).all())
