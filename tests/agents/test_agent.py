"""What every agent has without writing it: nothing to learn, parts saved by name, weights taken over or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.agent import Agent, MemoryEstimate, Task
from comper.agents.comper import ComperAgent, ComperConfig
from comper.errors import UsageError
from comper.memory.transitions import Transition
from comper.networks.cnn import Conv2d
from comper.protocol import AgentConfig
from tests.toys import agent_of, setups, task_of


class Lazy(Agent):
    """As little as an agent can be."""

    def __init__(self, config: Any, task: Any, trials: Any, *, device: Any):
        pass

    def act(self, states: Any, epsilon: Sequence[float], trials: Sequence[int]) -> Any:
        return np.zeros(len(trials), np.int64), np.zeros(len(trials), np.float32)


class Notes:
    """A part that keeps one value for each trial."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def state_dict(self, trial: int) -> dict[str, Any]:
        return {"value": self.values[trial]}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        self.values[trial] = state["value"]


class Network(Notes):
    """A part with weights."""

    def weights(self, trial: int) -> dict[str, int]:
        return {"w": self.values[trial]}

    def load_weights(self, trial: int, weights: dict[str, int]) -> None:
        self.values[trial] = weights["w"]


def lazy(**parts: Any) -> Lazy:
    agent: Lazy = agent_of(Lazy, AgentConfig(), setups((2,), [0, 1]))
    agent.parts = parts
    return agent


def test_an_agent_that_only_acts_explores_and_learns_nothing() -> None:
    agent, task = lazy(), task_of(setups((2,), [0]))
    agent.store(0, Transition((0,), 0, 0.0, (0,), False), 0.0, is_last=False)
    agent.learn(1, [0])
    assert agent.epsilon(frames=0, steps=0) == 0.0
    assert agent.is_finite()
    assert (agent.metrics(0), agent.state_dict(0), agent.weights(0)) == ({}, {}, {})
    assert Lazy.networks(AgentConfig(), task) == {}
    assert Lazy.memory_estimate(AgentConfig(), task) == MemoryEstimate(0, 0, 0)
    with pytest.raises(UsageError, match="no Q-values"):
        agent.q_values(np.zeros((1, 1), np.int64), [0])


def test_an_agent_must_act() -> None:
    class Idle(Agent):
        def __init__(self, config: Any, task: Any, trials: Any, *, device: Any):
            pass

    with pytest.raises(TypeError, match=r"abstract method '?act"):
        agent_of(Idle, AgentConfig(), setups((2,), [0]))  # type: ignore[type-abstract]


def test_the_parts_of_one_trial_are_saved_and_read_back_by_name() -> None:
    agent = lazy(first=Notes(1, 2), second=Notes(3, 4))
    state = agent.state_dict(1)
    assert state == {"first": {"value": 2}, "second": {"value": 4}}
    other = lazy(second=Notes(0, 0), first=Notes(0, 0))
    other.load_state_dict(0, state)
    assert (other.state_dict(0), other.state_dict(1)) == (state, {"first": {"value": 0}, "second": {"value": 0}})


def test_only_networks_have_weights_and_those_of_other_networks_are_refused() -> None:
    agent = lazy(memory=Notes(1, 2), one=Network(3, 4), two=Network(5, 6))
    assert agent.weights(1) == {"one": {"w": 4}, "two": {"w": 6}}
    agent.load_weights(0, {"two": {"w": 8}, "one": {"w": 7}})
    assert (agent.weights(0), agent.weights(1)) == ({"one": {"w": 7}, "two": {"w": 8}}, {"one": {"w": 4}, "two": {"w": 6}})
    for wrong in ({}, {"one": {"w": 0}}, {"one": {"w": 0}, "two": {"w": 0}, "memory": {"w": 0}}):
        with pytest.raises(ValueError, match="another network"):
            agent.load_weights(0, wrong)
    assert agent.weights(0) == {"one": {"w": 7}, "two": {"w": 8}}


def test_q_values_are_those_of_each_states_own_trial() -> None:
    made = setups((3,), [0, 1])
    agent = agent_of(ComperAgent, ComperConfig(), made)
    ids = [[setup.frames.intern(np.array([9, 0, 200], np.uint8))] for setup in made]
    together = agent.q_values(np.array(ids), [0, 1])
    assert together.shape == (2, 2)
    assert not np.array_equal(together[0], together[1])  # the trials have other weights
    assert agent.q_values(np.array(ids[1:]), [1]).tolist() == [together[1].tolist()]
    assert agent.act(np.array(ids), [0.0, 0.0], [0, 1])[1].tolist() == together.max(1).tolist()


def test_a_task_gives_the_users_network_the_shape_of_a_state() -> None:
    asked: list[tuple[tuple[int, ...], int]] = []

    def make(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        asked.append((state_shape, num_actions))
        return torch.nn.Identity()

    task = Task((7, 5), np.dtype(np.uint8), "pixels", ("LEFT", "RIGHT", "UP"), make)
    assert isinstance(task.q_network(4)(), torch.nn.Identity)
    assert asked == [((4, 7, 5), 3)]


def test_a_task_fits_a_network_to_its_observations() -> None:
    pixels = Task((84, 84), np.dtype(np.uint8), "pixels", ("0",) * 18)
    vector = dataclasses.replace(pixels, observation_kind="vector")

    def sizes(network: Any) -> int:
        return sum(p.numel() for p in network().parameters())

    # Table 9, stacked frames, with and without the first bias of 32 filters (A16).
    assert sizes(pixels.q_network(4)) - sizes(pixels.q_network(4, first_bias=False)) == 32
    for task, has_convolutions in ((pixels, True), (vector, False)):
        assert any(isinstance(layer, Conv2d) for layer in task.q_network(1)().modules()) == has_convolutions
