"""A search with the real Optuna: cut off and gone on with as if nothing had been; wrong plans are refused in a sentence."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comper.cli import main
from comper.environments.floors import ConstantFloor, Floor, Floors, RandomFloor
from comper.errors import DivergedError, LockedError, StoppedError, UsageError
from comper.report.scoreboard import last_scores
from comper.runs.lock import RunLock
from comper.runs.reader import read_run
from comper.studies.plan import read_plan
from comper.studies.settings_search import Try, read_search, run_search, score_of
from comper.training.display import Terminal
from comper.training.options import RunOptions
from comper.training.pool import error_of, run_jobs

pytest.importorskip("optuna")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

OPTIONS = RunOptions(device="cpu", workers=0, processes=2, show_progress=False)
HEAD = """
agent = "dqn"
environments = ["gym:CartPole-v1"]
seeds = 2
settings = { frames = 200, replay_start_steps = 20 }
"""
TEXT = f"""{HEAD}
[search]
step_size = {{ low = 1e-5, high = 1e-2, log = true }}
target_period_steps = {{ low = 10, high = 50, step = 10 }}
discount = [0.9, 0.99]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(TEXT)
    return tmp_path / "tiny.toml"


def run(path: Path, out: Path, num_tries: int, **options: Any) -> list[Try]:
    return run_search(read_search(str(path)), out, num_tries, OPTIONS, command="again", **options)


def test_a_search_that_is_cut_off_goes_on_to_the_same_tries_and_runs_nothing_twice(path: Path, tmp_path: Path) -> None:
    whole = run(path, tmp_path / "whole", 3)
    assert len(whole) == 3
    assert [attempt.score for attempt in whole] == sorted((attempt.score for attempt in whole), key=lambda s: -(s or 0))
    assert len({str(attempt.settings) for attempt in whole}) == 3

    def stop_in_the_second_try(work: Any, jobs: Any, **options: Any) -> Any:
        if jobs[0].variant == "try-0000":
            return run_jobs(work, jobs, **options)
        errors = run_jobs(work, jobs[:1], **options)
        options["request"].name = "SIGTERM"
        return {**errors, 1: StoppedError("stopped by SIGTERM.")}

    out = tmp_path / "cut"
    with pytest.raises(StoppedError, match="the same command goes on with it: `again`"):
        run(path, out, 3, run=stop_in_the_second_try)
    done = {file: file.stat().st_mtime_ns for file in out.rglob("weights.safetensors")}
    assert len(done) == 3
    assert run(path, out, 3) == whole
    assert {file: file.stat().st_mtime_ns for file in done} == done
    path.write_text(TEXT.replace("frames = 200", "frames = 300"))
    with pytest.raises(UsageError, match="of another plan"):
        run(path, out, 4)


def test_settings_stay_in_their_ranges_and_are_the_runs_own(path: Path, tmp_path: Path) -> None:
    for attempt in run(path, tmp_path / "out", 2):
        assert 1e-5 <= attempt.settings["step_size"] <= 1e-2
        assert attempt.settings["target_period_steps"] in (10, 20, 30, 40, 50)
        assert attempt.settings["discount"] in (0.9, 0.99)
        recorded = read_run(tmp_path / "out" / attempt.name / "dqn" / "gym-CartPole-v1" / "seed-1").config
        assert {name: recorded[name] for name in attempt.settings} == attempt.settings


def test_a_try_is_scored_by_its_last_episodes_and_against_the_floor(path: Path, tmp_path: Path) -> None:
    [attempt] = run(path, tmp_path / "out", 1)
    folders = sorted((tmp_path / "out").rglob("seed-*"))
    means = [float(last_scores(read_run(folder)).mean()) for folder in folders]
    assert len(means) == 2
    assert attempt.score == pytest.approx(sum(means) / 2)
    settings = {"episode_cap_frames": 0}
    floor = Floor(RandomFloor(10.0, 1.0, 2), {"0": ConstantFloor(8.0, 2)}, "0", "2026-11-15", {}, settings)
    floors = Floors({"gym:CartPole-v1": {1: floor}})
    assert score_of(folders, floors) == pytest.approx(sum((mean - 10.0) / 10.0 for mean in means) / 2)
    below_0 = replace(floor, random=RandomFloor(-20.0, 1.0, 2), constants={"0": ConstantFloor(-21.0, 2)})
    floors = Floors({"gym:CartPole-v1": {1: below_0}})
    assert score_of(folders, floors) == pytest.approx(sum((mean + 20.0) / 20.0 for mean in means) / 2)


