"""Agents learn, trials do not touch each other, and each alignment has the fixed point that its equation says."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from comper.agents.agent import Agent
from comper.agents.comper import ComperAgent, ComperConfig
from comper.agents.ddqn import DDQNAgent, DDQNConfig
from comper.agents.dqn import DQNAgent, DQNConfig
from comper.memory.transitions import Transition
from comper.protocol import AgentConfig
from tests.toys import Corridor, Tape, agent_of, loop_of, setups

# On a corridor of five cells everything is small: faster optimisers, shorter periods, quicker decay of exploration.
QUICK: dict[str, Any] = {
    "epsilon_decay_frames": 1_500,
    "epsilon_end": 0.02,
    "frames": 2_500,
    "step_size": 0.001,
    "replay_start_steps": 32,
}
QUICK_COMPER = ComperConfig(**QUICK, target_period_steps=20, qlstm_step_size=0.002, qlstm_epochs=2, discount=0.9)
QUICK_DQN = DQNConfig(**QUICK, observation="single", target_period_steps=50, loss="squared", discount=0.9)


QUICK_DDQN = DDQNConfig(**QUICK, observation="single", target_period_steps=50, discount=0.9)
AGENTS: list[tuple[type[Agent], AgentConfig]] = [
    (ComperAgent, QUICK_COMPER), (DQNAgent, QUICK_DQN), (DDQNAgent, QUICK_DDQN)
]  # fmt: skip
IDS = ["comper", "dqn", "ddqn"]


def run_corridor(kind: type[Agent], config: AgentConfig, seeds: list[int]) -> tuple[Any, list[Tape]]:
    made = setups((5,), seeds)
    agent = agent_of(kind, config, made)
    loop, tapes = loop_of(config, agent, [Corridor() for _ in seeds], made)
    loop.run()
    return agent, tapes


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "config"), AGENTS, ids=IDS)
def test_agent_learns_the_corridor(kind: type[Agent], config: AgentConfig) -> None:
    _, (tape,) = run_corridor(kind, config, [0])
    # A random walk needs more than ten steps on average; the shortest way takes four.
    assert np.mean([episode.steps for episode in tape.episodes[-20:]]) < 5.5
    assert np.mean(tape.scores[-20:]) > 0.95


@pytest.mark.parametrize(("kind", "config"), AGENTS, ids=IDS)
def test_trial_in_a_population_equals_the_same_trial_alone(kind: type[Agent], config: AgentConfig) -> None:
    config = dataclasses.replace(config, frames=400)
    together, tapes = run_corridor(kind, config, [3, 4, 5])
    for i, seed in enumerate([3, 4, 5]):
        alone, (tape,) = run_corridor(kind, config, [seed])
        assert tape.episodes == tapes[i].episodes
        assert tape.lines == tapes[i].lines
        others = alone.q_network.weights(0)
        for name, weight in together.q_network.weights(i).items():
            assert torch.equal(weight, others[name])


def test_other_seed_other_run() -> None:
    config = ComperConfig(**QUICK | {"frames": 300})
    first, again, other = (run_corridor(ComperAgent, config, [seed])[1][0].episodes for seed in (1, 1, 2))
    assert first == again
    assert first != other


class Chain:
    """A ring of two states, each with two actions, and a fixed behaviour: what each alignment must converge to is known.

    Action 0 stays put, action 1 goes to the other state. In state 0 both pay 0; in state 1 both pay 1. Behaviour: always 1.
    With γ = 0.5: Sarsa values of the behaviour  Q(0,1) = 0 + γ Q(1,1),  Q(1,1) = 1 + γ Q(0,1)  ->  2/3 and 4/3.
    Optimal: in state 1 stay:  Q*(1,0) = 1 + γ max(Q*(1,0), Q*(1,1)).  V*(1) = 2, V*(0) = γ·2 = 1,
    so Q*(0,1) = 1 and Q*(1,1) = 1 + γ·1 = 1.5, Q*(0,0) = 0.5, Q*(1,0) = 2.
    Equation 5 taken literally:  Q = r + γ Q  ->  r / (1 - γ): Q(0,·) = 0 and Q(1,·) = 2.
    """

    gamma = 0.5
    sarsa: ClassVar = {(0, 1): 2 / 3, (1, 1): 4 / 3}
    optimal: ClassVar = {(0, 0): 0.5, (0, 1): 1.0, (1, 0): 2.0, (1, 1): 1.5}
    literal: ClassVar = {(0, 1): 0.0, (1, 1): 2.0}


def converged_q(alignment: str, actions: tuple[int, ...]) -> dict[tuple[int, int], float]:
    """Q-values after many rounds of storing the chain's transitions and learning from them."""
    config = ComperConfig(
        discount=Chain.gamma,
        alignment=alignment,
        replay_start_steps=1,
        train_period_steps=1,
        target_period_steps=2,
        batch_size=16,
        step_size=0.0005,
        qlstm_step_size=0.001,
        qlstm_epochs=4,
    )
    made = setups((2,), [0])
    agent = agent_of(ComperAgent, config, made)
    frames = made[0].frames
    states = [(frames.intern(np.array([255, 0], np.uint8)),), (frames.intern(np.array([0, 255], np.uint8)),)]
    rng = np.random.default_rng(0)
    s = 0
    for t in range(1, 2_500):
        a = int(rng.choice(actions))
        s_next = 1 - s if a == 1 else s
        q = float(agent.q_network.values(np.array([[states[s]]]), [0])[0, 0, a])
        agent.store(0, Transition(states[s], a, float(s), states[s_next], False), q, is_last=False)
        agent.learn(t, [0])
        s = s_next
    q_table = agent.q_network.values(np.array([states]), [0])[0]
    return {(s, a): float(q_table[s, a]) for s in (0, 1) for a in actions}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alignment", "actions", "expected"),
    [
        ("successor", (1,), Chain.sarsa),
        ("successor-fresh", (1,), Chain.sarsa),
        ("max", (0, 1), Chain.optimal),
        ("set", (1,), Chain.literal),
    ],
)
def test_each_alignment_converges_to_its_own_fixed_point(
    alignment: str, actions: tuple[int, ...], expected: dict[tuple[int, int], float]
) -> None:
    found = converged_q(alignment, actions)
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, abs=0.1), (alignment, found)
