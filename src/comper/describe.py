"""What an agent is made of: its layers with their parameter counts, its hyper-parameters with their source in the paper."""

from __future__ import annotations

import dataclasses
from typing import Any

from comper.protocol import NUM_ACTIONS, AnyConfig, ComperConfig, DQNConfig


def describe(config: AnyConfig) -> dict[str, Any]:
    """The description as plain data: networks and hyper-parameters."""
    return {
        "networks": [_network(name, make) for name, make in _networks(config).items()],
        "hyperparameters": {
            f.name: {"value": getattr(config, f.name), "source": f.metadata["source"]} for f in dataclasses.fields(config)
        },
    }


def as_text(name: str, config: AnyConfig) -> str:
    """The description as tables for reading."""
    description = describe(config)
    meanings = {f.name: f.metadata["help"] for f in dataclasses.fields(config)}
    lines = [name, ""]
    for network in description["networks"]:
        lines += [f"{network['name']}: {network['parameters']:,} parameters"]
        lines += [f"  {layer['name']:<8}{layer['parameters']:>14,}" for layer in network["layers"]]
        lines += [""]
    lines += [f"{'hyper-parameter':<28}{'value':>12}  {'source':<18}meaning"]
    for key, entry in description["hyperparameters"].items():
        lines += [f"{key:<28}{_shown(entry['value']):>12}  {entry['source']:<18}{meanings[key]}"]
    return "\n".join(lines)


def _networks(config: AnyConfig) -> dict[str, Any]:
    frame_shape = (config.screen_size, config.screen_size)
    if isinstance(config, ComperConfig):
        from comper.agents.comper import comper_networks

        return comper_networks(config, frame_shape, NUM_ACTIONS)
    if isinstance(config, DQNConfig):
        from comper.agents.dqn import dqn_networks

        return dqn_networks(config, frame_shape, NUM_ACTIONS)
    return {}


def _network(name: str, make: Any) -> dict[str, Any]:
    from comper.networks.stacking import layer_sizes

    counts = [{"name": layer, "parameters": size} for layer, size in layer_sizes(make())]
    return {"name": name, "layers": counts, "parameters": sum(layer["parameters"] for layer in counts)}


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
