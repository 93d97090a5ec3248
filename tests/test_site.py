"""The site of the documents builds without a warning, its pictures are drawn by our own code, and its notebook runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebooks import code_of, run_notebook

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOK = ROOT / "examples" / "tour.ipynb"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-b", "html", str(DOCS)]
    result = subprocess.run([*command, str(tmp_path / "site")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = {path.stem for path in (tmp_path / "site").glob("*.html")}
    assert {path.stem for path in DOCS.glob("*.md")} - {"README"} <= pages
    api = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert all(f'id="comper.{name}"' in api for name in ("train", "load", "CompactMemory", "Agent"))
    assert "An agent is one file" in (tmp_path / "site" / "contributing.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pictures_of_the_method_are_drawn_from_a_run(tmp_path: Path) -> None:
    command = [sys.executable, str(DOCS / "draw_method.py"), "--steps", "130", "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == set(re.findall(r"pictures/(method-\w+\.png)", (DOCS / "method.md").read_text(encoding="utf-8")))


def test_every_picture_is_shown_somewhere() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *DOCS.rglob("*.md")])
    assert [path.name for path in (DOCS / "pictures").iterdir() if f"pictures/{path.name}" not in texts] == []


@pytest.mark.slow
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outputs = run_notebook(NOTEBOOK)
    assert len(outputs) == len(code_of(NOTEBOOK))
    assert any("image/png" in output.get("data", {}) for cell in outputs for output in cell)


def test_the_notebook_is_kept_with_what_it_printed() -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] == number for number, cell in enumerate(cells, start=1))
    assert any(cell["outputs"] for cell in cells)
