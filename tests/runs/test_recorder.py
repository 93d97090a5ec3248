"""Runs are begun in folders of their own, appended to by one writer, and sealed at their end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.errors import DamagedFileError, LockedError, ResourceError, UsageError
from comper.runs.files import digest, is_sealed
from comper.runs.folder import EpisodeRecord
from comper.runs.lock import RunLock
from comper.runs.manifest import Manifest
from comper.runs.reader import read_run
from comper.runs.recorder import Recorder, check_can_begin
from comper.runs.states import unpack_weights

from .conftest import MakeRun

CONFIG = "frames = 100\n"
MANIFEST = Manifest(agent="dqn", game="freeway", seed=0, device="cpu")


def begin(path: Path) -> Recorder:
    return Recorder.create(path, CONFIG, MANIFEST)


def test_a_new_run_holds_its_configuration_its_manifest_and_empty_logs(tmp_path: Path) -> None:
    record = begin(tmp_path / "seed-0")
    record.close()
    names = {".lock", "config.toml", "manifest.json", "episodes.jsonl", "metrics.jsonl"}
    assert {path.name for path in record.path.iterdir()} == names
    assert [path.name for path in tmp_path.iterdir()] == ["seed-0"]
    content = json.loads((record.path / "manifest.json").read_text())
    assert is_sealed(content)
    assert content["config_sha256"] == digest(CONFIG.encode())["sha256"]
    assert {"versions", "created", "device"} <= set(content)
    assert read_run(record.path).config == {"frames": 100}


def test_a_finished_run_is_sealed_with_totals_digests_and_weights(make_run: MakeRun) -> None:
    folder = make_run(scores=[1.0, 2.0], weights={"cnn": {"bias": np.arange(3.0)}})
    manifest = Manifest.read(folder)
    assert (manifest.status, manifest.episodes, manifest.total_frames, manifest.steps) == ("finished", 2, 200, 40)
    assert set(manifest.files) == {"episodes.jsonl", "metrics.jsonl", "weights.safetensors"}
    assert unpack_weights((folder / "weights.safetensors").read_bytes())["cnn"]["bias"].tolist() == [0, 1, 2]


def test_a_folder_that_holds_anything_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "seed-0"
    path.mkdir()
    (path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="already holds a run"):
        begin(path)
    assert [entry.name for entry in path.iterdir()] == ["mine.txt"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["seed-0"]


def test_what_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be recorded: game is 'a b', expected a name"):
        Recorder.create(tmp_path / "seed-0", CONFIG, Manifest(agent="dqn", game="a b", seed=0))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_emptied_but_for_its_lock_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "seed-0"
    begin(path).close()
    for entry in path.iterdir():
        if entry.name != ".lock":  # as `rm -r seed-0/*` does
            entry.unlink()
    begin(path).close()
    assert read_run(path).seed == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["seed-0"]


def test_an_emptied_folder_whose_process_still_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "seed-0"
    path.mkdir()
    lock = RunLock(path)
    with pytest.raises(LockedError):
        begin(path)
    lock.release()
    assert [entry.name for entry in tmp_path.iterdir()] == ["seed-0"]


def test_what_a_killed_beginning_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".seed-0.unfinished-1"
    left.mkdir()
    (left / "config.toml").touch()
    begin(tmp_path / "seed-0").close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["seed-0"]


def test_a_link_that_looks_like_a_killed_beginning_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / ".seed-0.unfinished-1").symlink_to(tmp_path / "outside")
    begin(tmp_path / "seed-0").close()
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_folder_that_looks_like_a_killed_beginning_but_is_none_is_left_alone(tmp_path: Path) -> None:
    left = tmp_path / ".seed-0.unfinished-1"
    left.mkdir()
    os.mkfifo(left / ".lock")
    begin(tmp_path / "seed-0").close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [left.name, "seed-0"]


def test_an_unfinished_run_of_the_same_configuration_is_offered_for_resuming(tmp_path: Path) -> None:
    path = tmp_path / "my runs" / "seed-0"
    check_can_begin(path, CONFIG)
    begin(path).close()
    with pytest.raises(UsageError, match=rf"unfinished run of the same configuration.*`comper resume '{path}'`"):
        check_can_begin(path, CONFIG)
    with pytest.raises(UsageError, match="already holds a run"):
        check_can_begin(path, CONFIG + "discount = 0.5\n")


def test_logs_are_cut_to_where_they_were_when_a_checkpoint_was_written(tmp_path: Path) -> None:
    record = begin(tmp_path / "seed-0")
    record.episode(EpisodeRecord(1, 5.0, 100, 20, 100, False))
    position = record.position()
    record.episode(EpisodeRecord(2, 6.0, 100, 20, 200, False))
    record.close()
    manifest = Manifest.read(record.path)
    again = Recorder.reopen(record.path, manifest, RunLock(record.path), position)
    assert read_run(record.path).scores.tolist() == [5, 6]  # nothing is cut before it goes on
    again.go_on()
    again.episode(EpisodeRecord(2, 7.0, 100, 20, 200, False))
    again.close()
    assert read_run(record.path).scores.tolist() == [5, 7]


def test_a_log_that_is_shorter_than_was_saved_is_refused(tmp_path: Path) -> None:
    record = begin(tmp_path / "seed-0")
    record.close()
    saved: dict[str, Any] = {"logs": {"episodes.jsonl": {"bytes": 9}}}
    with pytest.raises(DamagedFileError, match="0 bytes, but 9 were saved"):
        Recorder.reopen(record.path, record.manifest, RunLock(record.path), saved).go_on()


@pytest.mark.parametrize("name", ["episodes.jsonl", "metrics.jsonl"])
def test_a_log_that_is_a_link_is_not_written_through(tmp_path: Path, name: str) -> None:
    record = begin(tmp_path / "seed-0")
    record.close()
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (record.path / name).unlink()
    (record.path / name).symlink_to(outside)
    with pytest.raises(DamagedFileError, match="a link"):
        Recorder.reopen(record.path, record.manifest, RunLock(record.path), {}).go_on()
    assert outside.read_bytes() == b"mine"


def test_a_full_disk_is_explained_with_the_command_that_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = begin(tmp_path / "seed-0")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResourceError, match=rf"No space left on device.*`comper resume {record.path}`"):
        record.episode(EpisodeRecord(1, 5.0, 100, 20, 100, False))
    monkeypatch.undo()
    record.close()
