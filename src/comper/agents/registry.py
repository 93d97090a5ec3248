"""The agents by name. A new one is a line here, or, from outside, `--agent my_module:my_agent`."""

from __future__ import annotations

import difflib
from importlib import import_module

from comper.agents.agent import AgentSpec
from comper.errors import UsageError
from comper.importing import is_outside_name, load_object

DEFAULT_AGENT = "comper"
AGENTS = {
    "comper": "comper.agents.comper_graph:COMPER",
    "comper-single": "comper.agents.comper:COMPER_SINGLE",
    "comper-stacked": "comper.agents.comper:COMPER_STACKED",
    "dqn": "comper.agents.dqn:DQN",
    "ddqn": "comper.agents.ddqn:DDQN",
    "random": "comper.agents.random_policy:RANDOM",
    "constant": "comper.agents.constant_policy:CONSTANT",
}


def find_agent(name: str, *, trusted: tuple[str, ...] | None = None) -> AgentSpec:
    """The agent of this name, or the `AgentSpec` at `module:attribute`, where `trusted` allows its module (None: any)."""
    if name in AGENTS:
        module, _, attribute = AGENTS[name].partition(":")
        spec: AgentSpec = getattr(import_module(module), attribute)
        return spec
    if not is_outside_name(name):
        near = difflib.get_close_matches(name.lower(), AGENTS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"Unknown agent {name!r}.{hint} Agents: {', '.join(AGENTS)}, or my_module:my_agent.")
    found = load_object(name, what="the agent", trusted=trusted)
    if not isinstance(found, AgentSpec):
        what = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise UsageError(f"The agent {name} is {what}: name a comper.AgentSpec, which has the class and its settings.")
    return found
