"""Editing, deleting or repeating one line of a log never changes a mean silently."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comper.errors import DamagedFileError
from comper.runs.files import log_digest
from comper.runs.reader import read_run

from .conftest import MakeRun, change_manifest


def test_a_run_folder_becomes_a_trial(make_run: MakeRun) -> None:
    trial = read_run(make_run("dqn", "freeway", 3, [0.0, 1.0, 5.0], memory=False))
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
    metrics = read_run(folder).metrics
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
        read_run(path.parent)


@pytest.mark.parametrize("change", ["delete", "repeat", "swap"])
def test_a_gap_in_a_running_log_is_noticed(make_run: MakeRun, change: str) -> None:
    path = make_run(finished=False) / "episodes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    changed = {"delete": lines[:3] + lines[4:], "repeat": lines[:3] + lines[2:], "swap": [lines[1], lines[0], *lines[2:]]}[
        change
    ]
    path.write_text("".join(changed))
    with pytest.raises(DamagedFileError, match=r"episodes.jsonl, line \d+: episode is"):
        read_run(path.parent)


def test_a_torn_last_line_of_a_running_log_is_left_out(make_run: MakeRun) -> None:
    path = make_run(scores=[1.0, 2.0, 3.0], finished=False) / "episodes.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert read_run(path.parent).scores.tolist() == [1, 2]


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
        read_run(path.parent)


def test_a_finished_run_below_its_budget_is_refused(make_run: MakeRun) -> None:
    with pytest.raises(DamagedFileError, match="finished after 1,200 frames, before its budget of 100,000"):
        read_run(make_run(frames=100_000))


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
            read_run(folder)
    finally:
        path.write_bytes(original)


def test_numbers_too_large_for_a_float_are_refused(make_run: MakeRun) -> None:
    path = make_run(scores=[1.0], finished=False) / "episodes.jsonl"
    path.write_text(json.dumps({"episode": 1, "score": 10**400, "frames": 1, "steps": 1, "total_frames": 1}) + "\n")
    with pytest.raises(DamagedFileError, match="expected a number"):
        read_run(path.parent)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "format is 3"),
        ({"agent": "../up"}, "agent is '../up'"),
        ({"game": None}, "game is None"),
        ({"seed": "1"}, "seed is '1'"),
        ({"status": "lost"}, "status is 'lost'"),
        ({"files": {}}, "no digest"),
        ({"episodes": 11}, "episodes is 11, its log has 12"),
        ({"total_frames": 1}, "total_frames is 1"),
        ({"remarks": 7}, "remarks is 7"),
        ({"population": ["asterix"]}, "population is"),
        ({"remarks": ["\ud800"]}, "remarks is"),
        ({"versions": {"numpy": 2}}, "versions is"),
        ({"wall_seconds": float("nan")}, "wall_seconds is nan"),
        ({"files": {"episodes.jsonl": {"bytes": -1, "sha256": ""}}}, "files is"),
        ({"config_sha256": None}, "config_sha256 is None"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(make_run: MakeRun, changes: dict[str, Any], message: str) -> None:
    folder = make_run()
    change_manifest(folder, **changes)
    with pytest.raises(DamagedFileError, match=message):
        read_run(folder)


def test_an_edited_score_is_noticed_by_the_seal_even_when_the_digest_was_made_to_fit(make_run: MakeRun) -> None:
    folder = make_run()
    log = folder / "episodes.jsonl"
    log.write_text(log.read_text().replace('"score": 7.0', '"score": 9.0'))
    files = json.loads((folder / "manifest.json").read_text())["files"]
    change_manifest(folder, seal=False, files=files | {"episodes.jsonl": log_digest(log)})
    with pytest.raises(DamagedFileError, match=r"manifest\.json: not as it was written"):
        read_run(folder)


def test_a_copy_that_claims_another_seed_is_noticed_by_the_seal(make_run: MakeRun) -> None:
    folder = make_run()
    copy = folder.with_name("seed-1")
    shutil.copytree(folder, copy)
    change_manifest(copy, seal=False, seed=1)
    with pytest.raises(DamagedFileError, match="not as it was written"):
        read_run(copy)


def test_a_seal_that_was_taken_off_is_missed(make_run: MakeRun) -> None:
    folder = make_run()
    content = json.loads((folder / "manifest.json").read_text())
    del content["sha256"]
    for number in (1, 2):
        (folder / "manifest.json").write_text(json.dumps(content | {"format": number}))
        with pytest.raises(DamagedFileError, match="not as it was written"):
            read_run(folder)


def test_another_configuration_than_the_run_began_with_is_noticed(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "config.toml").write_text("frames = 1200\ndiscount = 0.5\n")
    with pytest.raises(DamagedFileError, match=r"config\.toml: not the configuration the run was started with"):
        read_run(folder)


NAMES = ("config.toml", "manifest.json", "episodes.jsonl", "metrics.jsonl")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_is_refused_and_not_waited_for(make_run: MakeRun, name: str, finished: bool) -> None:
    path = make_run(finished=finished) / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedFileError, match=f"{name}: not an ordinary file"):
        read_run(path.parent)


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_link_is_refused_even_to_the_very_content(make_run: MakeRun, tmp_path: Path, name: str, finished: bool) -> None:
    path = make_run(finished=finished) / name
    path.rename(tmp_path / "elsewhere")
    for target in (tmp_path / "elsewhere", Path("/dev/zero")):
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        with pytest.raises(DamagedFileError, match=f"{name}: a link"):
            read_run(path.parent)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_sixty_gigabytes_is_refused_at_once(make_run: MakeRun, name: str, finished: bool) -> None:
    path = make_run(finished=finished) / name
    os.truncate(path, 60 * 10**9)  # takes no room on disk
    with pytest.raises(DamagedFileError, match=name):
        read_run(path.parent)


def test_all_that_is_damaged_is_counted_in_one_sentence(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "config.toml").unlink()
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(DamagedFileError, match=r"config\.toml: cannot be read .* And 1 more: see `comper verify`"):
        read_run(folder)
