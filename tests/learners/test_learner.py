"""Learners: losses by hand, an update against torch's own, trials together and alone, what is saved and read back."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from comper.learners.frame_bank import FrameBank
from comper.learners.learner import (
    LossMeter,
    QLearner,
    QLSTMLearner,
    TrainingSet,
    epsilon_greedy,
    huber_td_loss,
    qlstm_loss,
    squared_td_loss,
)
from comper.learners.optimisers import Adam, RMSProp, Rule
from comper.memory.frames import FrameStore
from comper.memory.transitions import Batch, TransitionBatch
from comper.networks import graphs, stacking
from comper.networks.cnn import ObservationSpec, make_q_network
from comper.networks.qlstm import QLSTM
from comper.networks.stacking import NetworkFactory
from tests.networks.static_recording import record_on_the_cpu
from tests.networks.torch_qlstm import torch_prediction

CPU = torch.device("cpu")
NUM_FRAMES = 12
NUM_ACTIONS = 3
SIZE = 4
"""Numbers in a frame."""


def of_row(many: Batch, row: int) -> Batch:
    """One trial's transitions, as of a population of one."""
    one = slice(row, row + 1)
    columns: Any = (many.set_ids, many.s, many.a, many.r, many.s_next, many.discount, many.q_history)
    return Batch((0,), *(column[one] for column in columns))


def batch(trials: tuple[int, ...], size: int, *, length: int = 1, seed: int = 0) -> Batch:
    """Transitions of random frames, actions and rewards."""
    rng = np.random.default_rng(seed)
    shape = (len(trials), size)
    return Batch(
        trials,
        set_ids=np.zeros(shape, np.int64),
        s=rng.integers(NUM_FRAMES, size=(*shape, 1)),
        a=rng.integers(NUM_ACTIONS, size=shape),
        r=rng.normal(size=shape).astype(np.float32),
        s_next=rng.integers(NUM_FRAMES, size=(*shape, 1)),
        discount=np.ones(shape, np.float32),
        q_history=rng.normal(size=(*shape, length)).astype(np.float32),
    )


def training_set(size: int, *, length: int = 1, seed: int = 0) -> TrainingSet:
    b = batch((0,), size, length=length, seed=seed)
    rows = TransitionBatch(b.s[0], b.a[0], b.r[0], b.s_next[0], np.ones(size, np.float32))
    return TrainingSet(rows, b.q_history[0], np.random.default_rng(seed).normal(size=size).astype(np.float32))


def bank(num_trials: int, device: torch.device = CPU) -> FrameBank:
    stores = [FrameStore((SIZE,), np.float32) for _ in range(num_trials)]
    rng = np.random.default_rng(0)
    for frame in rng.normal(size=(NUM_FRAMES, SIZE)).astype(np.float32):
        for store in stores:
            store.intern(frame)
    return FrameBank(stores, device)


def rngs(seeds: tuple[int, ...]) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def users_network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 16), nn.Tanh(), nn.Linear(16, NUM_ACTIONS))


def q_learner(
    seeds: tuple[int, ...] = (0,),
    network: NetworkFactory | None = None,
    rule: Rule | None = None,
    loss: str = "squared",
    device: torch.device = CPU,
) -> QLearner:
    network = network or make_q_network(ObservationSpec((SIZE,)), NUM_ACTIONS)
    return QLearner(network, bank(len(seeds), device), rngs(seeds), loss=loss, optimiser=rule or Adam(step_size=0.01))


def qlstm_learner(
    seeds: tuple[int, ...] = (0,),
    *,
    num_epochs: int = 1,
    length: int = 1,
    rule: Rule | None = None,
    device: torch.device = CPU,
    scales_inputs: bool = False,
) -> QLSTMLearner:
    return QLSTMLearner(
        partial(QLSTM, SIZE, NUM_ACTIONS, sequence_length=length, scales_inputs=scales_inputs),
        bank(len(seeds), device),
        rngs(seeds),
        batch_size=4,
        num_epochs=num_epochs,
        optimiser=rule or RMSProp(step_size=0.01, momentum=0.0, decay=0.9, epsilon=0.01),
    )


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine's CPU compute as a GPU would."""
    monkeypatch.setattr(stacking, "computes_together", lambda device: True)


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


