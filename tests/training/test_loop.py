"""The loop: order of calls, what ends an episode, when a trial stops, what is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.comper import ComperAgent, ComperConfig
from comper.agents.constant_policy import ConstantConfig, ConstantPolicy
from comper.agents.random_policy import RandomPolicy
from comper.environments.environment import Step
from comper.errors import DivergedError
from comper.memory.frames import FrameStore
from comper.protocol import AgentConfig
from comper.runs.folder import EpisodeRecord
from comper.training.loop import Loop
from tests.toys import Corridor, agent_of, loop_of, setups, task_of


class Script:
    """An environment that plays back (reward, terminated, truncated, frames) and counts its resets."""

    num_actions = 2

    def __init__(self, steps: list[tuple[float, bool, bool, int]]):
        self._steps = steps
        self._place = 0
        self.resets = 0

    def reset(self) -> Any:
        self.resets += 1
        return np.full(2, 100 + self.resets, np.uint8)

    def step(self, action: int) -> Step:
        reward, terminated, truncated, frames = self._steps[self._place % len(self._steps)]
        self._place += 1
        return Step(np.full((1, 2), self._place, np.uint8), reward, terminated, truncated, frames)


class TapeAgent(ConstantPolicy):
    """Writes down every call."""

    def __init__(self, made: Any):
        super().__init__(ConstantConfig(action="1"), task_of(made), made, device=torch.device("cpu"))
        self.frames = made[0].frames
        self.tape: list[Any] = []

    def epsilon(self, *, frames: int, steps: int) -> float:
        return frames + steps / 8

    def act(self, states: Any, epsilon: Sequence[float], trials: Sequence[int]) -> Any:
        self.tape.append(("act", [self._grey(state) for state in states], list(epsilon)))
        return super().act(states, epsilon, trials)[0], np.array([self._grey(state) / 2 for state in states], np.float32)

    def store(self, trial: int, transition: Any, q: float, *, is_last: bool) -> None:
        s, s_next = self._grey(transition.s), self._grey(transition.s_next)
        self.tape.append(("store", s, transition.a, transition.r, s_next, q, transition.is_terminal, is_last))

    def learn(self, t: int, trials: Sequence[int]) -> None:
        self.tape.append(("learn", t))

    def _grey(self, ids: Any) -> int:
        return int(self.frames.gather([int(ids[0])])[0, 0])


def test_calls_come_in_the_order_of_algorithm_2() -> None:
    made = setups((2,), [0])
    agent = TapeAgent(made)
    environment = Script([(5.0, False, False, 5), (0.0, True, False, 3), (-2.0, False, True, 5)])
    loop, (tape,) = loop_of(ComperConfig(frames=10), agent, [environment], made)
    loop.run()
    assert agent.tape == [
        # ε is asked for after all frames and steps so far; rewards are stored as they are: agents clip.
        ("act", [101], [0.0]), ("store", 101, 1, 5.0, 1, 50.5, False, False), ("learn", 1),
        ("act", [1], [5 + 1 / 8]), ("store", 1, 1, 0.0, 2, 0.5, True, True), ("learn", 2),  # game over: terminal
        # frame cap: the last, but not terminal
        ("act", [102], [8 + 2 / 8]), ("store", 102, 1, -2.0, 3, 51.0, False, True), ("learn", 3),
    ]  # fmt: skip
    # 8 frames are not past the budget of 10, 13 are; an episode is never cut short for it.
    assert tape.episodes == [
        EpisodeRecord(episode=1, score=5.0, frames=8, steps=2, total_frames=8, truncated=False),
        EpisodeRecord(episode=2, score=-2.0, frames=5, steps=1, total_frames=13, truncated=True),
    ]
    assert tape.totals == {"steps": 3, "total_frames": 13, "episodes": 2}
    assert environment.resets == 2
    assert loop._trials[0].last_score == -2.0


def test_a_loop_that_goes_on_neither_resets_nor_counts_anew() -> None:
    made = setups((2,), [0])
    agent, environment = TapeAgent(made), Script([(1.0, False, False, 5), (1.0, True, False, 5)])
    config = ComperConfig(frames=5)
    begun, (tape,) = loop_of(config, agent, [environment], made)
    begun._trials[0].history.reset(np.full(2, 7, np.uint8))
    Loop(config, agent, begun._environments, begun._trials, t=40).run()
    assert agent.tape[0] == ("act", [7], [40 / 8])
    assert [entry for entry in agent.tape if entry[0] == "learn"] == [("learn", 41), ("learn", 42)]
    assert environment.resets == 0
    assert tape.totals == {"steps": 42, "total_frames": 10, "episodes": 1}


def test_a_trial_at_exactly_its_budget_plays_one_more_episode() -> None:
    """Algorithm 2, l. 28: run ← (countframes <= sn)."""
    made = setups((2,), [0])
    loop, (tape,) = loop_of(
        AgentConfig(frames=10), agent_of(RandomPolicy, AgentConfig(), made), [Script([(0.0, True, False, 5)])], made
    )
    loop.run()
    assert [episode.total_frames for episode in tape.episodes] == [5, 10, 15]


def test_trials_of_different_length_end_each_at_its_own_time() -> None:
    made = setups((5,), [0, 1])
    config = ConstantConfig(frames=30, log_period_steps=10)
    quick, slow = Corridor(length=5), Corridor(length=5, cap=7)
    agent = agent_of(ConstantPolicy, ConstantConfig(action="0"), made)  # never gets there
    loop, tapes = loop_of(config, agent, [quick, slow], made)
    loop.run()
    assert [episode.truncated for tape in tapes for episode in tape.episodes] == [True] * 7
    assert [len(tape.episodes) for tape in tapes] == [2, 5]
    assert [len(tape.lines) for tape in tapes] == [4, 3]


def test_metrics_are_written_every_period() -> None:
    made = setups((5,), [0])
    loop, (tape,) = loop_of(AgentConfig(frames=250), agent_of(RandomPolicy, AgentConfig(), made), [Corridor()], made)
    loop.run()
    assert [line["steps"] for line in tape.lines] == [100, 200]
    assert {"total_frames", "episodes", "epsilon"} <= set(tape.lines[0])


def test_a_q_value_that_is_no_number_stops_the_run() -> None:
    class Broken(RandomPolicy):
        def act(self, states: Any, epsilon: Sequence[float], trials: Sequence[int]) -> Any:
            return np.zeros(1, np.int64), np.array([np.nan], np.float32)

    made = setups((5,), [0])
    loop, _ = loop_of(AgentConfig(), agent_of(Broken, AgentConfig(), made), [Corridor()], made)
    with pytest.raises(DivergedError, match="diverged"):
        loop.run()


def test_a_loss_that_is_no_number_stops_the_run_before_the_next_step() -> None:
    class Diverging(RandomPolicy):
        is_well = True

        def learn(self, t: int, trials: Sequence[int]) -> None:
            self.is_well = t < 3

        def is_finite(self) -> bool:
            return self.is_well

    made = setups((5,), [0])
    loop, _ = loop_of(AgentConfig(), agent_of(Diverging, AgentConfig(), made), [Corridor()], made)
    with pytest.raises(DivergedError, match="a loss is NaN or infinite after 3 steps"):
        loop.run()


def test_a_reward_that_is_no_number_stops_the_run() -> None:
    made = setups((2,), [0])
    agent = agent_of(RandomPolicy, AgentConfig(), made)
    loop, (tape,) = loop_of(AgentConfig(frames=1), agent, [Script([(float("nan"), True, False, 5)])], made)
    with pytest.raises(DivergedError, match="a reward that is no number"):
        loop.run()
    assert tape.episodes == []


class SpoiltCorridor(Corridor):
    """Gives an observation that is no number, at its first reset or after so many steps."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.calls = at, 0

    def reset(self) -> Any:
        first = super().reset().astype(np.float32)
        return first + np.float32("nan") if self.at == 0 else first

    def step(self, action: int) -> Any:
        self.calls += 1
        found = super().step(action)
        return replace(found, frames=found.frames + np.float32("inf" if self.calls == self.at else 0))


