"""A study through submitit: with its own executor for one machine, and with Slurm's commands played by scripts."""

from __future__ import annotations

import os
import pickle
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comper.cli import main
from comper.errors import StoppedError, UsageError
from comper.studies import slurm_cluster
from comper.studies.plan import Plan, read_plan
from comper.studies.slurm_cluster import FOLDER, SlurmRunner
from comper.studies.study import Study, carry_out, open_study, run_study
from comper.training.display import TrialStatus
from comper.training.options import RunOptions
from comper.training.signals import StopRequest
from tests.studies.conftest import outcomes

pytest.importorskip("submitit")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow, pytest.mark.timeout(600)]

OPTIONS = RunOptions(device="cpu", workers=0, checkpoint_period_steps=25, show_progress=False)
TEXT = """
environments = ["gym:CartPole-v1"]
seeds = 2
agents = ["comper-single"]
settings = { frames = 2_400, replay_start_steps = 8, target_period_steps = 12, log_period_steps = 10 }
"""
Follow = Callable[[int, Sequence[TrialStatus]], None]


def local(out: Path) -> SlurmRunner:
    return SlurmRunner(out, cluster="local", tell_seconds=0.05)


def run(runner: SlurmRunner, study: Study, follow: Follow, request: StopRequest | None = None) -> Any:
    jobs = study.jobs(OPTIONS, OPTIONS.torch_device())
    return runner(carry_out, jobs, num_processes=2, request=request or StopRequest(), follow=follow)


def signal_one_job(out: Path, number: signal.Signals) -> None:
    """Signal the process of the first job, a child of submitit's controller."""
    controller = min(int(path.name.partition("_")[0]) for path in (out / FOLDER).glob("jobs-*/*_submitted.pkl"))
    [child] = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
    os.kill(int(child), number)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for a process in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2, signal.SIGTERM], ids=["killed", "time limit", "preempted"])
def test_a_job_cut_off_in_the_middle_goes_on_to_the_same_bits(
    number: signal.Signals, plan: Plan, alone: list[Any], tmp_path: Path
) -> None:
    seen: list[int] = []
    cut_at: list[int] = []

    def follow(job: int, statuses: Sequence[TrialStatus]) -> None:
        if job == 0:
            seen.append(statuses[0].steps)
            if not cut_at and statuses[0].steps > 60:
                signal_one_job(tmp_path, number)
                cut_at.append(statuses[0].steps)

    study = open_study(plan, tmp_path)
    assert run(local(tmp_path), study, follow) == {}
    assert 60 < cut_at[0] < 2_400, "it was in the middle"
    assert len(list((tmp_path / FOLDER).glob("jobs-*/*_submitted.pkl"))) == (2 if number == signal.SIGUSR2 else 3)
    assert outcomes(study) == alone
    assert len(open_study(plan, tmp_path).finished) == 2, "and would not be run again"


