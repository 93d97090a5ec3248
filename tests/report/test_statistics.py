"""Protocol scores by hand, aggregates against rliable 1.2.0 and SciPy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from comper.protocol import num_scored_episodes
from comper.report import statistics

from .make_rliable_oracle import scores

ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "rliable_oracle.json").read_bytes())
X, Y = scores(0), scores(1)
GAMES_X, GAMES_Y = list(X.T), list(Y.T)
BOOTSTRAP_TOLERANCE = 0.02
"""Of an interval's edge, for 20,000 (or 2,000) replicates of scores that are multiples of 0.1."""


def test_final_score_is_the_mean_of_the_last_ten_or_three_episodes() -> None:
    episodes = np.arange(20.0)
    assert statistics.final_score(episodes, num_scored_episodes("asterix")) == 14.5  # 10 ... 19
    assert statistics.final_score(episodes, num_scored_episodes("freeway")) == 18.0  # 17, 18, 19
    assert statistics.final_score(episodes[:4], num_scored_episodes("asterix")) == 1.5  # all there are


def test_thirds_are_as_array_split_makes_them() -> None:
    # 13 episodes: thirds of 5, 4, 4; last 3 of each: (2, 3, 4), (6, 7, 8), (10, 11, 12)
    assert statistics.third_scores(np.arange(13.0), num_scored_episodes("freeway")) == [3, 7, 11]
    assert statistics.third_means(np.arange(13.0)) == [2, 6.5, 10.5]
    # last 5 of thirds of 8, 7, 7
    assert statistics.third_scores(np.arange(22.0), num_scored_episodes("asterix")) == [5, 12, 19]


def test_an_empty_third_is_no_number() -> None:
    first, second, third = statistics.third_scores(np.array([4.0, 6.0]), num_scored_episodes("freeway"))
    assert (first, second) == (4, 6)
    assert math.isnan(third)


def test_deviations_have_the_forms_of_their_tables() -> None:
    values = np.array([1.0, 3.0])
    assert statistics.population_deviation(values) == 1.0
    assert statistics.sample_deviation(values) == pytest.approx(math.sqrt(2))
    assert math.isnan(statistics.sample_deviation(values[:1]))


@pytest.mark.parametrize(
    ("value", "shown"), [(19.5333, 19.53), (827.8, 827.8), (4.2666, 4.26), (0.29, 0.29), (-1.239, -1.23), (2.9999999999, 3.0)]
)
def test_cut_drops_digits_but_not_binary_dust(value: float, shown: float) -> None:
    assert statistics.cut(value) == shown


@given(st.integers(-(10**9), 10**9), st.integers(0, 4))
def test_cut_leaves_a_short_decimal_as_it_is(digits: int, decimals: int) -> None:
    value = digits / 10**decimals
    assert statistics.cut(value, decimals) == pytest.approx(value, abs=1e-12)


def test_points_equal_rliable() -> None:
    assert statistics.interquartile_mean(GAMES_X) == pytest.approx(ORACLE["points"]["iqm"])
    assert statistics.mean_of_games(GAMES_X) == pytest.approx(ORACLE["points"]["mean"])
    assert statistics.optimality_gap(GAMES_X) == pytest.approx(ORACLE["points"]["gap"])
    assert statistics.probability_of_improvement(GAMES_Y, GAMES_X) == pytest.approx(ORACLE["improvement"])
    profile = statistics.performance_profile(GAMES_X, np.array(ORACLE["thresholds"]))
    assert profile.tolist() == pytest.approx(ORACLE["profile"])


@pytest.mark.parametrize(
    ("name", "statistic"),
    [
        ("iqm", statistics.interquartile_mean),
        ("mean", statistics.mean_of_games),
        ("gap", statistics.optimality_gap),
    ],
)
def test_intervals_agree_with_rliable(name: str, statistic: Any) -> None:
    interval = statistics.interval(statistic, GAMES_X, rng=np.random.default_rng(0))
    assert [interval.low, interval.high] == pytest.approx(ORACLE["intervals"][name], abs=BOOTSTRAP_TOLERANCE)


