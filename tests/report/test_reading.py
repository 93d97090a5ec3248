"""Editing, deleting or repeating one line of a log never changes a mean silently."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comper.errors import DamagedFileError, UsageError
from comper.report.reading import read_runs
from comper.runs.folder import find_runs
from comper.runs.reader import read_run as read_trial

from .conftest import MakeRun, write_manifest


def test_a_run_folder_becomes_a_trial(make_run: MakeRun) -> None:
    trial = read_trial(make_run("dqn", "freeway", 3, [0.0, 1.0, 5.0], memory=False))
    assert trial.key == ("dqn", "freeway", 3)
    assert trial.scores.tolist() == [0, 1, 5]
    assert (trial.total_frames, trial.total_steps) == (300, 60)
    assert trial.metric("tm_sets") is None
    epsilon = trial.metric("epsilon")
    assert epsilon is not None
    assert epsilon.size == 6


def test_a_metric_that_begins_late_is_padded_with_nan(make_run: MakeRun) -> None:
    folder = make_run(finished=False)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"steps": 900, "total_frames": 4500, "episodes": 12, "late": 1}\n')
    metrics = read_trial(folder).metrics
    assert np.isnan(metrics["late"][:-1]).all()
    assert metrics["late"][-1] == 1
    assert np.isnan(metrics["tm_sets"][-1])


@pytest.mark.parametrize("log", ["episodes.jsonl", "metrics.jsonl"])
@pytest.mark.parametrize("change", ["edit", "delete", "repeat", "swap", "append", "truncate"])
def test_any_change_to_a_finished_log_is_noticed(make_run: MakeRun, log: str, change: str) -> None:
    path = make_run() / log
    lines = path.read_text().splitlines(keepends=True)
    changed = {
        "edit": [lines[0].replace("1", "2", 1), *lines[1:]],
        "delete": lines[:3] + lines[4:],
        "repeat": lines[:3] + lines[2:],
        "swap": [lines[1], lines[0], *lines[2:]],
        "append": [*lines, lines[-1]],
        "truncate": [*lines[:-1], lines[-1][:-5]],
    }[change]
    path.write_text("".join(changed))
    with pytest.raises(DamagedFileError, match=log):
        read_trial(path.parent)


@pytest.mark.parametrize("change", ["delete", "repeat", "swap"])
def test_a_gap_in_a_running_log_is_noticed(make_run: MakeRun, change: str) -> None:
    path = make_run(finished=False) / "episodes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    changed = {"delete": lines[:3] + lines[4:], "repeat": lines[:3] + lines[2:], "swap": [lines[1], lines[0], *lines[2:]]}[
        change
    ]
    path.write_text("".join(changed))
    with pytest.raises(DamagedFileError, match=r"episodes.jsonl, line \d+: episode is"):
        read_trial(path.parent)


def test_a_torn_last_line_of_a_running_log_is_left_out(make_run: MakeRun) -> None:
    path = make_run(scores=[1.0, 2.0, 3.0], finished=False) / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert read_trial(path.parent).scores.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not JSON\n", "line 2: not a line of JSON"),
        ("[1, 2]\n", "line 2: expected a JSON object"),
        (
            '{"episode": 2, "score": "7", "frames": 100, "steps": 20, "total_frames": 200}\n',
            "line 2: score is '7', expected a number",
        ),
        ('{"episode": 2, "score": NaN, "frames": 100, "steps": 20, "total_frames": 200}\n', "line 2: score is nan"),
        ('{"episode": 2, "score": true, "frames": 100, "steps": 20, "total_frames": 200}\n', "line 2: score is True"),
        ('{"episode": 2, "score": 1, "frames": 1.5, "steps": 20, "total_frames": 200}\n', "line 2: frames is 1.5"),
        (
            '{"episode": 2, "score": 1, "frames": 100, "steps": 20, "total_frames": 201}\n',
            "line 2: total_frames is 201, expected 200",
        ),
        ("{}\n", "line 2: score is None"),
    ],
)
def test_a_bad_line_is_named_with_its_number(make_run: MakeRun, line: str, message: str) -> None:
    path = make_run(finished=False) / "episodes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], line, *lines[2:]]))
    with pytest.raises(DamagedFileError, match=message):
        read_trial(path.parent)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "format is 3"),
        ({"agent": "../up"}, "agent is '../up'"),
        ({"game": None}, "game is None"),
        ({"seed": "1"}, "seed is '1'"),
        ({"status": "lost"}, "status is 'lost'"),
        ({"files": None}, "no digest"),
        ({"episodes": 11}, "episodes is 11, its log has 12"),
        ({"total_frames": 1}, "total_frames is 1"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(make_run: MakeRun, changes: dict[str, object], message: str) -> None:
    folder = make_run()
    write_manifest(folder, **changes)
    with pytest.raises(DamagedFileError, match=message):
        read_trial(folder)


def test_a_finished_run_below_its_budget_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(DamagedFileError, match="finished after 1,200 frames, before its budget of 100,000"):
        read_trial(make_run(frames=100_000))


def test_damage_is_named_and_the_rest_is_read(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0)
    (make_run(seed=1) / "manifest.json").unlink()
    make_run(seed=2, finished=False)
    runs = read_runs([tmp_path])
    assert [trial.seed for trial in runs.trials] == [0]
    assert [trial.seed for trial in runs.running] == [2]
    assert [(finding.severity, finding.kind) for finding in runs.findings] == [("error", "damaged"), ("note", "incomplete")]


def test_two_folders_that_claim_one_trial_are_both_left_out(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0)
    make_run(seed=0, out=tmp_path / "copies")
    make_run(seed=1)
    runs = read_runs([tmp_path / "runs", tmp_path / "copies"])
    assert [trial.seed for trial in runs.trials] == [1]
    assert [finding.kind for finding in runs.findings] == ["duplicate"]
    assert "copies" in runs.findings[0].where


def test_a_folder_named_twice_is_read_once(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    assert len(find_runs([tmp_path, tmp_path / "runs" / "." / "comper-single"])) == 1


def test_a_folder_called_like_a_trial_is_never_overlooked(make_run: MakeRun, tmp_path: Path) -> None:
    make_run(seed=0)
    (tmp_path / "runs" / "dqn" / "freeway" / "seed-3").mkdir(parents=True)
    (finding,) = read_runs([tmp_path]).findings
    assert (finding.severity, finding.kind) == ("error", "damaged")
    assert "seed-3" in finding.where


def test_a_folder_called_after_another_trial_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run(seed=0)
    folder.rename(folder.with_name("seed-7"))
    runs = read_runs([tmp_path])
    assert [trial.seed for trial in runs.trials] == [0]
    assert [finding.kind for finding in runs.findings] == ["misplaced"]


def test_no_runs_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No run folders"):
        read_runs([tmp_path])
    with pytest.raises(UsageError, match="no such folder"):
        read_runs([tmp_path / "nowhere"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_flipped_byte_never_passes_a_digest(make_run: MakeRun, tmp_path: Path, data: st.DataObject) -> None:
    folder = tmp_path / "runs" / "comper-single" / "asterix" / "seed-0"
    if not folder.exists():
        make_run()
    path = folder / "episodes.jsonl"
    original = path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != original[position]))
    path.write_bytes(original[:position] + bytes([byte]) + original[position + 1 :])
    try:
        with pytest.raises(DamagedFileError):
            read_trial(folder)
    finally:
        path.write_bytes(original)


def test_numbers_too_large_for_a_float_are_refused(make_run: MakeRun) -> None:
    path = make_run(scores=[1.0], finished=False) / "episodes.jsonl"
    path.write_text(json.dumps({"episode": 1, "score": 10**400, "frames": 1, "steps": 1, "total_frames": 1}) + "\n")
    with pytest.raises(DamagedFileError, match="expected a number"):
        read_trial(path.parent)
