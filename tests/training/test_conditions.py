"""What must be the same where a run continues."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.cli import main
from comper.runs import checkpoints
from comper.runs.files import sealed
from tests.training.small_runs import interrupted


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"versions": {"torch": "1.0", "numpy": np.__version__}}, r"was made with numpy|torch 1\.0"),
        ({"device": "cuda (NVIDIA H200)"}, "ran on cuda"),
        ({"threads": 77}, "OMP_NUM_THREADS=77"),
        ({"cpu_capability": "OTHER"}, "a processor with OTHER"),
        ({"identity": {"rom_md5": "0" * 32}}, "rom_md5 0000"),
        ({"format": 99}, "format is 99"),
    ],
)
def test_other_conditions_are_refused_with_a_sentence(
    change: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    for path in checkpoints.paths(folder):
        (path / "state.json").unlink()  # or the manifest would be restored from there
    manifest = json.loads((folder / "manifest.json").read_text())
    if "versions" in change:
        change = {"versions": manifest["versions"] | {"torch": "1.0"}}
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, **change})))
    assert main(["resume", str(folder), "--device", "cpu"]) in (2, 3)
    error = capsys.readouterr().err
    assert re.search(sentence, error)
    assert "Traceback" not in error
