"""Checks that protect the reader: what the averages would hide."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from comper.protocol import PRESETS, TRIALS, ConstantConfig, RandomConfig, num_scored_episodes
from comper.report.findings import NOTE, WARNING, Finding
from comper.report.paper_tables import game_title
from comper.report.reading import Trial
from comper.report.summary import PAPER_FRAMES, Summary

SINGLE_EPISODE = 1
"""Trials that differ in at most so many episodes are still named: they are not independent either."""


def check(summary: Summary) -> list[Finding]:
    """Every finding about the trials that were read; damage was found while reading."""
    return [
        *coinciding_trials(summary),
        *scores_at_the_floor(summary),
        *missing_trials(summary),
        *other_budgets(summary),
        *unequal_settings(summary),
        *few_episodes(summary),
        *unequal_versions(summary),
        *overshoots(summary),
        *remarks(summary),
    ]


def coinciding_trials(summary: Summary) -> list[Finding]:
    """Trials of one agent and game with the same score in every episode, or in all but one: they are not independent.

    Trials that never score agree without being copies of each other; they are only named.
    """
    findings = []
    for (agent, game), trials in summary.cells.items():
        never_scored = [trial for trial in trials if not trial.scores.any()]
        if len(never_scored) > 1:
            text = f"{agent}, {game_title(game)}: seeds {_listed(t.seed for t in never_scored)} never scored a point, so "
            text += "their logs cannot show whether they are independent."
            findings.append(Finding(NOTE, "coinciding", text))
        groups = _groups([trial for trial in trials if trial.scores.any()])
        if groups:
            told = "; ".join(f"seeds {_listed(t.seed for t in group)}{_difference(group)}" for group in groups)
            text = (
                f"{agent}, {game_title(game)}: {sum(map(len, groups))} of {len(trials)} trials coincide: {told}. They are not "
                f"independent, so standard deviations and intervals are too small."
            )
            findings.append(Finding(WARNING, "coinciding", text))
    return findings


def _groups(trials: list[Trial]) -> list[list[Trial]]:
    """Connected groups of trials that coincide."""
    group_of = {index: {index} for index in range(len(trials))}
    for i, j in combinations(range(len(trials)), 2):
        if differing_episodes(trials[i], trials[j]) <= SINGLE_EPISODE:
            merged = group_of[i] | group_of[j]
            group_of.update(dict.fromkeys(merged, merged))
    distinct = {frozenset(group) for group in group_of.values() if len(group) > 1}
    return [[trials[index] for index in sorted(group)] for group in sorted(distinct, key=min)]


def differing_episodes(a: Trial, b: Trial) -> int:
    """In how many episodes two trials scored differently; all of them where they cannot be compared."""
    episodes = max(a.scores.size, b.scores.size)
    if a.scores.size != b.scores.size or episodes < 3:
        return episodes + SINGLE_EPISODE
    return int(np.count_nonzero(a.scores != b.scores))


def _difference(group: list[Trial]) -> str:
    differing = max(differing_episodes(a, b) for a, b in combinations(group, 2))
    return " (the same score in every episode)" if differing == 0 else " (the same score in all episodes but one)"


def scores_at_the_floor(summary: Summary) -> list[Finding]:
    """The games in which an agent does no better than random or one constant action."""
    findings = []
    for agent in summary.agents:
        if _is_a_floor(agent):
            continue
        games = [game for game in summary.games_of(agent) if game in summary.floors.games]
        low = [game for game in games if summary.final[agent, game].mean() <= summary.floors.value(game)]
        if low:
            told = ", ".join(f"{game_title(game)} ({_against_floor(summary, agent, game)})" for game in low)
            text = f"{agent}: at or below the floor in {len(low)} of {len(games)} games: {told}."
            findings.append(Finding(WARNING, "floor", text))
    return findings


def _is_a_floor(agent: str) -> bool:
    """Whether an agent is itself one of the floors, which nobody expects to exceed them."""
    preset = PRESETS.get(agent)
    return preset is not None and isinstance(preset.config, RandomConfig | ConstantConfig)


def _against_floor(summary: Summary, agent: str, game: str) -> str:
    return f"{summary.final[agent, game].mean():.1f}, floor {summary.floors.value(game):.1f}"


def missing_trials(summary: Summary) -> list[Finding]:
    """Cells with fewer trials than the paper's five, and games that only some agents have played."""
    findings = []
    for agent in summary.agents:
        counts = {game: len(summary.cells[agent, game]) for game in summary.games_of(agent)}
        short = [f"{game_title(game)} ({count})" for game, count in counts.items() if count < TRIALS]
        if short:
            findings.append(
                Finding(WARNING, "missing", f"{agent}: fewer than {TRIALS} finished trials in {', '.join(short)}.")
            )
        absent = [game_title(game) for game in summary.games if game not in counts]
        if absent:
            text = f"{agent}: no finished trial in {', '.join(absent)}; aggregates cover the games that all agents share."
            findings.append(Finding(WARNING, "missing", text))
    return findings


