"""Curves of real runs in TensorBoard's files and in Weights & Biases' own, also of runs that were resumed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comper import TensorBoard, WeightsAndBiases, resume
from comper.cli import main
from comper.errors import ComperError, UsageError
from tests.training.small_runs import interrupted, start

QUICK: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False}
Curves = dict[str, list[tuple[int, float]]]


def shown_curves(folder: Path) -> Curves:
    """What TensorBoard shows of a folder: a new start at a step hides what older files say of it and of later steps."""
    event_pb2: Any = importlib.import_module("tensorboardX.proto.event_pb2")
    curves: Curves = {}
    for path in sorted(folder.glob("events.*")):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = event_pb2.Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            if event.HasField("session_log"):
                curves = {name: [p for p in points if p[0] < event.step] for name, points in curves.items()}
            for value in event.summary.value:
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves


def board_of(folder: Path, run: str = "comper-single/asterix/seed-0") -> Path:
    """The one folder of a run's event files."""
    (place,) = folder.glob(f"*/{run}-*")
    return place


def logged(run: Path, file: str, name: str) -> list[tuple[int, Any]]:
    records = [json.loads(line) for line in (run / file).read_text().splitlines()]
    return [(record["total_frames"], pytest.approx(record[name], rel=1e-5)) for record in records if record[name] is not None]


def assert_curves_are_the_logs(curves: Curves, run: Path) -> None:
    assert curves["episode/score"] == logged(run, "episodes.jsonl", "score")
    for name in ("cnn_loss", "epsilon", "known_sets"):
        assert curves[f"train/{name}"] == logged(run, "metrics.jsonl", name)
    assert "train/total_frames" not in curves


def test_tensorboard_shows_what_the_logs_say(tmp_path: Path) -> None:
    run = start(tmp_path / "runs", hooks=[TensorBoard(str(tmp_path / "tb"))])
    assert_curves_are_the_logs(shown_curves(board_of(tmp_path / "tb")), run)


def test_a_killed_run_goes_on_with_its_tensorboard_curves_without_a_point_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = TensorBoard(str(tmp_path / "tb"))
    monkeypatch.setattr("time.time", lambda: 1.8e9)  # killed and resumed within one second

    class Killed(Exception):
        pass

    def die(self: Any, trials: Any, step: int) -> None:
        if step == 38:  # three steps, and perhaps points, after the last checkpoint
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("comper.training.display.TrainingProgress.after_step", die)
        with pytest.raises(Killed):
            start(tmp_path / "runs", period=15, hooks=[board], log_period_steps=4)
    place = board_of(tmp_path / "tb")
    assert max(step for step, _ in shown_curves(place)["train/epsilon"]) > 30 * 5
    (run,) = resume(tmp_path / "runs", hooks=[board], **QUICK)
    assert_curves_are_the_logs(shown_curves(place), run)


def test_runs_of_one_name_keep_their_own_curves(tmp_path: Path) -> None:
    board = TensorBoard(str(tmp_path / "tb"))
    for out, frames in (("a", 200), ("b", 205)):
        start(tmp_path / out, frames=frames, hooks=[board])
    places = sorted((tmp_path / "tb").glob("*/comper-single/asterix/seed-0-*"))
    assert [place.relative_to(tmp_path / "tb").parts[0] for place in places] == ["a", "b"]
    assert all(shown_curves(place)["episode/score"] for place in places)


@pytest.mark.slow
def test_trials_in_processes_of_their_own_write_their_curves_too(tmp_path: Path) -> None:
    run = start(tmp_path / "runs", trials=2, processes=2, hooks=[TensorBoard(str(tmp_path / "tb"))])
    for seed in (0, 1):
        place = board_of(tmp_path / "tb", f"comper-single/asterix/seed-{seed}")
        assert_curves_are_the_logs(shown_curves(place), run.with_name(f"seed-{seed}"))


