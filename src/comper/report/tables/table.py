"""One table, three forms: CSV for machines, LaTeX for papers, cells for the page; the same text in all of them."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace

from comper.report.statistics import cut


@dataclass(frozen=True)
class Column:
    """A column; one with parts (mean, sd) is several in the CSV and one, `mean (sd)`, elsewhere."""

    title: str
    parts: tuple[str, ...] = ("",)
    is_text: bool = False
    mark: str = ""
    """A sign beside the title that the table's sentence explains; not in the CSV."""

    def csv_titles(self) -> list[str]:
        """Its names in the CSV's header."""
        return [f"{self.title} {part}".strip() for part in self.parts]


@dataclass(frozen=True)
class Cell:
    """The text of a cell, one for each part of its column; empty where there is no number."""

    texts: tuple[str, ...]
    is_best: bool = False
    is_below_floor: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its name (of the files), title and the sentence that says how to read it."""

    name: str
    title: str
    sentence: str
    columns: list[Column]
    rows: list[list[Cell]]
    section: str
    """The part of the page it stands in; see page.SECTIONS."""
    is_grouped: bool = False
    """Whether a line is drawn where the first column changes."""

    @property
    def has_best(self) -> bool:
        """Whether the best cells are marked."""
        return any(cell.is_best for row in self.rows for cell in row)

    def csv_rows(self) -> list[list[str]]:
        """Header and rows as the CSV has them; where the best are marked, a last column names them."""
        header = [title for column in self.columns for title in column.csv_titles()]
        rows = [[text for cell in row for text in cell.texts] for row in self.rows]
        if not self.has_best:
            return [header, *rows]
        return [[*header, "best"], *([*texts, self._best_of(row)] for texts, row in zip(rows, self.rows, strict=True))]

    def _best_of(self, row: list[Cell]) -> str:
        return "; ".join(column.title for column, cell in zip(self.columns, row, strict=True) if cell.is_best)

    def to_csv(self) -> str:
        """The table as CSV."""
        file = io.StringIO()
        csv.writer(file, lineterminator="\n").writerows(self.csv_rows())
        return file.getvalue()

    def to_tex(self) -> str:
        """The table as LaTeX (booktabs)."""
        alignment = "".join("l" if column.is_text else "r" for column in self.columns)
        header = " & ".join(_escape_tex(column.title + column.mark) for column in self.columns)
        body = [" & ".join(map(_tex_cell, row)) + r" \\" for row in self.rows]
        lines = [
            _tex_comment(self.title), rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", header + r" \\", r"\midrule",
            *body, r"\bottomrule", r"\end{tabular}", _tex_comment(self.sentence),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def _tex_comment(text: str) -> str:
    """Text that LaTeX does not read, whatever lines it has."""
    return "% " + " ".join(text.split())


def text_cell(text: object) -> Cell:
    """A cell of words."""
    return Cell((str(text),))


def number_cell(*values: float, decimals: int = 2) -> Cell:
    """A cell of rounded numbers; one that is not finite stays empty."""
    return Cell(tuple(f"{round(value, decimals) + 0.0:.{decimals}f}" if math.isfinite(value) else "" for value in values))


def no_number(parts: int) -> Cell:
    """A cell without a number."""
    return Cell(("",) * parts)


def cut_text(value: float) -> str:
    """A number cut to two decimals, as the paper prints it."""
    return f"{cut(value) + 0.0:.2f}" if math.isfinite(value) else ""


def cut_cell(*values: float, floor: float = math.nan) -> Cell:
    """A cell of the paper's tables; one whose first number does not exceed the floor says so."""
    return Cell(tuple(map(cut_text, values)), is_below_floor=bool(values[0] <= floor))


def mark_best(row: list[Cell], candidates: list[int]) -> list[Cell]:
    """Mark the highest first number among the candidate columns, as shown, and all that tie; none at or below its floor."""
    shown = {index: float(row[index].texts[0]) for index in candidates if row[index].texts[0]}
    best = max(shown.values(), default=math.nan)
    return [replace(cell, is_best=shown.get(index) == best and not cell.is_below_floor) for index, cell in enumerate(row)]


def _tex_cell(cell: Cell) -> str:
    first, *rest = cell.texts
    text = _escape_tex(first) or "--"
    if any(rest):
        text += f" ({_escape_tex(', '.join(rest))})"
    return rf"\textbf{{{text}}}" if cell.is_best else text


_TEX_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    c: "\\" + c for c in "&%$#_{}"
}


def _escape_tex(text: str) -> str:
    return "".join(_TEX_ESCAPES.get(character, character) for character in text)