def assert_equal(found: Any, expected: Any) -> None:
    """Nested states are the same in every bit."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_equal(found[key], expected[key])
    else:
        assert torch.equal(found, expected) if isinstance(expected, Tensor) else found == expected


# Losses.

Q_VALUES = torch.tensor([[1.0, 5.0], [2.0, 0.0], [4.0, 4.0]])
ACTIONS = torch.tensor([0, 1, 0])
TARGET = torch.tensor([1.5, 3.0, 1.0])  # errors 0.5, 3 and -3


def test_squared_loss_is_half_the_sum_of_squared_errors() -> None:
    loss, q = squared_td_loss(lambda s: s, Q_VALUES, ACTIONS, TARGET)
    assert loss.item() == pytest.approx(0.5 * (0.25 + 9 + 9))
    assert q.tolist() == [1.0, 0.0, 4.0]


def test_huber_loss_is_a_sum_and_grows_linearly_beyond_1() -> None:
    loss, q = huber_td_loss(lambda s: s, Q_VALUES, ACTIONS, TARGET)
    assert loss.item() == pytest.approx(0.5 * 0.25 + 2.5 + 2.5)
    assert q.tolist() == [1.0, 0.0, 4.0]


def test_qlstm_loss_is_the_mean_of_the_samples_that_count() -> None:
    prediction, target = torch.tensor([[1.0, 2.0, 7.0], [0.0, 0.0, 0.0]]), torch.tensor([[0.0, 5.0, 0.0], [3.0, 3.0, 3.0]])
    weight = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])  # the second trial has no sample in this batch
    loss, answer = qlstm_loss(lambda x: x, prediction, target, weight)
    assert loss.tolist() == [(1.0 + 9.0) / 2, 0.0]
    assert torch.equal(answer, prediction)


# Q-networks.


def test_an_update_equals_torchs_own() -> None:
    learner, b = q_learner(network=users_network), batch((0,), 6)
    reference = stacking.started_module(users_network, np.random.default_rng(0))
    optimiser = torch.optim.Adam(reference.parameters(), lr=0.01)
    frames, target = bank(1).gather(b.s, [0])[0], torch.arange(6.0)
    for _ in range(5):
        q = reference(frames)[torch.arange(6), torch.from_numpy(b.a[0])]
        loss = nn.functional.huber_loss(q, target, reduction="sum")
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    huber = q_learner(network=users_network, loss="huber")
    for _ in range(5):
        returned = huber.fit(b, target[None])
    assert_close(huber.weights(0), dict(reference.state_dict()))
    torch.testing.assert_close(returned[0], q.detach(), rtol=1e-4, atol=1e-5)  # Q(s, a) before the last update
    assert not torch.equal(learner.weights(0)["1.weight"], huber.weights(0)["1.weight"])


def test_the_loss_since_the_last_reading_is_a_mean_over_transitions_and_updates() -> None:
    learner, b = q_learner(), batch((0,), 4)
    assert learner.loss.read(0) is None
    errors = []
    for target in (1.0, -1.0):
        q = learner.fit(b, torch.full((1, 4), target))
        errors.append(0.5 * (target - q).square().mean().item())
    assert learner.loss.is_finite()
    assert learner.loss.read(0) == pytest.approx(sum(errors) / 2, rel=1e-5)
    assert learner.loss.read(0) is None


@pytest.mark.parametrize("network", [None, users_network], ids=["ours", "a user's"])
def test_stacked_trials_learn_what_they_learn_alone(network: NetworkFactory | None, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stacking, "computes_together", lambda device: True)
        together = q_learner((3, 4, 5), network)
    assert together.population.is_stacked
    alone = [q_learner((seed,), network) for seed in (3, 4, 5)]
    for step, trials in enumerate([(0, 1, 2), (0, 2), (0, 1, 2), (1,), (0, 1, 2)]):  # not all take part at every step
        b = batch(trials, 6, seed=step)
        target = torch.from_numpy(b.r)
        q = together.fit(b, target)
        for row, trial in enumerate(trials):
            expected = alone[trial].fit(of_row(b, row), target[row : row + 1])
            torch.testing.assert_close(q[row : row + 1], expected, rtol=1e-4, atol=1e-5)
    for trial in range(3):
        assert_close(together.weights(trial), alone[trial].weights(0))
        assert together.loss.read(trial) == pytest.approx(alone[trial].loss.read(0), rel=1e-4)


def test_a_trial_beside_others_on_a_cpu_is_the_same_in_every_bit() -> None:
    together, alone = q_learner((3, 4)), q_learner((4,))
    for step in range(3):
        b = batch((0, 1), 6, seed=step)
        together.fit(b, torch.from_numpy(b.r))
        alone.fit(of_row(b, 1), torch.from_numpy(b.r[1:]))
    assert_equal(together.state_dict(1), alone.state_dict(0))


@pytest.mark.usefixtures("stacked")
def test_values_of_many_states_are_right_where_graphs_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 256 states go through the network one after another: each replay leaves its values where the last one did."""
    learner = q_learner()
    states = np.random.default_rng(0).integers(NUM_FRAMES, size=(1, 900, 1))
    expected = learner.values(states, [0])
    record_on_the_cpu(monkeypatch)
    assert torch.equal(learner.values(states, [0]), expected)


