"""Double DQN by hand: one network chooses and the other evaluates, returns over several steps, Adam, Huber's loss."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.ddqn import DDQNAgent, DDQNConfig
from tests.agents.replay_agent import ReplayAgent

CONFIG = DDQNConfig(
    observation="single", replay_start_steps=1, train_period_steps=1, target_period_steps=1_000, batch_size=64, discount=0.5,
    step_size=0.01, num_steps=2,
)  # fmt: skip


def ddqn(seed: int = 0, **changes: Any) -> ReplayAgent:
    return ReplayAgent(DDQNAgent, dataclasses.replace(CONFIG, **changes), seed)


def test_the_network_chooses_the_next_action_and_the_target_network_evaluates_it() -> None:
    traced = ddqn()
    traced.explore(40)
    at_first = traced.q_table()
    for t in range(1, 20):
        traced.learn(t)
    now = traced.q_table()
    assert (now.argmax(-1) != at_first.argmax(-1)).any()  # the two networks would choose otherwise
    traced.learn(20)
    _, batch, target, _ = traced.updates[-1]
    s_next = torch.from_numpy(batch.s_next[0, :, 0])
    value = at_first[s_next].gather(-1, now[s_next].argmax(-1, keepdim=True)).squeeze(-1)
    discount = torch.from_numpy(batch.discount[0])
    assert set(discount.tolist()) == {0.0, 0.25, 0.5}  # game overs; two steps; one step where the episode was cut off
    torch.testing.assert_close(target[0], torch.from_numpy(batch.r[0]) + discount * value)


def test_returns_are_over_several_steps_and_end_with_the_episode() -> None:
    traced = ddqn(reward_clip=0.0)
    traced.store(0, 1, a=0, r=1.0)  # 1 + γ 2, then γ² and state 2
    traced.store(1, 2, a=1, r=2.0, last=True)  # 2, then γ and state 2: cut off, the game went on
    traced.store(3, 4, a=2, r=4.0)  # 4 + γ 8, and nothing follows
    traced.store(4, 5, a=3, r=8.0, terminal=True)
    traced.learn(1)
    batch = traced.updates[0].batch
    found = {
        a: (float(batch.r[0, i]), float(batch.discount[0, i]), int(batch.s_next[0, i, 0]))
        for i, a in enumerate(batch.a[0].tolist())
    }
    assert found == {0: (2.0, 0.25, 2), 1: (2.0, 0.5, 2), 2: (8.0, 0.0, 5), 3: (8.0, 0.0, 5)}


def test_the_first_step_of_adam_on_hubers_loss_by_hand() -> None:
    """Errors beyond 1 have a slope of 1: g = -64; freed of its bias Δw = -α g / (|g| + ε)."""
    traced = ddqn(reward_clip=0.0, step_size=0.02, adam_epsilon=16.0)
    traced.store(0, 1, a=2, r=10.0, terminal=True)
    before = traced.last_bias()
    traced.learn(1)
    assert (traced.last_bias() - before).tolist() == pytest.approx([0.0, 0.0, 0.02 * 64 / (64 + 16), 0.0], rel=1e-4)
    ((_, _, target, q),) = traced.updates
    assert traced.agent.metrics(0)["cnn_loss"] == pytest.approx((target - q).abs().mean().item() - 0.5, rel=1e-5)


def test_updates_begin_at_the_replay_start_and_come_every_period() -> None:
    traced = ddqn(replay_start_steps=4, train_period_steps=2)
    for t in range(1, 11):
        traced.store(t % 6, (t + 1) % 6)
        traced.learn(t)
    assert [update.t for update in traced.updates] == [4, 6, 8, 10]


def test_the_target_network_takes_over_the_weights_every_period_and_keeps_them_between() -> None:
    traced = ddqn(target_period_steps=3)
    traced.explore(20)
    follows = []
    for t in range(1, 10):
        traced.learn(t)
        follows.append(traced.weights_equal_targets())
    assert follows == [t % 3 == 0 for t in range(1, 10)]


@pytest.mark.parametrize(("clip", "learned"), [(1.0, {1.0, -1.0, 0.5}), (0.0, {5.0, -3.0, 0.5})])
def test_rewards_are_learned_from_within_the_clip(clip: float, learned: set[float]) -> None:
    traced = ddqn(reward_clip=clip)
    for r in (5.0, -3.0, 0.5):
        traced.store(0, 1, r=r, last=True)
    traced.learn(1)
    assert set(traced.updates[0].batch.r[0].tolist()) == learned


def test_exploration_is_total_at_the_start_and_then_a_line_over_the_frames() -> None:
    agent = ddqn(replay_start_steps=10, epsilon_end=0.2, epsilon_decay_frames=1_000).agent
    assert agent.epsilon(frames=900, steps=9) == 1.0
    assert agent.epsilon(frames=250, steps=50) == pytest.approx(0.8)
    assert agent.epsilon(frames=1_000, steps=50) == agent.epsilon(frames=5_000, steps=50) == pytest.approx(0.2)


def test_network_target_and_memory_are_saved_and_read_back() -> None:
    traced, other = ddqn(), ddqn(seed=1)
    traced.explore(20)
    for t in range(1, 4):
        traced.learn(t)
    assert not traced.weights_equal_targets()
    other.agent.load_state_dict(0, traced.agent.state_dict(0))
    assert torch.equal(other.q_table(), traced.q_table())
    assert torch.equal(other.q_table(of_target=True), traced.q_table(of_target=True))
    assert other.agent.metrics(0)["replay_size"] == 20


def test_acting_draws_from_the_trials_own_stream() -> None:
    agent = ddqn().agent
    actions = [int(agent.act(np.array([[2]]), [1.0], [0])[0][0]) for _ in range(60)]
    assert set(actions) == {0, 1, 2, 3}
