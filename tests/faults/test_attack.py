"""Commands of an attack that once ended in a traceback, a hang or a loss; docs/reliability.md lists all with their tests."""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from comper.cli import main
from comper.runs.verify import verify_run
from comper.training.train import train
from tests.training.small_runs import SMALL, interrupted, start

ROOT = Path(__file__).parents[2]


def test_two_games_learn_together_with_the_alignment_of_a_set(tmp_path: Path) -> None:
    settings: dict[str, Any] = SMALL | {"alignment": "set"}
    both = ["space_invaders", "asterix"]
    folders = train(both, "comper-single", out=tmp_path, workers=0, device="cpu", show_progress=False, **settings)
    assert [verify_run(folder).damaged for folder in folders] == [{}, {}]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_report_onto_a_full_or_read_only_disk_is_one_sentence_and_exit_code_4(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start(tmp_path / "runs")

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("comper.runs.files.os.write", refuse)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--no-progress"]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert [os.strerror(number) in line for line in lines].count(True) == 1
    assert "Traceback" not in "".join(lines)
    assert not [path for path in (tmp_path / "report").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "words",
    [
        "--batch-size 1000000000",
        "--qlstm-batch-size 100000000",
        "--qlstm-epochs 1000000000000",
        "--step-size 1e300",
        "--similarity-threshold 1e300",
        "--sequence-length 100000",
        "--trials 1000000000",
        "--seed 99999999999999999999",
        "--screen-size 1000000",
    ],
)
def test_numbers_without_measure_are_refused_before_anything_is_made(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "asterix", "--frames", "300", *words.split(), "--out", str(tmp_path / "runs")]) in (2, 4)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_command_that_continues_can_be_pasted_whatever_the_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path / "it's; rm -rf ~", monkeypatch)
    (command,) = re.findall("`([^`]*)`", verify_run(folder).usable)
    assert shlex.split(command) == ["comper", "resume", str(folder)]


def test_every_test_that_the_documentation_names_is_there() -> None:
    named = re.findall(r"`(tests/[a-z_/0-9]+\.py)::(test_[a-z_0-9]+)`", (ROOT / "docs" / "reliability.md").read_text())
    assert len(named) > 25
    assert [name for path, name in named if f"def {name}(" not in (ROOT / path).read_text()] == []