def test_a_try_that_diverges_or_does_not_fit_is_left_out_and_the_search_goes_on(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverge_in_the_first_try(work: Any, jobs: Any, **options: Any) -> Any:
        if jobs[0].variant == "try-0000":
            return {1: DivergedError("the loss is not a number.")}
        return run_jobs(work, jobs, **options)

    tries = run(path, tmp_path / "out", 2, run=diverge_in_the_first_try)
    assert [attempt.number for attempt in tries] == [1, 0]
    assert tries[1].score is None
    assert "try-0000: not scored. the loss is not a number." in capsys.readouterr().err


def test_the_command_ends_with_a_table_and_a_command_that_trains(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["search", str(path), "--tries", "2", "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["try", "score", "step_size", "target_period_steps", "discount"]
    command = printed.strip().splitlines()[-1].split()
    assert command[:5] == ["comper", "train", "gym:CartPole-v1", "--agent", "dqn"]
    assert command[-4:] == ["--seed", "2", "--trials", "2"], "seeds that the search has not seen"
    assert main([*command[1:], "--out", str(tmp_path / "trained"), "--device", "cpu", "--workers", "0"]) == 0
    assert main(words) == 0
    assert capsys.readouterr().out.endswith(printed), "nothing is left to try"
    assert main(["study", str(path)]) == 2
    assert f"which `comper search {path}` carries out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD, "has no [search]"),
        (HEAD + "[search]", "has no [search]"),
        (HEAD + "[search]\nstep_siz = [0.1, 0.2]", "search.step_siz: unknown setting 'step_siz'. Did you mean step_size"),
        (HEAD + "[search]\nstep_size = []", "must be a list of choices, or a range"),
        (HEAD + "[search]\nstep_size = 0.1", "must be a list of choices, or a range"),
        (HEAD + "[search]\nstep_size = { low = 0.2, high = 0.1 }", "low must be less than high"),
        (HEAD + "[search]\nstep_size = { low = 0.1, high = 0.1 }", "low must be less than high"),
        (HEAD + "[search]\nstep_size = { low = 0, high = 0.1, log = true }", "with log, low must be more than 0"),
        (HEAD + "[search]\nstep_size = { low = 0.1, high = 0.2, log = 1 }", "log is true or false"),
        (HEAD + "[search]\nstep_size = { low = 0.1, high = 0.2, log = true, step = 0.1 }", "goes without step"),
        (HEAD + "[search]\nstep_size = { low = 0.1, high = 0.2, steps = 2 }", "unknown key 'steps'. Did you mean step?"),
        (HEAD + '[search]\nstep_size = { low = "a", high = 0.2 }', "low, high and step must be numbers"),
        (HEAD + "[search]\nstep_size = { low = -1.0, high = 0.2 }", "search.step_size: step_size = -1.0: must be"),
        (HEAD + "[search]\nbatch_size = { low = 1.5, high = 8 }", "search.batch_size: batch_size = 1.5 must be of type int"),
        (HEAD + '[search]\nloss = { low = 1, high = 2 }', "search.loss: loss = 1 must be of type str"),
        (HEAD + f"[search]\nbatch_size = {{ low = 1, high = {'9' * 400} }}", "must be numbers, none beyond 1,000,000,000,000"),
        (HEAD + "[search]\nbatch_size = { low = 1, high = 8, step = 0.5 }", "and so are the ends of its range, and its step"),
        (HEAD + "[search]\nbatch_size = { low = 10, high = 55, step = 10 }", "with high = 50 one would"),
        (HEAD + "[search]\nframes = [100, 200]", "search.frames: is given in `settings`, too"),
        (HEAD + "[grid]\ndiscount = [0.9]\n[search]\nstep_size = [0.1]", "a search has one `agent`; `grid` is for"),
        (HEAD.replace('agent = "dqn"', "") + "[search]\nstep_size = [0.1]", "name the `agents`"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_searched_is_refused(text: str, says: str, path: Path, capsys: Any, tmp_path: Path) -> None:
    path.write_text(text)
    assert main(["search", str(path), "--out", str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"), [(["--tries", "0"], "--tries 0: must be 1 or more"), (["--slurm-time", "9"], "goes")]
)
def test_flags_that_cannot_work_are_refused(words: list[str], says: str, path: Path, capsys: Any, tmp_path: Path) -> None:
    assert main(["search", str(path), "--out", str(tmp_path / "out"), *words]) == 2
    assert says in capsys.readouterr().err


def test_a_damaged_journal_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "search.journal").write_text("no journal\n")
    with pytest.raises(UsageError, match="is no journal of a search"):
        run(path, tmp_path / "out", 1)


def here(work: Any, jobs: Any, **options: Any) -> Any:
    """Carry jobs out in this process."""
    return {n: error for n, job in enumerate(jobs) if (error := error_of(work, job, Terminal(False))) is not None}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of two tries, made once."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "tiny.toml").write_text(TEXT.replace("seeds = 2", "seeds = 1").replace("frames = 200", "frames = 60"))
    run(folder / "tiny.toml", folder / "out", 2, run=here)
    return folder


@pytest.fixture
def again(searched: Path, tmp_path: Path) -> Path:
    shutil.copytree(searched, tmp_path / "again")
    return tmp_path / "again"


def go_on(folder: Path, num_tries: int, **options: Any) -> list[Try]:
    return run(folder / "tiny.toml", folder / "out", num_tries, run=here, **options)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (r'"state":1,"values":\[[\d.]+', '"state":1,"values":[1e9', "the score of try-0000 is not that of its runs"),
        (r'"state":1,"values":\[[\d.]+', '"state":1,"values":[NaN', "is no journal of this search"),
        (r'"directions":\[2\]', '"directions":[1]', "does not look for the highest score"),
        (r'"directions":\[2\]', '"directions":7', "is no journal of this search"),
        (r'"op_code":4', '"op_code":77', "is no journal of this search"),
        (r'"op_code":4', '"code":4', "other lines than Optuna's"),
        (r'"state":1', '"state":4', "try 0 is WAITING"),
        (r'low\\": 1e-05', r"low\": 1e-09", "try 0 has another range of step_size"),
        (r'"param_name":"discount"', r'"param_name":"\u001b[2J"', "is no journal of this search"),
        (r'"param_value_internal":[\d.e-]+', '"param_value_internal":77', "is no journal of this search"),
    ],
)
def test_a_journal_that_was_forged_is_refused(old: str, new: str, says: str, again: Path) -> None:
    journal = again / "out" / "search.journal"
    text, count = re.subn(old, lambda _: new, journal.read_text(), count=1)
    assert count == 1
    journal.write_text(text)
    with pytest.raises(UsageError, match=re.escape(says)):
        go_on(again, 3)


def test_a_search_cut_off_at_any_moment_goes_on(searched: Path, again: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = go_on(searched, 2)
    journal = again / "out" / "search.journal"
    begun = re.findall(r'.*"op_code":4.*\n', journal.read_text())[0]
    journal.write_text(journal.read_text() + begun + begun[:20])  # killed in a line, and before settings were chosen
    (again / "out" / "search.journal.lock").symlink_to("nowhere")  # and while Optuna held its lock
    tries = go_on(again, 4)
    assert [attempt for attempt in tries if attempt.number < 2] == whole
    assert sorted(attempt.score is None for attempt in tries) == [False, False, False, True]
    assert "try-0002: not scored. It was cut off before its settings were chosen." in capsys.readouterr().err


def test_a_link_in_place_of_the_journal_is_not_followed(again: Path) -> None:
    journal = again / "out" / "search.journal"
    journal.rename(again / "elsewhere")
    journal.symlink_to(again / "elsewhere")
    before = (again / "elsewhere").read_bytes()
    with pytest.raises(UsageError, match="a link, not an ordinary file"):
        go_on(again, 3)
    assert (again / "elsewhere").read_bytes() == before


def test_scores_whose_runs_are_gone_are_shown_with_a_remark(again: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(again / "out" / "try-0001")
    assert len(go_on(again, 2)) == 2
    assert "try-0001: its runs are gone; its score is what search.journal says." in capsys.readouterr().err


def test_what_another_process_works_on_costs_no_try(again: Path) -> None:
    with RunLock(again / "out"), pytest.raises(LockedError, match="is working on this search"):
        go_on(again, 3)

    def locked(work: Any, jobs: Any, **options: Any) -> Any:
        return {0: LockedError("another process is working on this run.")}

    with pytest.raises(LockedError, match="working on this run"):
        run(again / "tiny.toml", again / "out", 3, run=locked)
    assert all(attempt.score is not None for attempt in go_on(again, 3))


def test_without_optuna_the_extra_is_named(path: Path) -> None:
    program = "import sys; sys.modules['optuna'] = None; from comper.cli import main; sys.exit(main(sys.argv[1:]))"
    result = subprocess.run([sys.executable, "-c", program, "search", str(path)], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert 'Not installed: optuna. pip install "comper[optuna]"' in result.stderr


def test_the_example_is_a_search() -> None:
    example = Path(__file__).parents[2] / "examples" / "plans" / "search.toml"
    assert len(read_search(str(example)).ranges) == 3
    with pytest.raises(UsageError, match="has a \\[search\\]"):
        read_plan(str(example))
