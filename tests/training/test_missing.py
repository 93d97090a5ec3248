"""Populations that were stopped while their folders were made, and members that went missing later."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comper.cli import main
from comper.errors import DamagedFileError, LeftOutError, LockedError, ResourceError
from comper.runs import recorder
from comper.runs.lock import RunLock
from comper.runs.recorder import Recorder
from comper.runs.verify import verify_run
from comper.training import preflight
from comper.training.resume import resume
from comper.training.train import train as begin
from tests.training.small_runs import RUN, go_on, interrupted, outcome, start

AGENT_SETTINGS: dict[str, Any] = {"workers": 0, "processes": 1, "device": "cpu", "show_progress": False}


class Killed(BaseException):
    """Stands for a process that was killed: nothing is tidied up after it."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trials that nothing happened to."""
    return start(tmp_path_factory.mktemp("undisturbed"), trials=3, period=0).parent


def killed_while_begun(out: Path, monkeypatch: pytest.MonkeyPatch, *, after: int, trials: int = 3) -> Path:
    """A population killed when so many of its folders were made."""

    def some(paths: Any, config_text: str, manifests: Any) -> Any:
        for path, manifest in list(zip(paths, manifests, strict=True))[:after]:
            Recorder.create(path, config_text, manifest).close()
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("comper.training.start.create_all", some)
        with pytest.raises(Killed):
            start(out, trials=trials)
    return (out / RUN).parent


@pytest.mark.parametrize("after", [1, 2])
def test_resume_makes_the_members_that_were_never_begun(
    after: int, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = killed_while_begun(tmp_path, monkeypatch, after=after)
    assert len(list(folder.iterdir())) == after
    assert main(["verify", str(tmp_path)]) == 0
    assert "asterix/seed-2, of which there is no folder" in capsys.readouterr().out
    done = go_on(tmp_path)
    assert sorted(path.name for path in done) == ["seed-0", "seed-1", "seed-2"]
    for path in done:
        assert outcome(path) == outcome(undisturbed / path.name)
        assert json.loads((path / "manifest.json").read_text())["population"] == [f"asterix/seed-{seed}" for seed in range(3)]
    assert main(["verify", str(tmp_path)]) == 0
    assert "no folder" not in capsys.readouterr().out


def test_one_run_folder_alone_is_resumed_alone_and_the_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = killed_while_begun(tmp_path, monkeypatch, after=1)
    assert main(["resume", str(folder / "seed-0"), "--device", "cpu", "--workers", "0"]) == 0
    assert "seed-1 was started together with" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["seed-0"]


def test_a_member_that_was_deleted_later_is_named_and_not_begun_again(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch, trials=2)
    shutil.rmtree(folder.parent / "seed-1")
    assert main(["resume", str(tmp_path), "--device", "cpu", "--workers", "0"]) == 0
    text = capsys.readouterr().err
    assert "its folder is gone" in text
    assert "comper train asterix --agent comper-single --seed 1" in text
    assert not (folder.parent / "seed-1").exists()
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_population_that_cannot_be_begun_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create: Callable[..., Recorder] = Recorder.create

    def full_at_the_third(path: Path, *rest: Any) -> Recorder:
        if path.name == "seed-2":
            raise ResourceError("no room")
        return create(path, *rest)

    monkeypatch.setattr(recorder.Recorder, "create", full_at_the_third)
    with pytest.raises(ResourceError, match="no room"):
        start(tmp_path, trials=3)
    assert list((tmp_path / RUN).parent.iterdir()) == []


def test_too_few_open_files_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    getrlimit = resource.getrlimit
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (24, 24) if kind == resource.RLIMIT_NOFILE else getrlimit(kind))
    with pytest.raises(ResourceError, match=r"12 trials need up to .* open files, and 24 are allowed"):
        start(tmp_path, trials=12)
    assert list(tmp_path.iterdir()) == []


def test_the_limit_of_open_files_is_raised_where_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 10_000))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    preflight.allow_open_files(12, 2)
    assert raised == [(preflight.OPEN_FILES + 12 * preflight.FILES_PER_TRIAL + 2 * preflight.FILES_PER_WORKER, 10_000)]


def test_thousands_of_trials_are_refused_before_an_environment_is_made(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="of memory"):
        begin("pong", "dqn", trials=100_000, out=tmp_path, **AGENT_SETTINGS)


def test_batches_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_memory", lambda: 4_000_000_000)
    for agent, change in (
        ("dqn", {"batch_size": 65_536}),
        ("comper-single", {"qlstm_batch_size": 65_536}),
        ("comper-single", {"sequence_length": 1_000, "qlstm_batch_size": 100}),
    ):
        settings: dict[str, Any] = {"frames": 200} | change
        with pytest.raises(ResourceError, match="smaller batches"):
            begin("pong", agent, out=tmp_path, **settings, **AGENT_SETTINGS)
    assert list(tmp_path.iterdir()) == []


