"""Tables and figures of the study of the agent `comper` (docs/research.md).

python experiments/graph/analyse.py runs/premise --out results/graph            # a folder with one folder for each agent
python experiments/graph/analyse.py runs/tune --out results/graph/tune

`summary.csv` has a row per agent: the interquartile mean over all trials of all tasks, of final scores and of areas under
learning curves, each with its 95 % stratified bootstrap interval. In each task 0 is the score without learning and 1 the best
agent's mean; a task in which no agent is above the score without learning is left out, and named.
`tasks.csv` has a row per task and agent, with the frames after which the mean curve stays at DQN's final score; `together.csv`
the same scale at each point of the training, over all tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))

from experiments.premise.analyse import curve_rows, curves_figure, environments
from experiments.study_tables import (
    Row,
    area,
    by_game,
    curve,
    exit_code_of,
    floor,
    read_variants,
    score,
    trial_rows,
    write_csv,
    write_plots,
)

from comper.report import statistics
from comper.report.facts import decision_frames, floor_at
from comper.report.figures.drawing import INK, Plot, colour, label_outer, line_handle, look, style, titled_panels
from comper.report.reading import Array, Trial
from comper.report.statistics import Interval
from comper.report.summary import Summary

DQN = "dqn"
MEASURES: dict[str, Callable[[Trial], float]] = {"score": score, "area": area}

Values = dict[str, dict[str, Array]]
"""Agent -> task -> one value per trial."""


def values_of(variants: Mapping[str, Summary], measure: Callable[[Trial], float]) -> Values:
    """What every trial comes to."""
    return {
        name: {game: np.array([measure(trial) for trial in trials]) for game, trials in by_game(summary).items()}
        for name, summary in variants.items()
    }


def floors_of(variants: Mapping[str, Summary]) -> dict[str, float]:
    """The score without learning in each task."""
    return {game: floor(summary, game) for summary in variants.values() for game in by_game(summary)}


def normalised(values: Values, floors: Mapping[str, float]) -> Values:
    """The same with 0 for the score without learning and 1 for the best agent's mean, in tasks where that is above it."""
    best = {game: max(own[game].mean() for own in values.values() if game in own) for game in floors}
    shown = [game for game in floors if best[game] > floors[game]]
    return {
        name: {game: statistics.normalised(own[game], low=floors[game], high=best[game]) for game in shown if game in own}
        for name, own in values.items()
    }


def summary_rows(variants: Mapping[str, Summary]) -> Iterator[Row]:
    """One row for each agent."""
    floors = floors_of(variants)
    raw = {name: values_of(variants, measure) for name, measure in MEASURES.items()}
    scaled = {name: normalised(values, floors) for name, values in raw.items()}
    for agent, summary in variants.items():
        row: Row = {"agent": agent, "trials": sum(map(len, by_game(summary).values())), "tasks": len(by_game(summary))}
        for measure, values in scaled.items():
            row[f"{measure}, tasks"] = len(values[agent])
            row |= _with_edges(f"{measure}, interquartile mean", _interval(values[agent]))
        for other in [name for name in (DQN, "ddqn") if name in variants]:
            both = [game for game in raw["area"][agent] if game in raw["area"][other]]
            ours, theirs = ([raw["area"][name][game] for game in both] for name in (agent, other))
            better = statistics.improvement_interval(ours, theirs, rng=np.random.default_rng(0))
            row |= _with_edges(f"area larger than that of {other}", better)
        yield row


def _interval(values: Mapping[str, Array]) -> Interval:
    strata = list(values.values())
    return statistics.interval(statistics.interquartile_mean, strata, rng=np.random.default_rng(0))


def _with_edges(name: str, interval: Interval) -> Row:
    return {name: interval.value, f"{name}, low": interval.low, f"{name}, high": interval.high}


def task_rows(variants: Mapping[str, Summary]) -> Iterator[Row]:
    """One row for each task and agent: scores, areas, and when it reached what DQN comes to in the end."""
    floors = floors_of(variants)
    for game in environments(variants):
        goal = _last_point(by_game(variants[DQN])[game]) if DQN in variants and game in by_game(variants[DQN]) else None
        for agent, summary in variants.items():
            if trials := by_game(summary).get(game):
                row: Row = {"environment": game, "agent": agent, "trials": len(trials), "floor": floors[game]}
                for name, measure in MEASURES.items():
                    found = np.array([measure(trial) for trial in trials])
                    row |= {name: float(found.mean()), f"{name}, sd": statistics.sample_deviation(found)}
                row["frames to the end of dqn"] = float("nan") if goal is None else frames_to(trials, goal)
                yield row


