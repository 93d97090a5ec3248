"""CUDA graphs compute what the functions they record compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comper.agents.comper import ComperAgent
from comper.memory.transitions import Transition
from comper.networks import graphs
from comper.protocol import ComperConfig
from tests.toys import setups

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def trained(num_trials: int) -> ComperAgent:
    config = ComperConfig(replay_start_steps=4, train_period_steps=2, target_period_steps=10, batch_size=8)
    made = setups((84, 84), list(range(num_trials)))
    agent = ComperAgent(config, made, num_actions=4, device=torch.device("cuda"))
    rngs = [np.random.default_rng(trial) for trial in range(num_trials)]
    trials = list(range(num_trials))
    for t in range(1, 61):
        active = trials if t < 40 else trials[: max(1, num_trials - 1)]  # the last of several finishes early
        for trial in active:
            frames, rng = made[trial].frames, rngs[trial]
            ids = [frames.intern(frame) for frame in rng.integers(0, 256, (2, 84, 84), dtype=np.uint8)]
            agent.store(
                trial,
                Transition((ids[0],), int(rng.integers(4)), float(rng.integers(2)), (ids[1],), False),
                0.1,
                is_last=False,
            )
        agent.learn(t, active)
    return agent


def test_replayed_updates_equal_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = trained(3)
    monkeypatch.setattr(graphs, "WARM_UP_CALLS", 10**9)
    plain = trained(3)
    for network in ("q_network", "qlstm"):
        for trial in range(3):
            mine, theirs = (getattr(agent, network).population.state_dict(trial) for agent in (replayed, plain))
            for name, tensor in mine.items():
                torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5)
                assert torch.isfinite(tensor).all()


def test_trial_on_a_gpu_is_close_to_the_same_trial_alone() -> None:
    together, alone = trained(3), trained(1)
    for name, tensor in alone.q_network.population.state_dict(0).items():
        torch.testing.assert_close(together.q_network.population.state_dict(0)[name], tensor, rtol=1e-2, atol=1e-3)