# One run of a tree that cannot go on does not keep the others.


def three(out: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    folder = interrupted(out, monkeypatch, trials=3).parent
    return [folder / f"seed-{seed}" for seed in range(3)]


def test_a_locked_run_is_left_out_and_named(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = three(tmp_path, monkeypatch)
    lock = RunLock(second)
    with pytest.raises(LeftOutError, match=r"1 of 3 runs could not be continued:\n.*seed-1: another process") as error:
        go_on(tmp_path)
    lock.release()
    assert error.value.exit_code == LockedError.exit_code
    assert error.value.done == [first, third]
    assert [outcome(path) for path in (first, third)] == [outcome(undisturbed / path.name) for path in (first, third)]
    assert go_on(tmp_path) == [second]
    assert outcome(second) == outcome(undisturbed / "seed-1")


def test_a_damaged_run_is_left_out_and_the_exit_code_tells(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = three(tmp_path, monkeypatch)
    (second / "config.toml").write_text("frames = 1\n")
    assert main(["resume", str(tmp_path), "--device", "cpu", "--workers", "0"]) == DamagedFileError.exit_code
    captured = capsys.readouterr()
    assert "1 of 3 runs could not be continued" in captured.err
    assert str(first) in captured.out, "the scores of the others are shown"
    assert [outcome(path) for path in (first, third)] == [outcome(undisturbed / path.name) for path in (first, third)]


def test_a_run_of_other_conditions_is_left_out(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from comper.runs.files import sealed

    first, second, third = three(tmp_path, monkeypatch)
    manifest = json.loads((second / "manifest.json").read_text())
    (second / "manifest.json").write_text(json.dumps(sealed({**manifest, "threads": 77})))
    with pytest.raises(LeftOutError, match="OMP_NUM_THREADS=77"):
        go_on(tmp_path)
    assert [outcome(path) for path in (first, third)] == [outcome(undisturbed / path.name) for path in (first, third)]


def test_a_run_that_cannot_be_written_to_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = three(tmp_path, monkeypatch)
    (second / ".lock").unlink()
    (second / ".lock").mkdir()  # rights would not stop a superuser
    with pytest.raises(LeftOutError, match="seed-1: cannot be written") as error:
        go_on(tmp_path)
    assert error.value.exit_code == ResourceError.exit_code
    assert error.value.done == [first, third]


def test_weights_of_one_damaged_run_do_not_keep_the_others_from_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(tmp_path / "old", monkeypatch)
    (tmp_path / "old" / RUN.parent / "seed-1" / "manifest.json").write_text("{}")
    words = ["--weights-only", "--out", str(tmp_path / "new"), "--device", "cpu", "--workers", "0"]
    assert main(["resume", str(tmp_path / "old"), *words]) == DamagedFileError.exit_code
    assert sorted(path.name for path in (tmp_path / "new" / RUN.parent).iterdir()) == ["seed-0", "seed-2"]


def test_a_moved_run_knows_no_siblings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path / "old", monkeypatch, trials=2)
    folder.rename(tmp_path / "moved")
    assert verify_run(tmp_path / "moved").missing == []
    assert resume(tmp_path / "moved", **AGENT_SETTINGS) == [tmp_path / "moved"]


# A manifest can name any number of trials.


def with_population(folder: Path, population: list[str]) -> None:
    from comper.runs.files import sealed

    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, "population": population})))


def test_thousands_of_missing_members_are_not_made_because_a_manifest_names_them(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = killed_while_begun(tmp_path, monkeypatch, after=1) / "seed-0"
    with_population(folder, [f"asterix/seed-{seed}" for seed in range(5_000)])
    assert main(["resume", str(tmp_path), "--device", "cpu", "--workers", "0"]) == 2
    text = capsys.readouterr().err
    assert f"{folder / 'manifest.json'}: names 4,999 trials that have no folder" in text
    assert len(text) < 2_000
    assert [path.name for path in folder.parent.iterdir()] == ["seed-0"]
    assert outcome(folder) == outcome(undisturbed / "seed-0"), "the run that is there goes on"


def test_members_that_do_not_fit_on_the_disk_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = killed_while_begun(tmp_path, monkeypatch, after=1) / "seed-0"
    with_population(folder, [f"asterix/seed-{seed}" for seed in range(900)])
    monkeypatch.setattr(preflight, "available_disk", lambda _: 2_000_000_000)
    with pytest.raises(LeftOutError, match="of disk") as error:
        go_on(tmp_path)
    assert error.value.exit_code == ResourceError.exit_code
    assert [path.name for path in folder.parent.iterdir()] == ["seed-0"]


def test_many_missing_members_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    with_population(folder, [f"asterix/seed-{seed}" for seed in range(5_000)])
    assert main(["resume", str(tmp_path), "--device", "cpu", "--workers", "0"]) == 0
    text = capsys.readouterr().err
    assert "its folder is gone" in text
    assert "and so with 4,998 others" in text
    assert text.count("\n") < 20
