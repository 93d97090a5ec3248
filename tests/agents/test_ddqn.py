"""Double DQN by hand: one network chooses, the other judges; returns over n steps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from comper.agents.ddqn import DDQN, DDQNAgent, DDQNConfig
from tests.agents.linear import Tabular
from tests.toys import setups, task_of

CONFIG = DDQNConfig(
    observation="single", discount=0.5, num_steps=1, replay_start_steps=1, train_period_steps=1, target_period_steps=1_000,
    batch_size=64, reward_clip=0.0, step_size=0.01,
)  # fmt: skip


def changed(**changes: Any) -> DDQNConfig:
    return dataclasses.replace(CONFIG, **changes)


def test_the_network_chooses_the_next_action_and_the_target_network_judges_it() -> None:
    trial = Tabular(DDQNAgent, CONFIG)
    trial.set_values([[0, 0], [9, 0], [1, 2], [0, 0], [0, 0]], target=[[0, 0], [-2, 4], [6, 8], [0, 0], [0, 0]])
    trial.store(0, 0, 1.0, 1)  # Θ chooses 0, Θ' says -2: 1 + 0.5·(-2). Its best would be 4, Θ's own value 9.
    trial.store(1, 0, 1.0, 2)  # Θ chooses 1, Θ' says 8: 1 + 0.5·8
    trial.agent.learn(2, [0])
    assert trial.targets() == {0: 0.0, 1: 5.0}


def test_three_steps_of_rewards_come_before_the_estimate() -> None:
    trial = Tabular(DDQNAgent, changed(num_steps=3))
    trial.set_values([[0, 0]] * 3 + [[1, 0], [0, 1]], target=[[0, 0]] * 3 + [[16, 0], [0, 8]])
    for s in range(3):
        trial.store(s, 0, float(s + 1), s + 1)
    trial.store(3, 1, 4.0, 4, terminal=True)
    trial.agent.learn(4, [0])
    assert trial.targets() == {
        0: 1 + 0.5 * 2 + 0.25 * 3 + 0.125 * 16,  # Q̂ of state 3
        1: 2 + 0.5 * 3 + 0.25 * 4,  # the game is over within the three steps
        2: 3 + 0.5 * 4,
        3: 4.0,
    }


def test_a_cut_episode_is_judged_by_the_state_it_was_cut_at() -> None:
    trial = Tabular(DDQNAgent, changed(num_steps=3))
    trial.set_values([[0, 0]] * 4 + [[1, 0]], target=[[0, 0]] * 4 + [[16, 0]])
    trial.store(0, 0, 1.0, 1)
    trial.store(1, 0, 2.0, 4, last=True)
    trial.store(2, 0, 100.0, 3, terminal=True)  # another episode
    trial.agent.learn(3, [0])
    assert trial.targets() == {0: 1 + 0.5 * 2 + 0.25 * 16, 1: 2 + 0.5 * 16, 2: 100.0}


def test_it_learns_from_the_start_on_at_every_period_and_the_target_network_follows() -> None:
    trial = Tabular(DDQNAgent, changed(replay_start_steps=6, train_period_steps=4, target_period_steps=10, batch_size=3))
    learned: list[int] = []
    is_behind: list[int] = []
    for t in range(1, 25):
        trial.store(t % 5, 0, 1.0, (t + 1) % 5)
        trial.agent.learn(t, [0])
        learned += [t] if len(trial.updates) > len(learned) else []
        is_behind += [t] if trial.values(trial.agent.target) != trial.values(trial.agent.q_network) else []
    assert learned == [8, 12, 16, 20, 24]
    assert is_behind == [8, 9, *range(12, 20), 24]


def test_exploration_falls_in_a_line_from_1_once_learning_has_started() -> None:
    agent = Tabular(DDQNAgent, changed(replay_start_steps=10, epsilon_end=0.2, epsilon_decay_frames=1_000)).agent
    assert agent.epsilon(frames=900, steps=9) == 1.0
    assert agent.epsilon(frames=250, steps=10) == pytest.approx(0.8)  # 1 - 0.8·250/1,000
    assert agent.epsilon(frames=1_000, steps=200) == pytest.approx(0.2)
    assert agent.epsilon(frames=9_000, steps=900) == pytest.approx(0.2)


def test_rewards_are_learned_from_within_the_clip() -> None:
    trial = Tabular(DDQNAgent, changed(reward_clip=2.0))
    for s, r in enumerate((5.0, -3.0, 0.5)):
        trial.store(s, 0, r, 4, terminal=True)
    trial.agent.learn(3, [0])
    assert trial.targets() == {0: 2.0, 1: -2.0, 2: 0.5}


def test_the_first_step_is_adams_own() -> None:
    """Adam's first step is α·g / (|g| + ε'): with |g| = 64·1, Huber's slope beyond 1, it is all but α = 0.01."""
    trial = Tabular(DDQNAgent, CONFIG)
    trial.set_values([[0.0, 0.0]] * 5, target=[[0.0, 0.0]] * 5)
    trial.store(0, 1, 10.0, 4, terminal=True)
    trial.agent.learn(1, [0])
    table = trial.values(trial.agent.q_network)
    assert table[0] == [0.0, pytest.approx(0.01, rel=1e-4)]
    assert table[1:] == [[0, 0]] * 4
    assert trial.agent.metrics(0)["cnn_loss"] == pytest.approx(9.5)  # |10| - ½


def test_the_estimate_covers_a_full_memory_and_four_copies_of_the_weights() -> None:
    config = changed(replay_capacity=50)
    trial = Tabular(DDQNAgent, config)
    for _ in range(60):
        trial.store(0, 0, 0.0, 1)
    estimate, replay = DDQNAgent.memory_estimate(config, task_of(setups((5,), [0]))), trial.agent.replay[0]
    assert (estimate.num_transitions, estimate.table_bytes) == (50, replay.nbytes - replay.frames.nbytes)
    (network,) = DDQNAgent.networks(config, task_of(setups((5,), [0]))).values()
    assert estimate.network_bytes == 4 * 4 * sum(p.numel() for p in network().parameters())


def test_by_default_it_looks_three_steps_ahead_and_sees_what_dqn_sees() -> None:
    config = DDQN.config
    assert isinstance(config, DDQNConfig)
    assert (config.num_steps, config.discount, config.history_length) == (3, 0.99, 4)
    assert DDQN.environment == {"pooling": "max"}
