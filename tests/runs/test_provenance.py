"""The commit is that of this package's source, not of a repository it happens to lie in."""

from __future__ import annotations

import subprocess
from pathlib import Path

from comper.runs.provenance import commit, versions


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_repository_that_merely_encloses_the_package_is_not_recorded(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "notes.txt").touch()
    git(tmp_path, "add", "notes.txt")
    git(tmp_path, "commit", "--quiet", "-m", "mine")
    source = tmp_path / ".venv" / "comper" / "provenance.py"
    source.parent.mkdir(parents=True)
    source.touch()
    assert commit(source) is None
    git(tmp_path, "add", "--force", str(source))
    git(tmp_path, "commit", "--quiet", "-m", "the source itself")
    assert commit(source) == git(tmp_path, "rev-parse", "HEAD")


def test_without_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    (tmp_path / "provenance.py").touch()
    assert commit(tmp_path / "provenance.py") is None


def test_versions_name_this_package_python_and_numpy() -> None:
    assert {"comper", "python", "numpy"} <= set(versions())
