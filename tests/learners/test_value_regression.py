"""Networks fitted to values: the loss by hand, several actions at once, and pictures moved by some pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from comper.learners.frame_bank import FrameBank
from comper.learners.optimisers import Adam
from comper.learners.value_regression import (
    Following,
    ValueLearner,
    weighted_foresight_loss,
    weighted_huber_loss,
    weighted_own_loss,
)
from comper.memory.frames import FrameStore
from comper.memory.transitions import Batch
from comper.networks.cnn import Duelling, ObservationSpec, make_q_network
from comper.networks.foresight import with_foresight
from comper.networks.graphs import WARM_UP_CALLS
from comper.networks.histogram import with_histograms
from comper.networks.stacking import Population


def test_the_loss_is_hubers_of_the_weighted_actions_alone() -> None:
    q = torch.tensor([[1.0, 5.0], [0.0, 0.0]])
    targets, weights = torch.tensor([[1.5, -99.0], [3.0, 0.4]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    loss, answer = weighted_huber_loss(lambda s: q, torch.zeros(2), targets, weights)
    assert torch.isclose(loss, torch.tensor(0.5 * 0.5**2 + (3.0 - 0.5) + 0.5 * 0.4**2))
    assert answer is q
    stacked, _ = weighted_huber_loss(lambda s: q[None], torch.zeros(1, 2), targets[None], weights[None])
    assert torch.isclose(stacked[0], loss)


def learner(num_actions: int = 3, *, classes: int = 0) -> tuple[ValueLearner, Any]:
    store = FrameStore((4,))
    ids = np.array([[store.intern(np.array(frame, np.uint8))] for frame in ([255, 0, 0, 0], [0, 255, 0, 0])])
    network = make_q_network(ObservationSpec((4,), kind="vector"), num_actions, output=Duelling)
    made = ValueLearner(
        with_histograms(network, classes, 4.0) if classes else network,
        FrameBank([store], torch.device("cpu")),
        [np.random.default_rng(0)],
        loss="own" if classes else "huber",
        optimiser=Adam(step_size=0.01),
    )
    return made, ids[None]


@pytest.mark.parametrize("classes", [0, 21])
def test_values_of_several_actions_are_learned_and_the_answer_is_what_was_before(classes: int) -> None:
    made, states = learner(classes=classes)
    targets = np.array([[[1.0, 2.0, -9.0], [-1.0, 0.5, 0.0]]], np.float32)
    weights = np.array([[[1, 1, 0], [1, 1, 1]]], np.float32)
    before = made.values(states, [0])
    assert torch.equal(made.fit_values(made._bank.gather(states, [0]), targets, weights, [0]), before)
    for _ in range(300):
        made.fit_values(made._bank.gather(states, [0]), targets, weights, [0])
    found = made.values(states, [0])[0].numpy()
    np.testing.assert_allclose(found[weights[0] > 0], targets[weights > 0], atol=0.02)
    assert found[0, 2] > -3  # not fitted
    loss = made.loss.read(0)
    assert loss is not None
    assert loss > 0


def test_the_loss_of_classes_is_the_weighted_sum_of_cross_entropies() -> None:
    answers = torch.tensor([[[1.0, 0.5], [2.0, 99.0]], [[3.0, 0.25], [4.0, 2.0]]])  # (B, A, 2): Q-values, cross-entropies
    weights = torch.tensor([[1.0, 0.0], [2.0, 0.5]])
    loss, q = weighted_own_loss(lambda s, targets: answers, torch.zeros(2), torch.zeros(2, 2), weights)
    assert loss == 0.5 + 2 * 0.25 + 0.5 * 2.0
    assert q.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    stacked, _ = weighted_own_loss(lambda s, targets: answers[None], torch.zeros(1, 2), torch.zeros(1, 2, 2), weights[None])
    assert stacked.tolist() == [loss]


PICTURE = (10, 10, 4)
NETWORK = make_q_network(ObservationSpec(PICTURE), 6, output=Duelling)
KINDS = {"own": with_histograms(NETWORK, 21, 5.0), "foresight": with_foresight(NETWORK, 6)}


def followed(rng: np.random.Generator, trials: int, steps: int, states: int) -> Following:
    """Anything that followed states."""
    pictures = torch.from_numpy(rng.random((trials, steps * states, 1, *PICTURE)) < 0.1)
    actions = np.eye(6, dtype=np.float32)[rng.integers(0, 6, (trials, steps, states))]
    return Following(pictures, actions, (rng.random((trials, steps, states)) < 0.8).astype(np.float32))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_updates_replayed_on_a_gpu_are_those_of_a_cpu(kind: str) -> None:
    rng = np.random.default_rng(0)
    on_gpu, on_cpu = (
        ValueLearner(
            KINDS[kind],
            FrameBank([FrameStore(PICTURE, np.bool_)] * 2, torch.device(device)),
            [np.random.default_rng(seed) for seed in range(2)],
            loss=kind,
            optimiser=Adam(step_size=0.001),
        )
        for device in ("cuda", "cpu")
    )
    for _ in range(WARM_UP_CALLS + 4):
        frames = torch.from_numpy(rng.random((2, 32, 1, *PICTURE)) < 0.1)
        targets = rng.normal(scale=2, size=(2, 32, 6)).astype(np.float32)
        weights = (rng.random((2, 32, 6)) < 0.5).astype(np.float32)
        following = followed(rng, 2, 3, 32) if kind == "foresight" else None
        there = following._replace(frames=following.frames.cuda()) if following else None
        q = on_gpu.fit_values(frames.cuda(), targets, weights, [0, 1], there)
        expected = on_cpu.fit_values(frames, targets, weights, [0, 1], following)
        torch.testing.assert_close(q.cpu(), expected, rtol=1e-2, atol=1e-2)
    assert on_gpu.loss.read(1) == pytest.approx(on_cpu.loss.read(1), rel=1e-3)


def test_the_loss_with_foresight_is_hubers_and_what_was_not_foreseen() -> None:
    answers = torch.tensor([[[1.0, 0.5], [2.0, 99.0], [0.0, 3.0]], [[3.0, 0.25], [4.0, 2.0], [0.0, 0.5]]])
    weights = torch.tensor([[1.0, 0.0], [2.0, 0.5]])
    given: list[tuple[Tensor, ...]] = []
    met = tuple(torch.rand(3) for _ in range(3))

    def network(*inputs: Tensor) -> Tensor:
        given.append(inputs)
        return answers

    loss, q = weighted_foresight_loss(network, torch.zeros(2), torch.ones(2, 2), weights, *met)
    assert loss == 0.5 + 3.0 + 2 * 0.25 + 0.5 * 2.0 + 0.5
    assert q.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert all(mine is its for mine, its in zip(given[0][2:], met, strict=True))


def test_a_network_learns_values_and_what_follows_at_once() -> None:
    rng = np.random.default_rng(0)
    made = ValueLearner(
        KINDS["foresight"],
        FrameBank([FrameStore(PICTURE, np.bool_)], torch.device("cpu")),
        [np.random.default_rng(0)],
        loss="foresight",
        optimiser=Adam(step_size=0.001),
    )
    frames, targets = torch.from_numpy(rng.random((1, 4, 1, *PICTURE)) < 0.1), rng.normal(size=(1, 4, 6)).astype(np.float32)
    following, weights = followed(rng, 1, 2, 4), np.ones_like(targets)
    losses = []
    for _ in range(200):
        q = made.fit_values(frames, targets, weights, [0], following)
        losses.append(made.loss.read(0))
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < 0.05 * losses[0]
    np.testing.assert_allclose(q[0].numpy(), targets[0], atol=0.2)


def test_an_update_without_autograd_has_the_bits_of_one_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.random((1, 32, 1, 10, 10, 4)) < 0.1)
    targets = rng.normal(scale=2, size=(1, 32, 6)).astype(np.float32)
    weights = (rng.random((1, 32, 6)) < 0.5).astype(np.float32)
    network = make_q_network(ObservationSpec((10, 10, 4)), 6, output=Duelling)
    bank = FrameBank([FrameStore((10, 10, 4), np.bool_)], torch.device("cpu"))

    def fitted() -> tuple[ValueLearner, list[torch.Tensor]]:
        made = ValueLearner(network, bank, [np.random.default_rng(0)], loss="huber", optimiser=Adam(step_size=0.01))
        return made, [made.fit_values(frames, targets, weights, [0]) for _ in range(5)]

    own, own_q = fitted()
    monkeypatch.setattr(Population, "explicit_gradients", lambda *_: None)
    autograds, autograds_q = fitted()
    assert all(map(torch.equal, own_q, autograds_q))
    assert all(torch.equal(weight, autograds.weights(0)[name]) for name, weight in own.weights(0).items())
    assert own.loss.read(0) == autograds.loss.read(0)


def test_targets_of_steps_are_fitted_by_their_own_loss() -> None:
    """The agent without its graph: one action for each state, and another loss, on a network with gradients of its own."""
    rng = np.random.default_rng(0)
    frames = torch.from_numpy(rng.random((1, 6, 1, 10, 10, 4)) < 0.1)
    network = make_q_network(ObservationSpec((10, 10, 4)), 6, output=Duelling)
    bank = FrameBank([FrameStore((10, 10, 4), np.bool_)], torch.device("cpu"))
    made = ValueLearner(network, bank, [np.random.default_rng(0)], loss="huber", optimiser=Adam(step_size=0.01))
    ids, numbers = np.arange(6)[None], np.zeros((1, 6), np.float32)
    batch = Batch((0,), set_ids=ids, s=ids, a=ids, r=numbers, s_next=ids, discount=numbers, q_history=numbers)
    target = torch.linspace(-1, 1, 6)[None]
    for _ in range(200):
        q = made.fit(batch, target, frames)
    assert torch.allclose(q, target, atol=0.05)
