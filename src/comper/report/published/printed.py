"""The paper's printed tables against the same tables computed from the logs published with it, figure by figure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from comper.protocol import FEW_EPISODE_GAMES, PAPER_GAMES, TRIALS
from comper.report import statistics
from comper.report.published import reference
from comper.report.reading import Trial
from comper.report.summary import Summary

CUT = "equal"
"""The printed figure is the computed one, cut after the printed digits."""
ROUNDED = "equal, rounded"
"""Equal too, but this one was rounded where most are cut."""
MISTYPED = "mistyped"
"""The right number, but not written as one."""
DIFFERENT = "differs"

RELEASED = "released logs"
"""`source` in the manifest of an imported trial."""


@dataclass(frozen=True)
class Comparison:
    """One printed figure and the one computed from the logs."""

    table: int
    game: str
    moment: str
    column: str
    statistic: str
    printed: str
    computed: float

    @property
    def verdict(self) -> str:
        """How the two agree."""
        return agreement(self.printed, self.computed)


def agreement(printed: str, computed: float) -> str:
    """How a printed figure agrees with a computed one, to the digits it was printed with."""
    if not math.isfinite(computed):
        return DIFFERENT
    number, decimals = reference.printed_number(printed), len(printed.partition(".")[2])
    if printed.count(".") > 1 or printed.endswith("."):
        return MISTYPED if math.isclose(number, computed, abs_tol=0.05) else DIFFERENT
    if number == statistics.cut(computed, decimals):
        return CUT
    return ROUNDED if math.isclose(number, round(computed, decimals), abs_tol=1e-9) else DIFFERENT


def compare_with_printed(summary: Summary) -> list[Comparison]:
    """Every printed figure whose game and column were imported from the published logs."""
    comparisons = []
    for (agent, game), trials in summary.cells.items():
        column = printed_column(trials)
        if column is None or reference.table_1(game, column) is None:
            continue
        comparisons += _of_table_1(summary, agent, game, column) + _of_table_2(summary, agent, game, column)
    games = list(summary.games)
    return sorted(comparisons, key=lambda c: (c.table, games.index(c.game), c.column))


def printed_column(trials: list[Trial]) -> str | None:
    """Which printed column a cell of imported trials belongs to; None for runs of our own."""
    if any(trial.manifest.source != RELEASED for trial in trials):
        return None
    if "dqn" in trials[0].agent.lower():  # the name the user gave the import
        return "dqn"
    column = f"comper-{trials[0].config.get('observation')}"
    return column if column in reference.PRINTED_COLUMNS else None


def contradictions() -> list[tuple[str, str, str, str, str, float]]:
    """Game, column, figure, Table 1, Table 2 and what Table 1 implies there, where the printed tables contradict each other.

    Where only 3 episodes are scored, both tables average the same ones at the end: equal means, and deviations of the same
    five trials in the two forms, √(5/4) apart.
    """
    found = []
    for game in sorted(FEW_EPISODE_GAMES, key=PAPER_GAMES.index):
        for column in reference.PRINTED_COLUMNS:
            first, thirds = reference.table_1(game, column), reference.table_2(game, column)
            assert first is not None
            assert thirds is not None
            last = thirds[-1]
            if first.mean != last.mean:
                found.append((game, column, "mean", first.mean_text, last.mean_text, first.mean))
            sample = first.sd * math.sqrt(TRIALS / (TRIALS - 1))
            if abs(sample - last.sd) > 0.05:
                found.append((game, column, "sd", first.sd_text, last.sd_text, sample))
    return found


def _of_table_1(summary: Summary, agent: str, game: str, column: str) -> list[Comparison]:
    cell, scores = reference.table_1(game, column), summary.final[agent, game]
    assert cell is not None
    return [
        Comparison(1, game, "end of training", column, "mean", cell.mean_text, float(scores.mean())),
        Comparison(1, game, "end of training", column, "sd", cell.sd_text, statistics.population_deviation(scores)),
    ]


def _of_table_2(summary: Summary, agent: str, game: str, column: str) -> list[Comparison]:
    comparisons = []
    for third, cell in enumerate(reference.table_2(game, column) or []):
        scores, moment = summary.thirds[agent, game][:, third], f"end of {statistics.THIRDS[third]} third"
        comparisons += [
            Comparison(2, game, moment, column, "mean", cell.mean_text, float(scores.mean())),
            Comparison(2, game, moment, column, "sd", cell.sd_text, statistics.sample_deviation(scores)),
        ]
    return comparisons
