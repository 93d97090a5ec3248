"""The rows of the torture table at the size of every test run; `make torture` is the same at full size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.torture import DOCUMENT, RESULTS, ROWS, document

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and Unix signals")
@pytest.mark.parametrize("name", ROWS)
def test_nothing_is_lost(name: str, tmp_path: Path) -> None:
    # A process of its own: it forks, which a process that has computed with torch's threads must not.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.faults.torture", "--rows", name, "--size", "ci", "--out", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    row = json.loads((tmp_path / f"{name}.json").read_text())
    assert row["losses"] == 0
    if "skipped" in row["notes"]:
        pytest.skip(row["notes"]["skipped"])
    assert row["tried"] >= max(1, ROWS[name].ci if name != "soak" else 3)


def test_the_documentation_says_what_was_tried_and_what_was_lost() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert "<!-- table: torture -->" in text
    assert document(text) == text, "python -m tests.faults.torture --document"
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(ROWS)
