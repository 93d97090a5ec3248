"""One self-contained page: tables and figures inline, no script, no network, light and dark, on a phone and on paper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from comper import __version__
from comper.errors import UsageError
from comper.report import reference
from comper.report.drawing import Drawn
from comper.report.findings import ERROR, WARNING, Finding, by_severity
from comper.report.summary import Summary
from comper.report.tables import Table

TEMPLATE = Path(__file__).parent / "templates" / "page.html.j2"

SECTIONS = ("glance", "learning", "aggregate", "memory", "details", "cost")
"""The parts of the page in which figures stand."""


def render_page(summary: Summary, tables: list[Table], figures: list[Drawn], findings: list[Finding]) -> str:
    """The page as HTML."""
    environment = _environment()
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    page: str = template.render(
        summary=summary,
        version=__version__,
        tables={table.name: table for table in tables},
        figures={section: [figure for figure in figures if figure.section == section] for section in SECTIONS},
        findings=by_severity(findings),
        counts={severity: sum(finding.severity == severity for finding in findings) for severity in (ERROR, WARNING)},
        sources=reference.sources(),
        printed_source=reference.printed_source(),
    )
    return page


def _environment() -> Any:
    try:
        import jinja2
        import markupsafe
    except ImportError:
        raise UsageError('A report needs jinja2: pip install "comper[report]".') from None
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["svg"] = lambda figure: markupsafe.Markup(figure.inline)
    environment.filters["digits"] = lambda text: markupsafe.Markup(group_digits(str(markupsafe.escape(text))))
    return environment


def group_digits(text: str) -> str:
    """Set thousands apart by space alone, so that the text stays what the CSV has."""
    match = re.fullmatch(r"(-?)(\d{5,})(\.\d+)?", text)
    if match is None:
        return text
    sign, whole, fraction = match.groups()
    head = len(whole) % 3 or 3
    groups = [whole[index : index + 3] for index in range(head, len(whole), 3)]
    return sign + whole[:head] + "".join(f'<span class="k">{group}</span>' for group in groups) + (fraction or "")
