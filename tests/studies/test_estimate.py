"""How long a study will take, measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from comper.studies import estimate
from comper.studies.estimate import estimate_seconds
from comper.studies.plan import read_plan
from comper.studies.study import StudyJob, open_study
from comper.training.options import RunOptions

OPTIONS = RunOptions(device="cpu", workers=0, show_progress=False, processes=2)
TEXT = 'environments = ["gym:CartPole-v1"]\nseeds = 3\nagents = ["random", "dqn"]\nsettings = { frames = 1_000 }\n'


def test_the_time_is_frames_by_speed_by_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    study = open_study(read_plan(str(tmp_path / "mine.toml")), tmp_path / "out")
    speeds = {"random": 100.0, "dqn": 10.0}
    monkeypatch.setattr(estimate, "_frames_per_second", lambda job, out: speeds[job.variant])
    assert estimate_seconds(study, OPTIONS) == (3 * 10 + 3 * 100) / 2


def test_speed_is_that_of_a_real_trial_that_learns(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TEXT)
    study = open_study(read_plan(str(tmp_path / "mine.toml")), tmp_path / "out")
    jobs: list[StudyJob] = study.jobs(OPTIONS, OPTIONS.torch_device())
    rates = [estimate._frames_per_second(job, tmp_path / job.variant) for job in jobs[:2]]
    assert rates[0] > rates[1] > 1
    assert not study.out.exists()
