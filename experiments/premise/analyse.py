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
from typing import Any, NamedTuple

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
from comper.report.figures.drawing import (  # fmt: skip
    INK,
    Plot,
    colour,
    handle,
    label_outer,
    line_handle,
    look,
    style,
    titled_panels,
)
from comper.report.names import FAMILIES, family, game_title, in_page_order
from comper.report.reading import Array, Trial
from comper.report.statistics import Interval
from comper.report.summary import Summary

COMPER, WITHOUT_SETS, DQN = "comper-single", "comper-single-without-sets", "dqn"
PAIRS = {
    (COMPER, DQN): "COMPER against DQN",
    (COMPER, WITHOUT_SETS): "COMPER against COMPER without sets",
    ("comper-any-action", "comper-plain-3-steps"): "comper against comper without its graph",
}
"""What is compared; the last pair is of the study of the agent `comper`, which shares tasks and settings."""
REPLICATES = 5_000


class Gain(NamedTuple):
    """How likely one agent has a larger area under its learning curve than another, and how often transitions recur."""

    pair: tuple[str, str]
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
            axes.fill_between(np.array(x) / 1000, low, high, color=colour(index), alpha=0.15, linewidth=0)
            axes.plot(np.array(x) / 1000, mean, **look(index), markevery=4)
        known = [floor(s, environment) for s in variants.values() if environment in by_game(s)]
        axes.axhline(known[0], color=INK, linewidth=1, linestyle=":")
    label_outer(cells, "frames, thousands", "score", columns=3)
    sentence = (
        "Mean score of the episodes that ended in each 20th of the training, with its 95 % bootstrap interval over trials."
    )
    return Plot("learning_curves", "Learning curves", sentence, figure, "premise")


def gains(pair: tuple[str, str], variants: Mapping[str, Summary], recurring: Mapping[str, float]) -> Iterator[Gain]:
    """One agent against another in every environment that both played and whose recurrence was measured."""
    if all(name in variants for name in pair):
        ours, theirs = (by_game(variants[name]) for name in pair)
        for environment in in_page_order(set(ours) & set(theirs) & set(recurring)):
            yield Gain(pair, environment, recurring[environment], wins(ours[environment], theirs[environment]))


def gain_figure(found: list[Gain]) -> Plot:
    """Gains against the share of recurring transitions: a panel for each pair of agents, a sign for each family."""
    shown = [pair for pair in PAIRS if any(gain.pair == pair for gain in found)]
    families = [name for name in FAMILIES if any(family(gain.environment) == name for gain in found)]
    handles = [line_handle(FAMILIES[name], index, linestyle="") for index, name in enumerate(families)]
    figure, cells = titled_panels([PAIRS[pair] for pair in shown], handles, columns=1, height=1.6)
    for axes, pair in zip(cells, shown, strict=True):
        for gain in [gain for gain in found if gain.pair == pair]:
            _draw_gain(axes, gain, families.index(family(gain.environment)))
        axes.axhline(0.5, color=INK, linewidth=1, linestyle=":")
        axes.set(ylim=(-0.05, 1.05), xlim=(-2, 109))
    label_outer(cells, "recurring transitions, % of 20,000 random steps", "pairs won", columns=1)
    sentence = (
        "The share of pairs of trials in which the first agent has the larger area under its learning curve, with its 95 % "
        "bootstrap interval, against the share of transitions that are not new among 20,000 random steps."
    )
    return Plot("gain_over_dqn", "Gain and recurring transitions", sentence, figure, "premise")


def _draw_gain(axes: Any, gain: Gain, index: int) -> None:
    x, own = 100 * gain.recurring, gain.wins
    axes.plot([x, x], [own.low, own.high], color=colour(index), linewidth=1)
    axes.plot([x], [own.value], **look(index) | {"linestyle": ""})
    _, colon, name = gain.environment.partition(":")
    if colon:  # the Atari games lie too close together for names
        down = own.value > 0.6  # names run along their line, and stay within the panel
        place = {"rotation": 90, "xytext": (2, -5 if down else 5), "va": "top" if down else "bottom"}
        text = name.removesuffix("-v0").replace("_", " ")
        axes.annotate(text, (x, own.value), fontsize=7, textcoords="offset points", **place)


def together(pair: tuple[str, str], variants: Mapping[str, Summary]) -> Interval:
    """The share of pairs of trials that one agent wins against another, over all tasks of the study."""
    games = environments({name: variants[name] for name in pair})
    areas = {name: {game: list(map(area, trials)) for game, trials in by_game(variants[name]).items()} for name in pair}
    strata = [[np.array(areas[name][game]) for game in games if all(game in own for own in areas.values())] for name in pair]
    return statistics.improvement_interval(*strata, rng=np.random.default_rng(0), replicates=REPLICATES)


def read_recurrence(path: Path) -> dict[str, float]:
    """The share of recurring transitions of the random policy, by environment."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["environment"]: 1 - row["different_transitions"] for row in rows if row["policy"] == "random"}


def analyse(root: Path, out: Path, *, recurrence: Path, atari: tuple[Path, Path] | None = None) -> list[str]:
    """Write all tables and figures; return a line for each pair of agents."""
    found = read_variants(root)
    missing = [name for name in (COMPER, DQN) if name not in found]
    if missing:
        raise UsageError(f"{root}: no folder {' and no '.join(missing)}.")
    rows = list(curve_rows(found))
    write_csv(out / "trials.csv", trial_rows(found))
    write_csv(out / "curves.csv", rows)
    write_csv(out / "summary.csv", list(summary_rows(found)))
    recurring = read_recurrence(recurrence)
    in_atari = {COMPER: read_variant(atari[0]), DQN: read_variant(atari[1])} if atari else {}
    all_gains = [gain for pair in PAIRS for variants in (found, in_atari) for gain in gains(pair, variants, recurring)]
    write_csv(out / "gains.csv", [_gain_row(gain) for gain in all_gains])
    over_all = {pair: together(pair, found) for pair in PAIRS if all(name in found for name in pair)}
    write_csv(out / "together.csv", [{"agent": a, "other": b, **_with_edges("wins", own)} for (a, b), own in over_all.items()])
    with style():
        write_plots(out, [curves_figure(found, rows), gain_figure(all_gains)])
    return [f"{PAIRS[pair]}: {own.value:.2f} of the pairs ({own.low:.2f} to {own.high:.2f})" for pair, own in over_all.items()]


def _gain_row(gain: Gain) -> Row:
    agent, other = gain.pair
    names = {"agent": agent, "other": other, "environment": gain.environment}
    return {**names, "recurring": gain.recurring, **_with_edges("wins", gain.wins)}


def main() -> int:
    """Analyse a folder of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder with one folder for each agent")
    parser.add_argument("--recurrence", type=Path, default=Path("results/premise/recurrence.json"))
    parser.add_argument("--atari", type=Path, nargs=2, metavar=("COMPER", "DQN"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    return exit_code_of(lambda: analyse(args.runs, args.out, recurrence=args.recurrence, atari=args.atari))


if __name__ == "__main__":
    sys.exit(main())
