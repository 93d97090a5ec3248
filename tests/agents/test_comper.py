"""Algorithm 2 by hand: when what is trained, on which sets, towards which target."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.comper import ComperAgent, ComperConfig
from comper.learners.frame_bank import FrameBank
from comper.learners.learner import QLSTMLearner
from comper.learners.optimisers import RMSProp
from comper.memory.transitions import Transition
from comper.networks.qlstm import QLSTM
from tests.networks.torch_qlstm import torch_prediction
from tests.toys import agent_of, setups

CONFIG = ComperConfig(
    replay_start_steps=4, train_period_steps=2, target_period_steps=8, batch_size=3, sets_per_training=5, qlstm_batch_size=2,
    reward_clip=0.0,
)  # fmt: skip


class Traced:
    """An agent whose networks' calls are written down."""

    def __init__(self, config: ComperConfig = CONFIG):
        self.setup = setups((3,), [0])[0]
        self.agent: ComperAgent = agent_of(ComperAgent, config, [self.setup])
        self.tape: list[tuple[str, Any]] = []
        self._watch(self.agent.qlstm, "fit", lambda sets, trials: sets[0] if sets else None)
        self._watch(self.agent.q_network, "fit", lambda batch, target: (batch, target))
        self._watch(self.agent.tm, "refresh", lambda batch, q: batch.set_ids[0].tolist())

    def _watch(self, owner: Any, name: str, keep: Any) -> None:
        original = getattr(owner, name)

        def watched(*args: Any) -> Any:
            self.tape.append((f"{type(owner).__name__}.{name}", keep(*args)))
            return original(*args)

        setattr(owner, name, watched)

    def store(
        self, s: int, s_next: int, *, a: int = 0, r: float = 0.0, q: float = 0.0, terminal: bool = False, last: bool = False
    ) -> None:
        frames = self.setup.frames
        ids = [frames.intern(np.full(3, value, np.uint8)) for value in (s, s_next)]
        self.agent.store(0, Transition((ids[0],), a, r, (ids[1],), terminal), q, is_last=terminal or last)
        frames.release(ids)

    def calls(self) -> list[str]:
        return [name for name, kept in self.tape if kept is not None]


def test_algorithm_2_by_hand() -> None:
    traced = Traced()
    agent = traced.agent
    tm, rtm = agent.tm[0], agent.rtm[0]
    sizes = []
    for t in range(1, 11):
        traced.store(t, t + 1, r=float(t), q=10.0 * t)
        agent.learn(t, [0])
        sizes.append((len(tm), len(rtm)))
    # l. 11: nothing before the start (4), then every second step; l. 12: RTM empty at t = 4, and t mod 8 == 0.
    update = ["QLearner.fit", "TransitionMemories.refresh"]
    assert traced.calls() == ["QLSTMLearner.fit", *update, *update, "QLSTMLearner.fit", *update, *update]
    # t = 4: sets 0-3 leave TM and fill RTM; 3 draws return those drawn. Up to there TM grows by one a step.
    assert sizes[:3] == [(1, 0), (2, 0), (3, 0)]
    assert sizes[3][1] == 4
    assert 1 <= sizes[3][0] <= 3
    # t = 8: at most 5 sets are taken, so RTM can hold at most 9 and no more than the 8 distinct transitions seen.
    assert 5 <= sizes[7][1] <= 8
    training_set = traced.tape[0][1]
    # The newest transition (t = 4) has no successor yet: three samples, each aligned with the Q-value that followed.
    assert training_set.following_q.tolist() == [20.0, 30.0, 40.0]
    assert training_set.transitions.r.tolist() == [1.0, 2.0, 3.0]


def test_a_training_takes_the_sets_longest_in_tm_and_no_more_than_its_share() -> None:
    traced = Traced(dataclasses.replace(CONFIG, sets_per_training=5, replay_start_steps=7, train_period_steps=7))
    for t in range(1, 8):
        traced.store(t, t + 1, r=float(t))
    traced.agent.learn(7, [0])
    tm, rtm = traced.agent.tm[0], traced.agent.rtm[0]
    assert sorted(rtm.state_dict()["members"].tolist()) == [0, 1, 2, 3, 4]
    assert traced.tape[0][1].transitions.r.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    batch = traced.tape[1][1][0]
    assert batch.a.shape == (1, 3)  # K
    assert len(tm) == 2 + len(set(batch.set_ids[0].tolist()))  # those left, and those drawn


