"""What an agent is made of, as data and as text."""

from __future__ import annotations

import dataclasses
import json

import pytest

from comper.cli import main
from comper.training.describe import as_text, describe, settings_of


def test_describe_as_json_has_layers_values_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "comper-stacked", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    networks = {network["name"]: network for network in described["networks"]}
    assert [layer["parameters"] for layer in networks["CNN"]["layers"]] == [8_192, 32_832, 36_928, 1_606_144, 9_234]
    assert [layer["parameters"] for layer in networks["QLSTM"]["layers"]] == [14_467_840, 12_416, 8_320, 594, 19]
    assert networks["CNN"]["parameters"] == sum(layer["parameters"] for layer in networks["CNN"]["layers"])
    assert described["hyperparameters"]["target_period_steps"] == {"value": 100, "source": "Table 7"}
    assert all(entry["source"] for entry in described["hyperparameters"].values())


def test_every_setting_of_agent_and_environment_is_described() -> None:
    settings = settings_of("dqn", "pong")
    described = describe(settings, "pong")
    names = [f.name for part in settings.parts for f in dataclasses.fields(part)]
    assert list(described["hyperparameters"]) == names
    assert described["hyperparameters"]["pooling"]["value"] == "max"  # as the agent has it, not as the environment does
    assert described["hyperparameters"]["replay_capacity"] == {"value": 100_000, "source": "Table 8"}


def test_the_text_says_the_same_as_the_data() -> None:
    settings = settings_of("comper-single", "gym:CartPole-v1")
    text, data = as_text(settings, "gym:CartPole-v1"), describe(settings, "gym:CartPole-v1")
    assert text.startswith("comper-single on gym:CartPole-v1: COMPER, one frame as the state")
    lines = [line.split() for line in text.splitlines()]
    for network in data["networks"]:
        assert [f"{network['name']}:", f"{network['parameters']:,}", "parameters"] in lines
        for layer in network["layers"]:
            assert [layer["name"], f"{layer['parameters']:,}"] in lines
    shown = {line[0]: line[1] for line in lines if len(line) > 2}
    assert shown["memory_sets"] == "100,000"
    assert shown["qlstm_epsilon"] == "1e-10"
    assert set(data["hyperparameters"]) <= set(shown)
    assert text.endswith("source: tables and sections are the paper's; A and D, of docs/deviations.md")


def test_an_agent_without_networks_has_only_settings() -> None:
    settings = settings_of("random", "pong")
    assert describe(settings, "pong")["networks"] == []
    assert "parameters" not in as_text(settings, "pong")
