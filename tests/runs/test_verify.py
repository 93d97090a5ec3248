"""One judge says what is damaged in a run and what is still usable."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.cli import main
from comper.errors import DamagedFileError
from comper.runs import checkpoints
from comper.runs.files import sealed
from comper.runs.folder import EpisodeRecord, find_runs
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder
from comper.runs.verify import verify_run
from tests.training.small_runs import go_on, interrupted

from .conftest import MakeRun, change_manifest

RESULTS = Path(__file__).parents[2] / "results"
ARCHIVES = sorted(
    path for room in ("paper", "paper-0.2", "paper-0.1", "first-runs") for path in (RESULTS / room).glob("*.tar.gz")
)
FILES = {"state.safetensors": b"tensors", "state.json": b"{}", "frames.zlib": b"frames"}


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A run with an episode in its log and a checkpoint after it."""
    record = Recorder.create(tmp_path / "seed-0", "frames = 900\n", Manifest(agent="dqn", game="freeway", seed=0))
    save(record, step=10)
    record.episode(EpisodeRecord(1, 5.0, 100, 20, 100, False))
    save(record, step=20)
    record.close()
    return record.path


def save(record: Recorder, *, step: int) -> None:
    about = {"total_frames": 5 * step, "run": record.manifest.to_json(), **record.position()}
    checkpoints.write(record.path, step=step, files=FILES, about=about)


def test_a_finished_run_is_whole(make_run: MakeRun) -> None:
    verdict = verify_run(make_run(weights={"w": np.zeros(2)}))
    assert not verdict.damaged
    assert str(verdict).endswith("Finished.")


@pytest.mark.parametrize("name", ["manifest.json", "config.toml", "episodes.jsonl", "metrics.jsonl", "weights.safetensors"])
@pytest.mark.parametrize("harm", ["flip", "cut", "delete", "grow"])
def test_every_file_of_a_finished_run_is_checked(make_run: MakeRun, name: str, harm: str) -> None:
    path = make_run(weights={"w": np.zeros(2)}) / name
    content = path.read_bytes()
    path.unlink()
    if harm != "delete":
        changed = {"flip": content[:-4] + bytes([content[-4] ^ 1]) + content[-3:], "cut": content[:-9], "grow": content + b"x"}
        path.write_bytes(changed[harm])
    damaged = verify_run(path.parent).damaged
    assert name in damaged
    assert str(path) in damaged[name]


def test_an_unfinished_run_says_from_where_it_continues(unfinished: Path) -> None:
    verdict = verify_run(unfinished)
    assert not verdict.damaged
    assert [checkpoint.step for checkpoint in verdict.checkpoints] == [10, 20]
    assert str(verdict).endswith(f"Unfinished: `comper resume {unfinished}` continues from step 20.")


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(unfinished: Path) -> None:
    (checkpoints.paths(unfinished)[0] / "state.json").write_bytes(b"[]")
    verdict = verify_run(unfinished)
    assert list(verdict.damaged) == ["checkpoints/step-00000020"]
    assert "continues from step 10" in verdict.usable


def test_checkpoints_whose_logs_have_changed_are_not_usable(unfinished: Path) -> None:
    (unfinished / "episodes.jsonl").write_bytes(b"")
    verdict = verify_run(unfinished)
    assert list(verdict.damaged) == ["checkpoints/step-00000020"]
    assert [checkpoint.step for checkpoint in verdict.checkpoints] == [10]


def test_without_a_usable_checkpoint_a_run_starts_again(unfinished: Path) -> None:
    for path in checkpoints.paths(unfinished):
        (path / "frames.zlib").unlink()
    assert "no usable checkpoint" in verify_run(unfinished).usable


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": 2, "agent": "x"}'])
def test_a_damaged_manifest_is_taken_from_the_newest_checkpoint(unfinished: Path, content: bytes) -> None:
    before = Manifest.read(unfinished)
    (unfinished / "manifest.json").write_bytes(content)
    verdict = verify_run(unfinished)
    assert verdict.manifest == before
    assert verdict.damaged["manifest.json"].endswith("The copy in step-00000020 is used.")
    assert "continues from step 20" in verdict.usable


def test_with_neither_manifest_nor_checkpoint_nothing_is_usable(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "manifest.json").unlink()
    assert "begin the run again" in verify_run(folder).usable


def test_a_checkpoint_with_a_copy_that_is_no_manifest_is_refused(unfinished: Path) -> None:
    for path in checkpoints.paths(unfinished):
        about = checkpoints.open_checkpoint(path).about
        for copy, sentence in (([], "does not hold a copy"), ({"format": 2}, "agent is None")):
            plain: dict[str, Any] = {key: value for key, value in about.items() if key != "sha256"}
            (path / "checkpoint.json").write_text(json.dumps(sealed(plain | {"run": copy})))
            (unfinished / "manifest.json").unlink(missing_ok=True)
            assert sentence in str(verify_run(unfinished))


