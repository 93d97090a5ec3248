"""The agent `comper`: targets from the graph, when it learns, how it explores, and what it is without the graph."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from comper.agents.agent import Task
from comper.agents.comper_graph import GraphAgent, GraphConfig, HeldExploration
from comper.agents.ddqn import DDQNAgent, DDQNConfig
from comper.errors import UsageError
from comper.learners.frame_bank import FrameBank
from comper.learners.pictures import Pictures, Views
from comper.memory.graph import Replay
from comper.memory.transitions import Transition
from comper.networks import stacking
from comper.networks.histogram import HistogramNetwork
from comper.networks.stacking import started_module
from tests.toys import Corridor, agent_of, loop_of, setups

QUICK = GraphConfig(
    replay_start_steps=10,
    refresh_period_steps=20,
    epsilon_decay_frames=200,
    frames=300,
    discount=0.9,
    step_size=0.001,
    trust=1.0,
    untried="max",
    train_period_steps=1,
)


class Traced:
    """One trial over states 0 to 5, whose updates are written down."""

    def __init__(self, **changes: Any):
        self.config = dataclasses.replace(QUICK, **changes)
        (self.setup,) = setups((6,), [0])
        self.states = [self.setup.frames.intern(255 * np.eye(6, dtype=np.uint8)[i]) for i in range(6)]
        self.agent = agent_of(GraphAgent, self.config, [self.setup])
        self.fits: list[tuple[Any, ...]] = []
        frames, fit = self.agent.pictures.frames, self.agent.q_network.fit_values

        def watched_frames(s: Any, trials: Any, views: Any) -> Any:
            self.replayed = (s, views.shifts)
            return frames(s, trials, views)

        def watched_fit(pictures: Any, targets: Any, weights: Any, trials: Any, following: Any) -> Any:
            s, shifts = self.replayed
            self.fits.append((s, targets.copy(), weights, shifts))
            return fit(pictures, targets, weights, trials, following)

        self.agent.pictures.frames, self.agent.q_network.fit_values = watched_frames, watched_fit

    def store(self, s: int, a: int, r: float, s_next: int, *, terminal: bool = False, last: bool = False) -> None:
        transition = Transition((self.states[s],), a, r, (self.states[s_next],), terminal)
        self.agent.store(0, transition, 0.0, is_last=terminal or last)

    def walk(self) -> None:
        """To the end of a corridor, where 1 is paid."""
        for i in range(5):
            self.store(i, 1, 0.0, i + 1)
        self.store(5, 1, 1.0, 0, terminal=True)

    def table(self) -> Any:
        return self.agent.q_network.values(np.array(self.states)[None, :, None], [0])[0].numpy()


def test_the_targets_are_the_values_that_travelled_over_the_graph() -> None:
    traced = Traced(untried="ignored")
    traced.walk()
    traced.agent.learn(10, [0])
    (s, targets, weights, shifts), *_ = traced.fits
    assert shifts is None
    assert weights[0, :, 0].sum() == 0  # action 0 was never tried
    steps_to_the_end = 5 - np.array([traced.states.index(i) for i in s[0, :, 0].tolist()])
    np.testing.assert_allclose(targets[0, :, 1], 0.9**steps_to_the_end, rtol=1e-5)


def test_a_reward_is_clipped_and_a_cut_off_episode_is_valued_by_the_network() -> None:
    traced = Traced(untried="ignored")
    traced.store(0, 1, 7.0, 1, last=True)
    following = traced.table()[1].max()
    traced.agent.learn(10, [0])
    np.testing.assert_allclose(traced.fits[0][1][0, :, 1], 1.0 + 0.9 * following, rtol=1e-5)


def test_values_travel_at_the_first_update_and_then_once_in_a_period() -> None:
    traced = Traced(train_period_steps=2)
    refreshed: list[int] = []
    graph = traced.agent.graphs[0]
    refresh = graph.refresh

    def watched(*args: Any, **options: Any) -> Any:
        refreshed.append(t)
        return refresh(*args, **options)

    graph.refresh = watched
    traced.walk()
    for t in range(1, 61):
        traced.agent.learn(t, [0])
    assert refreshed == [10, 20, 40, 60]
    assert len(traced.fits) == len(range(10, 61, 2))


def test_several_updates_may_be_made_at_a_time() -> None:
    traced = Traced(updates_at_a_time=3, train_period_steps=2)
    traced.walk()
    for t in range(1, 21):
        traced.agent.learn(t, [0])
    assert len(traced.fits) == 3 * len(range(10, 21, 2))


def test_replayed_states_are_stored_with_their_new_values_unless_they_were_moved() -> None:
    traced = Traced(asked_states=0)
    traced.walk()
    traced.agent.learn(10, [0])
    before = traced.table()
    traced.agent.learn(11, [0])
    state = traced.agent.state_dict(0)["graph"]["nodes"]
    replayed = [traced.states.index(i) for i in traced.fits[-1][0][0, :, 0].tolist()]
    for node, ids in enumerate(state["state"][:, 0].tolist()):
        if (number := traced.states.index(ids)) in replayed:
            # Batches of other sizes differ in their last bits; an update makes a difference of 1e-4.
            np.testing.assert_allclose(state["q"][node], before[number], rtol=0, atol=1e-6)


@pytest.mark.parametrize("targets", ["graph", "steps"])
def test_pictures_may_be_moved_in_replay_and_their_values_are_then_not_stored(targets: str) -> None:
    config = dataclasses.replace(QUICK, shift_pixels=2, targets=targets, num_steps=1)
    (setup,) = setups((6, 6), [0])
    states = [setup.frames.intern(np.full((6, 6), i, np.uint8)) for i in range(2)]
    agent = agent_of(GraphAgent, config, [setup])
    agent.store(0, Transition((states[0],), 1, 1.0, (states[1],), True), 0.0, is_last=True)
    shifts: list[Any] = []
    frames = agent.pictures.frames

    def watched(s: Any, trials: Any, views: Any) -> Any:
        shifts.append(views.shifts)
        return frames(s, trials, views)

    agent.pictures.frames = watched
    for t in (10, 11):
        agent.learn(t, [0])
    assert len(shifts) == 2
    assert all(moved.shape == (1, config.batch_size, 2) and {*moved.flat} == {-2, -1, 0, 1, 2} for moved in shifts)
    if targets == "graph":
        asked = agent.state_dict(0)["graph"]["nodes"]["asked"]
        assert asked.tolist() == [1], "asked when values travelled, and not told since"


def test_all_actions_tried_in_a_state_are_fitted_or_one() -> None:
    for all_tried, expected in ((True, 2.0), (False, 1.0)):
        traced = Traced(all_tried=all_tried)
        traced.store(0, 0, 0.0, 1)
        traced.store(0, 1, 0.0, 1)
        traced.agent.learn(10, [0])
        assert (traced.fits[0][2].sum(-1) == expected).all()


def test_it_acts_with_the_network_or_with_what_the_graph_knows() -> None:
    state = np.array([[0]])
    for act_with, weights in {"network": [0.0, 0.0], "graph": [1.0, 1.0], "both": [0.8, 2 / 2.25]}.items():
        traced = Traced(act_with=act_with, untried="ignored", trust=0.8)
        traced.store(0, 0, -1.0, 1, terminal=True)
        for _ in range(2):
            traced.store(0, 1, 1.0, 1, terminal=True)
        traced.agent.learn(10, [0])
        network = traced.table()[0]
        actions, q = traced.agent.act(state, [0.0], [0])
        expected = [w * graph + (1 - w) * own for w, graph, own in zip(weights, [-1.0, 1.0], network, strict=True)]
        assert actions.tolist() == [int(np.argmax(expected))]
        assert q.tolist() == pytest.approx([max(expected)], abs=1e-6)


def test_an_action_tried_since_the_last_refresh_pays_a_smaller_bonus_at_once() -> None:
    traced = Traced(act_with="graph", untried="ignored", count_bonus=0.6)
    traced.store(0, 1, 0.0, 1, terminal=True)
    traced.agent.learn(10, [0])
    network = traced.table()[0]

    def values() -> Any:
        return traced.agent.q_values(np.array([[traced.states[0]]]), [0])[0]

    best = network.max()  # an action never tried is taken for as good as the best
    assert values().tolist() == pytest.approx([best + 0.6, 0.6])
    for _ in range(4):
        traced.store(0, 0, 0.0, 1, terminal=True)
    for _ in range(3):
        traced.store(0, 1, 0.0, 1, terminal=True)
    assert values().tolist() == pytest.approx([best + 0.3, 0.3])


def test_the_network_is_asked_only_where_the_graph_does_not_know_all_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    for act_with, num_tried, is_asked in (("graph", 1, True), ("graph", 2, False), ("both", 2, True), ("network", 2, True)):
        traced = Traced(act_with=act_with)
        for action in range(num_tried):
            traced.store(0, action, action, 1, terminal=True)
        traced.agent.learn(10, [0])
        asked = Mock(wraps=traced.agent.q_network.values)
        monkeypatch.setattr(traced.agent.q_network, "values", asked)
        traced.agent.q_values(np.array([[traced.states[0]]]), [0])
        assert asked.called == is_asked, (act_with, num_tried)


def test_nothing_is_asked_where_no_state_is_new_and_none_is_to_be_asked_again() -> None:
    traced = Traced(asked_states=0)
    traced.walk()
    traced.agent.learn(10, [0])
    traced.agent.q_network.values = Mock()
    traced.agent.learn(20, [0])
    traced.agent.q_network.values.assert_not_called()
    assert len(traced.fits) == 2


def test_a_state_that_the_graph_does_not_know_is_left_to_the_network() -> None:
    traced = Traced(act_with="graph")
    traced.store(0, 1, 1.0, 1, terminal=True)
    traced.agent.learn(10, [0])
    _, q = traced.agent.act(np.array([[traced.states[4]]]), [0.0], [0])
    assert q[0] == pytest.approx(traced.table()[4].max(), abs=1e-6)


def test_random_actions_are_held_with_heavy_tails_and_let_go_at_the_end_of_an_episode() -> None:
    held = HeldExploration([np.random.default_rng(0)], 10**12, most_steps=50)
    chosen = [held.choose(0, np.zeros(2, np.float32), 1.0) for _ in range(20_000)]
    lengths = np.array(list(Counter(chosen).values()))  # so many actions that none is drawn twice
    assert lengths.max() == 50
    for n in (2, 4, 10):
        assert (lengths >= n).mean() == pytest.approx(1 / n, abs=0.04)
    held.load_state_dict(0, {"held": [7, 30]})
    assert held.state_dict(0) == {"held": [7, 30]}
    assert held.choose(0, np.array([0, 1], np.float32), 0.0) == 7
    held.let_go(0)
    assert held.choose(0, np.array([0, 1], np.float32), 0.0) == 1


def test_the_agent_lets_go_of_an_action_with_the_episode_and_saves_the_one_it_holds() -> None:
    traced = Traced(held_steps=50)
    traced.agent.explorer.load_state_dict(0, {"held": [1, 30]})
    assert traced.agent.state_dict(0)["explorer"] == {"held": [1, 30]}
    traced.store(0, 1, 0.0, 1)
    assert traced.agent.state_dict(0)["explorer"] == {"held": [1, 30]}
    traced.store(1, 1, 0.0, 2, last=True)
    assert traced.agent.state_dict(0)["explorer"] == {"held": [0, 0]}


JOYSTICK = ("NOOP", "FIRE", "LEFT", "LEFTFIRE")


def test_the_button_may_be_pressed_by_turns_whatever_the_network_says() -> None:
    made = setups((6,), [0, 1])
    config = dataclasses.replace(QUICK, autofire_steps=4, act_with="network")
    agent = agent_of(GraphAgent, config, made, names=JOYSTICK)
    states = np.array([[setup.frames.intern(np.full(6, 9, np.uint8))] for setup in made])
    state = agent.state_dict(1)["autofire"]
    agent.autofire.load_state_dict(0, state | {"acting": 0, "steps": 1})
    values = agent.q_network.values(states[:, None], [0, 1])[:, 0].numpy()
    best = values.argmax(1)
    for steps, button in ((1, 0), (2, 1)):
        agent.autofire.load_state_dict(1, state | {"acting": 1, "steps": steps})
        actions, q = agent.act(states, [0.0, 0.0], [0, 1])
        assert actions.tolist() == [best[0], best[1] // 2 * 2 + button]
        np.testing.assert_allclose(q, values[[0, 1], actions], rtol=1e-5)
    assert [agent.metrics(trial)["autofire"] for trial in (0, 1)] == [0, 1]


def test_what_the_button_pays_is_the_score_not_what_is_learned_from() -> None:
    (setup,) = setups((6,), [0])
    agent = agent_of(GraphAgent, dataclasses.replace(QUICK, autofire_steps=3), [setup], names=JOYSTICK)
    state = (setup.frames.intern(np.zeros(6, np.uint8)),)
    agent.act(np.array([state]), [0.0], [0])
    agent.store(0, Transition(state, 1, 7.0, state, False), 0.0, is_last=False)
    assert agent.state_dict(0)["autofire"]["reward"] == 7.0
    agent.store(0, Transition(state, 1, 7.0, state, False), 0.0, is_last=True)
    assert agent.state_dict(0)["autofire"]["paid"].sum(0).tolist() == [14.0, 2, 0]
    agent.store(0, Transition(state, 1, 7.0, state, True), 0.0, is_last=True)
    assert agent.state_dict(0)["autofire"]["paid"][:, 2].sum() == 1.0


def test_autofire_needs_a_button() -> None:
    task = Task((84, 84), np.dtype(np.uint8), "pixels", JOYSTICK)
    GraphAgent.check(GraphConfig(autofire_steps=10), task)
    with pytest.raises(UsageError, match="autofire_steps is for actions such as LEFT and LEFTFIRE"):
        GraphAgent.check(GraphConfig(autofire_steps=10), dataclasses.replace(task, action_names=("left", "right")))


def test_without_autofire_nothing_of_it_is_saved() -> None:
    assert "autofire" not in Traced().agent.state_dict(0)
    assert "autofire" not in Traced().agent.metrics(0)


def test_without_holding_it_is_plain_epsilon_greedy() -> None:
    held = HeldExploration([np.random.default_rng(0)], 4, most_steps=1)
    chosen = Counter(held.choose(0, np.array([0, 0, 1, 0], np.float32), 0.4) for _ in range(20_000))
    assert chosen[2] / 20_000 == pytest.approx(0.6 + 0.1, abs=0.02)
    assert chosen[0] / 20_000 == pytest.approx(0.1, abs=0.02)


def test_random_actions_may_be_those_least_tried_in_their_state() -> None:
    traced = Traced(random_actions="least-tried")
    traced.store(0, 0, 0.0, 1)
    both = np.array([[traced.states[0]], [traced.states[1]]])
    chosen = [[int(traced.agent.act(both[i : i + 1], [1.0], [0])[0][0]) for _ in range(40)] for i in (0, 1)]
    assert set(chosen[0]) == {1}, "action 0 was tried"
    assert set(chosen[1]) == {0, 1}, "nothing was tried there"
    traced.store(0, 1, 0.0, 1)
    assert {int(traced.agent.act(both[:1], [1.0], [0])[0][0]) for _ in range(40)} == {0, 1}, "each was tried once"
    greedy, _ = traced.agent.act(both[:1], [0.0], [0])
    assert greedy[0] == traced.agent.q_network.values(both[:1, None], [0])[0, 0].argmax()


def test_without_the_graph_and_the_rest_it_is_double_dqn_with_steps() -> None:
    shared: dict[str, Any] = {
        "replay_start_steps": 10, "epsilon_decay_frames": 200, "frames": 300, "discount": 0.9, "step_size": 0.001,
        "target_period_steps": 30, "train_period_steps": 2, "num_steps": 3, "batch_size": 16, "observation": "single",
    }  # fmt: skip
    own = GraphConfig(**shared, targets="steps", double=True, duelling=False)
    weights = []
    for kind, config in ((GraphAgent, own), (DDQNAgent, DDQNConfig(**shared))):
        (setup,) = setups((6,), [0])
        states = [setup.frames.intern(255 * np.eye(6, dtype=np.uint8)[i]) for i in range(6)]
        agent = agent_of(kind, config, [setup])
        rng = np.random.default_rng(1)
        for t in range(1, 100):
            s, a, s_next = int(rng.integers(6)), int(rng.integers(2)), int(rng.integers(6))
            agent.store(0, Transition((states[s],), a, float(s == 3), (states[s_next],), s == 3), 0.0, is_last=s == 3)
            agent.learn(t, [0])
        weights.append(agent.q_network.weights(0))
    for name, values in weights[0].items():
        assert torch.equal(values, weights[1][name])


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"replay": "visit", "untried": "ignored", "trust": 0.8, "trust_grows": "never"},
        {"double": True, "replay": "surprise", "held_steps": 20},
        {"targets": "steps"}, {"trust_grows": "best-action", "trust": 0.6},
        {"count_bonus": 0.1, "act_with": "graph", "memory_sets": 9}, {"untried": "chosen"},
        {"prior_visits": 0.5, "all_tried": False, "duelling": False}, {"lending_reach": 2.0, "num_lenders": 3},
        {"value_classes": 21, "value_range": 2.0}, {"value_classes": 21, "targets": "steps", "duelling": False},
        {"ensemble": 2}, {"ensemble": 2, "targets": "steps", "value_classes": 21},
    ],
)  # fmt: skip
def test_every_variant_trains_and_a_trial_read_back_goes_on_to_the_same_weights(changes: dict[str, Any]) -> None:
    config = dataclasses.replace(QUICK, **changes)
    made = setups((5,), [3])
    agent = agent_of(GraphAgent, config, made)
    loop, (tape,) = loop_of(config, agent, [Corridor()], made)
    loop.run()
    assert len(tape.episodes) > 5
    other_made = setups((5,), [3])
    other_made[0].frames.load_state_dict(made[0].frames.state_dict())
    other = agent_of(GraphAgent, config, other_made)
    for mine, its in zip(vars(made[0]).values(), vars(other_made[0]).values(), strict=True):
        if isinstance(mine, np.random.Generator):
            its.bit_generator.state = mine.bit_generator.state
    other.load_state_dict(0, agent.state_dict(0))
    for t in range(400, 450):
        for each in (agent, other):
            each.learn(t, [0])
    for name, values in agent.q_network.weights(0).items():
        assert torch.equal(values, other.q_network.weights(0)[name])
    assert agent.metrics(0) == other.metrics(0)


def test_metrics_say_how_large_the_graph_is_and_how_far_values_travelled() -> None:
    traced = Traced(untried="ignored")
    traced.walk()
    traced.walk()
    traced.agent.learn(10, [0])
    metrics = traced.agent.metrics(0)
    assert {name: metrics[name] for name in ("nodes", "edges", "visits", "mean_set_size")} == {
        "nodes": 6, "edges": 6, "visits": 12, "mean_set_size": 2.0
    }  # fmt: skip
    assert metrics["travelled_steps"] > 2
    assert metrics["refresh_passes"] <= 3
    assert metrics["cnn_loss"] > 0


def test_shifts_are_for_pictures() -> None:
    vector = Task((4,), np.dtype(np.uint8), "vector", ("0", "1"))
    with pytest.raises(UsageError, match="--shift-pixels 0"):
        GraphAgent.check(GraphConfig(shift_pixels=2), vector)
    GraphAgent.check(GraphConfig(), vector)
    picture = Task((10, 10, 4), np.dtype(np.bool_), "pixels", ("0", "1"))
    GraphAgent.check(GraphConfig(shift_pixels=2), picture)
    (setup,) = setups((10, 10), [0])
    config = dataclasses.replace(QUICK, shift_pixels=2)
    agent = GraphAgent(config, Task((10, 10), np.dtype(np.uint8), "pixels", ("0", "1")), [setup], device=torch.device("cpu"))
    ids = [setup.frames.intern(np.full((10, 10), i, np.uint8)) for i in range(2)]
    agent.store(0, Transition((ids[0],), 0, 1.0, (ids[1],), False), 0.0, is_last=False)
    agent.learn(10, [0])
    assert agent.metrics(0)["cnn_loss"] > 0


FOUR_WAYS = ("NOOP", "LEFT", "RIGHT", "UPLEFT", "UPRIGHT")
WIDE = Task((6, 6), np.dtype(np.uint8), "pixels", FOUR_WAYS)


def of_picture(config: GraphConfig) -> tuple[GraphAgent, int, int]:
    """An agent, and the numbers of a picture and its mirror image."""
    (setup,) = setups((6, 6), [0])
    picture = np.zeros((6, 6), np.uint8)
    picture[1:5, :2] = 255
    there, mirrored = setup.frames.intern(picture), setup.frames.intern(picture[:, ::-1].copy())
    return GraphAgent(config, WIDE, [setup], device=torch.device("cpu")), there, mirrored


@pytest.mark.parametrize("targets", ["graph", "steps"])
def test_what_a_mirrored_picture_is_worth_is_learned_without_seeing_it(targets: str) -> None:
    config = dataclasses.replace(QUICK, mirror=True, targets=targets, num_steps=1, memory_sets=100)
    agent, there, mirrored = of_picture(config)
    rewards = [0.0, -0.5, 0.5, -1.0, 1.0]
    for action, reward in enumerate(rewards):
        agent.store(0, Transition((there,), action, reward, (there,), True), 0.0, is_last=True)
    for t in range(10, 410):
        agent.learn(t, [0])
    q = agent.q_network.values(np.array([[[there], [mirrored]]]), [0])[0].numpy()
    np.testing.assert_allclose(q[0], rewards, atol=0.05)
    np.testing.assert_allclose(q[1], [0.0, 0.5, -0.5, 1.0, -1.0], atol=0.05)


def test_values_of_mirrored_pictures_are_not_stored_as_those_of_the_picture() -> None:
    agent, there, mirrored = of_picture(dataclasses.replace(QUICK, mirror=True))
    agent.store(0, Transition((there,), 1, 1.0, (mirrored,), True), 0.0, is_last=True)
    agent.learn(10, [0])
    before = agent.state_dict(0)["graph"]["nodes"]["q"].copy()
    agent.learn(11, [0])
    np.testing.assert_array_equal(agent.state_dict(0)["graph"]["nodes"]["q"], before)


@pytest.mark.parametrize("channels", ["first", "last"])
def test_pictures_with_channels_are_mirrored_left_for_right_and_moved_down(channels: str) -> None:
    rng, shape = np.random.default_rng(0), (3, 6, 6) if channels == "first" else (6, 6, 3)
    (setup,) = setups(shape, [0])
    picture = rng.integers(0, 256, shape, dtype=np.uint8)
    task = dataclasses.replace(WIDE, observation_shape=shape)
    config = dataclasses.replace(QUICK, mirror=True, shift_pixels=1)
    agent = GraphAgent(config, task, [setup], device=torch.device("cpu"))
    state = np.array([[[setup.frames.intern(picture)]]])
    found = agent.pictures.frames(state, [0], Views(np.array([[[1, 0]]]), np.array([[True]])))[0, 0, 0].numpy()
    down = 1 if channels == "first" else 0
    expected = np.take(np.flip(picture, down + 1), [1, 2, 3, 4, 5, 5], axis=down)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("shift", "mirror", "views"), [(4, False, 9), (0, True, 2), (1, True, 2), (2, True, 18)])
def test_values_to_act_by_may_be_means_over_views_of_the_picture(shift: int, mirror: bool, views: int) -> None:
    config = dataclasses.replace(QUICK, average_views=True, shift_pixels=shift, mirror=mirror, act_with="network")
    agent, there, _ = of_picture(config)
    picture, expected, d = np.zeros((6, 6), np.uint8), [], shift // 2
    picture[1:5, :2] = 255
    wide = np.pad(picture, d, mode="edge")
    for down in sorted({-d, 0, d}):
        for across in sorted({-d, 0, d}):
            moved = wide[d + down : d + down + 6, d + across : d + across + 6]
            expected.append(values_of(agent, moved))
            if mirror:
                expected.append(values_of(agent, moved[:, ::-1].copy())[[0, 2, 1, 4, 3]])
    assert len(expected) == views
    np.testing.assert_allclose(agent.q_values(np.array([[there]]), [0])[0], np.mean(expected, 0), rtol=1e-5, atol=1e-6)
    assert not np.allclose(expected[0], np.mean(expected, 0), atol=1e-4), "the views differ"


@pytest.mark.parametrize("shift", [0, 1])
def test_of_one_view_there_is_nothing_to_average(shift: int) -> None:
    agent, there, _ = of_picture(dataclasses.replace(QUICK, shift_pixels=shift, act_with="network"))
    agent.config = dataclasses.replace(agent.config, average_views=True)
    del agent.pictures  # is not asked
    with_views = agent.q_values(np.array([[there]]), [0])
    agent.config = dataclasses.replace(agent.config, average_views=False)
    np.testing.assert_array_equal(with_views, agent.q_values(np.array([[there]]), [0]))


def test_views_of_several_trials_are_each_ones_own_together_or_apart() -> None:
    config = dataclasses.replace(QUICK, average_views=True, shift_pixels=2, mirror=True, joystick="shared", act_with="network")
    trials = setups((6, 6), [0, 1, 2])
    pictures = np.random.default_rng(0).integers(0, 256, (3, 6, 6), dtype=np.uint8)
    states = np.array([[trial.frames.intern(picture)] for trial, picture in zip(trials, pictures, strict=True)])
    agent = GraphAgent(config, WIDE, trials, device=torch.device("cpu"))
    together = agent.q_values(states, [0, 1, 2])
    for number in range(3):
        np.testing.assert_array_equal(agent.q_values(states[number : number + 1], [number])[0], together[number])
    np.testing.assert_array_equal(agent.q_values(states[[2, 0]], [2, 0]), together[[2, 0]])
    for number, trial in enumerate(trials):
        transition = Transition(tuple(states[number]), 1, 1.0, tuple(states[number]), True)
        agent.store(number, transition, 0.0, is_last=True)
        assert len(trial.frames) == 1
    agent.learn(10, [0, 2])
    assert agent.metrics(1)["cnn_loss"] is None
    assert agent.metrics(2)["cnn_loss"] > 0


def values_of(agent: GraphAgent, picture: Any) -> Any:
    return agent.q_network.population(torch.from_numpy(picture)[None, None, None], trials=[0])[0, 0].numpy()


def test_mirrors_and_views_and_joysticks_are_refused_where_they_have_no_meaning() -> None:
    numbers = dataclasses.replace(WIDE, action_names=("0", "1"))
    one_way = dataclasses.replace(WIDE, action_names=("NOOP", "LEFT"))
    vector = dataclasses.replace(WIDE, observation_shape=(6,), observation_kind="vector")
    own = dataclasses.replace(WIDE, make_network=lambda shape, actions: torch.nn.Linear(1, 1))
    mirror = dataclasses.replace(QUICK, mirror=True)
    for task in (numbers, one_way, vector):
        with pytest.raises(UsageError, match="--mirror false"):
            GraphAgent.check(mirror, task)
    GraphAgent.check(mirror, own)
    views = dataclasses.replace(QUICK, average_views=True)
    with pytest.raises(UsageError, match="--average-views false"):
        GraphAgent.check(views, vector)
    GraphAgent.check(views, WIDE)
    joystick = dataclasses.replace(QUICK, joystick="alone")
    for config, task in ((joystick, numbers), (dataclasses.replace(joystick, duelling=False), WIDE)):
        with pytest.raises(UsageError, match="--joystick off"):
            GraphAgent.check(config, task)
    GraphAgent.check(joystick, one_way)
    for is_duelling in (True, False):  # has its own output
        GraphAgent.check(dataclasses.replace(joystick, duelling=is_duelling), own)


FORESEEING = dataclasses.replace(QUICK, foresight_steps=2, mirror=True, shift_pixels=1, batch_size=4)


def test_what_followed_is_seen_as_the_replayed_state_is_mirrored_with_its_actions_and_counts_as_far_as_it_was_met() -> None:
    (setup,) = setups((6, 6), [0])
    pictures = np.random.default_rng(0).integers(0, 256, (3, 6, 6), dtype=np.uint8)
    ids = [setup.frames.intern(picture) for picture in pictures]
    agent = GraphAgent(dataclasses.replace(FORESEEING, shift_pixels=0), WIDE, [setup], device=torch.device("cpu"))
    agent.store(0, Transition((ids[0],), 1, 0.0, (ids[1],), False), 0.0, is_last=False)
    agent.store(0, Transition((ids[1],), 3, 0.0, (ids[2],), False), 0.0, is_last=False)
    agent._refresh([0])
    nodes = np.array([[agent.graphs[0].find((i,)) for i in (ids[0], ids[0], ids[1])]])
    replay = Replay(nodes, *[np.zeros((1, 3, 1), np.float32)] * 3)  # type: ignore[arg-type]
    flips = np.array([[False, True, True]])
    frames, actions, weights = agent._following(replay, Views(None, flips), [0])
    np.testing.assert_array_equal(actions.argmax(-1), [[[1, 2, 4], [3, 4, actions[0, 1, 2].argmax()]]])
    assert (actions.sum(-1) == 1).all()
    np.testing.assert_array_equal(weights, [[[1, 1, 1], [1, 1, 0]]])  # a weight of 2 over two steps
    seen = frames[0, :, 0].numpy()
    for found, expected in zip(seen[:5], [1, -1, -2, 2, -2], strict=True):
        picture = pictures[abs(expected)]
        np.testing.assert_array_equal(found, picture[:, ::-1] if expected < 0 else picture)


def test_what_followed_is_moved_anew() -> None:
    (setup,) = setups((6, 6), [0])
    pictures = Pictures(
        FrameBank([setup.frames], torch.device("cpu")), [np.random.default_rng(0)], shift_pixels=3,
        mirrored_actions=[0, 2, 1], channels_first=False,
    )  # fmt: skip
    views = pictures.drawn(50, [0])
    along = pictures.drawn_along(views, 2, [0])
    assert views.shifts is not None
    assert along.shifts is not None
    assert along.shifts.shape == (1, 100, 2)
    assert set(along.shifts.ravel().tolist()) == set(range(-3, 4))
    assert not np.array_equal(along.shifts[:, :50], views.shifts)
    np.testing.assert_array_equal(along.flips, np.tile(views.flips, 2))  # type: ignore[arg-type]
    assert pictures.drawn_along(Views(None, None), 2, [0]).are_plain


def test_a_trial_with_foresight_learns_what_follows_and_read_back_goes_on_to_the_same_weights() -> None:
    def made() -> tuple[GraphAgent, Any]:
        (setup,) = setups((6, 6), [0])
        return GraphAgent(FORESEEING, WIDE, [setup], device=torch.device("cpu")), setup

    agent, setup = made()
    plain = GraphAgent(
        dataclasses.replace(FORESEEING, foresight_steps=0), WIDE, setups((6, 6), [0]), device=torch.device("cpu")
    )
    assert "onward" in agent.state_dict(0)["graph"]["nodes"]
    assert "onward" not in plain.state_dict(0)["graph"]["nodes"], "what earlier checkpoints do not have"
    pictures = np.random.default_rng(0).integers(0, 256, (12, 6, 6), dtype=np.uint8)
    ids = [setup.frames.intern(picture) for picture in pictures]
    for i in range(11):
        agent.store(0, Transition((ids[i],), i % 5, 0.0, (ids[i + 1],), False), 0.0, is_last=i == 10)
    losses = []
    for t in range(10, 300):
        agent.learn(t, [0])
        losses.append(agent.metrics(0)["cnn_loss"])
    assert np.mean(losses[-20:]) < 0.6 * np.mean(losses[:20])
    other, its_setup = made()
    its_setup.frames.load_state_dict(setup.frames.state_dict())
    other.load_state_dict(0, agent.state_dict(0))
    its_setup.sampling.bit_generator.state = setup.sampling.bit_generator.state
    for t in range(300, 330):
        agent.learn(t, [0])
        other.learn(t, [0])
    for name, values in agent.q_network.weights(0).items():
        assert torch.equal(values, other.q_network.weights(0)[name])


def test_stacked_trials_with_foresight_learn_what_each_learns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def learned(seeds: list[int], trials: list[int], *, stacked: bool) -> list[dict[str, torch.Tensor]]:
        monkeypatch.setattr(stacking, "computes_together", lambda device: stacked)
        made = setups((6, 6), seeds)
        agent = GraphAgent(FORESEEING, WIDE, made, device=torch.device("cpu"))
        for number, seed in enumerate(seeds):
            pictures = np.random.default_rng(seed).integers(0, 256, (9, 6, 6), dtype=np.uint8)
            ids = [made[number].frames.intern(picture) for picture in pictures]
            for i in range(8):
                transition = Transition((ids[i],), i % 5, float(i == 4), (ids[i + 1],), i == 7)
                agent.store(number, transition, 0.0, is_last=i == 7)
        for t in range(10, 30):
            agent.learn(t, trials if t > 20 else list(range(len(seeds))))  # some end before the others
        assert agent.q_network.population.is_stacked == stacked
        return [agent.q_network.weights(number) for number in trials]

    together = learned([3, 4, 5], [0, 2], stacked=True)
    alone = [*learned([3], [0], stacked=False), *learned([5], [0], stacked=False)]
    for mine, own in zip(together, alone, strict=True):
        for name, weight in own.items():
            torch.testing.assert_close(mine[name], weight, rtol=1e-3, atol=1e-4)


def test_foresight_is_refused_where_it_has_no_meaning_and_takes_memory() -> None:
    vector = dataclasses.replace(WIDE, observation_shape=(6,), observation_kind="vector")
    tiny = dataclasses.replace(WIDE, observation_shape=(2, 2))
    own = dataclasses.replace(WIDE, make_network=lambda shape, actions: torch.nn.Linear(1, 1))
    foresight = dataclasses.replace(QUICK, foresight_steps=3)
    GraphAgent.check(foresight, WIDE)
    ours = dataclasses.replace(WIDE, make_network=lambda shape, actions: WIDE.q_network(1)())  # may have another `forward`
    for task in (vector, tiny, own, ours):
        with pytest.raises(UsageError, match=r"is for pictures.*--foresight-steps 0"):
            GraphAgent.check(foresight, task)
        GraphAgent.check(QUICK, task)
    for changes in ({"targets": "steps"}, {"value_classes": 21}, {"ensemble": 2}):
        with pytest.raises(UsageError, match="--foresight-steps 0 with"):
            GraphAgent.check(dataclasses.replace(foresight, **changes), WIDE)
    without, estimate = (GraphAgent.memory_estimate(config, WIDE) for config in (QUICK, foresight))
    assert estimate.batch_bytes == 4 * without.batch_bytes
    assert estimate.network_bytes > without.network_bytes


@pytest.mark.parametrize(("joystick", "outputs"), [("off", 1 + 5), ("shared", 1 + 2 + 3 + 5), ("alone", 1 + 2 + 3)])
def test_a_joystick_has_outputs_for_its_parts(joystick: str, outputs: int) -> None:
    config = dataclasses.replace(QUICK, joystick=joystick)
    GraphAgent.check(config, WIDE)
    network = started_module(GraphAgent.networks(config, WIDE)["CNN"], np.random.default_rng(0))
    assert list(network.parameters())[-1].numel() == outputs
    assert network(torch.zeros(2, 1, 6, 6)).shape == (2, 5)


def test_a_residual_network_is_for_pictures_and_learns_from_them() -> None:
    config, of_bytes = dataclasses.replace(QUICK, residual_width=1, step_size=0.001), np.dtype(np.uint8)
    own = Task((10, 10), of_bytes, "pixels", ("0", "1"), make_network=lambda shape, actions: torch.nn.Linear(1, 1))
    for task in (Task((4,), of_bytes, "vector", ("0", "1")), Task((2, 2, 2, 2), of_bytes, "pixels", ("0", "1")), own):
        with pytest.raises(UsageError, match="--residual-width 0"):
            GraphAgent.check(config, task)
        GraphAgent.check(QUICK, task)
    picture = Task((10, 10), of_bytes, "pixels", ("0", "1"))
    GraphAgent.check(config, picture)
    plain, residual = (GraphAgent.memory_estimate(c, picture) for c in (QUICK, config))
    assert residual != plain, "counted with the network that it has"
    (setup,) = setups((10, 10), [0])
    agent = GraphAgent(config, picture, [setup], device=torch.device("cpu"))
    assert "Stage3.Conv5.weight" in agent.q_network.weights(0)
    ids = [setup.frames.intern(np.full((10, 10), value, np.uint8)) for value in (200, 100)]
    agent.store(0, Transition((ids[0],), 0, 1.0, (ids[1],), True), 0.0, is_last=True)
    losses = []
    for t in range(10, 60):
        agent.learn(t, [0])
        losses.append(agent.metrics(0)["cnn_loss"])
    assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize("targets", ["graph", "steps"])
def test_values_are_learned_as_histograms_where_classes_are_set(targets: str) -> None:
    traced = Traced(value_classes=21, value_range=2.0, targets=targets, memory_sets=500, num_steps=1, target_period_steps=20)
    assert isinstance(traced.agent.q_network.population._modules[0], HistogramNetwork)
    for t in range(10, 410):
        traced.walk()
        traced.agent.learn(t, [0])
    np.testing.assert_allclose(traced.table()[:, 1], 0.9 ** np.arange(5, -1, -1), atol=0.03)
    assert (np.abs(traced.table()) <= 2).all()


def test_classes_are_eleven_and_more_and_not_for_a_network_of_ones_own_and_take_memory() -> None:
    plain = Task((10, 10), np.dtype(np.uint8), "pixels", ("0", "1"))
    own = dataclasses.replace(plain, make_network=lambda shape, actions: torch.nn.Linear(1, 1))
    classes = dataclasses.replace(QUICK, value_classes=51)
    GraphAgent.check(dataclasses.replace(QUICK, value_classes=11), plain)
    few = [(dataclasses.replace(QUICK, value_classes=number), plain) for number in (1, 10)]
    for config, task in ((classes, own), *few):
        with pytest.raises(UsageError, match="--value-classes 0"):
            GraphAgent.check(config, task)
    GraphAgent.check(classes, plain)
    GraphAgent.check(QUICK, own)
    without, estimate = (GraphAgent.memory_estimate(config, plain) for config in (QUICK, classes))
    assert estimate.batch_bytes >= without.batch_bytes + 256 * 2 * 51 * 4 * 5, "what is asked about 256 states"
    last_layer = (2 + 1) * (128 + 1)
    assert estimate.network_bytes == without.network_bytes + 4 * 4 * last_layer * (51 - 1)


@pytest.mark.parametrize("targets", ["graph", "steps"])
def test_the_members_of_an_ensemble_learn_the_same_values_from_different_weights(targets: str) -> None:
    traced = Traced(ensemble=3, targets=targets, memory_sets=500, num_steps=1, target_period_steps=20)
    members = traced.agent.q_network.population._modules[0].members
    assert len(members) == 3
    for t in range(10, 410):
        traced.walk()
        traced.agent.learn(t, [0])
    np.testing.assert_allclose(traced.table()[:, 1], 0.9 ** np.arange(5, -1, -1), atol=0.03)
    assert len({member.Dense1.weight[0, 0].item() for member in members}) == 3


def test_layer_norm_is_for_the_residual_network_and_arrives_there() -> None:
    task = Task((10, 10), np.dtype(np.uint8), "pixels", ("0", "1"))
    with pytest.raises(UsageError, match="--residual-width 1"):
        GraphAgent.check(dataclasses.replace(QUICK, layer_norm=True), task)
    pictures, values = torch.randint(0, 256, (4, 1, 10, 10), dtype=torch.uint8), {}
    for layer_norm in (False, True):
        config = dataclasses.replace(QUICK, residual_width=1, layer_norm=layer_norm)
        GraphAgent.check(config, task)
        network = started_module(GraphAgent.networks(config, task)["CNN"], np.random.default_rng(0))
        values[layer_norm] = network(pictures)
    assert not torch.allclose(values[False], values[True])


def test_an_ensemble_is_not_of_ones_own_networks_and_takes_memory_for_each_member() -> None:
    plain = Task((10, 10), np.dtype(np.uint8), "pixels", ("0", "1"))
    three = dataclasses.replace(QUICK, ensemble=3)
    own = dataclasses.replace(plain, make_network=lambda shape, actions: torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="--ensemble 1"):
        GraphAgent.check(three, own)
    GraphAgent.check(three, plain)
    GraphAgent.check(QUICK, own)
    one, estimate = (GraphAgent.memory_estimate(config, plain) for config in (QUICK, three))
    assert estimate.batch_bytes == 3 * one.batch_bytes
    assert estimate.network_bytes == 3 * one.network_bytes


def test_only_pictures_of_bytes_are_shrunk_and_only_as_far_as_they_have_pixels() -> None:
    config, of_bytes = GraphConfig(similarity_cells=10), np.dtype(np.uint8)
    GraphAgent.check(config, Task((10, 12), of_bytes, "pixels", ("0", "1")))
    with pytest.raises(UsageError, match="similarity_cells = 10: pictures of 9 pixels have no more cells"):
        GraphAgent.check(config, Task((9, 12), of_bytes, "pixels", ("0", "1")))
    for task in (Task((40,), of_bytes, "vector", ("0",)), Task((10, 10, 4), np.dtype(np.bool_), "pixels", ("0",))):
        with pytest.raises(UsageError, match="--similarity-cells 0"):
            GraphAgent.check(config, task)
    both = GraphConfig(similarity_cells=10, similarity_threshold=1.0)
    with pytest.raises(UsageError, match="leave one of them 0"):
        GraphAgent.check(both, Task((10, 10), of_bytes, "pixels", ("0", "1")))
    (setup,) = setups((10, 10), [0])
    agent = GraphAgent(config, Task((10, 10), of_bytes, "pixels", ("0", "1")), [setup], device=torch.device("cpu"))
    nearly = [setup.frames.intern(np.full((10, 10), value, np.uint8)) for value in (32, 33, 64)]
    for frame in nearly[:2]:
        agent.store(0, Transition((frame,), 0, 1.0, (nearly[2],), False), 0.0, is_last=False)
    assert agent.metrics(0)["nodes"] == 2


def test_a_bonus_by_count_is_refused_where_states_lend() -> None:
    with pytest.raises(UsageError, match="leave one of them 0"):
        GraphAgent.check(GraphConfig(lending_reach=1.0, count_bonus=0.1), Task((3,), np.dtype(np.uint8), "vector", ("0", "1")))


@pytest.mark.parametrize("bonus", [0.0, 0.5])
def test_what_was_given_with_the_weights_is_acted_by_where_nothing_was_met_and_nothing_explored(bonus: float) -> None:
    agents, frames = [], []
    for _ in range(2):
        (setup,) = setups((3,), [0])
        config = dataclasses.replace(QUICK, trust=1.0, count_bonus=bonus)
        agents.append(
            GraphAgent(config, Task((3,), np.dtype(np.uint8), "vector", ("0", "1")), [setup], device=torch.device("cpu"))
        )
        frames.append([setup.frames.intern(np.full(3, value, np.uint8)) for value in (1, 2)])
    first, second = agents
    first.store(0, Transition((frames[0][0],), 1, 1.0, (frames[0][1],), True), 0.0, is_last=True)
    first.graphs[0].refresh(first.config.rule)
    second.load_weights(0, first.weights(0))
    known, unknown = second.q_values(np.array([[i] for i in frames[1]]), [0, 0])
    assert known[1] == 1.0 + bonus, "as it was when it was learned"
    network = second.q_network.values(np.array([[[i]] for i in frames[1]]), [0, 0])[:, 0].numpy()
    assert known[0] == network[0, 0]
    assert unknown.tolist() == network[1].tolist()


def test_a_replay_has_rows_for_each_trial() -> None:
    made = setups((5,), [1, 2])
    agent = agent_of(GraphAgent, QUICK, made)
    loop, _ = loop_of(QUICK, agent, [Corridor(), Corridor()], made)
    loop.run()
    replay: Replay = agent.graphs.sample(7, [0, 1])
    assert replay.s.shape == (2, 7, 1)
    assert replay.targets.shape == replay.weights.shape == (2, 7, 2)


def test_the_estimate_covers_what_the_graph_holds() -> None:
    made = setups((5,), [1])
    agent = agent_of(GraphAgent, QUICK, made)
    loop, _ = loop_of(QUICK, agent, [Corridor()], made)
    loop.run()
    task = Task((5,), np.dtype(np.uint8), "vector", ("0", "1"))
    few = dataclasses.replace(QUICK, memory_sets=agent.graphs[0].num_edges)
    estimate = GraphAgent.memory_estimate(few, task)
    assert estimate.num_transitions == agent.graphs[0].num_edges
    assert estimate.table_bytes >= agent.graphs[0].nbytes - made[0].frames.nbytes
    lending = GraphAgent.memory_estimate(dataclasses.replace(few, lending_reach=1.0, num_lenders=1_000), task)
    assert lending.batch_bytes > estimate.batch_bytes + few.memory_sets * 2_000 * 100  # every edge is lent so often


def test_states_lend_where_that_is_set_and_find_as_many_lenders_as_is_set() -> None:
    for reach, columns in ((0.0, None), (3.0, 2)):
        traced = Traced(lending_reach=reach, num_lenders=2)
        traced.walk()
        nodes = traced.agent.graphs[0].state_dict()["nodes"]
        assert ("lenders" in nodes) == (columns is not None)
        assert columns is None or nodes["lenders"].shape == (6, columns)


def test_the_estimate_covers_lenders_and_what_states_look_like() -> None:
    traced = Traced(lending_reach=3.0, num_lenders=100)
    traced.walk()
    nodes = traced.agent.graphs[0].state_dict()["nodes"]
    held = nodes["lenders"].nbytes + nodes["distances"].nbytes + 6 * 6 * 4  # six states of six numbers
    task = Task((6,), np.dtype(np.uint8), "vector", ("0", "1"))
    with_lenders, without = (
        GraphAgent.memory_estimate(dataclasses.replace(traced.config, memory_sets=6, lending_reach=reach), task).table_bytes
        for reach in (3.0, 0.0)
    )
    assert held <= with_lenders - without <= 2 * held