@pytest.mark.usefixtures("stacked")
def test_what_fit_and_predict_return_survives_the_next_call_where_graphs_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    record_on_the_cpu(monkeypatch)
    learner, qlstm = q_learner(), qlstm_learner()
    b, other = batch((0,), 6), batch((0,), 6, seed=1)
    calls = (lambda x: learner.fit(x, torch.zeros(1, 6)), qlstm.predict, lambda x: learner.values(x.s, [0]))
    for call in calls:
        kept = call(b)
        copy = kept.clone()
        assert not torch.equal(call(other), copy)
        assert torch.equal(kept, copy)


@pytest.mark.parametrize("num_states", [1, 256, 600])
def test_every_state_has_its_value_however_many_there_are(num_states: int) -> None:
    learner = q_learner()
    states = np.random.default_rng(0).integers(NUM_FRAMES, size=(1, num_states, 1))
    of_frames = learner.values(np.arange(NUM_FRAMES)[None, :, None], [0])[0]
    torch.testing.assert_close(learner.values(states, [0])[0], of_frames[torch.from_numpy(states[0, :, 0])])


@pytest.mark.parametrize("num_states", [5, 600])
def test_a_target_network_answers_with_the_weights_it_was_given(num_states: int) -> None:
    learner, b = q_learner(), batch((0,), 6)
    states = np.random.default_rng(0).integers(NUM_FRAMES, size=(1, num_states, 1))
    before = learner.values(states, [0])
    target = learner.copy()
    for _ in range(3):
        learner.fit(b, torch.ones(1, 6))
    assert torch.equal(learner.values(states, [0], of=target), before)
    assert not torch.equal(learner.values(states, [0]), before)
    target.copy_from(learner.population)
    assert torch.equal(learner.values(states, [0], of=target), learner.values(states, [0]))


