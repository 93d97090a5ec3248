"""The constant policy: one action, by name or number, and a sentence for any other word."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from comper.agents.constant_policy import CONSTANT, ConstantConfig, ConstantPolicy, action_number
from comper.errors import UsageError
from comper.protocol import ACTION_NAMES
from tests.toys import agent_of, setups, task_of


@pytest.mark.parametrize(
    ("action", "number"),
    [("NOOP", 0), ("up", 2), ("UpRightFire", 14), ("0", 0), ("17", 17), ("downleftfire", 17)],
)
def test_an_action_is_named_as_people_write_it_or_numbered(action: str, number: int) -> None:
    assert action_number(action, ACTION_NAMES) == number


def test_names_that_are_no_capitals_are_found_as_they_are() -> None:
    names = ("turn left", "Toggle", "1")
    assert [action_number(name, names) for name in names] == [0, 1, 2]  # "1" is the third action's name here
    assert action_number("0", names) == 0


@pytest.mark.parametrize("action", ["JUMP", "18", "-1", "1.0", "", " UP"])
def test_any_other_word_is_refused_with_the_names(action: str) -> None:
    with pytest.raises(UsageError, match=r"must be one of NOOP, FIRE, .*, or 0 to 17\."):
        action_number(action, ACTION_NAMES)


def test_every_trial_gets_the_action_at_every_step() -> None:
    agent = agent_of(ConstantPolicy, ConstantConfig(action="1"), setups((2,), [0, 1, 2]))
    for trials in ([0, 1, 2], [1]):
        actions, q = agent.act(np.zeros((len(trials), 1), np.int64), [1.0] * len(trials), trials)
        assert (actions.tolist(), q.tolist()) == ([1] * len(trials), [0.0] * len(trials))


def test_an_action_that_the_environment_lacks_is_refused_before_the_run() -> None:
    task = task_of(setups((2,), [0]))
    ConstantPolicy.check(ConstantConfig(action="1"), task)
    with pytest.raises(UsageError, match="action = '2'"):
        ConstantPolicy.check(ConstantConfig(action="2"), task)
    ConstantPolicy.check(ConstantConfig(action="2"), dataclasses.replace(task, action_names=("a", "b", "c")))
    assert not CONSTANT.agent.learns