@pytest.mark.parametrize("at", [0, 1, 3])
def test_an_observation_that_is_no_number_is_blamed_on_the_environment(at: int) -> None:
    made = [replace(setup, frames=FrameStore((5,), np.dtype(np.float32))) for setup in setups((5,), [7])]
    agent = agent_of(RandomPolicy, AgentConfig(), made)
    loop, _ = loop_of(AgentConfig(frames=100), agent, [SpoiltCorridor(at)], made)
    with pytest.raises(DivergedError, match=rf"an observation that is no number .*after {max(0, at - 1)} steps. Mend the env"):
        loop.run()


@pytest.mark.parametrize("network", ["q_network", "qlstm"])
def test_a_weight_that_is_no_number_stops_the_run_at_the_next_update(network: str) -> None:
    config = ComperConfig(frames=400, replay_start_steps=8, train_period_steps=4, target_period_steps=20)
    made = setups((5,), [0])

    class Poisoned(ComperAgent):
        def learn(self, t: int, trials: Sequence[int]) -> None:
            if t == 40:
                learner = getattr(self, network)
                weights = learner.weights(0)
                next(iter(weights.values())).view(-1)[0] = float("nan")
                learner.load_weights(0, weights)
            super().learn(t, trials)

    loop, (tape,) = loop_of(config, agent_of(Poisoned, config, made), [Corridor()], made)
    with pytest.raises(DivergedError, match="NaN or infinite"):
        loop.run()
    assert loop.t == 40  # learned from at step 40, noticed before step 41
    assert tape.totals is None


class Diverging(RandomPolicy):
    """Learns until something in it is no number any more."""

    def __init__(self, made: Any, *, what: str, at: int):
        super().__init__(AgentConfig(), task_of(made), made, device=torch.device("cpu"))
        self.what, self.at, self.calls = what, at, 0

    def act(self, states: Any, epsilon: Sequence[float], trials: Sequence[int]) -> Any:
        self.calls += 1
        actions, q = super().act(states, epsilon, trials)
        return actions, np.where(self.what == "q" and self.calls > self.at, np.nan, q)

    def is_finite(self) -> bool:
        return not (self.what == "loss" and self.calls >= self.at)


@pytest.mark.parametrize("what", ["q", "loss"])
def test_a_value_that_is_no_number_stops_the_run_within_one_step(what: str) -> None:
    made = setups((5,), [0])
    agent = Diverging(made, what=what, at=7)
    loop, _ = loop_of(AgentConfig(frames=100), agent, [Corridor()], made)
    with pytest.raises(DivergedError, match="diverged"):
        loop.run()
    assert loop.t in (6, 7)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_of_any_kind_that_is_no_number_stops_the_run(reward: float) -> None:
    class Generous(Corridor):
        def step(self, action: int) -> Any:
            import dataclasses

            return dataclasses.replace(super().step(action), reward=reward)

    made = setups((5,), [0])
    loop, _ = loop_of(AgentConfig(frames=100), agent_of(RandomPolicy, AgentConfig(), made), [Generous()], made)
    with pytest.raises(DivergedError, match="a reward"):
        loop.run()
    assert loop.t == 0