@pytest.mark.parametrize("is_stacked", [True, False])
def test_each_trial_may_ask_for_the_values_of_another_number_of_states(
    is_stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacking, "computes_together", lambda device: is_stacked)
    learner, rng = q_learner((0, 1, 2)), np.random.default_rng(0)
    states = [rng.integers(NUM_FRAMES, size=(size, 1)) for size in (3, 700)]
    shapes: list[tuple[int, ...]] = []
    values = learner.values

    def watched(ids: NDArray[np.int64], trials: Any) -> Tensor:
        shapes.append(ids.shape)
        return values(ids, trials)

    vars(learner)["values"] = watched
    found = learner.values_of_each(states, [0, 2])
    assert shapes == ([(2, 768, 1)] if is_stacked else [(1, 3, 1), (1, 700, 1)])
    for trial, s, q in zip((0, 2), states, found, strict=True):
        of_frames = learner.values(np.arange(NUM_FRAMES)[None, :, None], [trial])[0].numpy()
        assert q == pytest.approx(of_frames[s[:, 0]], abs=1e-6)
    assert learner.values_of_each([], []) == []


def test_acting_takes_each_trials_best_action_and_gives_its_value() -> None:
    learner = q_learner((0, 1))
    states = np.array([[3], [5]])
    q = learner.values(states[:, None], [0, 1])[:, 0].numpy()
    actions, values = learner.act(states, [0.0, 0.0], [0, 1], rngs((0, 1)))
    assert actions.dtype == np.int64
    assert actions.tolist() == q.argmax(1).tolist()
    assert values.tolist() == q.max(1).tolist()
    # ε = 1 for the second trial alone: it draws from its own stream, whatever its Q-values are.
    explored = {learner.act(states, [0.0, 1.0], [0, 1], rngs((0, seed)))[0].tolist()[1] for seed in range(30)}
    assert explored == {0, 1, 2}
    for seed in range(10):  # Q_t is the value of the action that was taken
        taken, values = learner.act(states, [1.0, 1.0], [0, 1], rngs((seed, seed + 50)))
        assert values.tolist() == q[[0, 1], taken].tolist()


def test_epsilon_greedy_as_in_algorithm_3() -> None:
    rng = np.random.default_rng(0)
    q = np.array([0.0, 3.0, 1.0], np.float32)
    assert {epsilon_greedy(q, 0.0, rng) for _ in range(50)} == {1}
    counts = np.bincount([epsilon_greedy(q, 1.0, rng) for _ in range(6_000)], minlength=3)
    assert np.abs(counts - 2_000).max() < 200  # about five standard deviations
    greedy_share = np.mean([epsilon_greedy(q, 0.3, rng) == 1 for _ in range(6_000)])
    assert greedy_share == pytest.approx(0.7 + 0.1, abs=0.03)


# The QLSTM.


@pytest.mark.parametrize("length", [1, 3])
def test_training_and_prediction_equal_torchs_lstm(length: int) -> None:
    """One batch of 4, one RMSProp step from a mean square of 0, against nn.LSTM in double precision."""
    learner, sets = qlstm_learner(length=length), training_set(4, length=length)
    reference = stacking.started_module(partial(QLSTM, SIZE, NUM_ACTIONS, sequence_length=length), np.random.default_rng(0))
    assert isinstance(reference, QLSTM)
    parameters = dict(reference.named_parameters())
    prediction = torch_prediction(reference, sequences(sets.transitions, sets.q_history, length))
    loss = (prediction - torch.from_numpy(sets.following_q)).square().mean()
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    learner.fit([sets], [0])
    assert learner.loss.read(0) == pytest.approx(loss.item(), rel=1e-4)
    with torch.no_grad():
        for w, g in zip(parameters.values(), gradients, strict=True):
            if g is not None:
                w.sub_(0.01 * g / torch.sqrt(0.1 * g * g + 0.01))
    assert_close(learner.weights(0), {name: w.detach() for name, w in parameters.items()})
    b = batch((0,), 8, length=length, seed=2)
    own = TransitionBatch(b.s[0], b.a[0], b.r[0], b.s_next[0], b.discount[0])
    expected = torch_prediction(reference, sequences(own, b.q_history[0], length))
    assert expected.std() > 0
    torch.testing.assert_close(learner.predict(b)[0].double(), expected.detach(), rtol=1e-3, atol=1e-5)


