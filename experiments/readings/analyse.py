"""Tables of the study of readings, and the choice by the rule of docs/research/readings.md, applied to them.

python experiments/readings/analyse.py runs/readings/stage1 --out results/readings/stage1
python experiments/readings/analyse.py runs/readings/combined --out results/readings/combined
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))

from experiments.readings.variants import BASE, DELTAS
from experiments.study_tables import (
    Row,
    by_game,
    exit_code_of,
    floor,
    read_variants,
    score,
    trial_rows,
    write_csv,
    write_plots,
)

from comper.errors import UsageError
from comper.report import statistics
from comper.report.figures.drawing import Plot, label_outer, line_handle, look, style, titled_panels
from comper.report.names import game_title
from comper.report.summary import Summary
from comper.runs.files import write_atomically

BETTER, WORSE = 0.8, 0.2
"""Shares of pairs of trials: a variant that wins so many or more is better, one that wins so many or fewer is worse."""


class Factor(NamedTuple):
    """A choice the paper leaves open, and how it is settled."""

    eligible: tuple[str, ...]
    """Variants that may be chosen on their score, besides the base."""
    on_tie: str = "base"
    why: str = ""


FACTORS = {
    "alignment": Factor(("alignment-fresh", "alignment-set"), why="max is in neither the sentence nor Equation 5"),
    "QLSTM epochs": Factor(("epochs-5", "epochs-15"), why="nothing is said; a tie is settled by cost"),
    "input scale": Factor(("inputs-minmax",), why="nothing is said"),
    "mean-square start": Factor(
        ("mean-square-1",), "mean-square-1", "Table 6's values are those of the library that starts at 1"
    ),
    "reward clip": Factor((), why="off, by the published TD errors (A4c)"),
    "RTM": Factor((), why="accumulates, by the word 'inserting' and the published counts (A19)"),
    "δ": Factor((), why="0, by Table 7"),
}


class Comparison(NamedTuple):
    """A variant beside another on the games that both played."""

    games: list[str]
    multiple: float
    other_multiple: float
    wins: statistics.Interval

    @property
    def verdict(self) -> str:
        """better, worse or tie."""
        if self.wins.value >= BETTER and self.multiple > self.other_multiple:
            return "better"
        return "worse" if self.wins.value <= WORSE and self.multiple < self.other_multiple else "tie"


def mean_multiple(summary: Summary, games: list[str]) -> float:
    """The mean over games of a variant's mean score as a multiple of the game's floor."""
    floors = [floor(summary, game) for game in games]
    if not np.isfinite(floors).all():
        missing = [game for game, value in zip(games, floors, strict=True) if not np.isfinite(value)]
        raise UsageError(f"No floor of {', '.join(missing)}: measure it with `comper floors`.")
    means = [np.mean([score(trial) for trial in by_game(summary)[game]]) for game in games]
    return float(np.mean(np.array(means) / floors))


def compare(variant: Summary, other: Summary) -> Comparison:
    """Compare two variants by the rule: mean multiple of the floor, and pairs of trials won."""
    games = [game for game in by_game(variant) if game in by_game(other)]
    strata = [[np.array([score(t) for t in by_game(s)[game]]) for game in games] for s in (variant, other)]
    wins = statistics.improvement_interval(*strata, rng=np.random.default_rng(0))
    return Comparison(games, mean_multiple(variant, games), mean_multiple(other, games), wins)


def chosen(factor: Factor, comparisons: Mapping[str, Comparison]) -> str:
    """The variant that the rule chooses for a factor; "base" where none is better."""
    measured = {name: comparisons[name] for name in factor.eligible if name in comparisons}
    better = {name: c.multiple for name, c in measured.items() if c.verdict == "better"}
    if better:
        return max(better, key=lambda name: better[name])
    is_worse = factor.on_tie in measured and measured[factor.on_tie].verdict == "worse"
    return factor.on_tie if factor.on_tie in measured and not is_worse else "base"


def variant_rows(variants: Mapping[str, Summary], comparisons: Mapping[str, Comparison], rows: list[Row]) -> Iterator[Row]:
    """One row for each variant: what the rule looks at, and what it holds."""
    for name, summary in variants.items():
        own = [row for row in rows if row["variant"] == name]
        means = {key: float(np.mean([row[key] for row in own])) for key in ("known_sets", "similar_share", "bytes_held")}
        compared = comparisons.get(name)
        yield {
            "variant": name,
            "trials": len(own),
            "mean_multiple_of_floor": mean_multiple(summary, list(by_game(summary))),
            "wins_against_base": compared.wins.value if compared else np.nan,
            "low": compared.wins.low if compared else np.nan,
            "high": compared.wins.high if compared else np.nan,
            "verdict": compared.verdict if compared else "",
            **means,
        }


def choice_text(variants: Mapping[str, Summary], comparisons: Mapping[str, Comparison]) -> str:
    """What the rule chooses, factor by factor, as a page."""
    lines = [
        "# What the rule chose",
        "",
        "Made by `experiments/readings/analyse.py`; the rule: docs/research/readings.md.",
        "",
    ]
    if "chosen" in variants:
        verdict = comparisons["chosen"].verdict
        lines += [f"All chosen values together, on new seeds, against the base: {verdict}.", ""]
        lines += ["The base stays." if verdict == "worse" else "They become the preset."]
        return "\n".join(lines) + "\n"
    picked = {name: chosen(factor, comparisons) for name, factor in FACTORS.items()}
    lines += ["| factor | chosen | besides the score |", "| --- | --- | --- |"]
    lines += [f"| {name} | {choice} | {FACTORS[name].why} |" for name, choice in picked.items()]
    words = " ".join(choice for choice in picked.values() if choice != "base")
    lines += [
        "",
        f"The base is {BASE}.",
        "",
        f"    python experiments/readings/variants.py --stage combined --chosen {words}".rstrip(),
    ]
    return "\n".join(lines) + "\n"


def delta_figure(rows: list[Row]) -> Plot | None:
    """Score, share of similar transitions and memory against δ, one line for each game."""
    names = {"base": 0.0} | {f"delta-{delta:g}": float(delta) for delta in DELTAS}
    own = [row for row in rows if row["variant"] in names]
    if len({row["variant"] for row in own}) < 2:
        return None
    games = sorted({row["environment"] for row in own})
    columns = {"multiple_of_floor": "score / floor", "similar_share": "similar transitions", "known_sets": "sets held"}
    figure, cells = titled_panels(
        list(columns.values()), [line_handle(game_title(g), i) for i, g in enumerate(games)], columns=3
    )
    for axes, column in zip(cells, columns, strict=True):
        for index, game in enumerate(games):
            points = [(names[row["variant"]], row[column]) for row in own if row["environment"] == game]
            xs = sorted({x for x, _ in points})
            axes.plot(xs, [np.mean([y for x, y in points if x == at]) for at in xs], **look(index))
    label_outer(cells, "δ", "mean over seeds", columns=3)
    return Plot("delta", "The similarity threshold", "Means over seeds.", figure, "readings")


def analyse(root: Path, out: Path) -> str:
    """Write all tables and return what was chosen."""
    variants = read_variants(root)
    if "base" not in variants:
        raise UsageError(f"{root}: no variant called base, with which the others are compared.")
    comparisons = {name: compare(s, variants["base"]) for name, s in variants.items() if name != "base"}
    rows = trial_rows(variants)
    write_csv(out / "trials.csv", rows)
    write_csv(out / "variants.csv", list(variant_rows(variants, comparisons, rows)))
    text = choice_text(variants, comparisons)
    write_atomically(out / "choice.md", text.encode())
    with style():
        plot = delta_figure(rows)
        write_plots(out, [] if plot is None else [plot])
    return text


def main() -> int:
    """Analyse a folder of variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder with one folder for each variant")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    return exit_code_of(lambda: [analyse(args.runs, args.out)])


if __name__ == "__main__":
    sys.exit(main())
