"""Where runs are, and how they are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from comper.errors import UsageError
from comper.runs.folder import find_runs, folder_name, run_path

from .conftest import MakeRun


def test_a_folder_named_twice_is_read_once(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    assert len(find_runs([tmp_path, tmp_path / "runs" / "." / "comper-single"])) == 1


def test_a_folder_is_found_by_any_of_its_files_or_by_its_name_alone(tmp_path: Path) -> None:
    for place in ("a/manifest.json", "b/episodes.jsonl", "c/metrics.jsonl", "d/seed-3/notes.txt", "e/other/notes.txt"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    assert find_runs([tmp_path]) == [tmp_path / name for name in ("a", "b", "c", "d/seed-3")]


def test_what_is_inside_a_run_or_hidden_is_no_run_of_its_own(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    for inner in (folder / "checkpoints" / "step-00000001", folder.parent / ".seed-1.unfinished-7"):
        inner.mkdir(parents=True)
        (inner / "manifest.json").touch()
    assert find_runs([tmp_path]) == [folder]


def test_links_to_folders_are_not_followed(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    (tmp_path / "runs" / "loop").symlink_to(tmp_path)
    assert find_runs([tmp_path]) == [folder]


def test_a_folder_that_is_not_there_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("video_pinball", "video_pinball"),
        ("gym:CartPole-v1", "gym-CartPole-v1"),
        ("gym:ALE/Pong-v5", "gym-ALE-Pong-v5"),
        ("my.module:make", "my.module-make"),
    ],
)
def test_names_of_environments_become_names_of_folders(name: str, expected: str) -> None:
    assert folder_name(name) == expected
    assert run_path(Path("runs"), agent="dqn", game=name, seed=3) == Path("runs", "dqn", expected, "seed-3")
