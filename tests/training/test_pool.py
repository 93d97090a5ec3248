"""Trials in a pool of processes: the same bits as in one, whatever ends a process, the parent or all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comper.errors import DivergedError, LeftOutError, OutsideCodeError, ResourceError, StoppedError, UsageError
from comper.training.display import Audience, TrialStatus
from comper.training.pool import run_jobs
from comper.training.resume import resume
from comper.training.signals import StopRequest
from comper.training.train import train
from tests.training.small_runs import outcome

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "frames": 120, "replay_start_steps": 8, "target_period_steps": 12, "log_period_steps": 10, "checkpoint_period_steps": 20,
}  # fmt: skip
AGENT = Path("comper-single", "gym-CartPole-v1")


# Jobs of these tests; a process of the pool imports them from here.


def count(job: int, audience: Audience) -> None:
    """Tell how far it is, ten times."""
    with audience.requests() as request:
        for step in range(10):
            if request.name is not None:
                raise StoppedError(f"job {job} stopped by {request.name}.")
            audience.send([status(job, step)])  # type: ignore[attr-defined]
            time.sleep(0.02)


def fail(job: Exception | int, audience: Audience) -> None:
    """Raise what was handed over; a number: count so many tenths of a second."""
    if isinstance(job, Exception):
        raise job
    with audience.requests() as request:
        for _ in range(job):
            if request.name is not None:
                raise StoppedError(f"stopped by {request.name}.")
            time.sleep(0.1)


def die(job: int, audience: Audience) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def status(job: int, step: int) -> TrialStatus:
    return TrialStatus("toy", job, step, 10, step, 0, None, None, True)


def test_every_job_is_carried_out_once_and_tells_how_far_it_is() -> None:
    told: dict[int, list[int]] = {}
    errors = run_jobs(
        count,
        [7, 8, 9],
        num_processes=2,
        request=StopRequest(),
        follow=lambda job, statuses: told.setdefault(job, []).append(statuses[0].steps),
    )
    assert errors == {}
    assert told == {job: list(range(10)) for job in range(3)}


def test_a_job_that_fails_keeps_its_error_and_the_others_go_on() -> None:
    jobs = [DivergedError("NaN."), 1, LeftOutError("two of three.", exit_code=3, done=[Path("a")]), KeyError("x")]
    errors = run_jobs(fail, jobs, num_processes=1, request=StopRequest())
    assert [type(errors[number]) for number in (0, 2, 3)] == [DivergedError, LeftOutError, OutsideCodeError]
    assert (str(errors[0]), errors[2].exit_code, errors[2].done) == ("NaN.", 3, [Path("a")])  # type: ignore[attr-defined]
    assert "KeyError" in str(errors[3])
    assert 1 not in errors


def test_a_want_of_room_stops_the_others() -> None:
    errors = run_jobs(fail, [600, ResourceError("The disk is full."), 600], num_processes=2, request=StopRequest())
    assert str(errors[1]) == "The disk is full."
    assert all(isinstance(errors[number], StoppedError) for number in (0, 2))


def test_a_process_that_is_killed_is_named_and_stops_the_others() -> None:
    errors = run_jobs(die, [1], num_processes=1, request=StopRequest())
    assert str(errors[0]).startswith("A process that ran trials was killed (SIGKILL). Mostly the system does that")


def test_a_request_to_stop_reaches_all() -> None:
    request = StopRequest()
    request.name = "SIGTERM"
    errors = run_jobs(fail, [600, 600, 600], num_processes=2, request=request)
    assert [str(errors[number]) for number in (0, 1)] == ["stopped by SIGTERM."] * 2
    assert "it had not begun" in str(errors[2])


# Whole runs.


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    train("gym:CartPole-v1", "comper-single", trials=3, out=out, device="cpu", processes=1, show_progress=False, **SMALL)
    return out / AGENT


def same_as(undisturbed: Path, folder: Path) -> bool:
    return all(outcome(folder / f"seed-{seed}") == outcome(undisturbed / f"seed-{seed}") for seed in range(3))


def test_results_do_not_depend_on_the_number_of_processes(
    tmp_path: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = train("gym:CartPole-v1", "comper-single", trials=3, out=tmp_path, device="cpu", processes=2, **SMALL)
    assert paths == [tmp_path / AGENT / f"seed-{seed}" for seed in range(3)]
    assert same_as(undisturbed, tmp_path / AGENT)
    said = capsys.readouterr().err
    assert "3 trials, cpu, 2 processes" in said
    assert "360 of 360 frames (100 %)" in said
    assert said.count("checkpoints:") == 0


def command(out: Path, *words: str) -> list[str]:
    settings = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    line = ["train", "gym:CartPole-v1", "--agent", "comper-single", "--trials", "3", "--out", str(out), "--device", "cpu"]
    return [sys.executable, "-m", "comper", *line, "--processes", "2", *settings, *words]


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Three trials in two processes that would go on for long, with two of them under way."""
    process = subprocess.Popen(
        [*command(tmp_path), "--frames", "1000000"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob(f"{AGENT}/seed-*/checkpoints/step-*"))) >= 4, process)
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(holds: Any, process: subprocess.Popen[str] | None = None, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited too long"
        assert process is None or process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)