def test_a_checkpoint_of_another_format_than_its_run_is_not_usable(unfinished: Path) -> None:
    path = checkpoints.paths(unfinished)[0]
    about = checkpoints.open_checkpoint(path).about
    plain = {key: value for key, value in about.items() if key != "sha256"}
    (path / "checkpoint.json").write_text(json.dumps(sealed(plain | {"format": 1})))
    assert "of format 1, its run is of 2" in verify_run(unfinished).damaged["checkpoints/step-00000020"]


def test_a_checkpoint_that_a_running_process_deletes_meanwhile_is_no_damage(
    unfinished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = checkpoints.open_checkpoint

    def delete_then_read(path: Path) -> checkpoints.Checkpoint:
        if path.name == "step-00000010":
            checkpoints.delete(path)
        return read(path)

    monkeypatch.setattr(checkpoints, "open_checkpoint", delete_then_read)
    verdict = verify_run(unfinished)
    assert not verdict.damaged
    assert [checkpoint.step for checkpoint in verdict.checkpoints] == [20]


def test_a_changed_configuration_must_be_put_back(unfinished: Path) -> None:
    (unfinished / "config.toml").write_text("frames = 901\n")
    verdict = verify_run(unfinished)
    assert list(verdict.damaged) == ["config.toml"]
    assert "put config.toml back" in verdict.usable


def test_scores_rest_on_neither_weights_nor_checkpoints(make_run: MakeRun) -> None:
    folder = make_run(weights={"w": np.zeros(2)})
    (folder / "weights.safetensors").unlink()
    (folder / "checkpoints").symlink_to("/")
    assert set(verify_run(folder).damaged) == {"weights.safetensors", "checkpoints"}
    assert not verify_run(folder, with_states=False).damaged


@pytest.mark.timeout(20)
def test_enormous_weights_are_refused_without_being_read(make_run: MakeRun) -> None:
    folder = make_run(weights={"w": np.zeros(2)})
    os.truncate(folder / "weights.safetensors", 15 * 10**9)  # takes no room on disk
    assert "15,000,000,000 bytes" in verify_run(folder).damaged["weights.safetensors"]


def test_an_imported_log_is_not_said_to_be_resumable(make_run: MakeRun) -> None:
    folder = make_run(finished=False)
    change_manifest(folder, source="released logs")
    assert "Imported" in verify_run(folder).usable


def test_names_of_folders_reach_no_terminal_unescaped(
    make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run()
    for name in (b"seed-\xff", b"seed-\x1b[31m"):
        os.rename(folder, tmp_path / os.fsdecode(name))
        folder = tmp_path / os.fsdecode(name)
        assert main(["verify", str(tmp_path)]) == 0
        (folder / "config.toml").rename(folder / "config")
        assert main(["verify", str(tmp_path)]) == 3
        (folder / "config").rename(folder / "config.toml")
    printed = capsys.readouterr().out
    assert "seed-\\udcff: whole" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_every_recorded_result_is_whole(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    verdicts = [verify_run(path) for path in find_runs([tmp_path])]
    assert verdicts
    assert not [str(verdict) for verdict in verdicts if verdict.damaged]


def test_there_are_recorded_results() -> None:
    assert len(ARCHIVES) >= 4


def test_a_part_that_is_no_run_folder_raises_what_the_caller_can_show(tmp_path: Path) -> None:
    (tmp_path / "seed-0").mkdir()
    verdict = verify_run(tmp_path / "seed-0")
    assert set(verdict.damaged) == {"manifest.json", "config.toml", "episodes.jsonl", "metrics.jsonl"}
    with pytest.raises(DamagedFileError):
        Manifest.read(tmp_path / "seed-0")


def test_verify_tells_what_is_damaged_and_what_is_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    assert main(["verify", str(tmp_path)]) == 0
    assert "continues from step 35" in capsys.readouterr().out
    (checkpoints.paths(folder)[0] / "state.json").write_bytes(b"")
    assert main(["verify", str(tmp_path)]) == 3
    printed = capsys.readouterr().out
    assert "1 damaged" in printed
    assert "state.json" in printed
    assert "continues from step 30" in printed
    go_on(folder)
    assert main(["verify", str(tmp_path)]) == 0
    (folder / "weights.safetensors").write_bytes(b"other")
    assert main(["verify", str(folder)]) == 3
    assert "weights.safetensors" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "nowhere")]) == 2


def test_a_torn_last_line_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    with open(folder / "episodes.jsonl", "ab") as log:
        log.write(b'{"episode": 99, "sco')
    assert main(["verify", str(folder)]) == 0
