"""Step 2: every trial scored by the protocol, normalised, and aggregated with seeded intervals."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from comper.report import statistics
from comper.report.facts import FLOOR_DECISION_FRAMES, Floors, changed_settings, decision_frames, floor_of, num_scored_episodes
from comper.report.names import ATARI, FAMILIES, family, in_page_order
from comper.report.published import reference
from comper.report.reading import Array, Runs, Trial
from comper.report.statistics import Interval

FLOOR_NORMALISED = "floor-normalised"
HUMAN_NORMALISED = "human-normalised"
NORMALISATIONS = {
    FLOOR_NORMALISED: (
        "0 at the score without learning (the larger of random and the best constant action, with a decision every "
        f"{FLOOR_DECISION_FRAMES} frames, for all agents alike), 1 at BBF after 100,000 agent steps"
    ),
    HUMAN_NORMALISED: "0 at the random policy and 1 at the human player of the usual table (no-op starts)",
}

STATISTICS: dict[str, Callable[[statistics.Strata], Array]] = {
    "interquartile mean": statistics.interquartile_mean,
    "mean": statistics.mean_of_games,
    "optimality gap": statistics.optimality_gap,
}


@dataclass(frozen=True)
class Summary:
    """All scores of a report's trials, and the statistics drawn from them."""

    runs: Runs
    floors: Floors
    seed: int

    @cached_property
    def agents(self) -> list[str]:
        """The agents, by name."""
        return self.runs.agents()

    @cached_property
    def games(self) -> list[str]:
        """The games and other environments, in the order of the page."""
        return in_page_order({trial.game for trial in self.runs.trials})

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """The environments by family, in the order of the page."""
        members = {name: [game for game in self.games if family(game) == name] for name in FAMILIES}
        return {name: games for name, games in members.items() if games}

    @property
    def is_single_run(self) -> bool:
        """Whether all there is is one trial, which gets a short page of its own."""
        return len(self.runs.trials) == 1

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[Trial]]:
        """The trials by agent and game."""
        return dict(self.runs.cells)

    @cached_property
    def final(self) -> dict[tuple[str, str], Array]:
        """Table 1's score of each trial, by agent and game."""
        return {
            (agent, game): np.array([statistics.final_score(trial.scores, num_scored_episodes(trial)) for trial in trials])
            for (agent, game), trials in self.cells.items()
        }

    @cached_property
    def thirds(self) -> dict[tuple[str, str], Array]:
        """Table 2's three scores of each trial, by agent and game: trials x 3."""
        return {
            (agent, game): np.array([statistics.third_scores(trial.scores, num_scored_episodes(trial)) for trial in trials])
            for (agent, game), trials in self.cells.items()
        }

    def trials_of(self, agent: str) -> list[Trial]:
        """All trials of an agent."""
        return [trial for trial in self.runs.trials if trial.agent == agent]

    @cached_property
    def changes(self) -> dict[str, list[str]]:
        """For each agent with settings other than its preset's, those settings, each in a few words."""
        return {agent: words for agent in self.agents if (words := _changes(self.trials_of(agent)))}

    def has_paper_settings(self, agent: str) -> bool:
        """Whether an agent may be compared with the printed columns."""
        return agent not in self.changes

    def floor(self, agent: str, game: str) -> float:
        """The score without learning at the agent's own decision period; NaN where it was not measured."""
        floors = [floor_of(trial, self.floors) for trial in self.cells[agent, game]]
        return math.nan if None in floors or floors[0] is None else floors[0].value

    def decision_frames(self, agent: str, game: str) -> int:
        """Frames between two decisions of an agent in a game (that unequal trials stand in one cell is a finding)."""
        return decision_frames(self.cells[agent, game][0])

    def decision_periods(self, games: list[str]) -> list[int]:
        """The decision periods of all agents in some games, the shortest first."""
        return sorted({self.decision_frames(*cell) for cell in self.cells if cell[1] in games})

    def games_of(self, *agents: str) -> list[str]:
        """The games that all of these agents played."""
        return [game for game in self.games if all((agent, game) in self.cells for agent in agents)]

    def scale(self, game: str, normalisation: str) -> tuple[float, float]:
        """The scores that count as 0 and 1; NaN where the game has no such figure."""
        if normalisation == FLOOR_NORMALISED:
            return self.floors.value(game), reference.score(game, "bbf_100k")
        return reference.score(game, "random_dm"), reference.score(game, "human")

    def normalised(self, agent: str, game: str, normalisation: str) -> Array:
        """The final scores of one agent's trials on one game, normalised."""
        low, high = self.scale(game, normalisation)
        return statistics.normalised(self.final[agent, game], low=low, high=high)

    @cached_property
    def atari_agents(self) -> list[str]:
        """The agents with trials in Atari games, the only ones with a scale to normalise by."""
        games = self.families.get(ATARI, [])
        return [agent for agent in self.agents if any((agent, game) in self.cells for game in games)]

    def common_games(self, normalisation: str) -> list[str]:
        """The games over which agents are aggregated: played by all of them, with a known scale."""
        return [game for game in self.games_of(*self.atari_agents) if np.isfinite(self.scale(game, normalisation)).all()]

    def strata(self, agent: str, games: list[str], normalisation: str) -> list[Array]:
        """One agent's normalised scores, one stratum per game."""
        return [self.normalised(agent, game, normalisation) for game in games]

    def rng(self, *what: str) -> np.random.Generator:
        """The generator of one interval: its numbers do not depend on which others were asked for."""
        return np.random.default_rng([self.seed, *(zlib.crc32(word.encode()) for word in what)])

    def mean_interval(self, agent: str, game: str) -> Interval:
        """An agent's mean final score on one game over its trials."""
        return statistics.interval(statistics.mean_of_games, [self.final[agent, game]], rng=self.rng("mean", agent, game))

    @cached_property
    def mean_intervals(self) -> dict[tuple[str, str], Interval]:
        """The interval of every agent on every game it played."""
        return {cell: self.mean_interval(*cell) for cell in self.final}

    @cached_property
    def aggregates(self) -> dict[tuple[str, str, str], Interval]:
        """By agent, normalisation and statistic, over the common games."""
        return {
            (agent, normalisation, name): statistics.interval(
                statistic, self.strata(agent, games, normalisation), rng=self.rng(name, agent, normalisation)
            )
            for normalisation in NORMALISATIONS
            if (games := self.common_games(normalisation))
            for agent in self.atari_agents
            for name, statistic in STATISTICS.items()
        }

    @cached_property
    def improvements(self) -> dict[tuple[str, str], Interval]:
        """The probability that one agent beats another, for each ordered pair that shares a game; raw scores suffice."""
        return {
            (x, y): statistics.improvement_interval(
                [self.final[x, game] for game in games], [self.final[y, game] for game in games], rng=self.rng("beats", x, y)
            )
            for x, y in permutations(self.agents, 2)
            if (games := self.games_of(x, y))
        }

    @property
    def is_comparison(self) -> bool:
        """Whether two agents have played the same games, so that one can be set against the other."""
        return len(self.agents) == 2 and bool(self.games_of(*self.agents))

    @cached_property
    def differences(self) -> dict[str, Interval]:
        """Where two agents are compared: the first one's mean final score less the second one's, by game."""
        first, second = self.agents
        return {
            game: statistics.difference_interval(
                self.final[first, game], self.final[second, game], rng=self.rng("difference", first, second, game)
            )
            for game in self.games_of(first, second)
        }


def _changes(trials: list[Trial]) -> list[str]:
    counts = Counter(
        f"{key} = {_shown(value)} instead of {_shown(default)}"
        for trial in trials
        for key, (value, default) in changed_settings(trial).items()
    )
    return [
        words if count == len(trials) else f"{words} (in {count} of {len(trials)} trials)" for words, count in counts.items()
    ]


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)[:40]
