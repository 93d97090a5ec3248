"""The arithmetic of a GPU, all trials stacked, on a CPU: it gives what each trial gives alone, but for rounding."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from comper.agents.comper import ComperAgent
from comper.agents.dqn import DQNAgent
from comper.networks import stacking
from comper.protocol import ComperConfig, DQNConfig
from tests.toys import Corridor, Tape, loop_of, setups

CPU = torch.device("cpu")
SHORT: dict[str, Any] = {"replay_start_steps": 16, "frames": 150, "epsilon_decay_frames": 400, "step_size": 0.001}
COMPER = ComperConfig(**SHORT, target_period_steps=12, qlstm_step_size=0.001)
DQN = DQNConfig(**SHORT, target_period_steps=20, observation="single")


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine's CPU compute as a GPU would."""
    monkeypatch.setattr(stacking, "computes_together", lambda device: True)


def run(config: ComperConfig | DQNConfig, seeds: list[int]) -> tuple[Any, list[Tape]]:
    made = setups((5,), seeds)
    agent: Any
    if isinstance(config, ComperConfig):
        agent = ComperAgent(config, made, num_actions=2, device=CPU)
    else:
        agent = DQNAgent(config, made, num_actions=2, device=CPU)
    # Episodes of different lengths: the trials finish at different times, and the others go on beside them.
    loop, tapes = loop_of(config, agent, [Corridor(cap=cap) for cap in (20, 7, 45)[: len(seeds)]], made)
    loop.run()
    return agent, tapes


@pytest.mark.parametrize("config", [COMPER, DQN, dataclasses.replace(COMPER, alignment="max")], ids=["comper", "dqn", "max"])
@pytest.mark.usefixtures("stacked")
def test_stacked_trials_give_what_they_give_alone(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    together, tapes = run(config, [3, 4, 5])
    assert together.q_network.population.is_stacked
    monkeypatch.undo()  # from here on the CPU computes as a CPU again
    for trial, seed in enumerate([3, 4, 5]):
        made = setups((5,), [seed])
        alone: Any = (ComperAgent if isinstance(config, ComperConfig) else DQNAgent)(config, made, num_actions=2, device=CPU)
        loop, (tape,) = loop_of(config, alone, [Corridor(cap=(20, 7, 45)[trial])], made)
        loop.run()
        assert tape.episodes == tapes[trial].episodes
        for name, weight in alone.q_network.population.state_dict(0).items():
            found = together.q_network.population.state_dict(trial)[name]
            torch.testing.assert_close(found, weight, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("stacked")
def test_a_stacked_trial_is_saved_and_read_back_by_itself() -> None:
    first, _ = run(COMPER, [3, 4])
    other, _ = run(COMPER, [8, 9])
    state = first.state_dict(1)
    before = other.state_dict(0)
    other._setups[1].frames.load_state_dict(first._setups[1].frames.state_dict())
    other.load_state_dict(1, state)
    read_back, untouched = other.state_dict(1), other.state_dict(0)
    for network in ("q_network", "qlstm"):
        for part in ("weights", "optimiser"):
            flat = [s[network][part] for s in (state, read_back, before, untouched)]
            for a, b, c, d in zip(*(list(_tensors(x)) for x in flat), strict=True):
                assert torch.equal(a, b)
                assert torch.equal(c, d)


def _tensors(nested: dict[str, Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in nested.values():
        found += _tensors(value) if isinstance(value, dict) else [torch.as_tensor(value)]
    return found
