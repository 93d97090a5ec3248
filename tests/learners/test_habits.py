"""Habits: which there are, who acts and for how long, what each has paid, and that a saved bandit goes on as it would have."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from comper.learners.habits import (
    FORGETTING,
    HORIZON_STEPS,
    NETWORK,
    NETWORKS_OPTIMISM,
    OPTIMISM,
    STEPS,
    Habits,
    habits_of,
    values_of,
)
from comper.protocol import ACTION_NAMES

TWO = ["left", "right"]
"""Three habits: left, right, any of them at random."""
RANDOM = 3


def made(steps: int = 4, *, seed: int = 0, names: list[str] | None = None) -> Habits:
    return Habits([np.random.default_rng(seed)], TWO if names is None else names, steps)


def turn(habits: Habits, *, pays: Any = lambda action: 0.0) -> tuple[int, list[int | None]]:
    """Let whoever is chosen act for as long as it may."""
    actions: list[int | None] = []
    while True:
        actions.append(habits.action(0))
        habits.note(0, pays(actions[-1]), is_over=False, is_last=False)
        if not habits.state_dict(0)["steps"]:
            return habits.acting(0), actions


def paid_by(rows: list[tuple[float, ...]]) -> Any:
    return np.array(rows, np.float64)


def test_a_joystick_has_its_actions_its_button_by_turns_and_chance() -> None:
    habits = habits_of(ACTION_NAMES)
    assert habits[:18] == [(a,) for a in range(18)]
    by_turns = {tuple(ACTION_NAMES[a] for a in habit) for habit in habits[18:-1]}
    assert len(habits) == 18 + 9 + 1
    assert {("FIRE", "NOOP"), ("LEFTFIRE", "LEFT"), ("DOWNRIGHTFIRE", "DOWNRIGHT")} <= by_turns
    assert habits[-1] == ()


def test_other_actions_are_held_or_drawn() -> None:
    assert habits_of(["left", "right", "forward"]) == [(0,), (1,), (2,), ()]


def test_a_stick_without_a_button_is_never_pressed() -> None:
    assert habits_of(["NOOP", "LEFT", "RIGHT"]) == [(0,), (1,), (2,), ()]
    assert habits_of(["LEFT", "RIGHTFIRE"]) == [(0,), (1,), ()], "RIGHT alone is no action there"


def test_the_network_begins_and_whoever_acts_does_so_for_its_steps() -> None:
    habits = made(steps=4)
    acting, actions = turn(habits)
    assert (acting, actions) == (NETWORK, [None] * 4)
    for _ in range(30):
        acting, actions = turn(habits)
        assert len(actions) == 4
        if acting == NETWORK:
            assert actions == [None] * 4
        elif acting == RANDOM:
            assert set(actions) <= {0, 1}
        else:
            assert actions == [acting - 1] * 4


def test_a_button_is_pressed_at_every_second_step() -> None:
    habits = made(steps=5, names=list(ACTION_NAMES))
    seen = dict(turn(habits) for _ in range(200))
    fire = 1 + habits_of(ACTION_NAMES).index((1, 0))
    assert seen[fire] == [1, 0, 1, 0, 1]


def test_random_actions_are_drawn_evenly() -> None:
    habits = made(steps=5_000, names=list("abcd"))
    turns = dict(turn(habits) for _ in range(12))
    drawn = Counter(turns[5])
    assert len(drawn) == 4
    assert max(drawn.values()) / min(drawn.values()) < 1.3


def test_the_network_acts_where_nothing_pays() -> None:
    habits = made(steps=5, names=list("abcd"))
    order = [turn(habits)[0] for _ in range(60)]
    assert set(order[40:]) == {NETWORK}


def test_an_episode_ends_a_turn_and_a_game_over_counts() -> None:
    for is_over in (True, False):
        habits = made(steps=10)
        habits.action(0)
        habits.note(0, 3.0, is_over=False, is_last=False)
        habits.note(0, 1.0, is_over=is_over, is_last=True)
        state = habits.state_dict(0)
        assert (state["steps"], state["reward"], state["num_turns"]) == (0, 0.0, 1)
        np.testing.assert_allclose(state["paid"][NETWORK], [4.0, 2, is_over, 16 / 2, 1])


def test_what_was_paid_before_counts_less() -> None:
    habits = made(steps=1)
    state = habits.state_dict(0)
    state["paid"][NETWORK] = [10.0, 20, 1, 5, 2]
    habits.load_state_dict(0, state)
    habits.action(0)  # the first turn is the network's
    habits.note(0, 2.0, is_over=False, is_last=False)
    expected = FORGETTING * np.array([10.0, 20, 1, 5, 2]) + [2, 1, 0, 4, 1]
    np.testing.assert_allclose(habits.state_dict(0)["paid"][NETWORK], expected)


def test_every_behaviour_acts_before_one_acts_for_having_paid() -> None:
    for seed in range(10):
        habits = made(steps=2, seed=seed, names=list("abcdefgh"))
        order = [turn(habits, pays=lambda action: 1.0 if action == 0 else 0.0)[0] for _ in range(60)]
        first = [acting for acting in order if acting != NETWORK][:9]
        assert sorted(first) == list(range(1, 10)), order
        assert first != sorted(first), "in any order"


def test_the_best_habit_acts_most_and_the_network_ever_less() -> None:
    habits = made(steps=5, names=list("abcd"))
    order = np.array([turn(habits, pays=lambda action: 1.0 if action == 2 else 0.0)[0] for _ in range(2_000)])
    shares = [(part == NETWORK).mean() for part in (order[:100], order[1_000:])]
    np.testing.assert_allclose(shares, [0.31, 0.088], atol=0.08)  # means of m to the power of -1/3
    assert (order[1_000:] == 3).mean() > 0.85


def test_a_network_that_pays_more_than_any_habit_acts_nearly_always() -> None:
    habits = made(steps=5, names=list("abcd"))
    order = [turn(habits, pays=lambda action: 1.0 if action is None else 0.0)[0] for _ in range(500)]
    assert np.mean(np.array(order[100:]) == NETWORK) > 0.9


def test_a_habit_that_stops_paying_is_left() -> None:
    habits = made(steps=5)
    for _ in range(300):
        turn(habits, pays=lambda action: 1.0 if action == 0 else 0.5)
    order = [turn(habits, pays=lambda action: 0.0 if action == 0 else 0.5)[0] for _ in range(300)]
    assert np.mean(np.array(order[150:]) == 1) < 0.1


def test_values_are_scores_until_the_game_is_over_worked_out_by_hand() -> None:
    # Together 30 of reward, 300 steps, 3 ends; 100 steps more for each at that rate are 10 of reward and 1 end.
    paid = paid_by([(20.0, 100, 0, 4.0, 1), (10.0, 200, 3, 0.5, 2)])
    values = [(20 + 10) / (200 / HORIZON_STEPS + 0 + 1), (10 + 10) / (300 / HORIZON_STEPS + 3 + 1)]
    found, higher = values_of(paid, prior_steps=100)
    np.testing.assert_allclose(found, values)
    # Squares beyond what the means explain: 4 - 20²/100 = 0 and 0.5 - 10²/200 = 0; so nothing is uncertain.
    np.testing.assert_allclose(higher, 0, atol=1e-12)


def test_uncertain_values_may_be_higher_worked_out_by_hand() -> None:
    paid = paid_by([(20.0, 100, 0, 6.0, 1), (10.0, 400, 5, 1.25, 4)])
    # σ² = (6 - 4 + 1.25 - 0.25) / (0 + 3) = 1 per step; a score is worth 1 / (1/1,000 + 5/500) steps.
    scale = 1 / (1 / HORIZON_STEPS + 0.01)
    expected = [NETWORKS_OPTIMISM * scale / 10, OPTIMISM * scale / 20]
    np.testing.assert_allclose(values_of(paid, prior_steps=100)[1], expected)


def test_nothing_rests_on_a_few_steps() -> None:
    habits = made(steps=100)
    paid = paid_by([(0.0, 100, 0, 0, 1), (2.0, 1, 0, 4, 1), (100.0, 100, 0, 100, 1), (0.0, 100, 0, 0, 1)])
    habits.load_state_dict(0, habits.state_dict(0) | {"paid": paid, "num_turns": 10**9})
    assert habits.action(0) == 1, "two in one step may be chance, a hundred in a hundred is not"


def test_trials_do_not_disturb_each_other() -> None:
    def order(numbers: list[int]) -> list[int]:
        habits = Habits([np.random.default_rng(seed) for seed in range(3)], TWO, 2)
        seen = []
        for step in range(120):
            for trial in numbers:
                action = habits.action(trial)
                habits.note(trial, float(action == trial), is_over=False, is_last=step % 7 == 6)
            seen.append(habits.acting(1))
        return seen

    assert order([1]) == order([0, 1, 2])
    habits = Habits([np.random.default_rng(seed) for seed in range(2)], TWO, 1)
    habits.action(1)
    habits.note(1, 1.0, is_over=False, is_last=False)
    assert [habits.state_dict(trial)["paid"].sum() for trial in (0, 1)] == [0.0, 4.0]


def test_a_saved_bandit_goes_on_as_it_would_have() -> None:
    whole = made(steps=3)
    for step in range(50):
        whole.note(0, float(whole.action(0) == 1), is_over=step % 9 == 8, is_last=step % 9 == 8)
    state, rng = whole.state_dict(0), np.random.default_rng()
    rng.bit_generator.state = whole._rngs[0].bit_generator.state
    resumed = Habits([rng], TWO, 3)
    resumed.load_state_dict(0, state)
    for step in range(200):
        actions = whole.action(0), resumed.action(0)
        assert actions[0] == actions[1]
        for habits in (whole, resumed):
            habits.note(0, float(actions[0] == 1), is_over=step % 11 == 10, is_last=step % 11 == 10)
    ours, theirs = whole.state_dict(0), resumed.state_dict(0)
    np.testing.assert_array_equal(ours.pop("paid"), theirs.pop("paid"))
    assert ours.pop("weights")["behaviour"] == theirs.pop("weights")["behaviour"]
    assert ours == theirs


def test_where_nothing_is_learned_any_more_the_best_behaviour_acts() -> None:
    habits = made(steps=5, names=list(ACTION_NAMES))
    assert habits.weights(0)["behaviour"].tolist() == [NETWORK], "none has acted"
    while not habits.state_dict(0)["paid"][3, STEPS]:
        turn(habits, pays=lambda action: 1.0)
    assert habits.weights(0)["behaviour"].tolist() == [NETWORK], "not all have acted"
    habits = made(steps=5, names=list(ACTION_NAMES))
    pressed, released = ACTION_NAMES.index("LEFTFIRE"), ACTION_NAMES.index("LEFT")
    last: list[int | None] = [None]

    def pays(action: int | None) -> float:
        last.append(action)
        return float(last[-2:] == [released, pressed])

    for _ in range(300):
        turn(habits, pays=pays)
    played = made(steps=5, names=list(ACTION_NAMES))
    played.load_weights(0, habits.weights(0))
    assert [played.action(0) for _ in range(20)] == [pressed, released] * 10
    played.load_weights(0, {"behaviour": np.array([NETWORK])})
    assert [played.action(0) for _ in range(20)] == [None] * 20


def test_a_habit_that_acts_for_good_leaves_room_for_chance() -> None:
    habits = made(names=list("abcdefghij"))
    habits.load_weights(0, {"behaviour": np.array([3])})
    others = np.mean([habits.action(0, 0.5) != 2 for _ in range(4_000)])
    assert others == pytest.approx(0.5 * 0.9, abs=0.03)
    assert {habits.action(0, 0.0) for _ in range(50)} == {2}
    habits.load_weights(0, {"behaviour": np.array([NETWORK])})
    assert {habits.action(0, 1.0) for _ in range(50)} == {None}, "the network has its own ε"


def test_a_habit_that_is_tried_is_tried_without_chance() -> None:
    habits = made(steps=50)
    habits.load_state_dict(0, habits.state_dict(0) | {"acting": 2, "steps": 1})
    assert {habits.action(0, 1.0) for _ in range(50)} == {1}


def test_the_one_that_has_paid_the_most_acts_for_good_not_the_most_hopeful() -> None:
    habits = made(steps=1)
    state = habits.state_dict(0)
    state["paid"][:] = [(10, 100, 0, 10, 10), (110, 1_000, 0, 100, 10), (1, 100, 0, 10, 10), (1, 100, 0, 10, 10)]
    habits.load_state_dict(0, state)
    assert habits.weights(0)["behaviour"].tolist() == [1]


def test_weights_that_are_learned_on_with_leave_the_choice_open() -> None:
    habits = made(steps=4)
    habits.load_weights(0, {"behaviour": np.array([2])})
    assert habits.action(0) == 1
    habits.note(0, 1.0, is_over=False, is_last=False)
    assert habits.state_dict(0)["steps"] == 1
    for _ in range(3):
        habits.action(0)
        habits.note(0, 1.0, is_over=False, is_last=False)
    np.testing.assert_allclose(habits.state_dict(0)["paid"][2], [4.0, 4, 0, 4, 1])
    assert turn(habits)[1] != [], "and it is asked anew who acts"


@pytest.mark.parametrize(
    "weights", [{"behaviour": np.array([4])}, {"behaviour": np.array([-1])}, {"behaviour": np.zeros(2)}, {}]
)
def test_a_behaviour_that_there_is_not_is_refused(weights: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="another network: they name no behaviour"):
        made().load_weights(0, weights)


def test_a_saved_state_is_not_changed_by_what_comes_after() -> None:
    habits = made(steps=1)
    turn(habits)
    state = habits.state_dict(0)
    before = state["paid"].copy()
    for _ in range(5):
        turn(habits, pays=lambda action: 1.0)
    np.testing.assert_array_equal(state["paid"], before)


@pytest.mark.parametrize(
    "change",
    [
        {"acting": 4},
        {"acting": -1},
        {"steps": 4},
        {"steps": -1},
        {"paid": np.zeros((3, 5))},
        {"paid": np.full((4, 5), np.nan)},
        {"paid": np.full((4, 5), -1.0)},
        {"num_turns": -1},
    ],
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    habits = made(steps=4)
    with pytest.raises(ValueError, match="behaviours"):
        habits.load_state_dict(0, habits.state_dict(0) | change)
