"""Autofire: whose the button is and for how long, what either has paid, and that a saved bandit goes on as it would have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comper.learners.autofire import AS_CHOSEN, BY_TURNS, FORGETTING, HORIZON_STEPS, Autofire, values_of
from comper.protocol import ACTION_NAMES

NAMES = ["NOOP", "FIRE", "LEFT", "LEFTFIRE"]
NOOP, FIRE, LEFT, LEFTFIRE = range(4)


def made(steps: int = 4, *, seed: int = 0, trials: int = 1) -> Autofire:
    return Autofire([np.random.default_rng(seed + trial) for trial in range(trials)], NAMES, steps)


def turn(autofire: Autofire, *, pays: Callable[[bool], float] = lambda is_by_turns: 0.0) -> tuple[bool, list[int]]:
    """One turn, in which the network always says LEFTFIRE: whether the button was pressed by turns, and the actions."""
    actions: list[int] = []
    while True:
        actions.append(autofire.pressed(0, LEFTFIRE))
        autofire.note(0, pays(autofire.is_by_turns(0)), is_over=False, is_last=False)
        if not autofire.state_dict(0)["steps"]:
            return autofire.is_by_turns(0), actions


def by_turns(autofire: Autofire, num_turns: int, pays: Callable[[bool], float]) -> list[bool]:
    return [turn(autofire, pays=pays)[0] for _ in range(num_turns)]


def test_the_button_is_as_chosen_or_pressed_at_every_second_step() -> None:
    autofire = made(steps=5)
    seen = {turn(autofire)[0]: turn(autofire) for _ in range(40)}
    assert set(seen) == {False, True}
    for is_by_turns, actions in (turn(autofire) for _ in range(40)):
        assert actions == ([LEFTFIRE, LEFT, LEFTFIRE, LEFT, LEFTFIRE] if is_by_turns else [LEFTFIRE] * 5)


def test_the_stick_is_the_networks() -> None:
    autofire = Autofire([np.random.default_rng(0)], ACTION_NAMES, 100)
    autofire.load_state_dict(0, autofire.state_dict(0) | {"acting": BY_TURNS, "steps": 1})
    for step, action in enumerate(range(18), 1):
        taken = ACTION_NAMES[autofire.pressed(0, action)]
        autofire.note(0, 0.0, is_over=False, is_last=False)
        assert taken.replace("FIRE", "").replace("NOOP", "") == ACTION_NAMES[action].replace("FIRE", "").replace("NOOP", "")
        assert ("FIRE" in taken) == (step % 2 == 0)


def test_an_episode_ends_a_turn_and_a_game_over_counts() -> None:
    for is_over in (True, False):
        autofire = made(steps=10)
        autofire.pressed(0, NOOP)
        autofire.note(0, 3.0, is_over=False, is_last=False)
        autofire.note(0, 1.0, is_over=is_over, is_last=True)
        state = autofire.state_dict(0)
        assert (state["steps"], state["reward"], state["num_turns"]) == (0, 0.0, 1)
        np.testing.assert_allclose(state["paid"][state["acting"]], [4.0, 2, is_over])


def test_what_was_paid_before_counts_less() -> None:
    autofire = made(steps=1)
    state = autofire.state_dict(0)
    state["paid"][:] = [10.0, 20, 1]
    autofire.load_state_dict(0, state)
    autofire.pressed(0, NOOP)
    autofire.note(0, 2.0, is_over=False, is_last=False)
    state = autofire.state_dict(0)
    np.testing.assert_allclose(state["paid"][state["acting"]], FORGETTING * np.array([10.0, 20, 1]) + [2, 1, 0])
    np.testing.assert_allclose(state["paid"][1 - state["acting"]], [10, 20, 1])


@pytest.mark.parametrize("better", [True, False])
def test_what_pays_more_is_done_ever_more(better: bool) -> None:
    order = np.array(by_turns(made(steps=5), 2_000, lambda is_by_turns: float(is_by_turns == better)))
    wrong = order != better
    np.testing.assert_allclose([wrong[:100].mean(), wrong[1_000:].mean()], [0.15, 0.044], atol=0.05)  # half of m ** (-1/3)
    assert wrong[1_000:].any()


def test_what_stops_paying_is_left() -> None:
    autofire = made(steps=5)
    by_turns(autofire, 300, lambda is_by_turns: 1.0 if is_by_turns else 0.5)
    order = by_turns(autofire, 300, lambda is_by_turns: 0.0 if is_by_turns else 0.5)
    assert np.mean(order[150:]) < 0.15


def test_values_are_scores_until_the_game_is_over_worked_out_by_hand() -> None:
    paid = np.array([(20.0, 100, 0), (9.0, 200, 3)])
    np.testing.assert_allclose(values_of(paid), [20.0 / 100 * HORIZON_STEPS, 9.0 / (200 / HORIZON_STEPS + 3)])


def chosen_after(paid: list[tuple[float, ...]], *, steps: int) -> int:
    """Whose the button is in the billionth turn, when nothing is left to chance."""
    autofire = made(steps=steps)
    autofire.load_state_dict(0, autofire.state_dict(0) | {"paid": np.array(paid, np.float64), "num_turns": 10**12})
    autofire.pressed(0, NOOP)
    return int(autofire.state_dict(0)["acting"])


def test_a_game_that_is_over_early_is_worth_less() -> None:
    assert chosen_after([(60.0, 100, 0), (70.0, 100, 0)], steps=10) == BY_TURNS
    assert chosen_after([(60.0, 100, 0), (70.0, 100, 1)], steps=10) == AS_CHOSEN


def test_the_button_is_as_chosen_as_long_as_either_was_not_tried_and_where_both_pay_the_same() -> None:
    assert chosen_after([(0.0, 0, 0), (50.0, 100, 0)], steps=10) == AS_CHOSEN
    assert chosen_after([(0.0, 100, 0), (0.0, 0, 0)], steps=10) == AS_CHOSEN
    assert chosen_after([(5.0, 100, 0), (5.0, 100, 0)], steps=10) == AS_CHOSEN


def test_trials_do_not_disturb_each_other() -> None:
    def order(numbers: list[int]) -> list[bool]:
        autofire = made(steps=2, trials=3)
        seen = []
        for step in range(120):
            for trial in numbers:
                autofire.pressed(trial, NOOP)
                autofire.note(trial, float(autofire.is_by_turns(trial) == trial % 2), is_over=False, is_last=step % 7 == 6)
            seen.append(autofire.is_by_turns(1))
        return seen

    assert order([1]) == order([0, 1, 2])
    autofire = made(steps=1, trials=2)
    autofire.pressed(1, NOOP)
    autofire.note(1, 1.0, is_over=False, is_last=False)
    assert [autofire.state_dict(trial)["paid"].sum() for trial in (0, 1)] == [0.0, 2.0]


def test_a_saved_bandit_goes_on_as_it_would_have() -> None:
    whole = made(steps=3)
    for step in range(50):
        whole.pressed(0, NOOP)
        whole.note(0, float(whole.is_by_turns(0)), is_over=step % 9 == 8, is_last=step % 9 == 8)
    state, rng = whole.state_dict(0), np.random.default_rng()
    rng.bit_generator.state = whole._rngs[0].bit_generator.state
    resumed = Autofire([rng], NAMES, 3)
    resumed.load_state_dict(0, state)
    for step in range(200):
        assert whole.pressed(0, LEFT) == resumed.pressed(0, LEFT)
        for autofire in (whole, resumed):
            autofire.note(0, float(autofire.is_by_turns(0)), is_over=step % 11 == 10, is_last=step % 11 == 10)
    ours, theirs = whole.state_dict(0), resumed.state_dict(0)
    np.testing.assert_array_equal(ours.pop("paid"), theirs.pop("paid"))
    assert ours.pop("weights")["button"] == theirs.pop("weights")["button"]
    assert ours == theirs


def test_where_nothing_is_learned_any_more_it_is_as_has_paid_more() -> None:
    autofire = made(steps=5)
    assert autofire.weights(0)["button"].tolist() == [AS_CHOSEN], "neither was tried"
    by_turns(autofire, 50, float)
    played = made(steps=5)
    played.load_weights(0, autofire.weights(0))
    assert played.is_by_turns(0)
    assert [played.pressed(0, LEFT) for _ in range(20)] == [LEFTFIRE, LEFT] * 10
    assert played.weights(0)["button"].tolist() == [BY_TURNS]
    played.load_weights(0, {"button": np.array([AS_CHOSEN])})
    assert [played.pressed(0, LEFT) for _ in range(20)] == [LEFT] * 20


def test_weights_that_are_learned_on_with_leave_the_choice_open() -> None:
    autofire = made(steps=4)
    autofire.load_weights(0, {"button": np.array([BY_TURNS])})
    assert autofire.pressed(0, LEFT) == LEFTFIRE
    autofire.note(0, 1.0, is_over=False, is_last=False)
    assert autofire.state_dict(0)["steps"] == 1
    for _ in range(3):
        autofire.pressed(0, LEFT)
        autofire.note(0, 1.0, is_over=False, is_last=False)
    np.testing.assert_allclose(autofire.state_dict(0)["paid"][BY_TURNS], [4.0, 4, 0])
    assert set(by_turns(autofire, 40, lambda is_by_turns: 0.0)) == {False, True}, "and it is asked anew whose it is"


@pytest.mark.parametrize("weights", [{"button": np.array([2])}, {"button": np.array([-1])}, {"button": np.zeros(2)}, {}])
def test_a_button_that_there_is_not_is_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another network: they do not say whose the button is"):
        made().load_weights(0, weights)


def test_a_saved_state_is_not_changed_by_what_comes_after() -> None:
    autofire = made(steps=1)
    turn(autofire)
    state = autofire.state_dict(0)
    before = state["paid"].copy()
    by_turns(autofire, 5, lambda is_by_turns: 1.0)
    np.testing.assert_array_equal(state["paid"], before)


@pytest.mark.parametrize(
    "change",
    [
        {"acting": 2},
        {"acting": -1},
        {"steps": 4},
        {"steps": -1},
        {"reward": float("nan")},
        {"paid": np.zeros((3, 3))},
        {"paid": np.full((2, 3), np.nan)},
        {"paid": np.full((2, 3), -1.0)},
        {"num_turns": -1},
    ],
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    autofire = made(steps=4)
    with pytest.raises(ValueError, match="the button is"):
        autofire.load_state_dict(0, autofire.state_dict(0) | change)