def test_a_request_to_stop_ends_every_job(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(
        TEXT.replace("frames = 2_400", "frames = 1_000_000")
    )  # none ends before it is asked to
    request = StopRequest()

    def follow(job: int, statuses: Sequence[TrialStatus]) -> None:
        if statuses[0].steps > 60:
            request.name = "SIGTERM"

    study = open_study(read_plan(str(tmp_path / "long.toml")), tmp_path)
    errors = run(local(tmp_path), study, follow, request)
    assert sorted(errors) == [0, 1]
    assert all(isinstance(error, StoppedError) for error in errors.values())
    assert list(tmp_path.rglob("checkpoints/step-*"))


SBATCH = """#!/bin/bash
# Runs every job of an array at once, as processes; their ids are 7_0, 7_1 and so on.
cp "$1" "$PLACE/batch-$(ls "$PLACE" | wc -l).sh"
[[ -e "$PLACE/refused" ]] && { echo "sbatch: error: invalid partition specified: nowhere" >&2; exit 1; }
[[ -e "$PLACE/dead" ]] && { echo "Submitted batch job 7"; exit 0; }
last=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
export SLURM_JOB_ID=7 SLURM_PROCID=0 SUBMITIT_EXECUTOR=slurm
if [[ -n "$last" ]]; then
  for task in $(seq 0 $last); do SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task bash "$1" >/dev/null 2>&1 & done
else
  SLURM_JOB_ID=8 bash "$1" >/dev/null 2>&1 &
fi
echo "Submitted batch job $([[ -n "$last" ]] && echo 7 || echo 8)"
"""
SRUN = """#!/bin/bash
while [[ "$1" == --* ]]; do [[ "$1" == --unbuffered ]] && shift || shift 2; done
exec "$@"
"""
OTHERS = {
    "scancel": 'echo "$@" >>"$PLACE/cancelled"\n',
    "squeue": 'cat "$PLACE/states"\n',
    "scontrol": "exit 0\n",
}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands as scripts; the folder in which they write down what they were asked for."""
    place, commands = tmp_path / "asked", tmp_path / "commands"
    place.mkdir()
    commands.mkdir()
    scripts = {"sbatch": SBATCH, "srun": SRUN}
    for name, text in {**scripts, **{name: f"#!/bin/bash\n{text}" for name, text in OTHERS.items()}}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PLACE", str(place))
    return place


def test_slurm_is_asked_for_one_array_with_the_limits_of_the_flags(
    slurm: Path,
    alone: list[Any],
    plan: Plan,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    out = tmp_path / "out"
    plant(out / FOLDER, tmp_path / "ran")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "submitit.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path / "here")
    words = ["study", str(tmp_path / "tiny.toml"), "--out", str(out), "--device", "cpu", "--processes", "1", "--slurm"]
    flags = ["--slurm-partition", "long", "--slurm-time", "90", "--slurm-memory", "3"]
    assert main([*words, *flags]) == 0, capfd.readouterr().err
    [batch] = slurm.glob("batch-*")
    text = batch.read_text()
    for line in ("--array=0-1%1", "--partition=long", "--time=90", "--mem=3GB", "--signal=USR2@90"):
        assert f"#SBATCH {line}\n" in text, text
    name = SlurmRunner(out).job_name
    assert f"#SBATCH --job-name={name}\n" in text
    assert "gpus" not in text
    left = f"--user={os.getuid()} --name={name}\n"
    assert (slurm / "cancelled").read_text() == left, "what an older command for this folder has left in the queue"
    assert name != SlurmRunner(tmp_path / "another").job_name
    assert outcomes(open_study(plan, out)) == alone
    assert not (tmp_path / "ran").exists(), "neither a stranger's pickle nor a file of the working folder was run"


class _Planted:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


def plant(folder: Path, mark: Path) -> None:
    """Pickles that leave a mark, under the names of the results that submitit waits for; ids for scancel."""
    folder.mkdir(parents=True)
    for job in ("7_0", "7_1", "8"):
        for kind in ("0_result", "submitted"):
            (folder / f"{job}_{kind}.pkl").write_bytes(pickle.dumps(_Planted(mark)))
    (folder / "jobs.txt").write_text("--state=RUNNING\n5\n")


def test_a_link_in_place_of_the_jobs_folder_is_not_written_through(slurm: Path, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / FOLDER).symlink_to(tmp_path / "elsewhere")
    study = open_study(plan, tmp_path / "out")
    with pytest.raises(UsageError, match=r"\.slurm: a link, which would be written through"):
        run(SlurmRunner(study.out), study, lambda *_: None)
    assert not any((tmp_path / "elsewhere").iterdir())


def test_what_slurm_refuses_is_told_in_its_own_words(slurm: Path, plan: Plan, tmp_path: Path) -> None:
    (slurm / "refused").touch()
    study = open_study(plan, tmp_path / "out")
    with pytest.raises(UsageError, match=r"Slurm does not take the jobs: .*invalid partition specified: nowhere"):
        run_study(study, replace(OPTIONS, threads=3), command="", run=SlurmRunner(study.out, "nowhere"))
    [batch] = slurm.glob("batch-*")
    assert "#SBATCH --cpus-per-task=3\n" in batch.read_text()
    (slurm.parent / "commands" / "sbatch").write_text("#!/bin/bash\nexit 1\n")
    with pytest.raises(UsageError, match="Slurm does not take the jobs: sbatch fails without a word"):
        run_study(study, OPTIONS, command="", run=SlurmRunner(study.out))


def test_a_job_that_dies_before_its_first_word_is_not_submitted_again(
    slurm: Path, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_cluster, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(slurm_cluster, "RESULT_SECONDS", 0.0)
    (slurm / "dead").touch()
    (slurm / "states").write_text("slurm_load_jobs: a word of warning\n\n7_0 OUT_OF_MEMORY\n4_0 RUNNING\n")
    study = open_study(plan, tmp_path / "out")
    errors = run(SlurmRunner(study.out, tell_seconds=0.05), study, lambda *_: None)
    assert str(errors[0]).startswith("Slurm job 7_0 died (OUT_OF_MEMORY). Ask for more --slurm-memory.")
    assert str(errors[1]).startswith("Slurm job 7_1 died (killed). Do all nodes see the study's folder?")
    assert len(list(slurm.glob("batch-*"))) == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--slurm"], "there is no `sbatch` on this machine"),
        (["--slurm", "--ray"], "not allowed with argument --slurm"),
        (["--slurm-time", "90"], "--slurm-time goes with --slurm."),
        (["--slurm", "--slurm-time", "long"], "whole number"),
    ],
)
def test_flags_that_cannot_work_are_refused(
    flags: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "tiny.toml").write_text(TEXT)
    assert main(["study", str(tmp_path / "tiny.toml"), "--out", str(tmp_path / "out"), *flags]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing was written"


@pytest.mark.parametrize(
    ("runner", "says"),
    [
        (SlurmRunner(Path("out"), minutes=4), "--slurm-time 4: must be 5 minutes or more"),
        (SlurmRunner(Path("out"), memory_gb=0), "--slurm-memory 0: must be 1 GB or more"),
    ],
)
def test_limits_that_are_too_small_are_refused(runner: SlurmRunner, says: str, slurm: Path) -> None:
    with pytest.raises(UsageError, match=says):
        runner.check()


@pytest.mark.parametrize("name", ["a\ntouch ran\nb", "a\rb", "\udcff", "a%jb", "%A", "100%", "a\\b"])
def test_names_that_a_script_or_slurm_reads_as_something_else_are_refused(
    name: str, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for flags in ([f"--out={name}"], ["--out=out", "--slurm-partition", name]):
        assert main(["study", str(tmp_path / "tiny.toml"), "--slurm", "--device", "cpu", *flags]) == 2
        assert "nothing that cannot be printed may be in it" in capsys.readouterr().err
    assert not list((tmp_path / "here").iterdir())
    assert not list(slurm.iterdir())
    SlurmRunner(tmp_path / "a b-ü'$(touch ran)").check()


def test_without_submitit_the_extra_is_named() -> None:
    program = "import sys; sys.modules['submitit'] = None; from comper.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", program, "study", "paper", "--slurm", "--out", "nowhere"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert 'Not installed: submitit. pip install "comper[slurm]"' in result.stderr
