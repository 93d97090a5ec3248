"""Small environments and run records for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from comper.agents.agent import Agent, Task, TrialSetup
from comper.environments.environment import Step
from comper.memory.frames import FrameStore, ObservationHistory
from comper.protocol import AgentConfig
from comper.runs.folder import EpisodeRecord
from comper.training.loop import Loop, Trial
from comper.training.randomness import streams


class Corridor:
    """A corridor of cells, seen as one bright cell. Right leads to a reward of 1 and the end, left back; 20 steps at most."""

    num_actions = 2
    frame_dtype = np.dtype(np.uint8)

    def __init__(self, length: int = 5, cap: int = 20):
        self.frame_shape = (length,)
        self._length, self._cap = length, cap
        self._place = self._steps = 0

    def reset(self) -> Any:
        self._place = self._steps = 0
        return self._frame()

    def step(self, action: int) -> Step:
        self._place = self._place + 1 if action else max(0, self._place - 1)
        self._steps += 1
        is_home = self._place == self._length - 1
        return Step(self._frame()[None], float(is_home), is_home, not is_home and self._steps >= self._cap, 1)

    def _frame(self) -> Any:
        frame = np.zeros(self._length, np.uint8)
        frame[self._place] = 255
        return frame


class ToyStepper:
    """Environments in this process."""

    def __init__(self, environments: Sequence[Any]):
        self._environments = environments

    def reset(self, trial: int) -> Any:
        return self._environments[trial].reset()

    def step(self, actions: Sequence[int], trials: Sequence[int]) -> list[Step]:
        return [self._environments[trial].step(action) for action, trial in zip(actions, trials, strict=True)]


class Tape:
    """A run record that only remembers."""

    def __init__(self) -> None:
        self.episodes: list[EpisodeRecord] = []
        self.lines: list[dict[str, Any]] = []
        self.totals: dict[str, Any] | None = None

    def episode(self, record: EpisodeRecord) -> None:
        self.episodes.append(record)

    def metrics(self, record: dict[str, Any]) -> None:
        self.lines.append({key: value for key, value in record.items() if key != "steps_per_second"})

    def finish(self, totals: dict[str, Any], weights: Any = None) -> None:
        self.totals = totals

    @property
    def scores(self) -> list[float]:
        return [episode.score for episode in self.episodes]


def setups(frame_shape: tuple[int, ...], seeds: Sequence[int]) -> list[TrialSetup]:
    made = []
    for seed in seeds:
        weights, exploration, sampling, _ = streams(seed)
        made.append(TrialSetup(FrameStore(frame_shape), weights=weights, exploration=exploration, sampling=sampling))
    return made


def task_of(made: Sequence[TrialSetup], num_actions: int = 2, names: Sequence[str] = ()) -> Task:
    """What an agent must know of a toy environment."""
    frames = made[0].frames
    return Task(frames.shape, frames.dtype, "vector", tuple(names or map(str, range(num_actions))))


def agent_of(
    kind: type[Agent], config: AgentConfig, made: Sequence[TrialSetup], num_actions: int = 2, names: Sequence[str] = ()
) -> Any:
    """An agent for toy environments, on the CPU."""
    return kind(config, task_of(made, num_actions, names), made, device=torch.device("cpu"))


def loop_of(
    config: AgentConfig, agent: Agent, environments: Sequence[Any], made: Sequence[TrialSetup]
) -> tuple[Loop, list[Tape]]:
    """A loop over toy environments, and the tapes it writes on."""
    tapes = [Tape() for _ in made]
    trials = [
        Trial(i, "toy", i, ObservationHistory(setup.frames, config.history_length), tape)
        for i, (setup, tape) in enumerate(zip(made, tapes, strict=True))
    ]
    return Loop(config, agent, ToyStepper(environments), trials), tapes
