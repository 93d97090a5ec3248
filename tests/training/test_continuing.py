"""Unfinished runs, grouped, continued and turned into jobs for other processes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from comper.errors import DamagedFileError, DivergedError, LeftOutError, ResourceError, StoppedError
from comper.runs.files import sealed
from comper.runs.manifest import Manifest
from comper.training.continuing import (
    ContinueJob,
    continue_job,
    done_or_left_out,
    groups_of,
    jobs_of,
    open_unfinished,
    unfinished_jobs,
)
from comper.training.display import Terminal, TrialStatus
from comper.training.options import NO_OWN_CODE, RunOptions
from comper.training.resume import resume_weights_only
from comper.training.signals import StopRequest
from tests.training.small_runs import go_on, interrupted, outcome, start

OPTIONS = RunOptions(device="cpu", workers=0, show_progress=False, processes=2)
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_a_job_continues_its_runs_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = start(tmp_path / "whole")
    folder = interrupted(tmp_path / "cut", monkeypatch)
    run = open_unfinished(folder)
    assert run is not None
    (job,) = jobs_of(groups_of([run], CPU), CPU, OPTIONS, NO_OWN_CODE, {})
    run.lock.release()
    assert (job.paths, job.trials[0].frames) == ((folder,), 35 * 5)
    continue_job(job, Terminal(False))
    assert outcome(folder) == outcome(whole)


def test_a_population_stays_together_on_a_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path, monkeypatch, trials=2).parent
    runs = [run for seed in range(2) if (run := open_unfinished(folder / f"seed-{seed}")) is not None]
    assert [len(jobs_of(groups_of(runs, device), device, OPTIONS, NO_OWN_CODE, {})) for device in (CPU, GPU)] == [2, 1]
    for run in runs:
        run.lock.release()


def test_a_run_goes_on_with_the_threads_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"threads": 2}
    whole = start(tmp_path / "whole", **options)
    before = torch.get_num_threads()
    monkeypatch.setattr("tests.training.small_runs.start", lambda out, trials: start(out, trials=trials, **options))
    folder = interrupted(tmp_path / "cut", monkeypatch)
    assert Manifest.read(folder).threads == 2
    go_on(folder)
    assert outcome(folder) == outcome(whole)
    assert torch.get_num_threads() == before


def test_a_run_that_began_with_the_weights_of_another_begins_with_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = start(tmp_path / "source")
    common: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False, "processes": 1}
    (whole,) = resume_weights_only(source, out=tmp_path / "whole", **common)

    class Killed(Exception):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("comper.training.train.run_population", die)
        with pytest.raises(Killed):
            resume_weights_only(source, out=tmp_path / "cut", **common)
    cut = tmp_path / "cut" / whole.relative_to(tmp_path / "whole")
    go_on(cut)
    assert outcome(cut) == outcome(whole)
    manifest = json.loads((cut / "manifest.json").read_text())
    changed = {**manifest, "status": "running", "started_from": {**manifest["started_from"], "sha256": "0" * 64}}
    (cut / "manifest.json").write_text(json.dumps(sealed(changed)))
    with pytest.raises(DamagedFileError, match="which has others now"):
        go_on(cut)


JOBS = [ContinueJob((Path("a"), Path("b")), (TrialStatus.waiting("x", 0, budget=1),), OPTIONS, ())] * 2


def test_what_was_not_finished_is_kept_apart_from_what_stopped_all() -> None:
    request = StopRequest()
    left_out = LeftOutError("b could not.", exit_code=3, done=[Path("a")])
    assert unfinished_jobs(JOBS, {1: left_out}, request, hint="x") == {Path("b"): left_out}
    room = ResourceError("No room. What was saved before is untouched: continue with `comper resume a`.")
    with pytest.raises(ResourceError, match=r"^No room\. The other trials were stopped and saved: do x\.$"):
        unfinished_jobs(JOBS, {0: StoppedError("stopped."), 1: room}, request, hint="do x")
    request.name = "SIGINT"
    with pytest.raises(StoppedError, match=r"^stopped by SIGINT: every trial was saved; do x\.$"):
        unfinished_jobs(JOBS, {0: StoppedError("stopped.")}, request, hint="do x")
    assert unfinished_jobs(JOBS, {}, request, hint="it came too late") == {}
    unsaved = [dataclasses.replace(job, options=dataclasses.replace(OPTIONS, checkpoint_period_steps=0)) for job in JOBS]
    with pytest.raises(StoppedError, match="checkpoints are off, so trials start again from the beginning; do x"):
        unfinished_jobs(unsaved, {0: StoppedError("stopped.")}, request, hint="do x")
    request.name = None
    with pytest.raises(ResourceError, match="stopped, and start again from the beginning, since checkpoints are off: do x"):
        unfinished_jobs(unsaved, {0: StoppedError("stopped."), 1: room}, request, hint="do x")


def test_what_was_left_out_is_named_with_the_first_exit_code() -> None:
    assert done_or_left_out([Path("a")], {}) == [Path("a")]
    with pytest.raises(DivergedError):
        done_or_left_out([], {Path("a"): DivergedError("NaN.")})
    with pytest.raises(LeftOutError, match="1 of 2 runs could not be finished:\n  NaN") as error:
        done_or_left_out([Path("b")], {Path("a"): DivergedError("NaN.")}, "finished")
    assert (error.value.exit_code, error.value.done) == (5, [Path("b")])
