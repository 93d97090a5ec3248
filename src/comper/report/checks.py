"""Step 3: checks that protect the reader from what the averages would hide."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from comper.errors import counted
from comper.protocol import TRIALS
from comper.report.facts import PAPER_FRAMES, learns, num_scored_episodes
from comper.report.findings import NOTE, WARNING, Finding
from comper.report.names import ATARI, family, game_title
from comper.report.reading import Trial
from comper.report.summary import Summary
from comper.report.tables.table import cut_text

SMALL_OVERSHOOT = 0.001
"""Of the budget: less is not worth a note."""
SINGLE_EPISODE = 1
"""Trials that differ in at most so many episodes are still named: they are not independent either."""


def check(summary: Summary) -> list[Finding]:
    """Every finding about the trials that were read; damage was found while reading."""
    return [finding for one_check in CHECKS for finding in one_check(summary)]


def coinciding_trials(summary: Summary) -> Iterator[Finding]:
    """Trials of one agent and game with the same score in every episode, or in all but one: they are not independent.

    Trials that never score agree without being copies of each other; they are only named.
    """
    for (agent, game), trials in summary.cells.items():
        never_scored = [trial for trial in trials if not trial.scores.any()]
        if len(never_scored) > 1:
            text = f"{agent}, {game_title(game)}: seeds {_listed(t.seed for t in never_scored)} never scored a point, so "
            text += "their logs cannot show whether they are independent."
            yield Finding(NOTE, "coinciding", text)
        groups = _groups([trial for trial in trials if trial.scores.any()])
        if groups:
            coinciding = "; ".join(f"seeds {_listed(t.seed for t in group)}{_difference(group)}" for group in groups)
            text = (
                f"{agent}, {game_title(game)}: {sum(map(len, groups))} of {len(trials)} trials coincide: {coinciding}. "
                "They are not independent, so standard deviations and intervals are too small."
            )
            yield Finding(WARNING, "coinciding", text)


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


def scores_at_the_floor(summary: Summary) -> Iterator[Finding]:
    """The games in which an agent does no better than random or one constant action at its own decision period."""
    for agent in summary.agents:
        if _is_policy_without_learning(summary, agent):
            continue
        games = [game for game in summary.games_of(agent) if np.isfinite(summary.floor(agent, game))]
        low = [game for game in games if summary.final[agent, game].mean() <= summary.floor(agent, game)]
        if low:
            scores = ", ".join(f"{game_title(game)} ({_against_floor(summary, agent, game)})" for game in low)
            text = f"{agent}: at or below the score without learning in {len(low)} of {len(games)} games: {scores}."
            yield Finding(WARNING, "floor", text)


def unmeasured_floors(summary: Summary) -> Iterator[Finding]:
    """The games in which the score without learning is known, but not at the decision period of an agent."""
    for agent in summary.agents:
        games = [game for game in summary.games_of(agent) if game in summary.floors.games]
        unknown = [game for game in games if np.isnan(summary.floor(agent, game))]
        if unknown:
            period = summary.decision_frames(agent, unknown[0])
            text = (
                f"{agent} decides every {period} frames. The score without learning was not measured at that period in "
                f"{', '.join(map(game_title, unknown))}, so nothing is said about whether {agent} exceeds it there."
            )
            yield Finding(NOTE, "floor", text)


def _is_policy_without_learning(summary: Summary, agent: str) -> bool:
    """Whether an agent is itself one of the policies that do not learn, which nobody expects to exceed them."""
    return not any(learns(trial) for trial in summary.trials_of(agent))


def _against_floor(summary: Summary, agent: str, game: str) -> str:
    return f"{cut_text(summary.final[agent, game].mean())}, floor {cut_text(summary.floor(agent, game))}"


def missing_trials(summary: Summary) -> Iterator[Finding]:
    """Cells with fewer trials than the paper's five, and games of a family that only some of its agents have played."""
    if summary.is_single_run:
        return  # its page says what to run next
    for agent in summary.agents:
        counts = {game: len(summary.cells[agent, game]) for game in summary.games_of(agent)}
        short = [f"{game_title(game)} ({count})" for game, count in counts.items() if count < TRIALS]
        if short:
            yield Finding(WARNING, "missing", f"{agent}: fewer than {TRIALS} finished trials in {', '.join(short)}.")
        played = {family(game) for game in counts}
        absent = [game_title(game) for game in summary.games if game not in counts and family(game) in played]
        if absent:
            text = f"{agent}: no finished trial in {', '.join(absent)}; aggregates cover the games that all agents share."
            yield Finding(WARNING, "missing", text)


def other_budgets(summary: Summary) -> Iterator[Finding]:
    """Agents that were given more or fewer frames of Atari games than the printed columns."""
    for agent in summary.agents:
        trials = [trial for trial in summary.trials_of(agent) if family(trial.game) == ATARI]
        budgets = {trial.config.get("frames") for trial in trials}
        others = sorted(budget for budget in budgets if isinstance(budget, int) and budget != PAPER_FRAMES)
        if others:
            frames = ", ".join(f"{budget:,}" for budget in others)
            text = f"{agent}: trained for {frames} frames, not the paper's {PAPER_FRAMES:,}"
            yield Finding(WARNING, "settings", f"{text}: not comparable with the printed columns.")