def children_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that run trials: those below it that have a run's log open."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            names = [os.readlink(link) for link in (folder / "fd").iterdir()]
        except OSError:
            continue
        if any(name.endswith("episodes.jsonl") for name in names) and int(folder.name) != process.pid:
            found.append(int(folder.name))
    return found


def unlocked(out: Path) -> bool:
    """Whether nobody works on a run any more."""
    from comper.errors import LockedError
    from comper.runs.lock import RunLock

    for path in out.glob(f"{AGENT}/seed-*"):
        try:
            RunLock(path).release()
        except LockedError:
            return False
    return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_to_the_parent_saves_every_trial(tmp_path: Path, long_run: subprocess.Popen[str], name: str) -> None:
    long_run.send_signal(getattr(signal, name))
    _, said = long_run.communicate(timeout=60)
    assert long_run.returncode == 130
    folders = " ".join(str(tmp_path / AGENT / f"seed-{seed}") for seed in range(3))
    assert f"comper: stopped by {name}: every trial was saved; continue with `comper resume {folders}`." in said
    assert "Traceback" not in said
    assert unlocked(tmp_path)


@pytest.mark.slow
@needs_proc
def test_a_killed_process_is_reported_once_and_the_others_are_saved(tmp_path: Path, long_run: subprocess.Popen[str]) -> None:
    os.kill(next(pid for pid in children_of(long_run) if is_below(pid, tmp_path)), signal.SIGKILL)
    _, said = long_run.communicate(timeout=60)
    assert long_run.returncode == 4
    assert said.count("was killed (SIGKILL)") == 1
    assert "The other trials were stopped and saved: continue with `comper resume " in said
    assert "Traceback" not in said
    assert unlocked(tmp_path)


def is_below(pid: int, folder: Path) -> bool:
    return any(os.readlink(link).startswith(str(folder)) for link in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.slow
def test_what_a_killed_parent_leaves_is_saved_and_goes_on_to_the_same_bits(tmp_path: Path, undisturbed: Path) -> None:
    process = subprocess.Popen(command(tmp_path), text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    wait_for(lambda: list(tmp_path.glob(f"{AGENT}/seed-*/checkpoints/step-*")), process)
    process.kill()
    process.wait()
    wait_for(lambda: unlocked(tmp_path))
    resume(tmp_path, device="cpu", processes=2, show_progress=False)
    assert same_as(undisturbed, tmp_path / AGENT)


@pytest.mark.slow
@needs_proc
def test_a_full_disk_in_one_process_stops_and_saves_the_others(tmp_path: Path, undisturbed: Path) -> None:
    import resource

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))  # checkpoints are larger, manifests and logs are not

    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        command(tmp_path), env=environment, preexec_fn=small_files, capture_output=True, text=True, check=False
    )
    assert result.returncode == 4, result.stderr
    assert result.stderr.count("cannot be written (File too large)") == 1
    assert "The other trials were stopped and saved: continue with `comper resume " in result.stderr
    assert "Traceback" not in result.stderr
    resume(tmp_path, device="cpu", processes=2, show_progress=False)
    assert same_as(undisturbed, tmp_path / AGENT)


def test_an_environment_from_python_stays_in_this_process(tmp_path: Path) -> None:
    from tests.training.lamp import Light

    made: list[int] = []

    class Counted(Light):
        def __init__(self) -> None:
            made.append(os.getpid())

    train(Counted, "random", trials=2, frames=20, out=tmp_path, device="cpu", processes=2, show_progress=False)
    assert set(made) == {os.getpid()}


def test_a_number_of_processes_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="processes = 0: must be 1 or more"):
        train("gym:CartPole-v1", out=tmp_path, processes=0)