def test_replayed_transitions_return_with_the_q_value_from_before_the_update() -> None:
    traced = Traced(dataclasses.replace(CONFIG, replay_start_steps=1, train_period_steps=1, step_size=0.1))
    traced.store(1, 2, r=5.0, q=7.0)
    tm = traced.agent.tm[0]
    before = float(traced.agent.q_network.values(tm.gather(np.array([0])).s[None], [0])[0, 0, 0])
    traced.agent.learn(1, [0])
    assert tm.q_history(np.array([0])).ravel().tolist() == [pytest.approx(before, rel=1e-5)]


def test_target_is_reward_plus_discounted_prediction_and_nothing_follows_a_game_over() -> None:
    traced = Traced(ComperConfig(replay_start_steps=1, train_period_steps=1, batch_size=64, discount=0.5))
    traced.store(1, 2, r=1.0)
    traced.store(2, 3, r=-1.0, terminal=True)
    traced.agent.learn(2, [0])
    batch, target = next(kept for name, kept in traced.tape if name == "QLearner.fit")
    prediction = traced.agent.qlstm.predict(batch)
    expected = np.where(batch.r > 0, 1.0 + 0.5 * prediction.numpy(), -1.0)
    assert target.numpy() == pytest.approx(expected, abs=1e-6)
    assert set(batch.r.ravel().tolist()) == {1.0, -1.0}


@pytest.mark.parametrize("ending", ["terminal", "last"])
def test_the_first_transition_of_an_episode_follows_nothing(ending: str) -> None:
    traced = Traced()
    traced.store(1, 2, q=1.0, **{ending: True})
    traced.store(3, 4, q=2.0)
    traced.store(4, 5, q=3.0)
    assert traced.agent.tm[0].successor_q(np.array([0, 1, 2]))[1].tolist() == [False, True, False]


def test_set_alignment_pairs_a_transition_with_its_own_next_q_value() -> None:
    traced = Traced(ComperConfig(alignment="set", replay_start_steps=1, train_period_steps=1, target_period_steps=1))
    for q in (1.0, 2.0, 3.0):
        traced.store(7, 8, q=q)
    traced.store(8, 9, q=5.0)
    traced.agent.learn(4, [0])
    training_set = traced.tape[0][1]
    assert training_set.following_q.tolist() == [3.0]  # the set met once has no next Q-value
    assert training_set.q_history.tolist() == [[2.0]]  # nor is the one to be learned among the inputs


def test_other_alignments_read_the_newest_q_values_of_the_set() -> None:
    traced = Traced(ComperConfig(sequence_length=2, replay_start_steps=1, train_period_steps=1))
    for q in (1.0, 2.0, 3.0):
        traced.store(7, 8, q=q, last=q < 3)
    traced.store(8, 9, q=5.0)
    traced.agent.learn(4, [0])
    training_set = traced.tape[0][1]
    assert training_set.following_q.tolist() == [5.0]
    assert training_set.q_history.tolist() == [[2.0, 3.0]]


def test_max_alignment_asks_the_cnn_about_the_next_state() -> None:
    traced = Traced(ComperConfig(alignment="max", replay_start_steps=1, train_period_steps=1))
    traced.store(7, 8)
    with torch.no_grad():
        states = traced.agent.tm[0].gather(np.array([0])).s_next
        expected = traced.agent.q_network.values(states[None], [0]).amax().item()
        other = traced.agent.q_network.values(traced.agent.tm[0].gather(np.array([0])).s[None], [0]).amax().item()
    assert expected != pytest.approx(other)
    traced.agent.learn(1, [0])
    assert traced.tape[0][1].following_q.tolist() == [pytest.approx(expected)]


