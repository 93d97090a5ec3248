"""What an agent is made of: its layers with their parameter counts, its settings with their source in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comper.environments.families import find_environment
from comper.settings import SOURCES, fields_of
from comper.training.options import RunSettings, resolve_settings


def describe(settings: RunSettings, environment: str) -> dict[str, Any]:
    """The description as plain data: networks and hyper-parameters."""
    return {
        "networks": _networks(settings, environment),
        "hyperparameters": {
            f.name: {"value": getattr(part, f.name), "source": f.metadata["source"]} for part, f in fields_of(settings.parts)
        },
    }


def as_text(settings: RunSettings, environment: str) -> str:
    """The description as tables for reading."""
    lines = [f"{settings.agent_name} on {environment}: {settings.agent.summary}", ""]
    for network in _networks(settings, environment):
        lines += [f"{network['name']}: {network['parameters']:,} parameters"]
        lines += [f"  {layer['name']:<8}{layer['parameters']:>14,}" for layer in network["layers"]]
        lines += [""]
    width = 2 + max(len(f.metadata["source"]) for _, f in fields_of(settings.parts))
    lines += [f"{'setting':<28}{'value':>12}  {'source':<{width}}meaning"]
    for part, f in fields_of(settings.parts):
        lines += [f"{f.name:<28}{_shown(getattr(part, f.name)):>12}  {f.metadata['source']:<{width}}{f.metadata['help']}"]
    return "\n".join([*lines, "", f"source: {SOURCES}"])


def settings_of(agent: str, environment: str) -> RunSettings:
    """The settings an agent has in an environment by default."""
    return resolve_settings(agent, [find_environment(environment)], {}, where="comper describe")


def _networks(settings: RunSettings, environment: str) -> list[dict[str, Any]]:
    from comper.networks.inspection import described_layers

    info = find_environment(environment).info(settings.environment)
    networks = settings.agent.agent.networks(settings.config, settings.task(info))
    return [_network(name, described_layers(factory)) for name, factory in networks.items()]


def _network(name: str, layers: Sequence[tuple[str, int]]) -> dict[str, Any]:
    rows = [{"name": layer, "parameters": size} for layer, size in layers]
    return {"name": name, "layers": rows, "parameters": sum(size for _, size in layers)}


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else str(value)
