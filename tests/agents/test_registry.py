"""Agents by name: ours, a user's own where it is trusted, and a sentence for what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from comper.agents.agent import Agent
from comper.agents.registry import AGENTS, find_agent
from comper.errors import OutsideCodeError, UsageError
from comper.protocol import AgentConfig

OWN_AGENT = """
from comper.agents.agent import AgentSpec
from comper.agents.random_policy import RandomPolicy
from comper.protocol import AgentConfig

mine = AgentSpec("my own name", "plays", RandomPolicy, AgentConfig())
not_a_spec = RandomPolicy
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "agents_of_a_user.py").write_text(OWN_AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    return "agents_of_a_user"


@pytest.mark.parametrize("name", AGENTS)
def test_every_name_leads_to_an_agent_of_that_name(name: str) -> None:
    spec = find_agent(name)
    assert spec.name == name
    assert issubclass(spec.agent, Agent)
    assert isinstance(spec.config, AgentConfig)
    assert spec.summary


def test_no_two_names_lead_to_one_agent() -> None:
    assert len(set(AGENTS.values())) == len(AGENTS)
    assert find_agent("comper-single").config.history_length == 1
    assert find_agent("comper-stacked").config.observations_per_step == 4


@pytest.mark.parametrize("name", ["commper-single", "comper_single"])
def test_a_slip_gets_the_nearest_name_and_all_the_others(name: str) -> None:
    with pytest.raises(UsageError, match=rf"Unknown agent '{name}'\. Did you mean comper-single\? Agents: .*constant, or my_"):
        find_agent(name)
    with pytest.raises(UsageError, match=r"Unknown agent 'xyz'\. Agents: comper, comper-single"):
        find_agent("xyz")


def test_our_own_agents_need_no_trust() -> None:
    assert find_agent("dqn", trusted=()).name == "dqn"


def test_a_users_agent_is_found_by_module_and_attribute_where_it_is_trusted(own_module: str) -> None:
    name = f"{own_module}:mine"
    assert find_agent(name).name == "my own name"
    assert find_agent(name, trusted=(own_module,)).name == "my own name"
    with pytest.raises(OutsideCodeError, match=rf"the agent {name}, which is code from outside comper.*--trust {own_module}"):
        find_agent(name, trusted=("another_module",))


def test_what_is_no_agent_is_refused(own_module: str) -> None:
    with pytest.raises(UsageError, match=r"is a class: name a comper\.AgentSpec"):
        find_agent(f"{own_module}:not_a_spec")
