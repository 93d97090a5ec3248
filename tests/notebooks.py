"""Run a notebook without Jupyter: its code cells one after the other, with what they print and the figures they draw.

    python -m tests.notebooks examples/tour.ipynb      # run it and keep its outputs in the file

Cells are plain Python, without magic commands; a cell that leaves a matplotlib figure open shows it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def code_of(path: Path) -> list[str]:
    """The code cells of a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run_notebook(path: Path) -> list[list[Output]]:
    """The outputs of every code cell, run in one namespace in the working folder; a cell that fails raises."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell(code, names, f"{path.name}, cell {number}") for number, code in enumerate(code_of(path), start=1)]


def _run_cell(code: str, names: dict[str, Any], where: str) -> list[Output]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), names)
    lines = printed.getvalue().splitlines(keepends=True)
    text = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    return [*text, *_figures()]


def _figures() -> list[Output]:
    """The open figures of matplotlib, which are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    shown = []
    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=80, bbox_inches="tight")
        data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/plain": ["<Figure>"]}
        shown.append({"output_type": "display_data", "data": data, "metadata": {}})
    pyplot.close("all")
    return shown


def main(path: Path) -> None:
    """Run a notebook in an empty folder and write its outputs into it."""
    path = path.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["MPLBACKEND"] = "agg"
        outputs = run_notebook(path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, output) in enumerate(zip(cells, outputs, strict=True), start=1):
        cell |= {"execution_count": number, "outputs": output}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
