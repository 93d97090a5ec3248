"""The walk of one frame from the emulator to a weight to a log line, traced: the files that docs/architecture.md lists."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from comper.environments.families import find_environment
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.training.loop import Loop
from comper.training.options import RunOptions, resolve_settings
from comper.training.population import Member, _saved_trial, _setup, make_stepper

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "comper"
QUICK: dict[str, Any] = {
    "screen_size": 36, "frames": 10_000, "episode_cap_frames": 300, "replay_start_steps": 16, "log_period_steps": 40,
    "epsilon_decay_frames": 100, "target_period_steps": 20,
}  # fmt: skip
GOALS = {"dqn": 12, "comper-single": 15}


def traced_files(agent_name: str, folder: Path) -> set[str]:
    """Files of ours in which a function runs while a warm trial is stepped: actions, updates, episodes and log lines."""
    environment = find_environment("asterix")
    settings = resolve_settings(agent_name, [environment], QUICK, where="test")
    stepper = make_stepper([(environment, 0)], settings, RunOptions(workers=0))
    record = Recorder.create(folder / "seed-0", settings.to_toml(), Manifest(agent=agent_name, game="asterix", seed=0))
    setup = _setup(0, settings, stepper)
    agent = settings.agent.agent(settings.config, settings.task(stepper.info), [setup], device=torch.device("cpu"))
    trial = _saved_trial(0, Member("asterix", 0, record), record, setup, settings).trial
    loop = Loop(settings.config, agent, stepper, [trial])
    trial.history.reset(stepper.reset(0))
    files: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    for step in range(200):
        if step == 40:
            sys.setprofile(note)
        loop._tick([trial])
        if loop.t % settings.config.log_period_steps == 0:
            loop._log([trial], steps_per_second=1.0)
    sys.setprofile(None)
    assert trial.num_episodes > 2
    record.close()
    return {str(Path(file).relative_to(SOURCE)) for file in files if file.startswith(str(SOURCE))}


def documented_files(agent: str) -> set[str]:
    """The files in the walk's tables: DQN's, and for COMPER its own agent and three more."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## The way of one frame")[1].split("\n## ")[0]
    listed = re.findall(r"^\| \d+ \| `([\w/]+\.py)`", section, flags=re.MULTILINE)
    if agent == "dqn":
        return set(listed[:12])
    return set(listed) - {"agents/dqn.py"} | {"agents/comper.py"}


@pytest.mark.parametrize("agent", GOALS)
def test_one_frame_walks_through_the_files_that_are_documented(agent: str, tmp_path: Path) -> None:
    files = traced_files(agent, tmp_path)
    assert files == documented_files(agent)
    assert len(files) <= GOALS[agent]