def sequences(rows: Any, q_history: NDArray[np.float32], length: int) -> Tensor:
    """[s, a / 2, r / (1 + |r|), s'] repeated, each time with one of the set's Q-values where there are several."""
    frames = bank(1)
    s, s_next = (frames.gather(ids[None], [0])[0, :, 0] for ids in (rows.s, rows.s_next))
    a, r = torch.from_numpy(rows.a), torch.from_numpy(rows.r)
    x = torch.cat([s, a[:, None] / (NUM_ACTIONS - 1), (r / (1 + r.abs()))[:, None], s_next], dim=1)
    repeated = x[:, None].expand(-1, length, -1)
    return repeated if length == 1 else torch.cat([repeated, torch.from_numpy(q_history)[..., None]], -1)


def test_two_epochs_are_two_trainings_on_the_same_sets() -> None:
    sets = training_set(10)
    twice, two_epochs = qlstm_learner(), qlstm_learner(num_epochs=2)
    twice.fit([sets], [0])
    twice.fit([sets], [0])
    two_epochs.fit([sets], [0])
    assert_equal(two_epochs.state_dict(0), twice.state_dict(0))
    assert two_epochs.state_dict(0)["loss"]["count"] == 6  # 10 samples are 3 batches


def test_sets_are_trained_on_in_the_order_in_which_they_come() -> None:
    sets = training_set(7)
    whole, in_parts = qlstm_learner(), qlstm_learner()
    whole.fit([sets], [0])
    for part in (np.arange(4), np.arange(4, 7)):  # the batch size is 4
        in_parts.fit([TrainingSet(sets.transitions.rows(part), sets.q_history[part], sets.following_q[part])], [0])
    assert_equal(whole.state_dict(0), in_parts.state_dict(0))


def test_training_makes_the_loss_fall() -> None:
    rule = RMSProp(step_size=0.002, momentum=0.0, decay=0.9, epsilon=1e-10)
    learner, sets = qlstm_learner(rule=rule), training_set(16)
    learner.fit([sets], [0])
    first = learner.loss.read(0)
    for _ in range(100):
        learner.fit([sets], [0])
        last = learner.loss.read(0)
    assert first is not None
    assert last is not None
    assert last < 0.5 * first


