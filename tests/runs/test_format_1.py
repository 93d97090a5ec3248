"""Runs written by comper 0.1: still verified and reported, not continued. `data/format-1.tar.gz` holds two of them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from comper.cli import main
from comper.report.reading import read_runs
from comper.runs.verify import verify_run

DATA = Path(__file__).parent / "data" / "format-1.tar.gz"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder above a finished run (seed 0) and one that Ctrl-C stopped at step 90 (seed 1)."""
    with tarfile.open(DATA) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path / "runs" / "random" / "asterix"


def test_verify_finds_both_whole(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(runs)]) == 0
    printed = capsys.readouterr().out
    assert "seed-0: whole" in printed
    assert "made by comper 0.1 (run format 1): only that version can continue it" in printed
    assert [checkpoint.step for checkpoint in verify_run(runs / "seed-1").checkpoints] == [90]


def test_report_reads_both(runs: Path, tmp_path: Path) -> None:
    found = read_runs([runs])
    assert [trial.key for trial in found.trials] == [("random", "asterix", 0)]
    assert [trial.key for trial in found.running] == [("random", "asterix", 1)]
    assert [finding.kind for finding in found.findings] == ["incomplete"]
    assert main(["report", str(runs), "--out", str(tmp_path / "page"), "--no-progress"]) == 0


def test_resume_refuses_the_unfinished_one_and_changes_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    assert main(["resume", str(runs / "seed-1"), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert "made by comper 0.1 (run format 1), whose checkpoints and weights this version cannot take over" in error
    assert "Finish it with that version, or begin a new run" in error
    assert before == {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}


def test_its_weights_are_refused_too(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        words = ["resume", str(runs / f"seed-{seed}"), "--weights-only", "--out", str(tmp_path / "new"), "--device", "cpu"]
        assert main(words) == 2
        assert "checkpoints and weights this version cannot take over" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_finished_one_needs_no_resuming(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(runs / "seed-0"), "--device", "cpu"]) == 0
    assert "nothing to resume" in capsys.readouterr().err
