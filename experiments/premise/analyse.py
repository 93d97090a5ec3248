"""Tables and figures of the study of the premise (docs/research/premise.md).

python experiments/premise/analyse.py runs/premise --recurrence results/premise/recurrence.json --out results/premise
    [--atari runs/readings/final/chosen-single runs/readings/final/dqn]    COMPER and DQN in Atari games, for the last figure
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))

from experiments.study_tables import (
    Row,
    area,
    by_game,
    curve,
    exit_code_of,
    floor,
    read_variant,
    read_variants,
    score,
    trial_rows,
    write_csv,
    write_plots,
)

from comper.errors import UsageError
from comper.report import statistics
from comper.report.figures.drawing import (
    COLOURS,
    INK,
    MARKERS,
    Plot,
    handle,
    label_outer,
    legend,
    line_handle,
    look,
    panels,
    style,
    titled_panels,
)  # fmt: skip
from comper.report.names import FAMILIES, family, game_title, in_page_order
from comper.report.reading import Array, Trial
from comper.report.statistics import Interval
from comper.report.summary import Summary

COMPER, WITHOUT_SETS, DQN = "comper-single", "comper-single-without-sets", "dqn"
REPLICATES = 5_000


class Gain(NamedTuple):
    """How likely a trial of COMPER has the larger area under its curve than one of DQN, and how often transitions recur."""

    environment: str
    recurring: float
    wins: Interval


def environments(variants: Mapping[str, Summary]) -> list[str]:
    """All environments, in the order of the report's page."""
    return in_page_order({game for summary in variants.values() for game in by_game(summary)})


def mean_interval(values: Array) -> Interval:
    """The mean over trials with its 95 % bootstrap interval."""
    return statistics.interval(statistics.mean_of_games, [values], rng=np.random.default_rng(0), replicates=REPLICATES)


def wins(ours: list[Trial], theirs: list[Trial]) -> Interval:
    """The share of pairs of trials in which ours has the larger area; a tie counts half."""
    strata = [[np.array([area(trial) for trial in trials])] for trials in (ours, theirs)]
    return statistics.improvement_interval(*strata, rng=np.random.default_rng(0), replicates=REPLICATES)


def curve_rows(variants: Mapping[str, Summary]) -> Iterator[Row]:
    """Every point of every learning curve: the mean over trials with its interval."""
    for environment, (name, summary) in product(environments(variants), variants.items()):
        if trials := by_game(summary).get(environment):
            curves = [curve(trial) for trial in trials]
            frames = np.mean([x for x, _ in curves], axis=0)
            for at, values in zip(frames, np.array([y for _, y in curves]).T, strict=True):
                mean, low, high = vars(mean_interval(values)).values()
                yield {"environment": environment, "agent": name, "frames": float(at), "mean": mean, "low": low, "high": high}


def summary_rows(variants: Mapping[str, Summary]) -> Iterator[Row]:
    """One row for each environment and agent: score, area, memory, and pairs won against DQN and against no sets."""
    for environment, (name, summary) in product(environments(variants), variants.items()):
        trials = by_game(summary).get(environment)
        if not trials:
            continue
        row: Row = {"environment": environment, "agent": name, "trials": len(trials)}
        row["floor"] = floor(summary, environment)
        for column, measure in (("score", score), ("area", area)):
            row |= _with_edges(column, mean_interval(np.array([measure(trial) for trial in trials])))
        for other in (DQN, WITHOUT_SETS):
            others = by_game(variants[other]).get(environment) if other in variants and other != name else None
            nothing = Interval(float("nan"), float("nan"), float("nan"))
            row |= _with_edges(f"wins against {other}", wins(trials, others) if others else nothing)
        own = [r for r in trial_rows({name: summary}) if r["environment"] == environment]
        row |= {key: float(np.mean([r[key] for r in own])) for key in ("bytes_held", "known_sets", "similar_share")}
        yield row


def _with_edges(name: str, interval: Interval) -> Row:
    return {name: interval.value, f"{name}, low": interval.low, f"{name}, high": interval.high}


def curves_figure(variants: Mapping[str, Summary], rows: list[Row]) -> Plot:
    """Learning curves, a panel for each environment."""
    names, shown = list(variants), environments(variants)
    handles = [line_handle(name, index) for index, name in enumerate(names)]
    handles.append(handle("without learning", color=INK, linewidth=1, linestyle=":"))
    figure, cells = titled_panels(list(map(game_title, shown)), handles, columns=3, height=1.7)
    for axes, environment in zip(cells, shown, strict=True):
        for index, name in enumerate(names):
            own = [row for row in rows if (row["environment"], row["agent"]) == (environment, name)]
            x, mean, low, high = ([row[key] for row in own] for key in ("frames", "mean", "low", "high"))
            axes.fill_between(np.array(x) / 1000, low, high, color=COLOURS[index % 8], alpha=0.15, linewidth=0)
            axes.plot(np.array(x) / 1000, mean, **look(index), markevery=4)
        known = [floor(s, environment) for s in variants.values() if environment in by_game(s)]
        axes.axhline(known[0], color=INK, linewidth=1, linestyle=":")
    label_outer(cells, "frames, thousands", "score", columns=3)
    sentence = (
        "Mean score of the episodes that ended in each 20th of the training, with its 95 % bootstrap interval over trials."
    )
    return Plot("learning_curves", "Learning curves", sentence, figure, "premise")


