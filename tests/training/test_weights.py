"""Weights that a run has left: the final ones, or those of its newest whole checkpoint."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from comper.errors import DamagedFileError, ResourceError, UsageError
from comper.runs import checkpoints
from comper.runs.files import digest
from comper.runs.manifest import Manifest
from comper.runs.states import unpack_weights
from comper.training import preflight
from comper.training.evaluation import load
from comper.training.train import train
from comper.training.weights import saved_weights, whole_checkpoints
from tests.training.small_runs import interrupted, start


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished run, and the same run stopped at step 35."""
    with pytest.MonkeyPatch.context() as patch:
        stopped = interrupted(tmp_path_factory.mktemp("stopped"), patch)
    return start(tmp_path_factory.mktemp("finished"), period=0), stopped


@pytest.fixture
def finished(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs[0], tmp_path / "finished"))


@pytest.fixture
def stopped(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs[1], tmp_path / "stopped"))


def test_a_finished_run_has_its_final_weights_with_their_digest(finished: Path) -> None:
    manifest = Manifest.read(finished)
    weights, about = saved_weights(finished, manifest)
    content = (finished / "weights.safetensors").read_bytes()
    assert set(weights) == {"q_network", "qlstm"}
    assert np.array_equal(weights["q_network"]["Dense2.bias"], unpack_weights(content)["q_network"]["Dense2.bias"])
    assert about == {"run": str(finished), "step": manifest.steps, **digest(content)}


def test_final_weights_that_were_changed_are_refused(finished: Path) -> None:
    path = finished / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"weights\.safetensors: not the file that was written down"):
        saved_weights(finished, Manifest.read(finished))


def test_final_weights_that_a_manifest_does_not_describe_are_damage(finished: Path) -> None:
    with pytest.raises(
        DamagedFileError, match=r"weights\.safetensors: the manifest of this finished run does not describe it"
    ):
        saved_weights(finished, replace(Manifest.read(finished), files={}))


def test_a_giant_that_is_not_the_file_of_the_manifest_is_never_held_in_memory(finished: Path) -> None:
    size, path = 100_000_000, finished / "weights.safetensors"
    os.truncate(path, size)
    manifest = Manifest.read(finished)
    files = {path.name: manifest.files[path.name] | {"bytes": size}}
    tracemalloc.start()
    with pytest.raises(DamagedFileError, match="not the file that was written down"):
        saved_weights(finished, replace(manifest, files=files))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 10


def test_weights_for_which_memory_will_not_do_are_not_read(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest.read(finished)
    size = manifest.files["weights.safetensors"]["bytes"]
    monkeypatch.setattr(preflight, "available_memory", lambda: 3 * size)
    assert saved_weights(finished, manifest)
    monkeypatch.setattr(preflight, "available_memory", lambda: 3 * size - 1)
    with pytest.raises(ResourceError, match=r"weights\.safetensors: reading it needs up to .* of memory, and .* are there"):
        saved_weights(finished, manifest)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (safetensors.numpy.save({"a/b": np.array([np.nan])}), r"Saved weights hold NaN or infinity \('a/b'\)"),
        (b"none", "Saved weights cannot be read"),
    ],
    ids=["NaN", "no tensors"],
)
def test_what_is_wrong_in_final_weights_is_said_with_the_name_of_the_file(
    finished: Path, content: bytes, complaint: str
) -> None:
    (finished / "weights.safetensors").write_bytes(content)
    manifest = Manifest.read(finished)
    with pytest.raises(DamagedFileError, match=rf"weights\.safetensors: {complaint}"):
        saved_weights(finished, replace(manifest, files={"weights.safetensors": digest(content)}))


def test_an_unfinished_run_has_those_of_its_newest_checkpoint_and_else_of_the_one_before(stopped: Path) -> None:
    manifest = Manifest.read(stopped)
    newest, before, *_ = checkpoints.paths(stopped)
    weights, about = saved_weights(stopped, manifest)
    assert set(weights) == {"q_network", "qlstm"}
    assert (about["run"], about["step"]) == (str(stopped), 35)
    assert about["sha256"] == digest((newest / checkpoints.TENSORS_FILE).read_bytes())["sha256"]
    (newest / checkpoints.TENSORS_FILE).write_bytes(b"torn")
    older, about = saved_weights(stopped, manifest)
    assert (about["step"], before.name) == (30, "step-00000030")
    assert not np.array_equal(older["q_network"]["Dense2.bias"], weights["q_network"]["Dense2.bias"])


def test_without_a_whole_checkpoint_it_says_why_and_how_to_go_on(stopped: Path) -> None:
    for path in checkpoints.paths(stopped):
        (path / checkpoints.VALUES_FILE).write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"no whole checkpoint to take weights from\. .*state\.json.*`comper resume "):
        saved_weights(stopped, Manifest.read(stopped))


def test_an_agent_that_learns_nothing_has_no_weights(tmp_path: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False}
    (folder,) = train("gym:CartPole-v1", "random", frames=30, out=tmp_path, **options)
    with pytest.raises(UsageError, match="this agent has no weights"):
        saved_weights(folder, Manifest.read(folder))


def test_weights_of_any_checkpoint_can_be_had_and_a_missing_one_names_the_others(stopped: Path, finished: Path) -> None:
    manifest = Manifest.read(stopped)
    steps = [checkpoint.step for checkpoint in whole_checkpoints(stopped)]
    assert steps == sorted(steps)
    assert steps[-1] == 35
    weights, about = saved_weights(stopped, manifest, step=steps[0])
    assert about["step"] == steps[0]
    latest, _ = saved_weights(stopped, manifest)
    assert not np.array_equal(weights["q_network"]["Dense2.bias"], latest["q_network"]["Dense2.bias"])
    with pytest.raises(UsageError, match=rf"no checkpoint at step 36\. Its checkpoints: .*{steps[-1]}\."):
        saved_weights(stopped, manifest, step=36)
    with pytest.raises(UsageError, match=r"It has none: .* Train with --checkpoint-period-steps N"):
        saved_weights(finished, Manifest.read(finished), step=10)


def test_weights_that_an_agent_cannot_take_are_damage_of_their_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False}
    (run,) = train("gym:CartPole-v1", "comper", frames=60, out=tmp_path, **options)
    path, manifest = run / "weights.safetensors", Manifest.read(run)
    arrays = safetensors.numpy.load_file(path)
    table = {name: np.zeros((1, a.shape[1]), a.dtype) for name, a in arrays.items() if name.startswith("graph/")}
    arrays |= table | {"graph/visits": table["graph/visits"] - 5}
    path.write_bytes(safetensors.numpy.save(arrays))
    replace(manifest, files=manifest.files | {path.name: digest(path.read_bytes())}).write(run)
    with pytest.raises(DamagedFileError, match=rf"^{run}: The saved weights cannot be taken over: .* fewer than 0 times\.$"):
        load(run, device="cpu")
