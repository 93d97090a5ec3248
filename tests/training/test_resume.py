"""Resuming, and refusing to: what a user meets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from comper.cli import main
from comper.errors import LeftOutError, ResourceError
from comper.runs import checkpoints
from comper.runs.files import digest, sealed
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


def recorded_before(folder: Path, *names: str) -> None:
    """Make a run one that was recorded when there were no such settings."""
    lines = (folder / "config.toml").read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if line.split(" = ")[0] not in names)
    (folder / "config.toml").write_text(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config_sha256"] = digest(text.encode())["sha256"]
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))


def test_a_run_recorded_before_a_setting_was_there_goes_on_and_one_without_others_is_named(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    shutil.copytree(folder, other := tmp_path / "other")
    recorded_before(folder, "rtm", "input_scale")
    assert main(["verify", str(folder)]) == 0
    go_on(folder)
    assert outcome(folder) == outcome(undisturbed / "seed-0")
    recorded_before(other, "rtm", "batch_size")
    for words in (["resume", str(other)], ["evaluate", str(other), "--device", "cpu"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "made by another version" in said
        assert "the run does not have batch_size." in said
    assert main(["evaluate", str(tmp_path), "--device", "cpu", "--episodes", "1"]) == 2, "and the other run is played"
    assert "comper-single" in capsys.readouterr().out


@pytest.mark.parametrize("status", ["running", "finished"])
def test_settings_that_no_such_run_can_have_been_made_with_are_damage(
    status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "gym:CartPole-v1", "--frames", "60", "--device", "cpu", "--out", str(tmp_path)]) == 0
    folder = tmp_path / "comper" / "gym-CartPole-v1" / "seed-0"
    text = (folder / "config.toml").read_text().replace("similarity_cells = 0", "similarity_cells = 4")
    (folder / "config.toml").write_text(text)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"config_sha256": digest(text.encode())["sha256"], "status": status}
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    assert main(["resume" if status == "running" else "evaluate", str(folder), "--device", "cpu"]) == 3
    assert "config.toml: similarity_cells shrinks pictures" in capsys.readouterr().err


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


def test_weights_only_leaves_out_the_run_whose_weights_do_not_fit_and_begins_the_others(
    tmp_path: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Path(shutil.copytree(undisturbed, tmp_path / "old"))
    forge_weights(old / "seed-0", lambda arrays: arrays.update({"foo/x": np.zeros(2)}))
    words = ["--weights-only", "--device", "cpu", "--processes", "1", "--checkpoint-period-steps", "0"]
    assert main(["resume", str(old), "--out", str(tmp_path / "new"), *words]) == 3
    said = capsys.readouterr().err
    assert "1 of 2 runs could not be continued" in said
    assert f"{old / 'seed-0'}: The saved weights are of other networks than this agent has." in said
    made = tmp_path / "new" / RUN.parent
    assert [path.name for path in made.iterdir()] == ["seed-1"]
    assert json.loads((made / "seed-1" / "manifest.json").read_text())["status"] == "finished"


def forge_weights(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the final weights of a run, and make its digests fit."""
    path, manifest = run / "weights.safetensors", json.loads((run / "manifest.json").read_text())
    arrays = safetensors.numpy.load_file(path)
    change(arrays)
    path.write_bytes(safetensors.numpy.save(arrays))
    del manifest["sha256"]
    manifest["files"][path.name] = digest(path.read_bytes())
    (run / "manifest.json").write_text(json.dumps(sealed(manifest)))


# States that are as they were written, digests and all, and that cannot be taken over.


def forged(checkpoint: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """Change the arrays or the values of a checkpoint, and make its digests fit."""
    arrays = safetensors.numpy.load_file(checkpoint / "state.safetensors")
    values = json.loads((checkpoint / "state.json").read_text())
    change(arrays, values["values"])
    (checkpoint / "state.safetensors").write_bytes(safetensors.numpy.save(arrays))
    (checkpoint / "state.json").write_text(json.dumps(values))
    about = json.loads((checkpoint / "checkpoint.json").read_text())
    del about["sha256"]
    about["files"] = {name: digest((checkpoint / name).read_bytes()) for name in checkpoints.FILES}
    (checkpoint / "checkpoint.json").write_text(json.dumps(sealed(about)))


def nan_weight(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/q_network/weights/Dense2.bias"][0] = np.nan


def another_network(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/q_network/weights/Dense1.bias"] = arrays["agent/q_network/weights/Dense1.bias"][:-1].copy()


def one_row_for_all(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/tm/q"] = arrays["agent/tm/q"][:1].copy()


def other_numbers(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/tm/occurrences"] = arrays["agent/tm/occurrences"].astype(np.float64)


def no_such_action(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/tm/table/a"][:] = 18


def no_such_frame(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/tm/table/s"][0] = 1_000_000


def too_few_references(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["frames/counts"][:] = 1


def no_such_set(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/rtm/members"][0] = 10**6


def other_counters(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    arrays["agent/tm/counters"][0] += 1


def no_updates(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    values["agent/q_network/optimiser/num_updates"] = -1


def no_such_last_action(arrays: dict[str, Any], values: dict[str, Any]) -> None:
    values["environment/last_action"] = 99


FORGERIES = (
    nan_weight, another_network, one_row_for_all, other_numbers, no_such_action, no_such_frame, too_few_references,
    no_such_set, other_counters, no_updates, no_such_last_action,
)  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.__name__)
def test_a_state_that_cannot_be_taken_over_is_left_for_the_one_before(
    forgery: Any, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    newest, older = checkpoints.paths(folder)[:2]
    forged(newest, forgery)
    assert main(["verify", str(tmp_path)]) == 0
    assert main(["resume", str(tmp_path), "--device", "cpu", "--workers", "0", "--processes", "1"]) == 0
    text = capsys.readouterr().err
    assert f"{newest}: " in text
    assert f"{folder} goes on from step {int(older.name[5:])}." in text
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_state_that_cannot_be_taken_over_does_not_keep_the_others_back(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted(tmp_path, monkeypatch, trials=2)
    for checkpoint in checkpoints.paths(folder):
        forged(checkpoint, nan_weight)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(LeftOutError, match=r"seed-0: no checkpoint can be taken over.*Nothing was changed") as error:
        go_on(tmp_path)
    assert error.value.exit_code == 3
    assert error.value.done == [folder.with_name("seed-1")]
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert outcome(folder.with_name("seed-1")) == outcome(undisturbed / "seed-1")
    shutil.rmtree(folder / "checkpoints")
    assert go_on(tmp_path) == [folder]
    assert outcome(folder) == outcome(undisturbed / "seed-0")


def test_a_want_of_memory_is_no_reason_to_go_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    before = checkpoints.paths(folder)

    def none_left(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("comper.memory.transition_memory.TransitionMemory.load_state_dict", none_left)
        with pytest.raises(ResourceError, match="too little memory"):
            go_on(tmp_path)
    assert checkpoints.paths(folder) == before
