"""A small study of the module that asks for it: its plan is `TEXT`, its options are `OPTIONS`."""

from __future__ import annotations

from typing import Any

import pytest

from comper.studies.plan import Plan, read_plan
from comper.studies.study import Study, carry_out, open_study
from comper.training.display import Terminal
from tests.training.small_runs import outcome


def outcomes(study: Study) -> list[Any]:
    """What the trials of a study came to."""
    return [outcome(trial.path(study.out)) for trial in study.plan.trials]


@pytest.fixture(scope="module")
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The plan of the module."""
    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(request.module.TEXT)
    return read_plan(str(path))


@pytest.fixture(scope="module")
def alone(plan: Plan, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What its trials come to without a cluster."""
    study, options = open_study(plan, tmp_path_factory.mktemp("alone")), request.module.OPTIONS
    for job in study.jobs(options, options.torch_device()):
        carry_out(job, Terminal(False))
    return outcomes(study)
