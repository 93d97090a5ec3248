"""What must be the same where a run continues."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from comper.cli import main
from comper.environments.environment import EnvironmentInfo
from comper.errors import UsageError
from comper.runs import checkpoints
from comper.runs.files import sealed
from comper.runs.manifest import Manifest
from comper.runs.provenance import versions
from comper.training.conditions import check_conditions, conditions, device_name
from tests.training.small_runs import interrupted

INFO = EnvironmentInfo(
    name="toy", observation_shape=(1,), observation_dtype=np.dtype(np.uint8), observation_kind="vector", action_names=("0",),
    identity={"rom_md5": "ab12", "emulator": "0.12"},
)  # fmt: skip
CPU = torch.device("cpu")


def recorded(**changes: Any) -> Manifest:
    """The manifest of a run that was made here."""
    made = Manifest(agent="x", game="toy", seed=0, versions=versions(), **conditions(INFO, CPU))
    return dataclasses.replace(made, **changes)


def test_conditions_are_device_threads_instructions_and_the_environments_identity() -> None:
    found = conditions(INFO, CPU)
    assert found == {
        "device": "cpu",
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "identity": {"rom_md5": "ab12", "emulator": "0.12"},
    }


def test_a_gpu_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H200")
    assert device_name(torch.device("cuda")) == "cuda (NVIDIA H200)"


def test_the_same_conditions_pass_whatever_else_is_installed() -> None:
    check_conditions(recorded(versions=versions() | {"python": "2.7", "ale-py": "0.1"}), INFO, CPU)


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"versions": versions() | {"torch": "1.0"}}, r"made with torch 1\.0, and here is [0-9]", r"Install torch 1\.0"),
        ({"versions": versions() | {"numpy": "1.0"}}, r"made with numpy 1\.0, and here is [0-9]", r"Install numpy 1\.0"),
        ({"device": "cuda (NVIDIA H200)"}, r"ran on cuda \(NVIDIA H200\), and this is cpu", "Choose that --device"),
        ({"threads": 77}, "ran with 77 threads, and here are [0-9]+", "Set OMP_NUM_THREADS=77"),
        ({"cpu_capability": "AVX9"}, "ran on a processor with AVX9, and this one has", "Set ATEN_CPU_CAPABILITY=avx9"),
        ({"identity": {"rom_md5": "00", "emulator": "0.12"}}, "made with rom_md5 00, and here is ab12", "Get rom_md5 00"),
        ({"identity": {"rom_md5": "ab12"}}, "made with emulator None, and here is", "Get emulator"),
    ],
)
def test_each_other_condition_is_refused_with_its_remedy(change: dict[str, Any], what: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=rf"^The run (was )?{what}.*: it would not continue .*\. {remedy}.* --weights-only"):
        check_conditions(recorded(**change), INFO, CPU)


def test_a_run_is_not_resumed_under_other_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    for path in checkpoints.paths(folder):
        (path / "state.json").unlink()  # or the manifest would be restored from there
    manifest = json.loads((folder / "manifest.json").read_text())
    changes: list[tuple[dict[str, Any], int, str]] = [
        ({"versions": manifest["versions"] | {"torch": "1.0"}}, 2, "torch 1.0"),
        ({"device": "cuda (NVIDIA H200)"}, 2, "ran on cuda"),
        ({"threads": 77}, 2, "OMP_NUM_THREADS=77"),
        ({"cpu_capability": "OTHER"}, 2, "a processor with OTHER"),
        ({"identity": {"rom_md5": "0" * 32}}, 2, "rom_md5 0000"),
        ({"format": 99}, 3, "format is 99"),
    ]
    for change, code, sentence in changes:
        (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, **change})))
        assert main(["resume", str(folder), "--device", "cpu"]) == code
        error = capsys.readouterr().err
        assert sentence in error
        assert "Traceback" not in error
