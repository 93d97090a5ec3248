"""The numbers of a report: every trial scored by the protocol, normalised, and aggregated with seeded intervals."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from comper.protocol import PAPER_GAMES, ProtocolConfig
from comper.report import reference, statistics
from comper.report.floors import Floors
from comper.report.reading import Array, Runs, Trial
from comper.report.statistics import Interval

PAPER_FRAMES = ProtocolConfig().frames
FLOOR_NORMALISED = "floor-normalised"
HUMAN_NORMALISED = "human-normalised"
NORMALISATIONS = {
    FLOOR_NORMALISED: "0 at the floor (the larger of random and the best constant action), 1 at BBF after 100,000 agent steps",
    HUMAN_NORMALISED: "0 at the random policy and 1 at the human player of the usual table (no-op starts)",
}

STATISTICS: dict[str, Callable[[statistics.Strata], Array]] = {
    "interquartile mean": statistics.interquartile_mean,
    "mean": statistics.mean_of_games,
    "optimality gap": statistics.optimality_gap,
}


def in_paper_order(games: set[str]) -> list[str]:
    """The paper's games in its order, then the others by name."""
    return [game for game in PAPER_GAMES if game in games] + sorted(games - set(PAPER_GAMES))


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
        """The games, in the paper's order."""
        return in_paper_order({trial.game for trial in self.runs.trials})

    @cached_property
    def cells(self) -> dict[tuple[str, str], list[Trial]]:
        """The trials by agent and game."""
        return dict(self.runs.cells)

    @cached_property
    def final(self) -> dict[tuple[str, str], Array]:
        """Table 1's score of each trial, by agent and game."""
        return {
            (agent, game): np.array([statistics.final_score(trial.scores, game) for trial in trials])
            for (agent, game), trials in self.cells.items()
        }

    @cached_property
    def thirds(self) -> dict[tuple[str, str], Array]:
        """Table 2's three scores of each trial, by agent and game: trials x 3."""
        return {
            (agent, game): np.array([statistics.third_scores(trial.scores, game) for trial in trials])
            for (agent, game), trials in self.cells.items()
        }

    def has_paper_budget(self, agent: str) -> bool:
        """Whether all trials of an agent were given the paper's number of frames."""
        return all(trial.config.get("frames") == PAPER_FRAMES for trial in self.runs.trials if trial.agent == agent)

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

    def common_games(self, normalisation: str) -> list[str]:
        """The games over which agents are aggregated: played by all of them, with a known scale."""
        return [game for game in self.games_of(*self.agents) if np.isfinite(self.scale(game, normalisation)).all()]

    def strata(self, agent: str, games: list[str], normalisation: str) -> list[Array]:
        """One agent's normalised scores, a game a stratum."""
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
            for agent in self.agents
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
