"""What an agent is made of, as data and as text."""

from __future__ import annotations

import json

import pytest

from comper.cli import main


def test_describe_as_json_has_layers_values_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "comper-stacked", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    networks = {network["name"]: network for network in described["networks"]}
    assert [layer["parameters"] for layer in networks["CNN"]["layers"]] == [8_192, 32_832, 36_928, 1_606_144, 9_234]
    assert [layer["parameters"] for layer in networks["QLSTM"]["layers"]] == [14_467_840, 12_416, 8_320, 594, 19]
    assert networks["CNN"]["parameters"] == sum(layer["parameters"] for layer in networks["CNN"]["layers"])
    assert described["hyperparameters"]["target_period_steps"] == {"value": 100, "source": "Table 7"}
    assert all(entry["source"] for entry in described["hyperparameters"].values())
