"""DQN by hand: its targets, when it learns, when the target network follows, and that every setting reaches its place."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.dqn import DQNAgent, DQNConfig
from tests.agents.replay_agent import ReplayAgent

CONFIG = DQNConfig(
    observation="single", replay_start_steps=1, train_period_steps=1, target_period_steps=1_000, batch_size=64, discount=0.5,
    step_size=0.01,
)  # fmt: skip


def dqn(seed: int = 0, **changes: Any) -> ReplayAgent:
    return ReplayAgent(DQNAgent, dataclasses.replace(CONFIG, **changes), seed)


def test_targets_are_the_rewards_and_the_best_value_that_the_target_network_sees_next() -> None:
    """y = r + γ max_a' Q̂(s', a'; Θ'), Equation 2; r alone where the game ended."""
    traced = dqn()
    traced.explore(40)
    at_first = traced.q_table()
    for t in range(1, 6):
        traced.learn(t)
    assert not torch.allclose(traced.q_table(), at_first, atol=1e-3)  # the online network has moved on
    for _, batch, target, _ in traced.updates:
        best = at_first.amax(-1)[torch.from_numpy(batch.s_next[0, :, 0])]
        goes_on = torch.from_numpy(batch.discount[0] > 0)
        assert 0 < goes_on.float().mean() < 1
        expected = torch.from_numpy(batch.r[0]) + 0.5 * torch.where(goes_on, best, 0.0)
        torch.testing.assert_close(target[0], expected)


def test_updates_begin_at_the_replay_start_and_come_every_period() -> None:
    traced = dqn(replay_start_steps=4, train_period_steps=2)
    for t in range(1, 11):
        traced.store(t % 6, (t + 1) % 6)
        traced.learn(t)
    assert [update.t for update in traced.updates] == [4, 6, 8, 10]


def test_the_target_network_takes_over_the_weights_every_period_and_keeps_them_between() -> None:
    traced = dqn(target_period_steps=3)
    traced.explore(20)
    follows = []
    for t in range(1, 10):
        traced.learn(t)
        follows.append(traced.weights_equal_targets())
    assert follows == [t % 3 == 0 for t in range(1, 10)]


@pytest.mark.parametrize(("clip", "learned"), [(1.0, {1.0, -1.0, 0.5}), (0.0, {5.0, -3.0, 0.5})])
def test_rewards_are_learned_from_within_the_clip(clip: float, learned: set[float]) -> None:
    traced = dqn(reward_clip=clip)
    for r in (5.0, -3.0, 0.5):
        traced.store(0, 1, r=r)
    traced.learn(1)
    assert set(traced.updates[0].batch.r[0].tolist()) == learned


def test_batch_size_capacity_and_discount_are_those_of_the_settings() -> None:
    traced = dqn(batch_size=7, replay_capacity=2, discount=0.25)
    for a in range(4):
        traced.store(0, 1, a=a)
    for t in range(1, 9):
        traced.learn(t)
    batches = [update.batch for update in traced.updates]
    assert {batch.a.shape for batch in batches} == {(1, 7)}
    assert {a for batch in batches for a in batch.a[0].tolist()} == {2, 3}
    assert {d for batch in batches for d in batch.discount[0].tolist()} == {0.25}
    assert traced.agent.metrics(0)["replay_size"] == 2


@pytest.mark.parametrize(("loss", "factor"), [("huber", None), ("squared", 0.5)])
def test_the_loss_is_that_of_the_setting(loss: str, factor: float | None) -> None:
    traced = dqn(loss=loss, reward_clip=0.0)
    traced.store(0, 1, r=10.0)
    traced.learn(1)
    ((_, _, target, q),) = traced.updates
    errors = (target - q).abs()
    assert errors.min() > 1  # where the two losses differ
    expected = errors - 0.5 if factor is None else factor * errors.square()
    assert traced.agent.metrics(0)["cnn_loss"] == pytest.approx(expected.mean().item(), rel=1e-5)


def test_the_optimiser_has_the_settings_of_table_5() -> None:
    """The first step of one weight: n = (1 - 0.5) g², m = (1 - 0.9) g, Δw = -α g / sqrt(n - m² + 300)."""
    traced = dqn(
        loss="squared", step_size=0.02, gradient_momentum=0.9, squared_gradient_momentum=0.5, min_squared_gradient=300.0
    )
    traced.store(0, 1, a=2, r=1.0)
    before = traced.last_bias()
    traced.learn(1)
    ((_, _, target, q),) = traced.updates
    g = (q - target).sum().item()
    expected = -0.02 * g / math.sqrt(0.5 * g**2 - 0.01 * g**2 + 300)
    assert (traced.last_bias() - before).tolist() == pytest.approx([0.0, 0.0, expected, 0.0], rel=1e-4)


def test_exploration_is_total_at_the_start_and_then_a_line_over_the_frames() -> None:
    agent = dqn(replay_start_steps=10, epsilon_start=0.8, epsilon_end=0.2, epsilon_decay_frames=1_000).agent
    assert agent.epsilon(frames=900, steps=9) == 1.0
    assert agent.epsilon(frames=0, steps=10) == pytest.approx(0.8)
    assert agent.epsilon(frames=250, steps=50) == pytest.approx(0.65)
    assert agent.epsilon(frames=1_000, steps=50) == agent.epsilon(frames=5_000, steps=50) == pytest.approx(0.2)


def test_network_target_and_memory_are_saved_and_read_back() -> None:
    traced, other = dqn(), dqn(seed=1)
    traced.explore(20)
    for t in range(1, 4):
        traced.learn(t)
    assert not traced.weights_equal_targets()
    other.agent.load_state_dict(0, traced.agent.state_dict(0))
    assert torch.equal(other.q_table(), traced.q_table())
    assert torch.equal(other.q_table(of_target=True), traced.q_table(of_target=True))
    assert other.agent.metrics(0)["replay_size"] == 20


def test_a_loss_that_is_not_a_number_is_noticed() -> None:
    traced = dqn(reward_clip=0.0)
    traced.store(0, 1, r=math.inf)
    assert traced.agent.is_finite()
    traced.learn(1)
    assert not traced.agent.is_finite()


def test_acting_draws_from_each_trials_own_stream() -> None:
    agent = dqn().agent
    actions = [int(agent.act(np.array([[2]]), [1.0], [0])[0][0]) for _ in range(60)]
    assert set(actions) == {0, 1, 2, 3}