@pytest.mark.parametrize("first_action", [0, 1])
def test_fresh_alignment_asks_the_cnn_of_now_about_the_transition_that_followed(first_action: int) -> None:
    traced = Traced(ComperConfig(alignment="successor-fresh", replay_start_steps=2, train_period_steps=2))

    def values_after(set_id: int) -> torch.Tensor:
        s_next = traced.agent.tm[0].gather(np.array([set_id])).s_next
        return traced.agent.q_network.values(s_next[None], [0])[0, 0]

    traced.store(1, 2, a=first_action, q=50.0)
    for s in (2, 3):  # each time the worse of the two actions follows
        traced.store(s, s + 1, a=int(values_after(s - 2).argmin()), q=60.0, last=s == 3)
    traced.store(3, 5, q=80.0, terminal=True)
    expected = [values_after(set_id).min().item() for set_id in (0, 1)]
    traced.agent.learn(2, [0])
    # Of the four only the first two were followed; the stored 60 is not asked for.
    assert traced.tape[0][1].following_q.tolist() == pytest.approx(expected)


def test_rtm_holds_only_the_sets_of_the_last_training_where_it_is_replaced() -> None:
    members = {}
    for mode in ("accumulate", "replace"):
        config = dataclasses.replace(CONFIG, rtm=mode, sets_per_training=2, target_period_steps=2)
        traced = Traced(config)
        for t in range(1, 5):
            traced.store(t, t + 1)
        for t in (4, 6):
            traced.agent.learn(t, [0])
        members[mode] = sorted(traced.agent.rtm[0].state_dict()["members"].tolist())
    assert members == {"accumulate": [0, 1, 2, 3], "replace": [2, 3]}


def test_without_sets_every_transition_is_one_of_its_own_and_the_oldest_goes_first() -> None:
    traced = Traced(ComperConfig(index="none", memory_sets=3, sets_per_training=3))
    for q in range(5):
        traced.store(7, 8, q=float(q))
    tm = traced.agent.tm[0]
    assert (tm.num_sets, tm.similar_hits, len(tm)) == (3, 0, 3)
    assert tm.q_history(np.array([2, 3, 4])).ravel().tolist() == [2.0, 3.0, 4.0]
    assert tm.check_valid() == (True, "valid")
    with pytest.raises(ValueError, match="must be 0 with index = none"):
        ComperConfig(index="none", similarity_threshold=0.5)


def test_a_min_max_scale_is_that_of_the_last_training_set_also_after_reading_back() -> None:
    config = dataclasses.replace(CONFIG, input_scale="minmax", replay_start_steps=2)
    traced, other = Traced(config), Traced(config)
    for t in range(1, 8):
        traced.store(10 * t, 10 * t + 10, r=float(t % 3))
        traced.agent.learn(t, [0])
    batch = next(kept for name, kept in reversed(traced.tape) if name == "QLearner.fit")[0]
    expected = traced.agent.qlstm.predict(batch)
    state = traced.agent.state_dict(0)
    # The only training, at t = 2, had one transition with a successor: 10 -> 20. So every input is shifted by its own.
    low = state["qlstm"]["weights"]["input_low"]
    assert low.tolist() == pytest.approx([10 / 255] * 3 + [0.0, 0.5] + [20 / 255] * 3)
    other.setup.frames.load_state_dict(traced.setup.frames.state_dict())
    assert not torch.equal(other.agent.qlstm.predict(batch), expected)
    other.agent.load_state_dict(0, state)
    assert torch.equal(other.agent.qlstm.predict(batch), expected)


def test_weights_of_the_cnn_change_with_every_update() -> None:
    """The published results suggest that the authors' did not (docs/reproduction.md)."""
    traced = Traced(ComperConfig(replay_start_steps=4, train_period_steps=4))
    rng = np.random.default_rng(0)

    def weights() -> dict[str, torch.Tensor]:
        return {name: tensor.detach().clone() for name, tensor in traced.agent.q_network.population.groups[0].items()}

    before, num_updates = weights(), 0
    for t in range(1, 101):
        traced.store(*rng.integers(256, size=2).tolist(), r=float(rng.integers(2)), q=float(rng.normal()))
        traced.agent.learn(t, [0])
        after = weights()
        has_changed = any(not torch.equal(before[name], after[name]) for name in after)
        assert has_changed == (t % 4 == 0)
        num_updates += has_changed
        before = after
    assert num_updates == 25


