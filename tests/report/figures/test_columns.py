"""What a report knows about the columns of a log."""

from __future__ import annotations

from typing import Any

from comper.agents.comper import ComperAgent, ComperConfig
from comper.agents.comper_graph import GraphAgent, GraphConfig
from comper.agents.dqn import DQNAgent, DQNConfig
from comper.memory.transitions import Transition
from comper.report.figures.columns import AT_THE_END, COUNTERS, KNOWN_COLUMNS, OVER_EPISODES, OVER_TRAINING, SIZES, column_info
from tests.toys import agent_of, setups


def test_known_columns_have_units() -> None:
    assert column_info("bytes_held").label == "memory held, MB"
    assert column_info("my_own_loss").label == "my own loss"


def test_every_column_that_our_agents_log_has_a_label_and_those_of_the_papers_figures_are_logged() -> None:
    logged: set[str] = set()
    agents: tuple[Any, ...] = (
        (ComperAgent, ComperConfig()), (DQNAgent, DQNConfig(observation="single")), (GraphAgent, GraphConfig())
    )  # fmt: skip
    for kind, config in agents:
        (setup,) = setups((3,), [0])
        agent = agent_of(kind, config, [setup])
        frame = setup.frames.intern(setup.exploration.integers(9, size=3).astype("uint8"))
        agent.store(0, Transition((frame,), 0, 0.0, (frame,), False), 0.0, is_last=False)
        logged |= set(agent.metrics(0))
    assert logged <= set(KNOWN_COLUMNS)
    for figure in (*OVER_TRAINING, *OVER_EPISODES, *AT_THE_END, *SIZES):
        for columns in figure.columns:
            assert set(columns) <= logged, figure.name


def test_only_bytes_are_scaled() -> None:
    assert {name: info.scale for name, info in KNOWN_COLUMNS.items() if info.scale != 1} == {"bytes_held": 1e-6}
    assert column_info("my_own_loss").scale == 1


def test_counters_are_no_columns_of_a_figure() -> None:
    assert not set(COUNTERS) & set(KNOWN_COLUMNS)
    names = [figure.name for figure in (*OVER_TRAINING, *OVER_EPISODES, *AT_THE_END, *SIZES)]
    assert len(names) == len(set(names))