SCRIPT = """
import sys
from pathlib import Path
from comper import WeightsAndBiases, resume
from comper.training.display import TrainingProgress
from tests.training.small_runs import start

class Killed(Exception):
    pass

def die(self, trials, step):
    if step == 38:
        raise Killed

after_step = TrainingProgress.after_step
TrainingProgress.after_step = die
try:
    start(Path("runs"), period=15, hooks=[WeightsAndBiases("test")], log_period_steps=4)
except Killed:
    pass
TrainingProgress.after_step = after_step
resume("runs", hooks=[WeightsAndBiases("test")], device="cpu", workers=0, show_progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is an extra")
def test_offline_a_killed_run_goes_on_with_its_wandb_curves_without_a_point_twice(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "PYTHONPATH": paths, "HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stderr
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    # offline-run-TIME-ID, and -1 behind it where both began within one second; one id: one run, continued
    assert len({folder.name.split("-")[3] for folder in folders}) == 1
    curves: Curves = {}
    for folder in folders:
        for step, values in wandb_history(next(folder.glob("*.wandb"))):
            for name, value in values.items():
                curves.setdefault(name, []).append((step, value))
    assert_curves_are_the_logs(curves, tmp_path / "runs" / "comper-single" / "asterix" / "seed-0")


def wandb_records(content: bytes) -> Iterator[bytes]:
    """The records of a file of wandb's own: a head of 7 bytes, then LevelDB's log format in blocks of 32 kB."""
    place, parts = 7, b""
    while place < len(content):
        if 32_768 - place % 32_768 < 7:  # too little room in the block for another head
            place += 32_768 - place % 32_768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def wandb_history(path: Path) -> list[tuple[int, dict[str, float]]]:
    """The history in a file of wandb's own."""
    records: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    found = []
    for content in wandb_records(path.read_bytes()):
        record = records.Record.FromString(content)
        if record.HasField("history"):
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            step = items.pop("_step", record.history.step.num)
            found.append((int(step), {key: value for key, value in items.items() if not key.startswith("_")}))
    return found


def test_what_is_missing_is_named_with_its_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r'need tensorboardX: pip install "comper\[tensorboard\]"'):
        TensorBoard(str(tmp_path)).check()
    with pytest.raises(UsageError, match=r'needs wandb: pip install "comper\[wandb\]"'):
        WeightsAndBiases("project").check()


def test_a_place_that_cannot_be_written_is_refused_before_a_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ComperError, match="cannot be written"):
        start(tmp_path / "runs", hooks=[TensorBoard(str(tmp_path / "file" / "tb"))])
    words = ["train", "gym:CartPole-v1", "--agent", "random", "--frames", "50", "--out", str(tmp_path / "runs")]
    assert main([*words, "--tensorboard", str(tmp_path / "file" / "tb")]) == 2
    assert main([*words, "--wandb", ""]) == 2
    assert "the project needs a name" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_the_command_line_writes_curves_of_new_and_of_resumed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = interrupted(tmp_path / "runs", monkeypatch)
    board = tmp_path / "tb"
    words = ["--device", "cpu", "--workers", "0", "--tensorboard", str(board)]
    assert main(["resume", str(tmp_path / "runs"), *words]) == 0
    curves = shown_curves(board_of(board))
    assert curves["episode/score"] == [p for p in logged(run, "episodes.jsonl", "score") if p[0] > 35 * 5]
    assert (
        main(["train", "gym:CartPole-v1", "--agent", "random", "--frames", "50", "--out", str(tmp_path / "new"), *words]) == 0
    )
    assert shown_curves(board_of(board, "random/gym-CartPole-v1/seed-0"))["episode/score"]


@pytest.mark.parametrize("content", [b"", b"nan", b"1" * 5_000, b"\xff", None])
def test_a_mark_that_says_nothing_is_none(content: bytes | None, tmp_path: Path) -> None:
    from comper.training.trackers import _frames_in

    mark = tmp_path / "x.frames"
    if content is None:
        (tmp_path / "outside").write_text("7")
        mark.symlink_to(tmp_path / "outside")
    else:
        mark.write_bytes(content)
    assert _frames_in(mark) == -1
    assert _frames_in(tmp_path / "none") == -1
    mark.unlink()
    mark.write_text("4200")
    assert _frames_in(mark) == 4200
