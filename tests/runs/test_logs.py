"""Logs as arrays; `test_reader.py` has the damage that a whole run notices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from comper.errors import DamagedFileError
from comper.runs.files import digest
from comper.runs.logs import check_log_starts, read_episodes, read_metrics


def test_episodes_are_counted_up(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text(
        '{"episode": 1, "score": 5, "frames": 100, "steps": 20, "total_frames": 100}\n'
        '{"episode": 2, "score": -1.5, "frames": 50, "steps": 10, "total_frames": 150}\n'
    )
    episodes = read_episodes(path)
    assert episodes.scores.tolist() == [5, -1.5]
    assert episodes.frames.tolist() == [100, 150]
    assert episodes.steps.tolist() == [20, 30]


def test_an_empty_log_has_no_episodes_and_no_columns(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert read_episodes(tmp_path / "log").scores.size == 0
    assert read_metrics(tmp_path / "log") == {}


def test_null_is_no_number_yet(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"steps": 1, "total_frames": 5, "episodes": 0, "loss": null}\n')
    assert np.isnan(read_metrics(tmp_path / "log")["loss"]).all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"steps": 1, "total_frames": 5, "episodes": 0}', "steps is 1 after 2"),
        ('{"steps": 3, "total_frames": 5}', "episodes is None, expected a number"),
        ('{"steps": 3, "total_frames": 5, "episodes": 0, "loss": "x"}', "'loss' is 'x', expected a number or null"),
        ('{"steps": 3, "total_frames": 5, "episodes": 0, "\\ud800": 1}', "expected a number or null"),
    ],
)
def test_a_bad_line_of_metrics_is_named(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"steps": 2, "total_frames": 5, "episodes": 0}\n' + line + "\n")
    with pytest.raises(DamagedFileError, match=rf"log, line 2: .*{message}"):
        read_metrics(tmp_path / "log")


def test_logs_must_begin_with_what_was_saved(tmp_path: Path) -> None:
    for name in ("episodes.jsonl", "metrics.jsonl"):
        (tmp_path / name).write_bytes(b"one\ntwo\n")
    positions = {name: digest(b"one\n") for name in ("episodes.jsonl", "metrics.jsonl")}
    check_log_starts(tmp_path, positions)
    for content in (b"One\ntwo\n", b"one", b""):
        (tmp_path / "metrics.jsonl").write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"metrics\.jsonl: its first 4 bytes are not those that were saved"):
            check_log_starts(tmp_path, positions)
