"""Scores as the paper defines them, and what the field expects today beside them (Agarwal et al. 2021, arXiv 2108.13264).

A game is a stratum: the bootstrap resamples trials within each game, so that every replicate has the same games. Written here
with NumPy because rliable 1.2.0 accepts a seed and ignores it; a test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Strata = Sequence[Array]
"""For each game, one value per trial; the last axis is the trial, leading axes are bootstrap replicates."""

REPLICATES = 20_000
CONFIDENCE = 0.95
THIRDS = ("first", "second", "third")


@dataclass(frozen=True)
class Interval:
    """A statistic with its percentile bootstrap interval; the edges are NaN where no game has a second trial."""

    value: float
    low: float
    high: float


def cut(value: float, decimals: int = 2) -> float:
    """Drop the digits after `decimals`, as the paper's tables do, unharmed by binary fractions."""
    scale = 10.0**decimals
    return float(math.trunc(round(value * scale, 6)) / scale)


def final_score(scores: Array, num_episodes: int) -> float:
    """A trial's score in Table 1: the mean of its last episodes (10, or 3 where a game has few)."""
    return float(np.mean(scores[-num_episodes:]))


def num_third_episodes(num_episodes: int) -> int:
    """How many of the last episodes of each third Table 2 averages: 5, or 3 for the games with few episodes."""
    return min(5, num_episodes)


def thirds(scores: Array) -> list[Array]:
    """The episodes in three parts; where they do not divide, the first parts are the longer."""
    return np.array_split(scores, 3)


def third_scores(scores: Array, num_episodes: int) -> list[float]:
    """A trial's three scores in Table 2: the mean of the last episodes of each third (NaN for an empty one)."""
    return [_mean(third[-num_third_episodes(num_episodes) :]) for third in thirds(scores)]


def third_means(scores: Array) -> list[float]:
    """The mean of all episodes of each third."""
    return [_mean(third) for third in thirds(scores)]


def population_deviation(values: Array) -> float:
    """Table 1's standard deviation over trials (ddof 0)."""
    return float(np.std(values))


def sample_deviation(values: Array) -> float:
    """Table 2's standard deviation over trials (ddof 1); NaN for a single trial."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def normalised(score: Array, *, low: float, high: float) -> Array:
    """0 at `low`, 1 at `high`."""
    return (score - low) / (high - low)


def mean_of_games(strata: Strata) -> Array:
    """The mean over games of each game's mean over trials."""
    return np.asarray(np.mean([values.mean(axis=-1) for values in strata], axis=0))


def interquartile_mean(strata: Strata) -> Array:
    """The mean of the middle half of all trials of all games."""
    values = np.sort(np.concatenate(strata, axis=-1), axis=-1)
    count = values.shape[-1]
    dropped = int(count * 0.25)
    return np.asarray(values[..., dropped : count - dropped].mean(axis=-1))


def optimality_gap(strata: Strata) -> Array:
    """How far the trials fall short of 1 on average; what exceeds 1 earns nothing."""
    return 1.0 - mean_of_games([np.minimum(values, 1.0) for values in strata])


def performance_profile(strata: Strata, thresholds: Array) -> Array:
    """The fraction of trials above each threshold, every game weighing the same; thresholds become the last axis."""
    return np.asarray(np.mean([(values[..., None] > thresholds).mean(axis=-2) for values in strata], axis=0))


def probability_of_improvement(strata_x: Strata, strata_y: Strata) -> Array:
    """The chance that a trial of x beats one of y on the same game, averaged over games; a tie counts half."""
    return np.asarray(np.mean([_beats(x, y) for x, y in zip(strata_x, strata_y, strict=True)], axis=0))


def _beats(x: Array, y: Array) -> Array:
    difference = x[..., :, None] - y[..., None, :]
    return np.asarray(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(-2, -1)))


def resample(strata: Strata, *, replicates: int, rng: np.random.Generator) -> list[Array]:
    """Draw trials with replacement within each game, `replicates` times."""
    return [values[rng.integers(len(values), size=(replicates, len(values)))] for values in strata]


def interval(
    statistic: Callable[[Strata], Array], strata: Strata, *, rng: np.random.Generator, replicates: int = REPLICATES
) -> Interval:
    """A statistic of all games with its 95 % stratified bootstrap interval."""
    return _bootstrapped(statistic(strata), strata, lambda: statistic(resample(strata, replicates=replicates, rng=rng)))


def improvement_interval(
    strata_x: Strata, strata_y: Strata, *, rng: np.random.Generator, replicates: int = REPLICATES
) -> Interval:
    """The probability of improvement with its interval; both agents are resampled."""

    def drawn() -> Array:
        return probability_of_improvement(*(resample(x, replicates=replicates, rng=rng) for x in (strata_x, strata_y)))

    return _bootstrapped(probability_of_improvement(strata_x, strata_y), [*strata_x, *strata_y], drawn)


def difference_interval(x: Array, y: Array, *, rng: np.random.Generator, replicates: int = REPLICATES) -> Interval:
    """The difference of the means of two agents' trials on one game, x minus y; both are resampled."""

    def drawn() -> Array:
        means = [values.mean(axis=-1) for values in resample([x, y], replicates=replicates, rng=rng)]
        return np.asarray(means[0] - means[1])

    return _bootstrapped(x.mean() - y.mean(), [x, y], drawn)


def _bootstrapped(value: SupportsFloat, strata: Strata, drawn: Callable[[], Array]) -> Interval:
    """A value with the percentiles of what is drawn, where resampling the strata can show anything."""
    low, high = _percentiles(drawn()) if _can_vary(strata) else (math.nan, math.nan)
    return Interval(float(value), float(low), float(high))


def profile_band(
    strata: Strata, thresholds: Array, *, rng: np.random.Generator, replicates: int = 2_000
) -> tuple[Array, Array, Array]:
    """A performance profile with the lower and upper edge of its pointwise 95 % band."""
    drawn = performance_profile(resample(strata, replicates=replicates, rng=rng), thresholds)
    low, high = _percentiles(drawn)
    return performance_profile(strata, thresholds), low, high


def _can_vary(strata: Strata) -> bool:
    """Whether resampling can show anything: a single trial of each game says nothing about the next one."""
    return any(len(values) > 1 for values in strata)


def _percentiles(values: Array) -> Array:
    tail = 50 * (1 - CONFIDENCE)
    return np.asarray(np.percentile(values, [tail, 100 - tail], axis=0))


def _mean(values: Array) -> float:
    return float(np.mean(values)) if values.size else math.nan