def test_rewards_are_learned_from_within_the_clip() -> None:
    """A4c; scores stay raw: `tests/training/test_loop.py`."""
    for clip, stored in ((1.0, [1.0, -1.0, 0.5]), (2.0, [2.0, -2.0, 0.5]), (0.0, [5.0, -3.0, 0.5])):
        traced = Traced(ComperConfig(reward_clip=clip))
        for s, r in enumerate((5.0, -3.0, 0.5)):
            traced.store(s, s + 1, r=r)
        assert traced.agent.tm[0].gather(np.arange(3)).r.tolist() == stored


def test_replay_draws_from_rtm_alone() -> None:
    traced = Traced(ComperConfig(replay_start_steps=2, train_period_steps=1, sets_per_training=2, target_period_steps=50))
    for s in range(2):
        traced.store(s, s + 1)
    traced.agent.learn(2, [0])
    for s in range(10, 20):
        traced.store(s, s + 1)
        traced.agent.learn(s, [0])
    drawn = {set_id for name, sets in traced.tape if name == "TransitionMemories.refresh" for set_id in sets}
    assert drawn == {0, 1}


@pytest.mark.parametrize("alignment", ["successor", "max"])
def test_the_qlstm_learns_nothing_from_a_transition_that_ended_the_game(alignment: str) -> None:
    config = ComperConfig(reward_clip=0.0, alignment=alignment, replay_start_steps=1, train_period_steps=1)
    traced = Traced(config)
    traced.store(1, 2, r=1.0)
    traced.store(2, 3, r=2.0, terminal=True)
    traced.store(1, 2, r=1.0)  # known: followed by another from now on
    traced.store(2, 4, r=3.0)
    traced.store(4, 5, r=4.0, last=True)  # cut off: the game went on, but nobody saw it
    traced.agent.learn(5, [0])
    trained = traced.tape[0][1].transitions.r.tolist()
    assert trained == ([1.0, 3.0] if alignment == "successor" else [1.0, 3.0, 4.0])


def test_longer_sequences_train_and_predict_as_torchs_lstm_does() -> None:
    traced = Traced(ComperConfig(sequence_length=3, replay_start_steps=2, train_period_steps=2, target_period_steps=2))
    agent, rng = traced.agent, np.random.default_rng(0)
    for t in range(1, 30):
        traced.store(*rng.integers(4, size=2).tolist(), q=float(t))
        agent.learn(t, [0])
    batch = next(kept for name, kept in reversed(traced.tape) if name == "QLearner.fit")[0]
    network = QLSTM(3, 2, sequence_length=3)
    network.load_state_dict(agent.qlstm.weights(0))
    s, s_next = (torch.from_numpy(traced.setup.frames.gather(ids[0, :, 0])) / 255 for ids in (batch.s, batch.s_next))
    a, r, q = (torch.from_numpy(column[0]) for column in (batch.a, batch.r, batch.q_history))
    assert len(np.unique(batch.q_history[0], axis=0)) > 3  # sets of several sizes, with Q-values of their own
    x = torch.cat([s, a[:, None], (r / (1 + r.abs()))[:, None], s_next], dim=1)
    sequence = torch.cat([x[:, None].expand(-1, 3, -1), q[..., None]], -1)
    expected = torch_prediction(network, sequence).detach()
    torch.testing.assert_close(agent.qlstm.predict(batch)[0].double(), expected, rtol=1e-4, atol=1e-5)
    assert agent.metrics(0)["qlstm_loss"] > 0


# Settings and states.


def test_exploration_is_total_at_the_start_and_then_a_line_over_the_frames() -> None:
    config = ComperConfig(replay_start_steps=10, epsilon_start=0.8, epsilon_end=0.2, epsilon_decay_frames=1_000)
    agent = Traced(config).agent
    assert agent.epsilon(frames=900, steps=9) == 1.0
    assert agent.epsilon(frames=0, steps=10) == pytest.approx(0.8)
    assert agent.epsilon(frames=250, steps=50) == pytest.approx(0.65)
    assert agent.epsilon(frames=1_000, steps=50) == agent.epsilon(frames=5_000, steps=50) == pytest.approx(0.2)