def mean_curve(trials: list[Trial]) -> tuple[Array, Array]:
    """Frames and mean scores over trials."""
    curves = [curve(trial) for trial in trials]
    return np.mean([x for x, _ in curves], axis=0), np.mean([y for _, y in curves], axis=0)


def _last_point(trials: list[Trial]) -> float:
    return float(mean_curve(trials)[1][-1])


def frames_to(trials: list[Trial], goal: float) -> float:
    """The first frames from which on the mean curve stays at the goal or above; NaN: never."""
    frames, means = mean_curve(trials)
    below = np.flatnonzero(means < goal)
    first = below[-1] + 1 if len(below) else 0
    return float(frames[first]) if first < len(frames) else float("nan")


def together_rows(variants: Mapping[str, Summary]) -> Iterator[Row]:
    """The interquartile mean over all trials of all tasks at each point of the training.

    In each task 0 is the score without learning, and 1 the mean at which the best agent's curve ends.
    """
    floors = floors_of(variants)
    best = {game: max(_last_point(own[game]) for own in map(by_game, variants.values()) if game in own) for game in floors}
    shown = [game for game in floors if best[game] > floors[game]]
    for agent, trials_of in ((name, by_game(summary)) for name, summary in variants.items()):
        curves = {game: [curve(trial) for trial in trials_of[game]] for game in shown if game in trials_of}
        for point, frames in enumerate(next(iter(curves.values()))[0][0]):
            values = {game: np.array([y[point] for _, y in own]) for game, own in curves.items()}
            scaled = {g: statistics.normalised(own, low=floors[g], high=best[g]) for g, own in values.items()}
            yield {"agent": agent, "tasks": len(scaled), "frames": float(frames)} | _with_edges("mean", _interval(scaled))


def together_figure(rows: list[Row]) -> Plot:
    """The interquartile mean over all tasks against frames."""
    names = list(dict.fromkeys(row["agent"] for row in rows))
    figure, [axes] = titled_panels([""], [line_handle(name, index) for index, name in enumerate(names)], columns=1, height=1.9)
    for index, name in enumerate(names):
        own = [row for row in rows if row["agent"] == name]
        x, mean, low, high = (np.array([row[key] for row in own]) for key in ("frames", "mean", "mean, low", "mean, high"))
        axes.fill_between(x / 1000, low, high, color=colour(index), alpha=0.15, linewidth=0)
        axes.plot(x / 1000, mean, **look(index), markevery=4)
    axes.axhline(0, color=INK, linewidth=1, linestyle=":")
    label_outer([axes], "frames, thousands", "0: without learning, 1: the best at the end", columns=1)
    sentence = f"Interquartile mean over the trials of {rows[0]['tasks']} tasks, with its 95 % bootstrap interval."
    return Plot("together", "All tasks together", sentence, figure, "graph")


def share_rows(variants: Mapping[str, Summary]) -> Iterator[Row]:
    """The rule of experiment 6: each variant's mean area above the random policy, divided by the best variant's."""
    values = values_of(variants, area)
    gains = {
        name: {game: float(areas.mean()) - random_score(variants[name], game) for game, areas in own.items()}
        for name, own in values.items()
    }
    best = {game: max(own[game] for own in gains.values() if game in own) for game in environments(variants)}
    for name, own in gains.items():
        shares = {game: own.get(game, np.nan) / best[game] for game in best if best[game] > 0}  # NaN: not run yet
        yield {"variant": name, "share": float(np.nanmean([*shares.values()])), **shares}


def random_score(summary: Summary, game: str) -> float:
    """The random policy's score; 0 where nobody measured it."""
    found = floor_at(summary.floors, game, decision_frames(by_game(summary)[game][0]))
    return 0.0 if found is None else found.random.mean


def analyse(root: Path, out: Path) -> list[Row]:
    """Write all tables and figures; return the summary."""
    variants = read_variants(root)
    rows, summary, together = list(curve_rows(variants)), list(summary_rows(variants)), list(together_rows(variants))
    write_csv(out / "trials.csv", trial_rows(variants))
    write_csv(out / "curves.csv", rows)
    write_csv(out / "summary.csv", summary)
    write_csv(out / "tasks.csv", list(task_rows(variants)))
    write_csv(out / "shares.csv", list(share_rows(variants)))
    write_csv(out / "together.csv", together)
    with style():
        write_plots(out, [curves_figure(variants, rows), together_figure(together)])
    return summary


def main() -> int:
    """Analyse a folder of agents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder with one folder for each agent")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    return exit_code_of(lambda: map(_line, analyse(args.runs, args.out)))


def _line(row: Row) -> str:
    value, low, high = (row[f"area, interquartile mean{edge}"] for edge in ("", ", low", ", high"))
    return f"{row['agent']}: {row['trials']} trials, area {value:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