def other_budgets(summary: Summary) -> list[Finding]:
    """Agents that were given more or fewer frames than the printed columns."""
    findings = []
    for agent in summary.agents:
        budgets = {trial.config.get("frames") for trial in summary.runs.trials if trial.agent == agent}
        others = sorted(budget for budget in budgets if isinstance(budget, int) and budget != PAPER_FRAMES)
        if others:
            told = ", ".join(f"{budget:,}" for budget in others)
            text = f"{agent}: trained for {told} frames, not the paper's {PAPER_FRAMES:,}"
            findings.append(Finding(WARNING, "settings", f"{text}: not comparable with the printed columns."))
    return findings


def unequal_settings(summary: Summary) -> list[Finding]:
    """Agents whose trials were not run with the same settings (a constant agent's action may differ from game to game)."""
    findings = []
    for agent in summary.agents:
        trials = [trial for trial in summary.runs.trials if trial.agent == agent]
        told = [
            f"{key} ({_counted(counts)})"
            for key in sorted({key for trial in trials for key in trial.config} - {"action"})
            if len(counts := Counter(repr(trial.config.get(key)) for trial in trials)) > 1
        ]
        told += [
            f"action in {game_title(game)} ({_counted(counts)})"
            for game in summary.games_of(agent)
            if len(counts := Counter(repr(trial.config.get("action")) for trial in summary.cells[agent, game])) > 1
        ]
        if told:
            findings.append(Finding(WARNING, "settings", f"{agent}: unequal settings within one column: {'; '.join(told)}."))
    return findings


def unequal_versions(summary: Summary) -> list[Finding]:
    """Agents whose trials were made by different commits or versions."""
    findings = []
    for agent in summary.agents:
        trials = [trial for trial in summary.runs.trials if trial.agent == agent]
        made_by = [_made_by(trial) for trial in trials]
        told = [
            f"{key} ({_counted(counts)})"
            for key in sorted({key for made in made_by for key in made})
            if len(counts := Counter(str(made.get(key))[:12] for made in made_by)) > 1
        ]
        if told:
            findings.append(Finding(NOTE, "settings", f"{agent}: made with different {'; '.join(told)}."))
    return findings


def _made_by(trial: Trial) -> dict[str, object]:
    return {**trial.manifest.versions, "commit": trial.manifest.commit}


def few_episodes(summary: Summary) -> list[Finding]:
    """Trials with fewer episodes than are scored."""
    short = [trial for trial in summary.runs.trials if trial.scores.size < num_scored_episodes(trial.game)]
    return [
        Finding(
            WARNING,
            "missing",
            f"{trial.name}: only {trial.scores.size} episodes; Table 1 averages the last {num_scored_episodes(trial.game)}.",
            str(trial.folder),
        )
        for trial in short
    ]


def overshoots(summary: Summary) -> list[Finding]:
    """By how much trials exceed their frame budget; more than the last episode's rest is a fault."""
    findings, shares = [], defaultdict(list)
    for trial in summary.runs.trials:
        budget = trial.config.get("frames")
        if not isinstance(budget, int) or budget <= 0:
            continue
        shares[trial.agent].append((trial.total_frames / budget - 1, trial))
        if trial.scores.size > 1 and trial.episode_frames[-2] >= budget:
            episodes = int(np.count_nonzero(trial.episode_frames[:-1] >= budget))
            text = f"{trial.name}: went on for {episodes} episodes after its budget of {budget:,} frames was spent."
            findings.append(Finding(WARNING, "overshoot", text, str(trial.folder)))
    for agent, overshot in sorted(shares.items()):
        most, trial = max(overshot, key=lambda pair: pair[0])
        if most > 0:
            mean = float(np.mean([share for share, _ in overshot]))
            text = (
                f"{agent}: trials play the running episode out and so exceed their frame budget by {mean:.1%} on average, "
                f"at most {most:.1%} ({game_title(trial.game)}, seed {trial.seed})."
            )
            findings.append(Finding(NOTE, "overshoot", text))
    return findings


def remarks(summary: Summary) -> list[Finding]:
    """What the importer noted down about a published log."""
    return [
        Finding(NOTE, "remark", f"{trial.name}: {remark}", trial.manifest.source_file or str(trial.folder))
        for trial in summary.runs.trials
        for remark in trial.manifest.remarks
    ]


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{value} in {count}" for value, count in counts.most_common(4)) + (", …" if len(counts) > 4 else "")


def _listed(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
