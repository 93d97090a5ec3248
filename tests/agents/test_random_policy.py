"""The random policy: every action as often as any other, from the trial's own stream."""

from __future__ import annotations

import numpy as np

from comper.agents.random_policy import RANDOM, RandomPolicy
from comper.protocol import AgentConfig
from tests.toys import agent_of, setups

STATE = np.zeros((1, 1), np.int64)


def played(seeds: list[int], trial: int, count: int, *, num_actions: int = 4) -> list[int]:
    """Actions of one trial of a population, alone in each call."""
    agent = agent_of(RandomPolicy, AgentConfig(), setups((2,), seeds), num_actions)
    return [int(agent.act(STATE, [0.0], [trial])[0][0]) for _ in range(count)]


def test_all_actions_are_equally_likely_whatever_epsilon_is() -> None:
    counts = np.bincount(played([0], 0, 4_000), minlength=4)
    assert len(counts) == 4
    assert np.abs(counts - 1_000).max() < 4 * np.sqrt(4_000 * 0.25 * 0.75)  # four standard deviations


def test_a_trial_plays_the_same_whoever_is_beside_it() -> None:
    assert played([3], 0, 50) == played([3, 4], 0, 50) == played([9, 3], 1, 50)
    assert played([3], 0, 50) != played([4], 0, 50)


def test_trials_asked_together_answer_as_each_alone() -> None:
    agent = agent_of(RandomPolicy, AgentConfig(), setups((2,), [3, 4]), 4)
    together = np.array([agent.act(np.zeros((2, 1), np.int64), [1.0, 1.0], [0, 1])[0] for _ in range(50)])
    assert together.T.tolist() == [played([3], 0, 50), played([4], 0, 50)]


def test_it_learns_nothing_and_says_that_it_only_explores() -> None:
    agent = agent_of(RandomPolicy, AgentConfig(), setups((2,), [0]))
    assert not RANDOM.agent.learns
    assert agent.epsilon(frames=10**6, steps=10**6) == 1.0
    assert agent.act(STATE, [0.0], [0])[1].tolist() == [0.0]
    assert agent.weights(0) == {}
