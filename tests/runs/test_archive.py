"""Archived runs keep what their scores rest on, and say that their weights are left out."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from comper.errors import DamagedFileError, UsageError
from comper.runs.archive import main, pack
from comper.runs.folder import LEFT_OUT_FILE, WEIGHTS_FILE
from comper.runs.verify import verify_run

from .conftest import MakeRun

WEIGHTS = {"w": np.zeros(2)}


@pytest.fixture
def unpacked(make_run: MakeRun, tmp_path: Path) -> Path:
    """A run that was packed and unpacked."""
    make_run(weights=WEIGHTS)
    assert pack(tmp_path / "runs", tmp_path / "runs.tar.gz") == 1
    with tarfile.open(tmp_path / "runs.tar.gz") as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    return tmp_path / "unpacked" / "runs" / "comper-single" / "asterix" / "seed-0"


def test_an_unpacked_run_is_whole_and_says_that_its_weights_are_not_there(unpacked: Path) -> None:
    verdict = verify_run(unpacked)
    assert not verdict.damaged
    assert str(verdict).endswith("Finished. Its weights are not kept here.")
    assert not (unpacked / WEIGHTS_FILE).exists()


def test_weights_that_are_missing_without_a_note_are_damage(unpacked: Path) -> None:
    (unpacked / LEFT_OUT_FILE).unlink()
    assert set(verify_run(unpacked).damaged) == {WEIGHTS_FILE}


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({WEIGHTS_FILE: {"bytes": 1, "sha256": "other"}}), "[" * 9999])
def test_a_note_on_other_weights_is_damage(content: str, unpacked: Path) -> None:
    (unpacked / LEFT_OUT_FILE).write_text(content)
    assert set(verify_run(unpacked).damaged) == {WEIGHTS_FILE}


def test_weights_that_are_there_are_checked_whatever_a_note_says(unpacked: Path) -> None:
    (unpacked / WEIGHTS_FILE).write_bytes(b"others")
    assert set(verify_run(unpacked).damaged) == {WEIGHTS_FILE}


def test_an_archived_run_can_be_packed_again_to_the_same_bytes(unpacked: Path, tmp_path: Path) -> None:
    pack(tmp_path / "unpacked" / "runs", tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == (tmp_path / "runs.tar.gz").read_bytes()


def test_what_is_damaged_or_unfinished_is_not_packed(make_run: MakeRun, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No run in"):
        pack(tmp_path, tmp_path / "x.tar.gz")
    folder = make_run(weights=WEIGHTS)
    (folder / WEIGHTS_FILE).write_bytes(b"")
    with pytest.raises(DamagedFileError, match=WEIGHTS_FILE):
        pack(tmp_path / "runs", tmp_path / "x.tar.gz")
    make_run(seed=1, out=tmp_path / "others", finished=False)
    with pytest.raises(UsageError, match="not finished"):
        pack(tmp_path / "others", tmp_path / "x.tar.gz")
    assert not (tmp_path / "x.tar.gz").exists()


def test_the_command_packs_or_says_why_not(make_run: MakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(weights=WEIGHTS)
    assert main([str(tmp_path / "runs"), str(tmp_path / "x.tar.gz")]) == 0
    assert main([str(tmp_path / "nowhere"), str(tmp_path / "x.tar.gz")]) == 2
    assert main([]) == 2
    assert main([str(tmp_path / "runs"), str(tmp_path / "no" / "x.tar.gz")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_names_in_an_archive_never_lead_out_of_it(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_run(weights=WEIGHTS)
    monkeypatch.chdir(place.parent)
    for given in ("..", ".", "../../../runs", "seed-0/.."):
        assert main([given, str(tmp_path / "x.tar.gz")]) == 0
        with tarfile.open(tmp_path / "x.tar.gz") as tar:
            assert tar.getnames()
            assert not [name for name in tar.getnames() if ".." in Path(name).parts or name.startswith("/")]


def test_an_archive_without_a_name_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(weights=WEIGHTS)
    assert main([str(tmp_path / "runs"), ""]) == 2
