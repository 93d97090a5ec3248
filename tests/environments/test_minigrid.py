"""MiniGrid's worlds as one-hot images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comper.environments.families import find_environment
from comper.environments.minigrid import CHANNELS, MiniGridSettings, make_game

gymnasium = pytest.importorskip("gymnasium")
minigrid = pytest.importorskip("minigrid")


def make(name: str, view: str = "full") -> Any:
    return find_environment(name).factory(MiniGridSettings(view=view), seed=np.random.SeedSequence(0))()


def test_channels_cover_all_objects_colours_and_states() -> None:
    from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX

    assert (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), max(len(STATE_TO_IDX), len(DIR_TO_VEC))) == CHANNELS


@pytest.mark.parametrize(("view", "side"), [("full", 6), ("agent", 7)])
def test_every_cell_is_one_object_of_one_colour_in_one_state(view: str, side: int) -> None:
    env = make("minigrid:DoorKey-6x6-v0", view)
    image = env.reset()
    assert (image.shape, image.dtype) == ((side, side, 21), np.dtype(np.bool_))
    for part in np.split(image, np.cumsum(CHANNELS)[:-1], axis=-1):
        assert (part.sum(axis=-1) == 1).all()


def test_rows_come_before_columns_and_the_agent_shows_its_direction() -> None:
    game = make_game("minigrid:DoorKey-8x8-v0", "full")
    image = game.reset(3)
    world = game._env.unwrapped
    column, row = world.agent_pos
    assert image[row, column, 10]  # 10: agent
    assert image[row, column, sum(CHANNELS[:2]) + world.agent_dir]
    assert image[:, 0, 2].all()  # 2: wall
    assert image[0, :, 2].all()


@pytest.mark.parametrize("name", ["DoorKey-8x8-v0", "KeyCorridorS3R1-v0", "Dynamic-Obstacles-6x6-v0", "BabyAI-OpenRedDoor-v0"])
def test_full_view_is_that_of_minigrids_own_wrapper(name: str) -> None:
    game = make_game(f"minigrid:{name}", "full")
    theirs = minigrid.wrappers.FullyObsWrapper(gymnasium.make(name if name.startswith("BabyAI") else f"MiniGrid-{name}"))
    rng = np.random.default_rng(0)
    for seed in range(3):
        ours, (shown, _) = game.reset(seed), theirs.reset(seed=seed)
        for action in rng.integers(len(game.action_names), size=60).tolist():
            parts = [shown["image"].transpose(1, 0, 2)[..., i, None] == np.arange(count) for i, count in enumerate(CHANNELS)]
            assert np.array_equal(ours, np.concatenate(parts, axis=-1))
            outcome, (shown, reward, terminated, truncated, _) = game.step(action), theirs.step(action)
            assert (outcome.reward, outcome.terminated, outcome.truncated) == (reward, terminated, truncated)
            if terminated or truncated:
                break
            ours = outcome.observation


def test_worlds_that_are_not_square_keep_their_shape() -> None:
    game = make_game("minigrid:KeyCorridorS3R1-v0", "full")
    world = game._env.unwrapped
    assert game.reset(0).shape == (world.height, world.width, 21)
    assert world.height != world.width


def test_actions_and_time_limit_are_minigrids() -> None:
    env = make("minigrid:Empty-5x5-v0")
    assert env.info.action_names == ("left", "right", "forward", "pickup", "drop", "toggle", "done")
    assert env.info.episode_cap_frames == 100
    assert env.info.observation_kind == "pixels"
    env.reset()
    steps = [env.step(0) for _ in range(100)]
    assert [step.truncated for step in steps] == [False] * 99 + [True]


def test_time_limit_that_changes_with_the_mission_is_not_stated() -> None:
    assert make("minigrid:BabyAI-GoToLocal-v0").info.episode_cap_frames is None


def test_unknown_view_is_refused() -> None:
    with pytest.raises(ValueError, match="view = 'side': must be one of full, agent"):
        MiniGridSettings(view="side")
