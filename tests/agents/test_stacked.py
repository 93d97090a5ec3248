"""The arithmetic of a GPU, all trials stacked, on a CPU: it gives what each trial gives alone, but for rounding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.comper import ComperAgent, ComperConfig
from comper.agents.comper_graph import GraphAgent, GraphConfig
from comper.agents.ddqn import DDQNAgent, DDQNConfig
from comper.agents.dqn import DQNAgent, DQNConfig
from comper.learners.frame_bank import FrameBank
from comper.networks import stacking
from tests.toys import Corridor, Tape, agent_of, loop_of, setups

SHORT: dict[str, Any] = {"replay_start_steps": 16, "frames": 150, "epsilon_decay_frames": 400, "step_size": 0.001}
COMPER = ComperConfig(**SHORT, target_period_steps=12, qlstm_step_size=0.001)
DQN = DQNConfig(**SHORT, target_period_steps=20, observation="single")
DDQN = DDQNConfig(**SHORT, target_period_steps=20, observation="single")
GRAPH = GraphConfig(**SHORT, refresh_period_steps=12)
KINDS: dict[type, Any] = {
    ComperConfig: ComperAgent, DQNConfig: DQNAgent, DDQNConfig: DDQNAgent, GraphConfig: GraphAgent
}  # fmt: skip
READINGS: dict[str, dict[str, Any]] = {
    "max": {"alignment": "max"},
    "fresh": {"alignment": "successor-fresh", "index": "none"},
    "min-max": {"input_scale": "minmax", "rtm": "replace", "qlstm_mean_square_start": 1.0},
}
CONFIGS = {"comper-single": COMPER, "dqn": DQN, "ddqn": DDQN, "comper": GRAPH}
CLASSES: dict[str, dict[str, Any]] = {"classes": {}, "classes of steps": {"targets": "steps", "target_period_steps": 20}}
CONFIGS |= {name: dataclasses.replace(GRAPH, value_classes=21, **changes) for name, changes in CLASSES.items()}
BUTTON = ("NOOP", "FIRE")
CONFIGS["autofire"] = dataclasses.replace(GRAPH, autofire_steps=5)
CONFIGS["autofire of steps"] = dataclasses.replace(GRAPH, autofire_steps=5, targets="steps", target_period_steps=20)
CONFIGS["ensemble"] = dataclasses.replace(GRAPH, ensemble=2)
CONFIGS |= {name: dataclasses.replace(COMPER, **changes) for name, changes in READINGS.items()}


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine's CPU compute as a GPU would."""
    monkeypatch.setattr(stacking, "computes_together", lambda device: True)


def run(config: Any, seeds: list[int]) -> tuple[Any, list[Tape]]:
    made = setups((5,), seeds)
    agent = agent_of(KINDS[type(config)], config, made, names=BUTTON)
    # Episodes of different lengths: the trials finish at different times, and the others go on beside them.
    loop, tapes = loop_of(config, agent, [Corridor(cap=cap) for cap in (20, 7, 45)[: len(seeds)]], made)
    loop.run()
    return agent, tapes


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.usefixtures("stacked")
def test_stacked_trials_give_what_they_give_alone(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    together, tapes = run(config, [3, 4, 5])
    assert together.q_network.population.is_stacked
    monkeypatch.undo()  # from here on the CPU computes as a CPU again
    for trial, seed in enumerate([3, 4, 5]):
        made = setups((5,), [seed])
        alone = agent_of(KINDS[type(config)], config, made, names=BUTTON)
        loop, (tape,) = loop_of(config, alone, [Corridor(cap=(20, 7, 45)[trial])], made)
        loop.run()
        assert tape.episodes == tapes[trial].episodes
        found = together.q_network.weights(trial)
        for name, weight in alone.q_network.weights(0).items():
            torch.testing.assert_close(found[name], weight, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("stacked")
def test_a_stacked_trial_is_saved_and_read_back_by_itself() -> None:
    first, _ = run(COMPER, [3, 4])
    state = first.state_dict(1)
    made = setups((5,), [8, 9])
    other = agent_of(ComperAgent, COMPER, made)
    before = other.state_dict(0)
    made[1].frames.load_state_dict(first.tm[1].frames.state_dict())
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


@pytest.mark.usefixtures("stacked")
def test_a_copy_of_the_frames_follows_growth_release_and_reuse() -> None:
    (setup,) = setups((3,), [0])
    bank = FrameBank([setup.frames], torch.device("cpu"))
    rng = np.random.default_rng(0)
    held: list[int] = []
    for step in range(3_000):
        colours = 4 if step % 2 else 256
        held.append(setup.frames.intern(rng.integers(0, colours, 3, dtype=np.uint8)))
        if rng.random() < 0.4:
            setup.frames.release([held.pop(int(rng.integers(len(held))))])
        if step % 7 == 0 and held:
            ids = rng.choice(held, size=(1, 4))
            assert (bank.gather(ids, [0]).numpy() == setup.frames.gather(ids)).all()
