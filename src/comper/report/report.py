"""From run folders to one page, its tables and its figures: the walk, step by step, in `report`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from comper.errors import DamagedFileError, UsageError, counted, explaining_os_errors
from comper.progress import show_progress
from comper.report.checks import check
from comper.report.facts import all_floors
from comper.report.figures import draw_figures
from comper.report.figures.drawing import Drawn
from comper.report.findings import ERROR, Finding, by_severity
from comper.report.page import render_page
from comper.report.reading import Runs, read_runs
from comper.report.summary import Summary
from comper.report.tables import build_tables
from comper.report.tables.table import Table
from comper.runs.files import read_json_object, require_no_links, write_atomically

PAGE = "index.html"
INDEX = "report.json"
"""What a report consists of and what it found, for machines; the next report removes what it no longer writes."""

MAX_INDEX_BYTES = 1 << 24
_OWN_FILE = re.compile(r"(tables|figures)/[A-Za-z0-9._+-]+\.(csv|tex|svg|png)")


@dataclass(frozen=True)
class ReportResult:
    """What a report was made of and what its reader must know."""

    page: Path
    trials: int
    running: int
    tables: list[Table]
    figures: list[str]
    findings: list[Finding]

    @property
    def exit_code(self) -> int:
        """3 where a run was left out because its numbers would be wrong."""
        return DamagedFileError.exit_code if any(finding.severity == ERROR for finding in self.findings) else 0


def report(
    folders: Iterable[Path], out: Path, *, floors: Path | None = None, seed: int = 0, progress: bool = True
) -> ReportResult:
    """Write OUT/index.html, OUT/tables and OUT/figures from every run folder below the given ones.

    `floors` is a file that `comper floors --out FILE` wrote, for environments whose floor does not come with the package.
    """
    measured = all_floors(floors)
    _require_place(out)
    with show_progress("Run folders read", wanted=progress) as shown:
        runs = read_runs([Path(folder) for folder in folders], advance=shown.update)
    _require_trials(runs)
    summary = Summary(runs, measured, seed)
    findings = by_severity(runs.findings + check(summary))
    tables = build_tables(summary)
    with show_progress("Figures drawn", wanted=progress) as shown:
        figures = draw_figures(summary, shown)
    page = render_page(summary, tables, figures, findings)
    _write(out, _files(page, tables, figures), findings)
    return ReportResult(out / PAGE, len(runs.trials), len(runs.running), tables, [figure.name for figure in figures], findings)


def _require_place(out: Path) -> None:
    """Refuse a place where no folder can be, before the work rather than after it."""
    places = [out / "tables", out / "figures"]
    with explaining_os_errors(out, is_typed=True):
        for place in places:
            with suppress(FileNotFoundError):
                os.stat(place / PAGE)  # the system objects where anything on the way is no folder
        require_no_links(out, places)


def _require_trials(runs: Runs) -> None:
    if runs.trials:
        return
    damage = [finding for finding in runs.findings if finding.severity == ERROR]
    if damage:
        raise DamagedFileError(
            f"No run can be reported. {damage[0].text}" + (f" And {len(damage) - 1} more." if damage[1:] else "")
        )
    going = counted(len(runs.running), "runs or was", "run or were")
    raise UsageError(f"No run is finished yet: {going} interrupted. `comper resume` continues what was interrupted.")


def _files(page: str, tables: list[Table], figures: list[Drawn]) -> dict[str, bytes]:
    files = {PAGE: page.encode()}
    for table in tables:
        files |= {f"tables/{table.name}.csv": table.to_csv().encode(), f"tables/{table.name}.tex": table.to_tex().encode()}
    for figure in figures:
        files |= {f"figures/{figure.name}.svg": figure.svg, f"figures/{figure.name}.png": figure.png}
    return files


def _write(out: Path, files: dict[str, bytes], findings: list[Finding]) -> None:
    _require_place(out)  # once more: drawing takes a while
    with explaining_os_errors(out, is_typed=True):
        for name, content in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out / name, content)
        for name in _earlier_files(out) - set(files):
            (out / name).unlink(missing_ok=True)
        index = {"files": sorted(files), "findings": [asdict(finding) for finding in findings]}
        write_atomically(out / INDEX, (json.dumps(index, indent=1) + "\n").encode())


def _earlier_files(out: Path) -> set[str]:
    """Tables and figures of an earlier report in the same folder; nothing that a report does not write."""
    try:
        names = read_json_object(out / INDEX, max_bytes=MAX_INDEX_BYTES)["files"]
        return {name for name in names if _OWN_FILE.fullmatch(name)}
    except (DamagedFileError, KeyError, TypeError):
        return set()
