"""Checkpoints: complete or not there, and the right ones kept."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from comper.errors import DamagedFileError, ResourceError
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.files import digest, sealed

EMPTY = {name: {"bytes": 0, "sha256": digest(b"")["sha256"]} for name in ("episodes.jsonl", "metrics.jsonl")}
FILES = {"state.safetensors": b"tensors", "state.json": b"{}", "frames.zlib": b"frames"}


def write(run: Path, step: int, frames: int | None = None) -> Checkpoint:
    about = {"total_frames": step if frames is None else frames, "run": {}, "logs": EMPTY}
    return checkpoints.write(run, step=step, files=FILES, about=about)


def names(run: Path) -> list[str]:
    return [path.name for path in checkpoints.paths(run)]


def test_a_checkpoint_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, 5000)
    found = checkpoints.open_checkpoint(tmp_path / "checkpoints" / "step-00005000")
    assert found.read() == FILES
    assert (found.step, found.num_bytes) == (5000, 15)


def test_files_are_as_readable_as_the_user_wants_new_files_to_be(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = write(tmp_path, 1).path
    finally:
        os.umask(before)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o644 for file in path.iterdir())


def test_a_name_is_never_used_twice(tmp_path: Path) -> None:
    write(tmp_path, 7)
    write(tmp_path, 7)
    assert names(tmp_path) == ["step-00000007-2", "step-00000007"]


def test_the_last_two_and_the_thirds_are_kept(tmp_path: Path) -> None:
    good: list[Checkpoint] = []
    for step in range(10, 100, 10):
        good = checkpoints.prune(tmp_path, [*good, write(tmp_path, step)], budget_frames=100)
    assert [checkpoint.step for checkpoint in good] == [40, 70, 80, 90]
    assert names(tmp_path) == [checkpoint.path.name for checkpoint in reversed(good)]
    assert [c.step for c in checkpoints.prune(tmp_path, good, budget_frames=100, num_latest=0)] == [40, 70]


def test_damaged_checkpoints_go_when_new_ones_come_and_do_not_count_among_them(tmp_path: Path) -> None:
    first, second = write(tmp_path, 1), write(tmp_path, 2)
    (second.path / "state.json").write_bytes(b"[]")
    kept = checkpoints.prune(tmp_path, [first, write(tmp_path, 3)], budget_frames=100)
    assert [checkpoint.step for checkpoint in kept] == [1, 3]
    assert names(tmp_path) == ["step-00000003", "step-00000001"]


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused_before_anyone_parses_it(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, 1).path
    (path / name).write_bytes(FILES[name][:-1] + b"?")
    with pytest.raises(DamagedFileError, match=name):
        checkpoints.open_checkpoint(path).read()


def test_a_changed_description_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, 1).path / checkpoints.ABOUT_FILE
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"step": 2}))
    with pytest.raises(DamagedFileError, match="not as it was written"):
        checkpoints.open_checkpoint(path.parent)


@pytest.mark.parametrize(
    "change",
    [{"step": "1"}, {"step": -1}, {"total_frames": True}, {"wall_seconds": "long"}, {"wall_seconds": 10**400}, {"logs": {}}],
)
def test_a_sealed_description_of_nonsense_is_refused(change: dict[str, object], tmp_path: Path) -> None:
    path = write(tmp_path, 1).path
    about = json.loads((path / checkpoints.ABOUT_FILE).read_text())
    del about["sha256"]
    (path / checkpoints.ABOUT_FILE).write_text(json.dumps(sealed(about | change)))
    with pytest.raises(DamagedFileError, match="does not say how far the run was"):
        checkpoints.open_checkpoint(path)


def test_other_names_of_files_are_refused(tmp_path: Path) -> None:
    about = {"total_frames": 1, "run": {}, "logs": EMPTY}
    path = checkpoints.write(
        tmp_path, step=1, files={"state.json": b"{}", "../../outside": b"x"} and {"a": b""}, about=about
    ).path
    with pytest.raises(DamagedFileError, match="does not describe"):
        checkpoints.open_checkpoint(path)


def test_a_full_disk_leaves_the_checkpoints_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResourceError, match=r"15 bytes.*No space left.*comper resume"):
        write(tmp_path, 2)
    monkeypatch.undo()
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_linked_folder_of_checkpoints_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine", 1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "mine" / "checkpoints")
    with pytest.raises(DamagedFileError, match="a link"):
        checkpoints.paths(tmp_path / "run")


def test_a_link_left_where_a_checkpoint_is_being_written_is_removed_not_followed(tmp_path: Path) -> None:
    write(tmp_path, 1)
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "checkpoints" / ".unfinished-step-00000002").symlink_to(outside)
    write(tmp_path, 2)
    assert names(tmp_path) == ["step-00000002", "step-00000001"]
    assert list(outside.iterdir()) == []


def test_an_enormous_file_is_refused_without_being_read(tmp_path: Path) -> None:
    path = write(tmp_path, 1).path
    os.truncate(path / "state.safetensors", 60 * 10**9)  # takes no room on disk
    with pytest.raises(DamagedFileError, match=r"60,000,000,000 bytes; expected 7 bytes"):
        checkpoints.open_checkpoint(path).check()


def test_a_pipe_called_like_a_checkpoint_is_removed_without_waiting_for_it(tmp_path: Path) -> None:
    good = [write(tmp_path, 1)]
    os.mkfifo(tmp_path / "checkpoints" / "step-00000009")
    checkpoints.prune(tmp_path, good, budget_frames=100)
    assert names(tmp_path) == ["step-00000001"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
