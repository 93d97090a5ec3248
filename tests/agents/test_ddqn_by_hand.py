"""Double DQN by hand: one network chooses, the other judges; returns over n steps."""

from __future__ import annotations

import dataclasses
from typing import Any

from comper.agents.ddqn import DDQN, DDQNAgent, DDQNConfig
from tests.agents.linear import Tabular
from tests.toys import setups, task_of

CONFIG = DDQNConfig(
    observation="single", discount=0.5, num_steps=1, replay_start_steps=1, train_period_steps=1, target_period_steps=1_000,
    batch_size=64, reward_clip=0.0, step_size=0.01,
)  # fmt: skip


def changed(**changes: Any) -> DDQNConfig:
    return dataclasses.replace(CONFIG, **changes)


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
