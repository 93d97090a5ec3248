"""MinAtar's five games."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from comper.environments.families import find_environment
from comper.environments.minatar import GAMES, MinAtarGame, MinAtarSettings, _module_of, names
from comper.errors import OutsideCodeError

minatar = pytest.importorskip("minatar")


def test_games_are_those_that_minatar_ships() -> None:
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
    assert MinAtarGame("asterix", 0.1)._env.ramping is True


def test_last_action_does_not_reach_into_the_next_episode() -> None:
    game = MinAtarGame("breakout", 0.99)
    game.reset(1)
    game._last_action = 3
    game.reset(1)
    assert game._last_action == 0


def test_a_game_is_made_without_what_draws_windows() -> None:
    code = "import sys; from comper.environments.minatar import MinAtarGame; MinAtarGame('breakout', 0.1).reset(1);"
    code += "print([n for n in ('minatar', 'matplotlib', 'seaborn') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_an_odd_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "minatar")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "minatar.py").touch()
    with pytest.raises(OutsideCodeError, match=r"MinAtar games need MinAtar: pip install"):
        names()
    (tmp_path / "minatar.py").unlink()
    (tmp_path / "minatar").mkdir()
    (tmp_path / "minatar" / "__init__.py").touch()
    monkeypatch.setattr("comper.environments.minatar._module_of", _module_of.__wrapped__)  # which remembers nothing
    with pytest.raises(OutsideCodeError, match=r"There is no breakout\.py in .*: pip install"):
        MinAtarGame("breakout", 0.1)
    (tmp_path / "minatar" / "environments").mkdir()
    for content in ("", "Env = 3", "class Env: pass"):
        (tmp_path / "minatar" / "environments" / "breakout.py").write_text(content)
        importlib.invalidate_caches()
        with pytest.raises(OutsideCodeError, match=r"breakout\.py is no game of MinAtar .*: pip install"):
            MinAtarGame("breakout", 0.1)


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
