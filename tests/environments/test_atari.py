"""The paper's emulator set-up: sticky actions, frame counting, ends of episodes, observations, restored states."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from comper.environments.atari import INEXACT_GAMES, NOOP, AtariEnvironment, AtariSettings
from comper.environments.floors import load_floors
from comper.errors import DamagedFileError, UsageError
from comper.protocol import PAPER_GAMES


def make(game: str = "asterix", *, seed: int = 0, observations_per_step: int = 1, **settings: Any) -> AtariEnvironment:
    rng = np.random.default_rng(seed)
    return AtariEnvironment(game, AtariSettings(**settings), rng=rng, observations_per_step=observations_per_step)


class Tape:
    """An emulator that writes down which actions it executes."""

    def __init__(self, ale: Any) -> None:
        self._ale = ale
        self.executed: list[int] = []

    def act(self, action: int) -> int:
        self.executed.append(action)
        reward: int = self._ale.act(action)
        return reward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ale, name)


def tape(env: AtariEnvironment) -> Tape:
    recorder = Tape(env._ale)
    env._ale = recorder
    return recorder


def play(env: AtariEnvironment, actions: list[int]) -> list[tuple[bytes, float, bool, bool, int]]:
    """Take the actions, starting a new episode where one ends, and return all there is to see."""
    seen = []
    for action in actions:
        step = env.step(action)
        seen.append((step.frames.tobytes(), step.reward, step.terminated, step.truncated, step.num_frames))
        if step.is_last:
            seen.append((env.reset().tobytes(), 0.0, False, False, 0))
    return seen


def random_actions(count: int, seed: int = 7) -> list[int]:
    actions: list[int] = np.random.default_rng(seed).integers(18, size=count).tolist()
    return actions


def test_defaults_are_those_of_the_protocol() -> None:
    env, paper = AtariEnvironment("freeway", rng=np.random.default_rng(0)), AtariSettings()
    assert env._frame_skip == paper.frame_skip
    assert env._sticky_probability == paper.sticky_probability
    assert env._episode_cap_frames == paper.episode_cap_frames
    assert env.observations_per_step == 1


def test_environment_describes_itself() -> None:
    info = make("freeway").info
    assert (info.name, info.observation_shape, info.observation_dtype) == ("freeway", (84, 84), np.dtype(np.uint8))
    assert (info.observation_kind, info.episode_cap_frames, info.num_scored_episodes) == ("pixels", 18_000, 3)
    assert (info.num_actions, info.action_names[2], info.resume) == (18, "UP", "")
    assert set(info.identity) == {"rom_md5", "ale_py", "opencv"}
    assert make("asterix").info.num_scored_episodes == 10


def test_floor_is_known_where_the_game_is_played_as_it_was_measured() -> None:
    floor = make("freeway").info.floor
    assert floor == load_floors().value("freeway", 5)
    assert make("freeway", pooling="max", screen_size=36).info.floor == floor
    assert make("freeway", sticky_probability=0.0).info.floor is None
    assert make("freeway", frame_skip=3).info.floor is None


def test_games_that_ale_does_not_restore_say_so() -> None:
    assert "does not restore qbert exactly" in make("qbert").info.resume
    assert len(INEXACT_GAMES) == 3


def test_rendered_screen_is_what_ale_shows_in_colour() -> None:
    env = make("seaquest")
    env.reset()
    env.step(1)
    np.testing.assert_array_equal(env.render(), env._ale.getScreenRGB())


# Sticky actions


def test_executed_actions_follow_the_draws_of_the_generator() -> None:
    env = make(seed=3)
    executed = tape(env).executed
    env.reset()
    for action in (2, 3, 4, 5):
        env.step(action)
    draws = np.random.default_rng(3).random(20)
    expected, last = [], NOOP
    for frame, draw in enumerate(draws):
        last = last if draw < 0.25 else (2, 3, 4, 5)[frame // 5]
        expected.append(last)
    assert executed == expected


def test_last_action_after_a_reset_is_no_operation() -> None:
    env = make(sticky_probability=0.99)
    executed = tape(env).executed
    for _ in range(3):
        env._last_action = 5
        env.reset()
        env.step(5)
    assert [executed[0], executed[5], executed[10]] == [NOOP] * 3


def test_a_quarter_of_the_frames_repeats_the_last_executed_action() -> None:
    env = make("pong", frame_skip=1)
    executed = tape(env).executed
    env.reset()
    requested = [frame % 18 for frame in range(2_000)]
    play(env, requested)
    # No request comes again within 18 frames, so an executed action other than the request is a repeated one.
    is_stuck = np.not_equal(executed, requested)
    assert all(executed[frame] == executed[frame - 1] for frame in np.flatnonzero(is_stuck[1:]) + 1)
    # Bounds of four standard deviations around p = 1/4, and p² = 1/16 for two in a row: the draws are independent.
    assert abs(is_stuck.mean() - 1 / 4) < 4 * (3 / 16 / 2_000) ** 0.5
    assert abs((is_stuck[1:] & is_stuck[:-1]).mean() - 1 / 16) < 4 * (15 / 256 / 1_000) ** 0.5


def test_without_sticky_actions_every_request_is_executed() -> None:
    env = make(sticky_probability=0.0)
    executed = tape(env).executed
    env.reset()
    play(env, [1, 2, 3])
    assert executed == [1] * 5 + [2] * 5 + [3] * 5


def test_same_seed_plays_the_same_game_and_another_seed_another() -> None:
    runs = []
    for seed in (1, 1, 2):
        env = make("seaquest", seed=seed)
        env.reset()
        runs.append(play(env, random_actions(60)))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


# Frames and ends of episodes


@pytest.mark.parametrize("frame_skip", [1, 4, 5])
def test_frames_are_counted_as_the_emulator_counts_them(frame_skip: int) -> None:
    env = make("asterix", frame_skip=frame_skip)
    env.reset()
    frames = 0
    for action in random_actions(800 // frame_skip):
        step = env.step(action)
        frames += step.num_frames
        assert frames == env._ale.getEpisodeFrameNumber()
        if step.is_last:
            env.reset()
            frames = 0


def test_episode_ends_at_game_over_and_not_at_the_loss_of_a_life() -> None:
    env = make("asterix", seed=4)
    env.reset()
    lives = [env._ale.lives()]
    while True:
        step = env.step(0)
        lives.append(env._ale.lives())
        if step.is_last:
            break
    assert step.terminated
    assert not step.truncated
    assert sorted(set(lives), reverse=True) == [3, 2, 1, 0]


def test_step_stops_at_the_frame_of_the_game_over() -> None:
    lengths = set()
    for seed in range(4):
        env = make("asterix", seed=seed)
        env.reset()
        steps = [env.step(0)]
        while not steps[-1].is_last:
            steps.append(env.step(0))
        assert all(step.num_frames == 5 for step in steps[:-1])
        assert sum(step.num_frames for step in steps) == env._ale.getEpisodeFrameNumber()
        lengths.add(steps[-1].num_frames)
    assert lengths != {5}


def test_cap_truncates_exactly_at_its_frame() -> None:
    env = make("freeway", episode_cap_frames=12)
    env.reset()
    steps = [env.step(2), env.step(2), env.step(2)]
    assert [step.num_frames for step in steps] == [5, 5, 2]
    assert [step.truncated for step in steps] == [False, False, True]
    assert not steps[-1].terminated
    assert env._ale.getEpisodeFrameNumber() == 12


def test_game_over_at_the_frame_of_the_cap_is_a_termination() -> None:
    env = make("asterix")
    env.reset()
    num_frames = 0
    while True:
        step = env.step(0)
        num_frames += step.num_frames
        if step.is_last:
            break
    capped = make("asterix", episode_cap_frames=num_frames)
    capped.reset()
    last = capped.step(0)
    while not last.is_last:
        last = capped.step(0)
    assert (last.terminated, last.truncated) == (True, False)


# Observations


def test_stacked_step_holds_the_action_for_four_observations_of_five_frames() -> None:
    stacked, single = make("seaquest", observations_per_step=4), make("seaquest")
    np.testing.assert_array_equal(stacked.reset(), single.reset())
    for action in random_actions(10):
        four, ones = stacked.step(action), [single.step(action) for _ in range(4)]
        assert four.num_frames == 20
        assert four.reward == sum(one.reward for one in ones)
        np.testing.assert_array_equal(four.frames, np.concatenate([one.frames for one in ones]))


class Paying(Tape):
    """An emulator that pays 1 for the first frame, 2 for the second, and so on."""

    def act(self, action: int) -> int:
        super().act(action)
        return len(self.executed)


@pytest.mark.parametrize(("observations", "reward"), [(1, 1 + 2 + 3 + 4 + 5), (4, sum(range(1, 21)))])
def test_the_reward_of_a_step_is_that_of_all_its_frames(observations: int, reward: int) -> None:
    env = make("freeway", observations_per_step=observations)
    env._ale = Paying(env._ale)
    env.reset()
    assert env.step(2).reward == reward


def test_stacked_step_cut_short_repeats_its_last_observation() -> None:
    env = make("freeway", observations_per_step=4, episode_cap_frames=8)
    env.reset()
    step = env.step(2)
    assert step.num_frames == 8
    assert step.truncated
    assert step.frames.shape == (4, 84, 84)
    assert not np.array_equal(step.frames[0], step.frames[1])
    np.testing.assert_array_equal(step.frames[2], step.frames[1])
    np.testing.assert_array_equal(step.frames[3], step.frames[1])


@pytest.mark.parametrize("pooling", ["average", "max", "none"])
def test_observation_is_the_area_resize_of_the_pooled_screen(pooling: str) -> None:
    cv2 = pytest.importorskip("cv2")
    env = make("battle_zone", pooling=pooling)
    env.reset()
    for action in random_actions(20):
        frames = env.step(action).frames
        pooled = env._pool.pool(env._previous_screen, env._current_screen)
        np.testing.assert_array_equal(frames[0], cv2.resize(pooled, (84, 84), interpolation=cv2.INTER_AREA))


def test_first_observation_is_the_first_screen_alone() -> None:
    env = make("asterix", pooling="none")
    averaged = make("asterix", pooling="max")
    np.testing.assert_array_equal(env.reset(), averaged.reset())


@pytest.mark.parametrize(("game", "num_rows"), [("freeway", 210), ("carnival", 214), ("journey_escape", 230), ("klax", 250)])
def test_screens_of_any_height_become_84_by_84(game: str, num_rows: int) -> None:
    env = make(game)
    assert env._current_screen.shape == (num_rows, 160)
    assert env.reset().shape == (84, 84)
    assert env.step(1).frames.shape == (1, 84, 84)


def test_earlier_frames_are_not_overwritten_by_later_steps() -> None:
    env = make("freeway")
    first = env.reset()
    kept = first.copy()
    step = env.step(2)
    frames = step.frames.copy()
    play(env, random_actions(10))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(step.frames, frames)


def test_preprocessing_of_a_fixed_game_keeps_its_digest() -> None:
    digest = hashlib.sha256()
    for pooling in ("average", "max"):
        env = make("seaquest", seed=2021, pooling=pooling)
        digest.update(env.reset().tobytes())
        for action in random_actions(80):
            digest.update(env.step(action).frames.tobytes())
    assert digest.hexdigest() == "fe9104627dfda78176fbc76f31d1c79b8c922d81b8e0bdb84a573538dd89d978"


# States


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(np.array_equal(left, right)) if isinstance(left, np.ndarray) else bool(left == right)


def leaves(value: Any) -> list[Any]:
    return [leaf for item in value.values() for leaf in leaves(item)] if isinstance(value, dict) else [value]


@pytest.mark.parametrize("game", PAPER_GAMES)
def test_restored_state_continues_as_if_nothing_had_happened(game: str) -> None:
    original = make(game, seed=5)
    original.reset()
    play(original, random_actions(70, seed=1))
    state = original.state_dict()
    restored = make(game, seed=99)
    restored.load_state_dict(state)
    assert equal(restored.state_dict(), state)
    actions = random_actions(200, seed=2)
    assert play(restored, actions) == play(original, actions)


def test_restored_state_stays_exact_beyond_the_next_resets() -> None:
    original = make("asterix", seed=5, episode_cap_frames=300)
    original.reset()
    play(original, random_actions(30, seed=1))
    restored = make("asterix", episode_cap_frames=300)
    restored.reset()
    play(restored, random_actions(75, seed=3))
    restored.load_state_dict(original.state_dict())
    actions = random_actions(200, seed=2)
    assert play(restored, actions) == play(original, actions)


def test_state_at_the_end_of_an_episode_and_before_the_first_can_be_restored() -> None:
    original = make("freeway", episode_cap_frames=5)
    for prepare in (lambda: None, lambda: (original.reset(), original.step(2))):
        prepare()
        restored = make("freeway", seed=9, episode_cap_frames=5)
        restored.load_state_dict(original.state_dict())
        with pytest.raises(ValueError, match="call reset"):
            restored.step(0)
        np.testing.assert_array_equal(restored.reset(), original.reset())
        assert play(restored, [2, 2]) == play(original, [2, 2])


def test_state_holds_plain_values_and_does_not_change_with_the_game() -> None:
    env = make("freeway")
    env.reset()
    state = env.state_dict()
    assert {type(leaf) for leaf in leaves(state)} <= {int, str, bytes, np.ndarray}
    kept: NDArray[np.uint8] = state["current_screen"].copy()
    play(env, random_actions(5))
    np.testing.assert_array_equal(state["current_screen"], kept)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("game", "pong", "state is of game 'pong', but 'freeway' is playing"),
        ("rom_checksum", "0", "state is of rom_checksum '0'"),
        ("ale_py_version", "0.1", "state is of ale_py_version '0.1'"),
        ("emulator", b"\x00" * 8, "emulator state of freeway cannot be read"),
    ],
)
def test_state_that_does_not_fit_is_refused_in_one_sentence(key: str, value: object, message: str) -> None:
    env = make("freeway")
    env.reset()
    with pytest.raises(DamagedFileError, match=message):
        env.load_state_dict({**env.state_dict(), key: value})


# Errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frame_skip": 0}, "frame_skip = 0: must be greater than 0"),
        ({"observations_per_step": 0}, "observations_per_step = 0: must be 1 or more"),
        ({"episode_cap_frames": 0}, "episode_cap_frames = 0: must be greater than 0"),
        ({"screen_size": -1}, "screen_size = -1: must be 8 or more"),
        ({"screen_size": 7}, "screen_size = 7: must be 8 or more"),
        ({"frame_skip": 10**13}, "frame_skip = 10000000000000: must be at most 1,000,000,000,000"),
        ({"sticky_probability": 1.0}, "sticky_probability = 1.0: must be less than 1"),
        ({"sticky_probability": -0.1}, "sticky_probability = -0.1: must be 0 or more"),
        ({"pooling": "mean"}, "pooling = 'mean': must be one of average, max, none"),
    ],
)
def test_wrong_settings_are_refused_at_construction(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("freeway", **settings)


def test_step_before_the_first_reset_or_after_the_end_is_refused() -> None:
    env = make("freeway", episode_cap_frames=5)
    with pytest.raises(ValueError, match="freeway: the episode has ended, or none was started"):
        env.step(0)
    env.reset()
    env.step(0)
    with pytest.raises(ValueError, match="call reset"):
        env.step(0)


@pytest.mark.parametrize("action", [-1, 18])
def test_action_that_does_not_exist_is_refused(action: int) -> None:
    env = make("freeway")
    env.reset()
    with pytest.raises(ValueError, match=f"action = {action}: must be 0 to 17"):
        env.step(action)


def test_missing_opencv_is_answered_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UsageError, match=r'OpenCV: pip install "comper\[atari\]"'):
        make("freeway")


def test_nothing_is_written_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    env = make("freeway")
    env.reset()
    env.step(2)
    assert capfd.readouterr() == ("", "")
