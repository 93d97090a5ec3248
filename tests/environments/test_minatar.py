"""MinAtar's five games."""

from __future__ import annotations

import numpy as np
import pytest

from comper.environments.families import find_environment
from comper.environments.minatar import GAMES, MinAtarGame, MinAtarSettings

minatar = pytest.importorskip("minatar")


def test_games_are_those_that_minatar_ships() -> None:
    from pathlib import Path

    shipped = {path.stem for path in (Path(minatar.__file__).parent / "environments").glob("*.py")} - {"__init__"}
    assert shipped == set(GAMES)


@pytest.mark.parametrize("game", GAMES)
def test_observations_and_rewards_are_those_of_minatar_itself(game: str) -> None:
    ours, theirs = MinAtarGame(game, 0.1), minatar.Environment(game)
    assert ours.observation_shape == tuple(theirs.state_shape())
    assert ours.action_names == ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")
    observation = ours.reset(7)
    theirs.seed(7)
    theirs.reset()
    for action in np.random.default_rng(0).integers(6, size=200).tolist():
        np.testing.assert_array_equal(observation, theirs.state())
        observation, reward, terminated, _ = ours.step(action)
        assert (reward, terminated) == theirs.act(action)
        if terminated:
            break


def test_defaults_are_minatars_own() -> None:
    env = minatar.Environment("breakout")
    assert MinAtarSettings().sticky_probability == env.sticky_action_prob
    assert MinAtarGame("asterix", 0.1)._env.env.ramping is True


def test_last_action_does_not_reach_into_the_next_episode() -> None:
    game = MinAtarGame("breakout", 0.99)
    game.reset(1)
    game._env.last_action = 3
    game.reset(1)
    assert game._env.last_action == 0


def test_episode_is_cut_off_at_the_cap() -> None:
    factory = find_environment("minatar:freeway").factory(
        MinAtarSettings(episode_cap_frames=10), seed=np.random.SeedSequence(0)
    )
    env = factory()
    env.reset()
    assert [env.step(2).truncated for _ in range(10)] == [False] * 9 + [True]


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [("sticky_probability", 1.0, "less than 1"), ("episode_cap_frames", 0, "greater than 0")],
)
def test_wrong_settings_are_refused(name: str, value: float, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{name} = {value}: must be {rule}"):
        MinAtarSettings(**{name: value})  # type: ignore[arg-type]