@pytest.mark.parametrize("is_stacked", [True, False])
@pytest.mark.parametrize("sizes", [(7, 0), (0, 5), (3, 0, 9), (5, 12, 1)])
def test_training_sets_of_any_lengths_train_as_each_alone(
    sizes: tuple[int, ...], is_stacked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(stacking, "computes_together", lambda device: is_stacked)
        together = qlstm_learner(tuple(range(len(sizes))))
    sets = [training_set(size, seed=trial) for trial, size in enumerate(sizes)]
    for _ in range(2):  # the second time shows whether an empty batch has changed an average
        together.fit(sets, range(len(sizes)))
    for trial, size in enumerate(sizes):
        alone = qlstm_learner((trial,))
        for _ in range(2):
            alone.fit([sets[trial]], [0])
        assert_close(together.weights(trial), alone.weights(0))
        expected = alone.loss.read(0)
        assert together.loss.read(trial) == (pytest.approx(expected, rel=1e-4) if size else None)


@pytest.mark.parametrize("is_stacked", [True, False])
def test_each_trials_inputs_are_scaled_to_its_own_last_training_set(is_stacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "computes_together", lambda device: is_stacked)
    learner = qlstm_learner((0, 1, 2, 3), scales_inputs=True)
    sets = [training_set(size, seed=size) for size in (7, 600, 5, 9)]
    sets[1].transitions.r[-1] = 50.0  # the largest comes last
    sets[2].transitions.r[:] = 0.25  # always the same reward: it is shifted, and its range counts as 1
    learner.fit(sets, [0, 1, 2, 3])
    learner.fit([training_set(0), training_set(3, seed=9)], [0, 3])  # something new for the last trial alone
    for trial, last in ((0, sets[0]), (1, sets[1]), (2, sets[2]), (3, training_set(3, seed=9))):
        inputs = sequences(last.transitions, last.q_history, 1)[:, 0]
        inputs[:, SIZE] *= NUM_ACTIONS - 1
        low, span = inputs.amin(0), inputs.amax(0) - inputs.amin(0)
        weights = learner.weights(trial)
        torch.testing.assert_close(weights["input_low"], low)
        torch.testing.assert_close(weights["input_range"], torch.where(span == 0, 1.0, span))
    assert learner.weights(2)["input_range"][SIZE + 1] == 1.0


@pytest.mark.usefixtures("stacked")
def test_a_new_scale_reaches_the_recorded_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph reads its buffers where they were when it was recorded: they are overwritten, not replaced."""
    learner = qlstm_learner(scales_inputs=True)
    places = [buffer.data_ptr() for buffer in learner.population.buffers(0).values()]
    learner.fit([training_set(6)], [0])
    learner.load_state_dict(0, learner.state_dict(0))
    assert [buffer.data_ptr() for buffer in learner.population.buffers(0).values()] == places


def test_nothing_to_train_on_changes_nothing() -> None:
    learner = qlstm_learner((0, 1))
    before = learner.state_dict(0)
    learner.fit([training_set(0), training_set(0)], [0, 1])
    learner.fit([], [])
    assert_equal(learner.state_dict(0), before)


# What is saved.


@pytest.mark.parametrize("is_stacked", [True, False])
def test_a_learner_read_back_goes_on_in_the_same_bits(is_stacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacking, "computes_together", lambda device: is_stacked)
    first, other = q_learner((0, 1)), q_learner((8, 9))
    for step in range(3):
        first.fit(batch((0, 1), 4, seed=step), torch.ones(2, 4))
    untouched = other.state_dict(0)
    other.load_state_dict(1, first.state_dict(1))
    assert_equal(other.state_dict(1), first.state_dict(1))
    assert_equal(other.state_dict(0), untouched)
    for learner in (first, other):
        learner.fit(batch((0, 1), 4, seed=7), torch.ones(2, 4))
    assert_equal(other.state_dict(1), first.state_dict(1))


def test_a_loss_that_is_not_a_number_is_noticed() -> None:
    meter = LossMeter(2, CPU)
    meter.add(torch.tensor([1.0, 2.0]), [0, 1])
    assert meter.is_finite()
    meter.add(torch.tensor([math.nan]), [1])
    assert not meter.is_finite()
    assert meter.read(0) == 1.0


# On a GPU.


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("scales_inputs", [False, True])
@pytest.mark.parametrize("network", [None, users_network], ids=["ours", "a user's"])
def test_replayed_updates_equal_plain_ones(
    network: NetworkFactory | None, scales_inputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(seeds: tuple[int, ...]) -> list[dict[str, Tensor]]:
        cuda = torch.device("cuda")
        learner, qlstm = q_learner(seeds, network, device=cuda), qlstm_learner(seeds, device=cuda, scales_inputs=scales_inputs)
        for step in range(30):
            trials = tuple(range(len(seeds)))[: len(seeds) if step < 20 else max(1, len(seeds) - 1)]  # the last finishes early
            b = batch(trials, 6, seed=step)
            learner.fit(b, qlstm.predict(b))
            qlstm.fit([training_set(5 + trial, seed=step) for trial in trials], trials)
        return [part.weights(trial) for part in (learner, qlstm) for trial in range(len(seeds))]

    replayed = trained((0, 1, 2))
    alone = trained((0,))
    monkeypatch.setattr(graphs, "WARM_UP_CALLS", 10**9)
    for mine, theirs in zip(replayed, trained((0, 1, 2)), strict=True):
        for name, tensor in mine.items():
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5)
            assert torch.isfinite(tensor).all()
    for name, tensor in alone[1].items():  # the QLSTM: its training does not depend on the batch that is drawn
        torch.testing.assert_close(replayed[3][name], tensor, rtol=1e-2, atol=1e-3)
