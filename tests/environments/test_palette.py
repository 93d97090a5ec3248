"""The palette and ALE's colour averaging, against ALE itself."""

from __future__ import annotations

import numpy as np
import pytest

from comper.environments.atari import AtariEnvironment, AtariSettings, ScreenPooling
from comper.environments.games import import_ale, rom_path
from comper.environments.palette import averaged_index, palette, pooling_table, screen_luminance
from comper.protocol import PAPER_GAMES

NTSC_ROWS = 210
PAL_ROWS = 250


@pytest.mark.parametrize("game", [*PAPER_GAMES, "pong", "carnival", "journey_escape", "king_kong", "laser_gates"])
def test_colour_averaging_equals_the_flag_of_ale_in_every_pixel(game: str) -> None:
    ale = import_ale().ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setInt("frame_skip", 5)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setBool("color_averaging", True)
    ale.loadROM(rom_path(game))
    ale.reset_game()
    env = AtariEnvironment(game, AtariSettings(sticky_probability=0.0), rng=np.random.default_rng(0))
    env.reset()
    for action in np.random.default_rng(1).integers(18, size=100).tolist():
        step = env.step(action)
        assert step.reward == ale.act(action)
        assert step.terminated == ale.game_over()
        ours = env._pool.pool(env._previous_screen, env._current_screen)
        np.testing.assert_array_equal(ours, ale.getScreenGrayscale())
        if step.is_last:
            env.reset()
            ale.reset_game()


@pytest.mark.parametrize("game", ["seaquest", "video_pinball", "klax", "air_raid"])
def test_palette_shows_what_the_emulator_shows(game: str) -> None:
    env = AtariEnvironment(game, rng=np.random.default_rng(0))
    env.reset()
    for _ in range(20):
        env.step(1)
        screen = env._ale.getScreen()
        rgb = palette(screen.shape[0])
        np.testing.assert_array_equal(rgb[screen], env._ale.getScreenRGB())
        np.testing.assert_array_equal(screen_luminance(rgb)[screen], env._ale.getScreenGrayscale())


def test_average_of_black_and_white_is_77_percent_white_moved_to_the_nearest_colour() -> None:
    # (236 - 0) * 77 // 100 + 0 = 181; without its last two bits 180. The greys of NTSC: 0, 74, 111, 142, 170, 192, 214, 236.
    # Distances 3 * |180 - 170| = 30 and 3 * |180 - 192| = 36, so index 8 (170), unless another hue comes closer than 30.
    rgb = palette(NTSC_ROWS)
    by_hand = min(range(0, 256, 2), key=lambda index: int(np.abs(rgb[index] - 180).sum()))
    assert averaged_index(rgb)[0, 14] == by_hand == 8


def test_averaging_does_not_depend_on_the_order_of_the_two_screens() -> None:
    for num_rows in (NTSC_ROWS, PAL_ROWS):
        table = averaged_index(palette(num_rows))
        np.testing.assert_array_equal(table, table.T)


def test_maximum_takes_the_brighter_and_none_takes_the_current_screen() -> None:
    previous, current = np.array([[14, 0, 0]], np.uint8), np.array([[0, 14, 0]], np.uint8)
    brightest = ScreenPooling("max", num_rows=NTSC_ROWS, screen_size=84)
    newest = ScreenPooling("none", num_rows=NTSC_ROWS, screen_size=84)
    assert brightest.pool(previous, current).tolist() == [[236, 236, 0]]
    assert newest.pool(previous, current).tolist() == [[0, 236, 0]]


@pytest.mark.parametrize("pooling", ["average", "max", "none"])
def test_pooling_of_changed_pixels_alone_equals_the_table_of_pairs(pooling: str) -> None:
    rng = np.random.default_rng(0)
    previous = rng.integers(256, size=(NTSC_ROWS, 160), dtype=np.uint8)
    current = np.where(rng.random(previous.shape) < 0.5, previous, rng.integers(256, size=previous.shape, dtype=np.uint8))
    pooled = ScreenPooling(pooling, num_rows=NTSC_ROWS, screen_size=84).pool(previous, current)
    np.testing.assert_array_equal(pooled, pooling_table(pooling, NTSC_ROWS)[previous, current])


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match="pooling = 'mean': must be one of average, max, none"):
        pooling_table("mean", NTSC_ROWS)
