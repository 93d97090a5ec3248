"""Every default against the paper: the numbers of Tables 3 to 10, written down here from its text (arXiv 2111.06907).

A default that no table gives is listed with the entry of `docs/deviations.md` that chose it, or with the section that says it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from comper import protocol
from comper.agents.agent import AgentSpec, Task
from comper.agents.comper import ComperConfig
from comper.agents.comper_graph import IN_ATARI, IN_MINATAR
from comper.agents.dqn import DQNConfig
from comper.agents.registry import AGENTS, find_agent
from comper.environments.atari import AtariSettings
from comper.environments.families import find_environment
from comper.networks.cnn import ARCHITECTURES
from comper.networks.inspection import described_layers
from comper.networks.qlstm import HIDDEN_UNITS, LSTM_UNITS
from comper.protocol import AgentConfig, LearnerConfig
from comper.report.statistics import num_third_episodes
from comper.settings import Settings
from comper.training.options import default_settings

ROOT = Path(__file__).parents[1]

# The rows of the paper's tables, by their own names. Two have no setting: "Lives signal used: False" (Table 3), which
# `tests/environments/test_atari.py` covers, and the "8 colors" of Tables 7 and 8 (A21).
TABLES: dict[int, dict[str, Any]] = {
    3: {
        "Action set": 18,
        "Frame skip": 5,
        "Stochasticity": 0.25,
        "Number of episodes used for evaluation": {3, 10},
        "Number of episodes used for evaluation in the continual learning": {3, 5},
        "Number of frames used for learning": 100_000,
        "Number of trials": 5,
    },
    4: {
        "Discount factor": 0.99,
        "Initial exploration rate": 1.0,
        "Final exploration rate": 0.001,
        "Final exploration frame": 90_000,
    },
    5: {"Step-size": 0.00025, "Gradient momentum": 0.95, "Squared gradient momentum": 0.95, "Min squared gradient": 0.01},
    6: {"Step-size": 0.00025, "Gradient momentum": 0.0, "Decay": 0.9, "Epsilon": 1e-10},
    7: {
        "Transition memory size": 100_000,
        "Replay start size": 100,
        "History length (single frame)": 1,
        "History length (stacked frames)": 4,
        "Train Frequency": 4,
        "Transitions batch size": 32,
        "Similar transitions batch size": 1_000,
        "Similarity Threshold": 0.0,
        "Update Frequency": 100,
        "Color averaging": "average",  # True: the average between the previous and the current frame
    },
    8: {
        "Step-size": 0.00025,
        "Gradient momentum": 0.95,
        "Squared gradient momentum": 0.95,
        "Min squared gradient": 0.01,
        "Replay memory size": 100_000,
        "Replay start size": 1_000,
        "History length (stacked frames)": 4,
        "Update frequency": 4,
        "Update frequency of target network": 1_000,
        "Frame pooling": "max",  # True: the maximum between the previous and the current frame
    },
    9: {
        "Input": 84,
        "Conv1 (Conv2D)": (32, 8, 4),
        "Conv2 (Conv2D)": (64, 4, 2),
        "Conv3 (Conv2D)": (64, 3, 1),
        "Dense1 (Dense)": 512,
        "Parameters, single frame": [2_080, 32_832, 36_928, 1_606_144, 9_234],
        "Parameters, stacked frames": [8_192, 32_832, 36_928, 1_606_144, 9_234],
    },
    10: {
        "Time steps": 1,  # Input = (1, 14114) or (1, 56450)
        "Lstm1 to Lstm3": (64, 32, 32),
        "Dense1 (Dense)": 18,
        "Parameters, single frame": [3_629_824, 12_416, 8_320, 594, 19],
        "Parameters, stacked frames": [14_467_840, 12_416, 8_320, 594, 19],
    },
}


class Expected(NamedTuple):
    """What a default must be, and who says so: `Table 4`, `Section 5.1` or an entry of deviations.md."""

    value: Any
    source: str


def table(number: int, row: str) -> Expected:
    return Expected(TABLES[number][row], f"Table {number}")


AGENT = {
    "frames": table(3, "Number of frames used for learning"),
    "observation": Expected("single", "Table 7"),  # its history length is compared below
    "frame_compression": Expected("none", "D4"),
    "log_period_steps": Expected(100, "Section 5.1"),  # "at every 100 iterations"
}
LEARNER = {
    **AGENT,
    "discount": table(4, "Discount factor"),
    "epsilon_start": table(4, "Initial exploration rate"),
    "epsilon_end": table(4, "Final exploration rate"),
    "epsilon_decay_frames": table(4, "Final exploration frame"),
    "replay_start_steps": table(7, "Replay start size"),
    "batch_size": table(7, "Transitions batch size"),
    "train_period_steps": table(7, "Train Frequency"),
    "reward_clip": Expected(1.0, "A4c"),
    "network": Expected("auto", "D3"),
    "loss": Expected("squared", "A4b"),
    "step_size": table(5, "Step-size"),
    "gradient_momentum": table(5, "Gradient momentum"),
    "squared_gradient_momentum": table(5, "Squared gradient momentum"),
    "min_squared_gradient": table(5, "Min squared gradient"),
}
COMPER = {
    **LEARNER,
    "reward_clip": Expected(0.0, "A4c"),
    "target_period_steps": table(7, "Update Frequency"),
    "sets_per_training": table(7, "Similar transitions batch size"),
    "memory_sets": table(7, "Transition memory size"),
    "similarity_threshold": table(7, "Similarity Threshold"),
    "index": Expected("auto", "D1"),
    "alignment": Expected("successor", "A1"),
    "sequence_length": table(10, "Time steps"),
    "rtm": Expected("accumulate", "A19"),
    "input_scale": Expected("fixed", "A4a"),
    "qlstm_mean_square_start": Expected(1.0, "A13"),
    "qlstm_epochs": Expected(1, "A4"),
    "qlstm_batch_size": Expected(16, "Appendix B"),  # "The batch size is 16."
    "qlstm_step_size": table(6, "Step-size"),
    "qlstm_gradient_momentum": table(6, "Gradient momentum"),
    "qlstm_decay": table(6, "Decay"),
    "qlstm_epsilon": table(6, "Epsilon"),
}
# Table 8 has no batch size: all that it does not list has the same value as elsewhere (Appendix A.3).
DQN = {
    **LEARNER,
    "observation": Expected("rolling", "A8"),
    "replay_start_steps": table(8, "Replay start size"),
    "loss": Expected("huber", "A4b"),
    "step_size": table(8, "Step-size"),
    "gradient_momentum": table(8, "Gradient momentum"),
    "squared_gradient_momentum": table(8, "Squared gradient momentum"),
    "min_squared_gradient": table(8, "Min squared gradient"),
    "train_period_steps": table(8, "Update frequency"),
    "replay_capacity": table(8, "Replay memory size"),
    "target_period_steps": table(8, "Update frequency of target network"),
}
DDQN = {
    **AGENT,
    "observation": Expected("rolling", "D5"),
    "discount": Expected(0.99, "D5"),
    "num_steps": Expected(3, "D5"),
    "epsilon_end": Expected(0.01, "D5"),
    "epsilon_decay_frames": Expected(20_000, "D5"),
    "replay_start_steps": Expected(1_000, "D5"),
    "replay_capacity": Expected(100_000, "D5"),
    "batch_size": Expected(32, "D5"),
    "train_period_steps": Expected(4, "D5"),
    "target_period_steps": Expected(1_000, "D5"),
    "reward_clip": Expected(1.0, "D5"),
    "network": Expected("auto", "D3"),
    "step_size": Expected(0.0001, "D5"),
    "adam_epsilon": Expected(1.5e-4, "D5"),
}
GRAPH = {
    **AGENT,
    **{
        name: Expected(value, "D3" if name == "network" else "D7")
        for name, value in {
            "discount": 0.99, "targets": "graph", "memory_sets": 100_000, "similarity_threshold": 0.0,
            "similarity_cells": 0, "lending_reach": 0.0, "num_lenders": 5,
            "refresh_period_steps": 500, "refresh_passes": 60, "untried": "ignored",
            "prior_visits": 0.0, "trust": 0.6,
            "trust_grows": "state", "double": False, "asked_states": 2_000, "count_bonus": 0.0, "replay": "set",
            "all_tried": True, "batch_size": 32, "train_period_steps": 2, "replay_start_steps": 1_000, "num_steps": 3,
            "target_period_steps": 1_000, "reward_clip": 1.0, "epsilon_end": 0.05, "epsilon_decay_frames": 20_000,
            "updates_at_a_time": 1, "random_actions": "least-tried", "layer_norm": False,
            "held_steps": 1, "act_with": "graph", "network": "auto", "residual_width": 0, "duelling": True, "shift_pixels": 0,
            "value_classes": 0, "value_range": 10.0, "ensemble": 1, "joystick": "off", "mirror": False, "average_views": False,
            "foresight_steps": 0, "foresight_weight": 2.0, "autofire_steps": 0,
            "step_size": 0.00025, "adam_epsilon": 1.5e-4,
        }.items()
    },
}  # fmt: skip
GRAPH_IN_ATARI = GRAPH | {
    name: Expected(value, GRAPH[name].source)
    for name, value in {
        "observation": "rolling", "discount": 0.97, "trust": 0.9, "train_period_steps": 1, "step_size": 0.0001,
        "shift_pixels": 4, "random_actions": "any", "epsilon_end": 0.01, "epsilon_decay_frames": 10_000,
        "updates_at_a_time": 2, "joystick": "alone", "mirror": True, "average_views": True,
        "autofire_steps": 100,
    }.items()
}  # fmt: skip
GRAPH_IN_MINATAR = GRAPH | {
    name: Expected(value, GRAPH[name].source)
    for name, value in {"random_actions": "any", "mirror": True, "average_views": True}.items()
}
ATARI = {
    "frame_skip": table(3, "Frame skip"),
    "sticky_probability": table(3, "Stochasticity"),
    "episode_cap_frames": Expected(18_000, "A10"),
    "pooling": table(7, "Color averaging"),
    "screen_size": table(9, "Input"),
}
AGENT_DEFAULTS: dict[str, dict[str, Expected]] = {
    "comper": GRAPH,
    "comper-single": COMPER,
    "comper-stacked": {**COMPER, "observation": Expected("stacked", "Table 7")},
    "dqn": DQN,
    "ddqn": DDQN,
    "random": AGENT,
    "constant": {**AGENT, "action": Expected("0", "Section 6")},
}
ENVIRONMENT_CHANGES = {
    "dqn": {"pooling": TABLES[8]["Frame pooling"]},
    "ddqn": {"pooling": "max"},  # D5: as DQN
}
# Of each preset: (frames of a state, observations while an action is held). A8: Tables 7 and 8 give the first alone.
STATES = {
    "comper": (1, 1),
    "comper-single": (TABLES[7]["History length (single frame)"], 1),
    "comper-stacked": (TABLES[7]["History length (stacked frames)"], 4),
    "dqn": (TABLES[8]["History length (stacked frames)"], 1),
    "ddqn": (4, 1),
    "random": (1, 1),
    "constant": (1, 1),
}

PRESETS: dict[str, tuple[Settings, dict[str, Expected]]] = {
    "AgentConfig": (AgentConfig(), AGENT),
    "LearnerConfig": (LearnerConfig(), LEARNER),
    "ComperConfig": (ComperConfig(), COMPER),
    "DQNConfig": (DQNConfig(), DQN),
    "AtariSettings": (AtariSettings(), ATARI),
    **{name: (find_agent(name).config, defaults) for name, defaults in AGENT_DEFAULTS.items()},
    "comper in Atari games": (IN_ATARI, GRAPH_IN_ATARI),
    "comper in MinAtar": (IN_MINATAR, GRAPH_IN_MINATAR),
}


def differences(settings: Settings, expected: Mapping[str, Expected]) -> dict[str, tuple[Any, Any]]:
    """The settings that are not as expected, in value or in type, or that one side does not have: name -> both."""
    found = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    values = {name: expectation.value for name, expectation in expected.items()}
    names = found.keys() | values.keys()
    return {name: both for name in names if repr((both := (found.get(name), values.get(name)))[0]) != repr(both[1])}


def test_every_agent_is_compared() -> None:
    assert set(AGENT_DEFAULTS) == set(STATES) == set(AGENTS)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_default_is_the_papers(preset: str) -> None:
    settings, expected = PRESETS[preset]
    assert differences(settings, expected) == {}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_changed_default_would_be_noticed(preset: str) -> None:
    settings, expected = PRESETS[preset]
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        changed = dataclasses.replace(settings)
        object.__setattr__(changed, f.name, f"not {value}" if isinstance(value, str) else value + value / 1_000 + 1e-12)
        assert set(differences(changed, expected)) == {f.name}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_setting_cites_the_place_that_gives_its_default(preset: str) -> None:
    settings, expected = PRESETS[preset]
    # What DQN shares with COMPER cites COMPER's table; Table 8 repeats it.
    own = set(DQNConfig.__annotations__) if isinstance(settings, DQNConfig) else set(expected)
    for f in dataclasses.fields(settings):
        if f.name in own:
            assert re.search(rf"\b{expected[f.name].source}\b", f.metadata["source"]), f.name


def test_every_entry_named_here_is_in_the_deviations() -> None:
    text = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    sources = {expectation.source for _, expected in PRESETS.values() for expectation in expected.values()}
    entries = {source for source in sources if re.fullmatch(r"[AD]\d+[a-c]?", source)}
    assert entries
    assert all(f"### {entry}. " in text for entry in entries)
    assert sources - entries <= {f"Table {n}" for n in TABLES} | {"Section 5.1", "Section 6", "Appendix B"}


@pytest.mark.parametrize("agent", AGENT_DEFAULTS)
def test_an_agent_plays_the_papers_game_with_its_own_changes_alone(agent: str) -> None:
    spec: AgentSpec = find_agent(agent)
    assert spec.environment == ENVIRONMENT_CHANGES.get(agent, {})
    for game in protocol.PAPER_GAMES:
        config, environment = default_settings(spec, find_environment(game).settings)
        changes = {name: Expected(value, "Table 8") for name, value in ENVIRONMENT_CHANGES.get(agent, {}).items()}
        assert differences(environment, {**ATARI, **changes}) == {}
        assert config is (IN_ATARI if agent == "comper" else spec.config)
    assert default_settings(spec, find_environment("gym:CartPole-v1").settings)[0] is spec.config
    assert default_settings(spec, find_environment(lambda: None).settings)[0] is spec.config


def test_comper_has_settings_of_its_own_in_minatar() -> None:
    settings = find_environment("minatar:breakout").settings
    assert default_settings(find_agent("comper"), settings)[0] is IN_MINATAR
    assert default_settings(find_agent("ddqn"), settings)[0] is find_agent("ddqn").config


@pytest.mark.parametrize("agent", STATES)
def test_a_state_has_the_papers_history_length(agent: str) -> None:
    config = find_agent(agent).config
    assert (config.history_length, config.observations_per_step) == STATES[agent]


def test_actions_trials_and_scored_episodes_are_those_of_table_3() -> None:
    assert len(protocol.ACTION_NAMES) == protocol.NUM_ACTIONS == TABLES[3]["Action set"]
    assert len(set(protocol.ACTION_NAMES)) == protocol.NUM_ACTIONS
    assert TABLES[3]["Number of trials"] == protocol.TRIALS
    scored = {game: protocol.num_scored_episodes(game) for game in protocol.PAPER_GAMES}
    assert set(scored.values()) == TABLES[3]["Number of episodes used for evaluation"]
    # Those marked * in Tables 1 and 2.
    starred = {"freeway", "battle_zone", "video_pinball", "beam_rider"}
    assert {game for game, number in scored.items() if number == 3} == starred
    thirds = {num_third_episodes(number) for number in scored.values()}
    assert thirds == TABLES[3]["Number of episodes used for evaluation in the continual learning"]


def test_the_games_are_those_of_table_1_in_its_order() -> None:
    assert protocol.PAPER_GAMES == (
        "freeway", "asteroids", "battle_zone", "video_pinball", "seaquest", "asterix", "beam_rider", "space_invaders",
    )  # fmt: skip


@pytest.mark.parametrize(("agent", "frames"), [("comper-single", "single frame"), ("comper-stacked", "stacked frames")])
def test_the_networks_of_comper_are_those_of_tables_9_and_10(agent: str, frames: str) -> None:
    cnn = ARCHITECTURES[0]
    assert cnn.convolutions == tuple(TABLES[9][f"Conv{i} (Conv2D)"] for i in (1, 2, 3))
    assert cnn.hidden_units == TABLES[9]["Dense1 (Dense)"]
    assert TABLES[10]["Lstm1 to Lstm3"] == LSTM_UNITS
    assert TABLES[10]["Dense1 (Dense)"] == HIDDEN_UNITS
    spec = find_agent(agent)
    task = Task((84, 84), np.dtype(np.uint8), "pixels", protocol.ACTION_NAMES)
    for name, number in (("CNN", 9), ("QLSTM", 10)):
        layers = described_layers(spec.agent.networks(spec.config, task)[name])
        assert [size for _, size in layers] == TABLES[number][f"Parameters, {frames}"]