def changed_settings(summary: Summary) -> Iterator[Finding]:
    """Agents with other settings than their preset's, beyond the frame budget."""
    for agent, words in summary.changes.items():
        others = [word for word in words if not word.startswith("frames ")]
        if others:
            is_beside_print = agent in summary.atari_agents
            text = f"{agent}: settings other than its preset's: {'; '.join(others)}."
            text += " Not comparable with the printed columns." if is_beside_print else ""
            yield Finding(WARNING if is_beside_print else NOTE, "settings", text)


def unequal_settings(summary: Summary) -> Iterator[Finding]:
    """Agents whose trials in one column had different settings (a constant agent's action may differ between games)."""
    for agent, trials in _columns(summary):
        unequal = [
            f"{key} ({_counted(counts)})"
            for key in sorted({key for trial in trials for key in trial.config} - {"action"})
            if len(counts := Counter(repr(trial.config.get(key)) for trial in trials)) > 1
        ]
        unequal += [
            f"action in {game_title(game)} ({_counted(counts)})"
            for game in sorted({trial.game for trial in trials})
            if len(counts := Counter(repr(trial.config.get("action")) for trial in summary.cells[agent, game])) > 1
        ]
        if unequal:
            text = f"{agent}: unequal settings within one column: {'; '.join(unequal)}."
            yield Finding(WARNING, "settings", text)


def _columns(summary: Summary) -> Iterator[tuple[str, list[Trial]]]:
    """Each agent with the trials that should share their settings: all its Atari trials, or those of one environment."""
    groups: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in summary.runs.trials:
        groups[trial.agent, ATARI if family(trial.game) == ATARI else trial.game].append(trial)
    for (agent, _), trials in sorted(groups.items()):
        yield agent, trials


def unequal_versions(summary: Summary) -> Iterator[Finding]:
    """Agents whose trials were made by different commits or versions."""
    for agent in summary.agents:
        trials = summary.trials_of(agent)
        made_by = [_made_by(trial) for trial in trials]
        different = [
            f"{key} ({_counted(counts)})"
            for key in sorted({key for made in made_by for key in made})
            if len(counts := Counter(str(made.get(key))[:12] for made in made_by)) > 1
        ]
        if different:
            yield Finding(NOTE, "settings", f"{agent}: made with different {'; '.join(different)}.")


def _made_by(trial: Trial) -> dict[str, object]:
    return {**trial.manifest.versions, "commit": trial.manifest.commit}


def few_episodes(summary: Summary) -> Iterator[Finding]:
    """Trials with fewer episodes than are scored."""
    for trial in summary.runs.trials:
        scored, episodes = num_scored_episodes(trial), counted(trial.scores.size, "episode")
        if trial.scores.size < scored:
            text = f"{trial.name}: only {episodes}; Table 1 averages the last {scored}."
            yield Finding(WARNING, "missing", text, str(trial.folder))


def overshoots(summary: Summary) -> Iterator[Finding]:
    """By how much trials exceed their frame budget; more than the last episode's rest is a fault."""
    shares = defaultdict(list)
    for trial in summary.runs.trials:
        budget = trial.config.get("frames")
        if not isinstance(budget, int) or budget <= 0:
            continue
        shares[trial.agent].append((trial.total_frames / budget - 1, trial))
        # Algorithm 2, l. 28: an episode is begun while the frames are at most the budget.
        if trial.scores.size > 1 and trial.episode_frames[-2] > budget:
            episodes = int(np.count_nonzero(trial.episode_frames[:-1] > budget))
            text = f"{trial.name}: went on for {counted(episodes, 'episode')} after its budget of {budget:,} frames was spent."
            yield Finding(WARNING, "overshoot", text, str(trial.folder))
    for agent, overshot in sorted(shares.items()):
        most, trial = max(overshot, key=lambda pair: pair[0])
        if most >= SMALL_OVERSHOOT:
            mean = float(np.mean([share for share, _ in overshot]))
            share = f"{most:.1%}"
            if len(overshot) > 1:
                share = f"{mean:.1%} on average, at most {most:.1%} ({game_title(trial.game)}, seed {trial.seed})"
            text = f"{agent}: the episode that runs when the frame budget is spent is played out, which exceeds it by {share}."
            yield Finding(NOTE, "overshoot", text)


def remarks(summary: Summary) -> Iterator[Finding]:
    """What the importer noted down about a published log."""
    for trial in summary.runs.trials:
        for remark in trial.manifest.remarks:
            yield Finding(NOTE, "remark", f"{trial.name}: {remark}", trial.manifest.source_file or str(trial.folder))


CHECKS = (
    coinciding_trials, scores_at_the_floor, unmeasured_floors, missing_trials, other_budgets, changed_settings,
    unequal_settings, few_episodes, unequal_versions, overshoots, remarks,
)  # fmt: skip
"""Each gives its findings about a summary; a new check is a function and a word here."""


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{value} in {count}" for value, count in counts.most_common(4)) + (", …" if len(counts) > 4 else "")


def _listed(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
