"""Editing, deleting or repeating one line of a log never changes a mean silently."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from comper.errors import UsageError
from comper.report.reading import read_runs
from comper.report.report import report
from comper.runs.files import digest, log_digest, sealed
from comper.runs.verify import verify_run

from .conftest import MakeRun, write_manifest


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


def test_variants_of_one_agent_are_told_apart_by_the_settings_in_which_they_differ(make_run: MakeRun, tmp_path: Path) -> None:
    """Same agent, game and seed: what all of them have in common is not part of the name."""
    common = {"batch_size": [16, 32]}
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "max": {"alignment": ["max", "successor"]},
        "both": {"alignment": ["max", "successor"], "rtm": ["replace", "accumulate"]},
    }
    for name, changes in variants.items():
        for seed in (0, 1):
            write_manifest(make_run(seed=seed, out=tmp_path / name), changed=common | changes)
    write_manifest(make_run("dqn"), changed=common)
    runs = read_runs([tmp_path])
    assert runs.findings == []
    assert runs.agents() == [
        "comper-single",
        "comper-single, alignment max",
        "comper-single, alignment max, rtm replace",
        "dqn",
    ]
    assert [trial.seed for trial in runs.cells["comper-single, alignment max", "asterix"]] == [0, 1]
    assert all(trial.manifest.agent in trial.name for trial in runs.trials)


def test_a_variant_that_stands_twice_is_a_duplicate(make_run: MakeRun, tmp_path: Path) -> None:
    for name, alignment in (("a", "max"), ("b", "max"), ("c", "set")):
        write_manifest(make_run(out=tmp_path / name), changed={"alignment": [alignment, "successor"]})
    runs = read_runs([tmp_path])
    assert runs.agents() == ["comper-single, alignment set"]
    assert [finding.kind for finding in runs.findings] == ["duplicate"]


def test_trials_that_never_meet_are_one_agent_whatever_their_settings(make_run: MakeRun, tmp_path: Path) -> None:
    for seed in (0, 1):
        write_manifest(make_run(seed=seed), changed={"frames": [1_000 + seed, 100_000]})
    assert read_runs([tmp_path]).agents() == ["comper-single"]


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


def test_a_run_that_verify_calls_damaged_is_never_averaged_in(make_run: MakeRun, tmp_path: Path) -> None:
    """A score edited with its digest made to fit, a copy under another seed, another configuration: seals notice all three."""
    edited, copied, configured, whole = (sealed_run(make_run(seed=seed)) for seed in range(4))
    log = edited / "episodes.jsonl"
    log.write_text(log.read_text().replace('"score": ', '"score": 1', 1))
    files = json.loads((edited / "manifest.json").read_text())["files"]
    write_manifest(edited, files=files | {"episodes.jsonl": log_digest(log)})
    write_manifest(copied, seed=17)
    (configured / "config.toml").write_text("frames = 1200\ndiscount = 0.5\n")
    runs = read_runs([tmp_path])
    assert [trial.folder for trial in runs.trials] == [whole]
    assert [finding.kind for finding in runs.findings] == ["damaged"] * 3
    assert {verify_run(folder).damaged != {} for folder in (edited, copied, configured)} == {True}


def sealed_run(folder: Path) -> Path:
    """A run with a seal, as all have that were written since there are seals."""
    manifest = json.loads((folder / "manifest.json").read_text())
    config = digest((folder / "config.toml").read_bytes())["sha256"]
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, "config_sha256": config})))
    return folder


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.timeout(60)
def test_nothing_in_a_folder_can_make_a_report_hang_or_fail(make_run: MakeRun, tmp_path: Path) -> None:
    pipe, sparse, linked = (make_run(seed=seed) for seed in range(3))
    (pipe / "episodes.jsonl").unlink()
    os.mkfifo(pipe / "episodes.jsonl")
    os.truncate(sparse / "metrics.jsonl", 60 * 10**9)  # takes no room on disk
    (linked / "config.toml").unlink()
    (linked / "config.toml").symlink_to("/dev/zero")
    strange = tmp_path / "runs" / os.fsdecode(b"\xff\x1b[31m")
    write_manifest(make_run(seed=3, out=strange), remarks=7)
    make_run(seed=4, out=strange)
    make_run(seed=5)
    result = report([tmp_path / "runs"], tmp_path / "out", progress=False)
    assert (result.trials, result.exit_code) == (2, 3)
    assert [finding.kind for finding in result.findings].count("damaged") == 4
    page = result.page.read_text()
    assert "remarks is 7" in page
    assert "\x1b" not in page
