"""From run folders to one page, its tables and its figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from comper.errors import DamagedFileError, UsageError
from comper.report import drawing
from comper.report.checks import check
from comper.report.figures import build_learning_figures
from comper.report.findings import ERROR, Finding, by_severity
from comper.report.floors import load_floors
from comper.report.memory_figures import build_memory_figures
from comper.report.page import render_page
from comper.report.paper_tables import build_tables
from comper.report.printed import compare_with_printed, comparison_tables
from comper.report.progress import Stage, showing_progress
from comper.report.reading import Runs, read_runs
from comper.report.statistics_figures import build_statistics_figures
from comper.report.summary import Summary
from comper.report.tables import Table
from comper.runs.files import write_atomically

PAGE = "index.html"
INDEX = "report.json"
"""What a report consists of and what it found, for machines; the next report removes what it no longer writes."""

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


def report(folders: Iterable[Path], out: Path, *, seed: int = 0, progress: bool = True) -> ReportResult:
    """Write OUT/index.html, OUT/tables and OUT/figures from every run folder below the given ones."""
    with showing_progress(progress) as stage:
        runs = read_runs([Path(folder) for folder in folders], advance=stage("Run folders read"))
        _require_trials(runs)
        summary = Summary(runs, load_floors(), seed)
        tables = build_tables(summary) + comparison_tables(compare_with_printed(summary))
        findings = by_severity(runs.findings + check(summary))
        figures = _draw(summary, stage)
    page = render_page(summary, tables, figures, findings)
    files = {PAGE: page.encode()}
    files |= {f"tables/{table.name}.csv": table.to_csv().encode() for table in tables}
    files |= {f"tables/{table.name}.tex": table.to_tex().encode() for table in tables}
    files |= {f"figures/{figure.name}.svg": figure.svg for figure in figures}
    files |= {f"figures/{figure.name}.png": figure.png for figure in figures}
    _write(out, files, findings)
    return ReportResult(out / PAGE, len(runs.trials), len(runs.running), tables, [figure.name for figure in figures], findings)


def _require_trials(runs: Runs) -> None:
    if runs.trials:
        return
    damage = [finding for finding in runs.findings if finding.severity == ERROR]
    if damage:
        raise DamagedFileError(
            f"No run can be reported. {damage[0].text}" + (f" And {len(damage) - 1} more." if damage[1:] else "")
        )
    raise UsageError(f"No run is finished yet: {len(runs.running)} are still running.")


def _draw(summary: Summary, stage: Stage) -> list[drawing.Drawn]:
    with drawing.style():
        plots = build_learning_figures(summary) + build_statistics_figures(summary) + build_memory_figures(summary)
        advance, drawn = stage("Figures drawn"), []
        for plot in plots:
            drawn.append(drawing.draw(plot))
            advance(len(drawn), len(plots))
    return drawn


def _write(out: Path, files: dict[str, bytes], findings: list[Finding]) -> None:
    try:
        for name, content in files.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out / name, content)
        for name in _earlier_files(out) - set(files):
            (out / name).unlink(missing_ok=True)
        index = {"files": sorted(files), "findings": [asdict(finding) for finding in findings]}
        write_atomically(out / INDEX, (json.dumps(index, indent=1) + "\n").encode())
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}: {error.filename}).") from None


def _earlier_files(out: Path) -> set[str]:
    """Tables and figures of an earlier report in the same folder; nothing that a report does not write."""
    try:
        names = json.loads((out / INDEX).read_bytes())["files"]
        return {name for name in names if _OWN_FILE.fullmatch(name)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