def test_the_interval_of_improvement_agrees_with_rliable() -> None:
    interval = statistics.improvement_interval(GAMES_Y, GAMES_X, rng=np.random.default_rng(0))
    assert [interval.low, interval.high] == pytest.approx(ORACLE["improvement interval"], abs=BOOTSTRAP_TOLERANCE)


def test_the_band_of_a_profile_agrees_with_rliable() -> None:
    _, low, high = statistics.profile_band(GAMES_X, np.array(ORACLE["thresholds"]), rng=np.random.default_rng(0))
    # Profiles move in steps of 1/40, so an edge may sit one step aside.
    assert low.tolist() == pytest.approx(ORACLE["profile band"][0], abs=0.0251)
    assert high.tolist() == pytest.approx(ORACLE["profile band"][1], abs=0.0251)


def test_points_equal_the_live_rliable() -> None:
    pytest.importorskip("rliable")
    from rliable import metrics

    assert statistics.interquartile_mean(GAMES_Y) == pytest.approx(metrics.aggregate_iqm(Y))
    assert statistics.optimality_gap(GAMES_Y) == pytest.approx(metrics.aggregate_optimality_gap(Y))
    assert statistics.probability_of_improvement(GAMES_X, GAMES_Y) == pytest.approx(metrics.probability_of_improvement(X, Y))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_interquartile_mean_is_scipys_trimmed_mean(values: list[float]) -> None:
    expected = stats.trim_mean(values, 0.25)
    assert statistics.interquartile_mean([np.array(values)]) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_improvement_is_scipys_mann_whitney_per_game() -> None:
    expected = np.mean([stats.mannwhitneyu(x, y).statistic / 25 for x, y in zip(GAMES_X, GAMES_Y, strict=True)])
    assert statistics.probability_of_improvement(GAMES_X, GAMES_Y) == pytest.approx(expected)


def test_improvement_of_an_agent_over_itself_is_a_half() -> None:
    assert statistics.probability_of_improvement(GAMES_X, GAMES_X) == pytest.approx(0.5)


def test_games_may_have_different_numbers_of_trials() -> None:
    strata = [np.array([0.0, 1.0]), np.array([0.5])]
    assert statistics.mean_of_games(strata) == 0.5
    interval = statistics.interval(statistics.mean_of_games, strata, rng=np.random.default_rng(0), replicates=500)
    assert (interval.low, interval.value, interval.high) == (0.25, 0.5, 0.75)


def test_the_same_seed_gives_the_same_interval_and_another_another() -> None:
    first, again, other = (
        statistics.interval(
            statistics.mean_of_games, list(np.random.default_rng(1).normal(size=(8, 5))), rng=np.random.default_rng(s)
        )
        for s in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_one_trial_of_each_game_has_no_interval() -> None:
    single = [np.array([1.0]), np.array([2.0])]
    interval = statistics.interval(statistics.mean_of_games, single, rng=np.random.default_rng(0))
    assert interval.value == 1.5
    assert math.isnan(interval.low)
    assert math.isnan(statistics.improvement_interval(single, single, rng=np.random.default_rng(0)).high)


def test_a_bootstrap_never_mixes_games() -> None:
    drawn = statistics.resample([np.array([0.0, 1.0]), np.array([10.0, 11.0])], replicates=200, rng=np.random.default_rng(0))
    assert set(np.unique(drawn[0])) == {0, 1}
    assert set(np.unique(drawn[1])) == {10, 11}


def test_a_difference_is_that_of_the_means_and_its_interval_that_of_a_plain_bootstrap() -> None:
    x, y = np.array([1.0, 2.0, 6.0]), np.array([0.0, 1.0])
    found = statistics.difference_interval(x, y, rng=np.random.default_rng(0))
    assert found.value == 2.5
    rng = np.random.default_rng(1)
    drawn = [rng.choice(x, 3).mean() - rng.choice(y, 2).mean() for _ in range(20_000)]
    assert np.allclose([found.low, found.high], np.percentile(drawn, [2.5, 97.5]), atol=0.2)
    assert np.isnan(statistics.difference_interval(x[:1], y[:1], rng=rng).low)
