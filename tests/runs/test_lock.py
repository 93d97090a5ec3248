"""One writer per run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comper.errors import DamagedFileError, LockedError
from comper.runs.lock import RunLock


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first = RunLock(tmp_path)
    with pytest.raises(LockedError, match="another process"):
        RunLock(tmp_path)
    first.release()
    RunLock(tmp_path).release()


def test_a_planted_link_creates_nothing_outside(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir()
    (run / ".lock").symlink_to(outside)
    with pytest.raises(DamagedFileError, match="a link"):
        RunLock(run)
    assert not outside.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_not_a_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(DamagedFileError, match="not an ordinary file"):
        RunLock(tmp_path)


def test_the_lock_of_a_folder_that_was_replaced_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from comper.runs import lock

    take = lock._lock

    def replace_then_take(descriptor: int) -> bool:
        (tmp_path / ".lock").unlink()
        (tmp_path / ".lock").touch()
        return take(descriptor)

    monkeypatch.setattr(lock, "_lock", replace_then_take)
    with pytest.raises(LockedError):
        RunLock(tmp_path)
