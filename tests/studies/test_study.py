"""Studies: only what is not finished is run, and interrupted trials go on to the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from comper.cli import main
from comper.errors import (
    DamagedFileError,
    DivergedError,
    LeftOutError,
    LockedError,
    OtherVersionError,
    ResourceError,
    StoppedError,
    UsageError,
)
from comper.runs.lock import RunLock
from comper.studies.plan import Plan, read_plan
from comper.studies.study import StudyJob, carry_out, open_study, run_study
from comper.training.display import Terminal
from comper.training.loop import Loop
from comper.training.options import RunOptions
from comper.training.pool import Errors
from comper.training.start import begin
from tests.training.small_runs import outcome

OPTIONS = RunOptions(device="cpu", workers=0, checkpoint_period_steps=20, show_progress=False, processes=2)
TEXT = """
environments = ["gym:CartPole-v1"]
seeds = 2
agents = ["comper-single", "dqn"]
settings = { frames = 100, replay_start_steps = 8, target_period_steps = 12, log_period_steps = 10 }
"""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT)
    return read_plan(str(path))


class Here:
    """Carries jobs out in this process, and remembers them; those whose number is in `broken` fail."""

    def __init__(self, broken: dict[int, Any] | None = None) -> None:
        self.jobs: list[StudyJob] = []
        self._broken = broken or {}

    def __call__(self, work: Any, jobs: Sequence[StudyJob], **_: Any) -> Errors:
        self.jobs = list(jobs)
        for number, job in enumerate(jobs):
            if number not in self._broken:
                work(job, Terminal(False))
        return dict(self._broken)


def names(jobs: Sequence[StudyJob]) -> list[tuple[str, int]]:
    return [(job.variant, job.trials[0].seed) for job in jobs]


def test_a_study_runs_every_trial_reports_and_never_runs_one_again(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, here = tmp_path / "study", Here()
    paths = run_study(open_study(plan, out), OPTIONS, command="comper study", run=here)
    assert paths == [trial.path(out) for trial in plan.trials]
    assert names(here.jobs) == [("comper-single", 0), ("dqn", 0), ("comper-single", 1), ("dqn", 1)]
    assert (out / "plan.toml").read_text() == TEXT
    assert (out / "report" / "index.html").is_file()
    before = {path: (path / "manifest.json").stat().st_mtime_ns for path in paths}
    again = open_study(plan, out)
    assert (len(again.finished), again.unfinished, again.frames) == (4, (), 0)
    assert run_study(again, OPTIONS, command="comper study", run=here) == paths
    assert {path: (path / "manifest.json").stat().st_mtime_ns for path in paths} == before


def test_an_interrupted_trial_goes_on_to_the_same_bits(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    from comper.training.checkpointing import Checkpointer

    job = open_study(plan, tmp_path / "whole").jobs(OPTIONS, OPTIONS.torch_device())[0]
    carry_out(job, Terminal(False))
    cut = open_study(plan, tmp_path / "cut").jobs(OPTIONS, OPTIONS.torch_device())[0]
    after_step = Checkpointer.after_step

    def stop(self: Checkpointer, trials: Any, step: int) -> None:
        self._request.name = "SIGTERM" if step == 33 else None
        after_step(self, trials, step)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "after_step", stop)
        with pytest.raises(StoppedError):
            carry_out(cut, Terminal(False))
    carry_out(cut, Terminal(False))
    assert outcome(cut.paths[0]) == outcome(job.paths[0])
    assert [trial.seed for trial in open_study(plan, tmp_path / "cut").finished] == [0]


def test_one_trial_that_fails_does_not_keep_the_others_and_the_report_from_being_made(tmp_path: Path, plan: Plan) -> None:
    here = Here({1: DivergedError("learning diverged.")})
    with pytest.raises(LeftOutError, match="1 of 4 runs could not be finished:\n  learning diverged") as error:
        run_study(open_study(plan, tmp_path / "study"), OPTIONS, command="comper study", run=here)
    assert (error.value.exit_code, len(error.value.done)) == (5, 3)
    assert (tmp_path / "study" / "report" / "index.html").is_file()


def test_a_want_of_room_ends_the_study_with_the_command_that_goes_on(tmp_path: Path, plan: Plan) -> None:
    here = Here(dict.fromkeys(range(4), ResourceError("The disk is full.")))
    with pytest.raises(ResourceError, match=r"The disk is full. .* the same command goes on with it: `comper study x`"):
        run_study(open_study(plan, tmp_path / "study"), OPTIONS, command="comper study x", run=here)


def test_a_folder_with_a_run_of_other_settings_is_refused(tmp_path: Path, plan: Plan) -> None:
    carry_out(open_study(plan, tmp_path).jobs(OPTIONS, OPTIONS.torch_device())[0], Terminal(False))
    (tmp_path / "tiny.toml").write_text(TEXT.replace("frames = 100", "frames = 101"))
    with pytest.raises(UsageError, match=r"seed-0: holds a run of other settings than the plan has now\. Rename the variant"):
        open_study(read_plan(str(tmp_path / "tiny.toml")), tmp_path)


def test_a_run_of_another_seed_in_the_place_of_a_planned_one_is_refused(tmp_path: Path, plan: Plan) -> None:
    first, _, second, *_ = open_study(plan, tmp_path).jobs(OPTIONS, OPTIONS.torch_device())
    carry_out(first, Terminal(False))
    shutil.copytree(first.paths[0], second.paths[0])
    with pytest.raises(UsageError, match=r"seed-1: holds a run of \S+ in \S+, seed 0, not the one that the plan has there"):
        open_study(plan, tmp_path)
    (second.paths[0] / "manifest.json").write_text("{")  # a checkpoint's copy takes its place
    assert len(open_study(plan, tmp_path).unfinished) == len(plan.trials) - 1


def test_a_run_of_another_seed_is_not_continued_in_the_place_of_a_planned_one(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, second, *_ = open_study(plan, tmp_path).jobs(OPTIONS, OPTIONS.torch_device())
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "run", lambda *_: None)
        carry_out(first, Terminal(False))
    shutil.copytree(first.paths[0], second.paths[0])
    with pytest.raises(DamagedFileError, match=r"seed-1: holds \S+/seed-0, not \S+/seed-1"):
        carry_out(second, Terminal(False))


def test_a_run_made_before_a_setting_was_there_is_that_of_its_plan_where_it_did_the_same(tmp_path: Path, plan: Plan) -> None:
    from tests.training.test_resume import recorded_before

    job = open_study(plan, tmp_path).jobs(OPTIONS, OPTIONS.torch_device())[0]
    carry_out(job, Terminal(False))
    recorded_before(job.paths[0], "rtm")
    assert len(open_study(plan, tmp_path).finished) == 1
    recorded_before(job.paths[0], "qlstm_mean_square_start")  # which started at 0, and the plan's at 1
    with pytest.raises(UsageError, match="holds a run of other settings than the plan has now"):
        open_study(plan, tmp_path)
    recorded_before(job.paths[0], "batch_size")
    with pytest.raises(OtherVersionError, match="does not have batch_size"):
        open_study(plan, tmp_path)


def test_on_a_gpu_trials_of_a_variant_advance_together_as_many_as_there_is_room_for(tmp_path: Path, plan: Plan) -> None:
    study = open_study(plan, tmp_path)
    expected = {
        2: [("comper-single", [0, 1]), ("dqn", [0, 1])],
        4: [(name, [s]) for name in ("comper-single", "dqn") for s in (0, 1)],
    }
    for processes, groups in expected.items():
        jobs = study.jobs(replace(OPTIONS, processes=processes), torch.device("cuda"))
        assert [(job.variant, [status.seed for status in job.trials]) for job in jobs] == groups
    first = study.jobs(OPTIONS, torch.device("cuda"))[0]
    pairs = [(trial.environment, trial.seed) for trial in plan.trials if trial.variant == first.variant]
    begin(pairs, plan.trials[0].settings, out=first.out, options=OPTIONS, population=pairs)
    begun = open_study(plan, tmp_path).jobs(replace(OPTIONS, processes=4), torch.device("cuda"))
    assert [len(job.trials) for job in begun] == [2, 1, 1], "a population that has begun stays together"


@pytest.mark.slow
def test_the_command_says_what_it_would_do_and_does_it(tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["study", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "study"), "--device", "cpu", "--processes", "2"]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "dqn: dqn on gym:CartPole-v1 seed 1, 100 frames" in said
    assert "tiny: 4 trials; 4 jobs in 2 processes, 400 frames to go" in said
    assert "on this machine" in said
    assert not (tmp_path / "study").exists()
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.err.count("done: ") == 4
    assert "report" in captured.err
    assert "dqn/dqn/gym-CartPole-v1/seed-1" in captured.out


@pytest.mark.parametrize("name", ["report", "dqn", "dqn/dqn"])
def test_a_link_inside_the_folder_of_a_study_is_refused(name: str, tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "study" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="a link"):
        open_study(plan, tmp_path / "study")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_stands_in_the_place_of_a_run_is_refused_before_anything_runs(tmp_path: Path, plan: Plan) -> None:
    place = plan.trials[0].path(tmp_path / "study")
    place.parent.mkdir(parents=True)
    place.write_text("not a run")
    with pytest.raises(UsageError, match="seed-0 already holds a run"):
        open_study(plan, tmp_path / "study")


def test_a_folder_that_was_emptied_but_for_its_lock_is_begun_again(tmp_path: Path, plan: Plan) -> None:
    place = plan.trials[0].path(tmp_path)
    place.mkdir(parents=True)
    (place / ".lock").touch()
    job = open_study(plan, tmp_path).jobs(OPTIONS, OPTIONS.torch_device())[0]
    carry_out(job, Terminal(False))
    assert [trial.seed for trial in open_study(plan, tmp_path).finished] == [0]


def test_why_nothing_was_finished_is_said_rather_than_that_there_is_no_report(tmp_path: Path, plan: Plan) -> None:
    here = Here(dict.fromkeys(range(4), DivergedError("learning diverged.")))
    with pytest.raises(DivergedError, match="learning diverged"):
        run_study(open_study(plan, tmp_path / "study"), OPTIONS, command="comper study", run=here)


def test_on_a_gpu_a_damaged_run_does_not_keep_the_others_from_being_planned(tmp_path: Path, plan: Plan) -> None:
    place = plan.trials[0].path(tmp_path)
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{")
    jobs = open_study(plan, tmp_path).jobs(OPTIONS, torch.device("cuda"))
    assert sorted(len(job.trials) for job in jobs) == [1, 1, 2]


def test_escape_codes_in_the_name_of_a_plan_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "\x1b[31mred.toml"
    path.write_text(
        TEXT.replace('"comper-single", "dqn"', '"random"').replace(
            "replay_start_steps = 8, target_period_steps = 12, log_period_steps = 10", "log_period_steps = 10"
        )
    )
    for words in (["--dry-run"], []):
        assert main(["study", str(path), "--out", str(tmp_path / "out"), "--device", "cpu", "--processes", "1", *words]) == 0
    captured = capsys.readouterr()
    assert "\\x1b[31mred: 2 trials" in captured.out + captured.err
    assert "\x1b[31m" not in captured.out + captured.err


def test_a_second_command_is_refused_and_no_plan_is_lost(tmp_path: Path, plan: Plan) -> None:
    study = open_study(plan, tmp_path / "out")
    study.out.mkdir()
    with RunLock(study.out), pytest.raises(LockedError, match="another process is working on this study"):
        run_study(study, OPTIONS, command="again")
    (study.out / "plan.toml").write_text("mine")
    (study.out / "plan-1.toml").write_text("mine, too")

    def full(*_: Any, **__: Any) -> Errors:
        return {0: ResourceError("no room.")}

    for _ in range(2):
        with pytest.raises(ResourceError, match="no room"):
            run_study(study, OPTIONS, command="again", run=full)
    kept = {path.name: path.read_bytes() for path in study.out.glob("*.toml")}
    assert kept == {"plan.toml": plan.text, "plan-1.toml": b"mine, too", "plan-2.toml": b"mine"}