def gains(ours: Mapping[str, list[Trial]], theirs: Mapping[str, list[Trial]], recurring: Mapping[str, float]) -> list[Gain]:
    """COMPER against DQN in every environment that both played and whose recurrence was measured."""
    shared = in_page_order(set(ours) & set(theirs) & set(recurring))
    return [Gain(environment, recurring[environment], wins(ours[environment], theirs[environment])) for environment in shared]


def gain_figure(found: list[Gain]) -> Plot:
    """Gain over DQN against the share of recurring transitions, a sign for each family."""
    figure, [[axes]] = panels(1, 1, cell=(5.2, 3.0), margins=(0.7, 0.3, 0.5, 0.4))
    families = [name for name in FAMILIES if any(family(gain.environment) == name for gain in found)]
    for gain in found:
        index = families.index(family(gain.environment))
        x, wins_of = 100 * gain.recurring, gain.wins
        axes.plot([x, x], [wins_of.low, wins_of.high], color=COLOURS[index], linewidth=1)
        axes.plot([x], [wins_of.value], color=COLOURS[index], marker=MARKERS[index], linestyle="")
        axes.annotate(game_title(gain.environment.split(":")[-1]), (x, wins_of.value), fontsize=6, xytext=(3, 3),
                      textcoords="offset points")  # fmt: skip
    axes.axhline(0.5, color=INK, linewidth=1, linestyle=":")
    axes.set(
        xlabel="recurring transitions, % of 20,000 random steps", ylabel="chance that COMPER beats DQN", ylim=(-0.03, 1.03)
    )
    legend(figure, [line_handle(FAMILIES[name], index, linestyle="") for index, name in enumerate(families)])
    sentence = (
        "The share of pairs of trials in which COMPER has the larger area under its learning curve, with its 95 % bootstrap "
        "interval, against the share of transitions that are not new among 20,000 random steps."
    )
    return Plot("gain_over_dqn", "Gain over DQN and recurring transitions", sentence, figure, "premise")


def read_recurrence(path: Path) -> dict[str, float]:
    """The share of recurring transitions of the random policy, by environment."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["environment"]: 1 - row["different_transitions"] for row in rows if row["policy"] == "random"}


def analyse(root: Path, out: Path, *, recurrence: Path, atari: tuple[Path, Path] | None = None) -> list[Gain]:
    """Write all tables and figures; return what the last figure shows."""
    found = read_variants(root)
    missing = [name for name in (COMPER, DQN) if name not in found]
    if missing:
        raise UsageError(f"{root}: no folder {' and no '.join(missing)}.")
    rows = list(curve_rows(found))
    write_csv(out / "trials.csv", trial_rows(found))
    write_csv(out / "curves.csv", rows)
    write_csv(out / "summary.csv", list(summary_rows(found)))
    recurring = read_recurrence(recurrence)
    pairs = [(found[COMPER], found[DQN])] + ([(read_variant(atari[0]), read_variant(atari[1]))] if atari else [])
    all_gains = [gain for ours, theirs in pairs for gain in gains(by_game(ours), by_game(theirs), recurring)]
    gain_rows = [{"environment": g.environment, "recurring": g.recurring, **_with_edges("wins", g.wins)} for g in all_gains]
    write_csv(out / "gains.csv", gain_rows)
    with style():
        write_plots(out, [curves_figure(found, rows), gain_figure(all_gains)])
    return all_gains


def main() -> int:
    """Analyse a folder of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder with one folder for each agent")
    parser.add_argument("--recurrence", type=Path, default=Path("results/premise/recurrence.json"))
    parser.add_argument("--atari", type=Path, nargs=2, metavar=("COMPER", "DQN"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    return exit_code_of(lambda: map(_line, analyse(args.runs, args.out, recurrence=args.recurrence, atari=args.atari)))


def _line(gain: Gain) -> str:
    low, high = f"{gain.wins.low:.2f}", f"{gain.wins.high:.2f}"
    return f"{gain.environment}: {gain.recurring:.0%} recurring, wins {gain.wins.value:.2f} ({low} to {high})"


if __name__ == "__main__":
    sys.exit(main())
