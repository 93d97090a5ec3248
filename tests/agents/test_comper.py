"""Algorithm 2 by hand: when what is trained, on which sets, towards which target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from comper.agents.comper import ComperAgent
from comper.memory.transitions import Transition
from comper.networks.qlstm import QLSTM
from comper.protocol import ComperConfig
from tests.networks.torch_qlstm import torch_prediction
from tests.toys import setups

CONFIG = ComperConfig(
    replay_start_steps=4, train_period_steps=2, target_period_steps=8, batch_size=3, sets_per_training=5, qlstm_batch_size=2
)


class Traced:
    """An agent whose networks' calls are written down."""

    def __init__(self, config: ComperConfig = CONFIG):
        self.setup = setups((3,), [0])[0]
        self.agent = ComperAgent(config, [self.setup], num_actions=2, device=torch.device("cpu"))
        self.tape: list[tuple[str, Any]] = []
        self._watch(self.agent.qlstm, "fit", lambda sets, trials: sets[0] if sets else None)
        self._watch(self.agent.q_network, "fit", lambda batch, target: (batch, target))
        self._watch(self.agent.tm[0], "refresh", lambda sets, q: sets.tolist())

    def _watch(self, owner: Any, name: str, keep: Any) -> None:
        original = getattr(owner, name)

        def watched(*args: Any) -> Any:
            self.tape.append((f"{type(owner).__name__}.{name}", keep(*args)))
            return original(*args)

        setattr(owner, name, watched)

    def store(
        self, s: int, s_next: int, *, r: float = 0.0, q: float = 0.0, terminal: bool = False, last: bool = False
    ) -> None:
        frames = self.setup.frames
        ids = [frames.intern(np.full(3, value, np.uint8)) for value in (s, s_next)]
        self.agent.store(0, Transition((ids[0],), 0, r, (ids[1],), terminal), q, is_last=terminal or last)
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
    update = ["QLearner.fit", "TransitionMemory.refresh"]
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


def test_max_alignment_asks_the_cnn_about_the_next_state() -> None:
    traced = Traced(ComperConfig(alignment="max", replay_start_steps=1, train_period_steps=1))
    traced.store(7, 8)
    with torch.no_grad():
        states = traced.agent.tm[0].gather(np.array([0])).s_next
        expected = traced.agent.q_network.values(states[None], [0]).amax().item()
    traced.agent.learn(1, [0])
    assert traced.tape[0][1].following_q.tolist() == [pytest.approx(expected)]


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


def test_replay_draws_from_rtm_alone() -> None:
    traced = Traced(ComperConfig(replay_start_steps=2, train_period_steps=1, sets_per_training=2, target_period_steps=50))
    for s in range(2):
        traced.store(s, s + 1)
    traced.agent.learn(2, [0])
    for s in range(10, 20):
        traced.store(s, s + 1)
        traced.agent.learn(s, [0])
    drawn = {set_id for name, sets in traced.tape if name == "TransitionMemory.refresh" for set_id in sets}
    assert drawn == {0, 1}


@pytest.mark.parametrize("alignment", ["successor", "max"])
def test_the_qlstm_learns_nothing_from_a_transition_that_ended_the_game(alignment: str) -> None:
    config = ComperConfig(alignment=alignment, replay_start_steps=1, train_period_steps=1)
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
    assert len(np.unique(q.numpy(), axis=0)) > 3  # sets of several sizes, with Q-values of their own
    x = torch.cat([s, a[:, None], (r / (1 + r.abs()))[:, None], s_next], dim=1)
    sequence = torch.cat([x[:, None].expand(-1, 3, -1), q[..., None]], -1)
    expected = torch_prediction(network, sequence).detach()
    torch.testing.assert_close(agent.qlstm.predict(batch)[0].double(), expected, rtol=1e-4, atol=1e-5)
    assert agent.metrics(0)["qlstm_loss"] > 0