@pytest.mark.parametrize(("threshold", "num_sets"), [(0.0, 3), (0.1, 2)])
def test_transitions_within_the_threshold_are_similar(threshold: float, num_sets: int) -> None:
    traced = Traced(ComperConfig(similarity_threshold=threshold))
    for s in (100, 101, 200):  # three pixels of 1/255 each in s and in s' are a distance of 0.0096
        traced.store(s, s)
    assert traced.agent.tm[0].num_sets == num_sets


def test_no_more_sets_are_remembered_than_set() -> None:
    traced = Traced(ComperConfig(memory_sets=3, sets_per_training=3))
    for s in range(5):
        traced.store(s, s)
    assert traced.agent.tm[0].num_sets == 3


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_qlstm_is_trained_with_its_own_settings(momentum: float) -> None:
    config = ComperConfig(
        replay_start_steps=1, train_period_steps=1, step_size=0.5, squared_gradient_momentum=0.7, batch_size=9,
        qlstm_step_size=0.01, qlstm_gradient_momentum=momentum, qlstm_decay=0.8, qlstm_epsilon=0.1, qlstm_epochs=3,
        qlstm_batch_size=2, qlstm_mean_square_start=0.4,
    )  # fmt: skip
    traced = Traced(config)
    reference = QLSTMLearner(
        partial(QLSTM, 3, 2),
        FrameBank([traced.setup.frames], torch.device("cpu")),
        [np.random.default_rng(0)],
        batch_size=2,
        num_epochs=3,
        optimiser=RMSProp(step_size=0.01, momentum=momentum, decay=0.8, epsilon=0.1, mean_square_start=0.4),
    )
    reference.load_weights(0, traced.agent.qlstm.weights(0))
    for s in range(6):
        traced.store(s, s + 1, q=float(s))
    traced.agent.learn(1, [0])
    reference.fit([traced.tape[0][1]], [0])
    assert len(traced.tape[0][1].following_q) == 5
    found = traced.agent.qlstm.weights(0)
    for name, weight in reference.weights(0).items():
        assert torch.equal(found[name], weight), name


@pytest.mark.parametrize(("loss", "expected"), [("squared", lambda e: e * e / 2), ("huber", lambda e: e - 0.5)])
def test_the_loss_is_that_of_the_setting(loss: str, expected: Any) -> None:
    traced = Traced(dataclasses.replace(CONFIG, loss=loss, replay_start_steps=1, train_period_steps=1))
    traced.store(1, 2, r=10.0, terminal=True)
    q = float(traced.agent.q_network.values(np.zeros((1, 1, 1), np.int64), [0])[0, 0, 0])
    traced.agent.learn(1, [0])
    assert traced.agent.metrics(0)["cnn_loss"] == pytest.approx(expected(10.0 - q), rel=1e-4)


def test_the_peak_of_tm_is_the_most_that_was_in_it() -> None:
    traced = Traced()
    for t in range(1, 5):
        traced.store(t, t + 1)
    traced.agent.learn(4, [0])
    metrics = traced.agent.metrics(0)
    assert metrics["tm_peak_sets"] == 4 > metrics["tm_sets"]


def test_networks_and_memories_are_saved_and_read_back() -> None:
    traced, other = Traced(), Traced()
    for t in range(1, 9):
        traced.store(t, t + 1, r=float(t), q=float(t))
        traced.agent.learn(t, [0])
    state = traced.agent.state_dict(0)
    other.setup.frames.load_state_dict(traced.setup.frames.state_dict())
    other.agent.load_state_dict(0, state)
    for network in ("q_network", "qlstm"):
        mine, theirs = (getattr(a, network).weights(0) for a in (other.agent, traced.agent))
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert other.agent.rtm[0].state_dict()["members"].tolist() == traced.agent.rtm[0].state_dict()["members"].tolist()
    assert len(other.agent.tm[0]) == len(traced.agent.tm[0]) > 0


@pytest.mark.parametrize("network", ["q_network", "qlstm"])
def test_a_loss_that_is_not_a_number_is_noticed(network: str) -> None:
    agent = Traced().agent
    assert agent.is_finite()
    getattr(agent, network).loss.add(torch.tensor([math.nan]), [0])
    assert not agent.is_finite()
