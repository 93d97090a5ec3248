"""DQN by hand: targets, when it learns, when the target network follows, how it explores."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from comper.agents.dqn import DQN, DQNAgent, DQNConfig
from tests.agents.linear import Tabular
from tests.toys import setups, task_of

CONFIG = DQNConfig(
    observation="single", discount=0.5, replay_start_steps=1, train_period_steps=1, target_period_steps=1_000, batch_size=64,
    reward_clip=0.0, step_size=0.01,
)  # fmt: skip


def changed(**changes: Any) -> DQNConfig:
    return dataclasses.replace(CONFIG, **changes)


def test_an_update_moves_the_value_of_the_action_taken_towards_its_target_and_no_other() -> None:
    trial = Tabular(DQNAgent, CONFIG)
    trial.set_values([[0.0, 0.0]] * 5, target=[[0.0, 0.0]] * 5)
    trial.store(0, 1, 1.0, 4, terminal=True)
    trial.agent.learn(1, [0])
    table = trial.values(trial.agent.q_network)
    assert 0 < table[0][1] <= 1
    assert table[0][0] == 0
    assert table[1:] == [[0, 0]] * 4


def test_it_acts_by_its_own_network_and_not_by_the_target() -> None:
    trial = Tabular(DQNAgent, CONFIG)
    trial.set_values([[1, 2], [4, 3], [0, 0], [0, 0], [0, 0]], target=[[9, 0], [0, 9], [0, 0], [0, 0], [0, 0]])
    for state, action, value in ((0, 1, 2.0), (1, 0, 4.0)):
        actions, q = trial.agent.act(np.array([[trial.states[state]]]), [0.0], [0])
        assert (actions.tolist(), q.tolist()) == ([action], [value])


def test_metrics_are_the_mean_loss_and_the_size_of_the_memory() -> None:
    trial = Tabular(DQNAgent, changed(replay_capacity=2, loss="squared"))
    trial.set_values([[0.0, 0.0]] * 5, target=[[0.0, 0.0]] * 5)
    for s in range(3):
        trial.store(s, 0, 2.0, 4, terminal=True)
    trial.agent.learn(3, [0])
    metrics = trial.agent.metrics(0)
    assert metrics["replay_size"] == 2
    assert metrics["cnn_loss"] == pytest.approx(2.0)  # ½·2²
    assert metrics["bytes_held"] == trial.agent.replay[0].nbytes
    assert trial.agent.is_finite()


@pytest.mark.parametrize("observation", ["single", "rolling"])
def test_the_estimate_covers_a_full_memory_and_four_copies_of_the_weights(observation: str) -> None:
    config = changed(replay_capacity=50, observation=observation)
    trial = Tabular(DQNAgent, config)
    estimate = DQNAgent.memory_estimate(config, task_of(setups((5,), [0])))
    assert estimate.num_transitions == 50
    if observation == "single":
        for _ in range(60):
            trial.store(0, 0, 0.0, 1)
        replay = trial.agent.replay[0]
        assert estimate.table_bytes == replay.nbytes - replay.frames.nbytes
    # Weights, two averages, and the target network's: 4 bytes each.
    (network,) = DQNAgent.networks(config, task_of(setups((5,), [0]))).values()
    assert estimate.network_bytes == 4 * 4 * sum(p.numel() for p in network().parameters())


def test_the_papers_dqn_takes_the_maximum_of_two_screens_and_four_frames() -> None:
    assert DQN.environment == {"pooling": "max"}
    assert DQN.config == DQNConfig()
    assert (DQN.config.history_length, DQN.config.observations_per_step) == (4, 1)
