"""Step 6: one self-contained page with tables and figures inline: no script, no network, light and dark, phone and print."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comper import __version__
from comper.errors import import_library
from comper.protocol import TRIALS
from comper.report.facts import changed_settings
from comper.report.figures.drawing import Drawn
from comper.report.findings import ERROR, WARNING, Finding
from comper.report.names import ATARI, FAMILIES, game_title
from comper.report.published import reference
from comper.report.reading import Trial
from comper.report.summary import Summary
from comper.report.tables.table import Table, cut_text

TEMPLATES = Path(__file__).parent / "templates"

SECTIONS = {
    "learning": "Learning curves",
    **{f"family-{name}": title for name, title in FAMILIES.items() if name != ATARI},
    "compare": "One against the other",
    "glance": "Score against floor",
    "findings": "Warnings and notes",
    "next": "What to do next",
    "paper": "The paper's tables",
    "aggregate": "All games together",
    "memory": "Memory",
    "details": "Each game",
    "logs": "What the agents logged",
    "cost": "Steps and time",
    "sources": "Floors and sources",
    "trials": "Every trial",
}
"""The parts of the page, in order; tables and figures name the one they stand in, and empty ones are left out."""
SINGLE_RUN_TITLES = {
    "learning": "Every episode", "paper": "Beside the paper's scores", "logs": "What the run logged", "trials": "The run",
}  # fmt: skip
"""What some of them are called on the page of a single run."""


@dataclass(frozen=True)
class Section:
    """A part of the page with what stands in it."""

    name: str
    title: str
    figures: list[Drawn] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether it has neither figures nor tables."""
        return not self.figures and not self.tables


@dataclass(frozen=True)
class Fact:
    """A number at the head of the page."""

    value: str
    label: str
    kind: str = ""


@dataclass(frozen=True)
class NextStep:
    """Something to do next, with the command that does it."""

    text: str
    command: str = ""


def render_page(summary: Summary, tables: list[Table], figures: list[Drawn], findings: list[Finding]) -> str:
    """The page as HTML; a single run gets a short one."""
    is_single = summary.is_single_run
    page: str = _environment().get_template("page.html.j2").render(
        title=_title(summary),
        subject=", ".join(summary.agents),
        lead=_single_lead(summary) if is_single else _lead(summary),
        facts=[*(_single_facts(summary) if is_single else _facts(summary)), *_finding_facts(findings)],
        sections=_sections(summary, tables, figures),
        findings=findings,
        next_steps=_next_steps(summary) if is_single else [],
        has_atari=ATARI in summary.families,
        sources=reference.sources(),
        printed_source=reference.printed_source(),
        seed=summary.seed,
        version=__version__,
    )  # fmt: skip
    return page


def _sections(summary: Summary, tables: list[Table], figures: list[Drawn]) -> list[Section]:
    always = {"findings", "sources", "next"} if summary.is_single_run else {"findings", "sources", "glance"}
    titles = SECTIONS | (SINGLE_RUN_TITLES if summary.is_single_run else {})
    sections = [
        Section(
            name,
            title,
            [figure for figure in figures if figure.section == name],
            [table for table in tables if table.section == name and table.rows],
        )
        for name, title in titles.items()
    ]
    return [section for section in sections if section.name in always or not section.is_empty]


def _title(summary: Summary) -> str:
    if summary.is_single_run:
        return "One run"
    return " against ".join(summary.agents) if summary.is_comparison else "What the agents learned"


def _lead(summary: Summary) -> str:
    games = f"{len(summary.games)} {'game' if len(summary.games) == 1 else 'games'}"
    return (
        f"{', '.join(summary.agents)} in {games}, with the protocol of COMPER (arXiv 2111.06907): scores of training "
        "episodes, beside the floor, which is what a game pays without learning."
    )


def _single_lead(summary: Summary) -> str:
    (trial,) = summary.runs.trials
    return f"{trial.agent} in {game_title(trial.game)}, seed {trial.seed}. One run says little about the next one."


def _facts(summary: Summary) -> list[Fact]:
    facts = [
        _count(len(summary.runs.trials), "finished trial"),
        _count(len(summary.agents), "agent"),
        _count(len(summary.games), "game"),
    ]
    return facts + _unfinished(summary)


def _single_facts(summary: Summary) -> list[Fact]:
    (trial,) = summary.runs.trials
    facts = [
        Fact(cut_text(float(summary.final[trial.agent, trial.game][0])), "score"),
        Fact(cut_text(summary.floor(trial.agent, trial.game)) or "–", "floor: the score without learning"),
        _count(trial.scores.size, "episode"),
        _count(trial.total_frames, "frame"),
        _count(trial.total_steps, "agent step"),
    ]
    if trial.wall_seconds is not None:
        facts.append(Fact(f"{trial.wall_seconds / 60:,.1f}", "minutes"))
    return facts + _unfinished(summary)


def _unfinished(summary: Summary) -> list[Fact]:
    return [Fact(str(len(summary.runs.running)), "unfinished, not averaged in")] if summary.runs.running else []


def _finding_facts(findings: list[Finding]) -> list[Fact]:
    errors, warnings = (sum(finding.severity == severity for finding in findings) for severity in (ERROR, WARNING))
    facts = [Fact(str(errors), "left out as wrong", ERROR)] if errors else []
    return [*facts, _count(warnings, "warning", WARNING if warnings else "")]


def _count(number: int, noun: str, kind: str = "") -> Fact:
    return Fact(f"{number:,}", noun if number == 1 else f"{noun}s", kind)


def _next_steps(summary: Summary) -> list[NextStep]:
    """What a person with one run does next."""
    (trial,) = summary.runs.trials
    again = _train_command(trial)
    steps = [
        NextStep(f"Run {TRIALS - 1} more seeds, so that there is an interval around the score.", again),
        NextStep("Train another agent on the same game (`comper agents` lists them), and report all runs together."),
    ]
    if math.isnan(summary.floor(trial.agent, trial.game)):
        command = f"comper floors {shlex.quote(trial.game)} --out floors.json"
        steps.append(NextStep("Measure what scores without learning, and report with `--floors floors.json`.", command))
    return steps


def _train_command(trial: Trial) -> str:
    changed = changed_settings(trial).items()
    flags = [word for key, (value, _) in changed for word in (f"--{key.replace('_', '-')}", str(value))]
    words = ["comper", "train", trial.game, "--agent", trial.manifest.agent, *flags]
    return shlex.join([*words, "--seed", str(trial.seed + 1), "--trials", str(TRIALS - 1)])


def _environment() -> Any:
    names = ("jinja2", "markupsafe")
    jinja2, markupsafe = (import_library(name, "A report needs jinja2", extra="report", end=".") for name in names)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["svg"] = lambda figure: markupsafe.Markup(figure.inline)
    environment.filters["words"] = lambda text: markupsafe.Markup(with_code(str(markupsafe.escape(text))))
    environment.filters["digits"] = lambda text: markupsafe.Markup(group_digits(str(markupsafe.escape(text))))
    return environment


def with_code(escaped: str) -> str:
    """Escaped text with what stands between backticks set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def group_digits(text: str) -> str:
    """Set thousands apart by space alone, so that the text stays what the CSV has."""
    match = re.fullmatch(r"(-?)(\d{5,})(\.\d+)?", text)
    if match is None:
        return text
    sign, whole, fraction = match.groups()
    head = len(whole) % 3 or 3
    groups = [whole[index : index + 3] for index in range(head, len(whole), 3)]
    return sign + whole[:head] + "".join(f'<span class="k">{group}</span>' for group in groups) + (fraction or "")
