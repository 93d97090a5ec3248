"""Resuming, and refusing to: what a user meets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import safetensors.numpy

from comper.cli import main
from comper.runs import checkpoints
from tests.training.small_runs import RUN, go_on, interrupted, outcome, start


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials that nothing happened to."""
    return start(tmp_path_factory.mktemp("undisturbed"), trials=2, period=0).parent


def test_a_stopped_run_continues_to_the_same_bits(tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    assert go_on(tmp_path) == [folder]
    assert outcome(folder) == outcome(undisturbed / "seed-0")
    assert json.loads((folder / "manifest.json").read_text())["status"] == "finished"


def test_trials_of_a_population_continue_together_or_alone(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, monkeypatch, trials=2)
    seed_0, seed_1 = (tmp_path / RUN.parent / f"seed-{seed}" for seed in (0, 1))
    go_on(seed_1)
    assert not (seed_0 / "weights.safetensors").exists()
    assert go_on(tmp_path) == [seed_0]
    assert [outcome(folder) for folder in (seed_0, seed_1)] == [outcome(undisturbed / f.name) for f in (seed_0, seed_1)]


def test_trials_at_different_steps_each_continue_from_their_own(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path, monkeypatch, trials=2)
    seed_0, seed_1 = (tmp_path / RUN.parent / f"seed-{seed}" for seed in (0, 1))
    (checkpoints.paths(seed_1)[0] / "frames.zlib").write_bytes(b"damaged")
    assert go_on(tmp_path) == [seed_0, seed_1]
    assert [outcome(folder) for folder in (seed_0, seed_1)] == [outcome(undisturbed / f.name) for f in (seed_0, seed_1)]


def test_without_any_whole_checkpoint_a_run_starts_again_to_the_same_bits(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    for path in checkpoints.paths(folder):
        (path / "state.json").unlink()
    go_on(folder)
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_damaged_manifest_is_restored_from_the_newest_checkpoint(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    go_on(folder)
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_finished_run_keeps_its_thirds_and_says_there_is_nothing_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = start(tmp_path)
    assert [path.name for path in checkpoints.paths(folder)] == ["step-00000030", "step-00000020"]
    assert main(["resume", str(tmp_path)]) == 0
    assert "every run here is finished" in capsys.readouterr().err
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(files) == {"episodes.jsonl", "metrics.jsonl", "weights.safetensors"}
    assert "q_network/Conv1.weight" in safetensors.numpy.load((folder / "weights.safetensors").read_bytes())


def test_a_changed_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("frames = 200", "frames = 900"))
    assert main(["resume", str(folder)]) == 3
    assert "not the configuration the run was started with" in capsys.readouterr().err


def test_weights_only_begins_a_new_run_that_says_where_it_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path / "old", monkeypatch)
    assert main(["resume", str(folder), "--weights-only"]) == 2
    assert "give both or neither" in capsys.readouterr().err
    words = ["--weights-only", "--out", str(tmp_path / "new"), "--device", "cpu", "--checkpoint-period-steps", "0"]
    assert main(["resume", str(folder), *words]) == 0
    manifest = json.loads((tmp_path / "new" / RUN / "manifest.json").read_text())
    assert manifest["started_from"]["step"] == 35
    assert manifest["started_from"]["run"] == str(folder)
    assert json.loads((folder / "manifest.json").read_text())["status"] == "running"
