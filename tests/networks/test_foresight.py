"""A network that foresees what it will make of the states that follow: values, losses, gradients, stacked trials."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from comper.networks.cnn import Duelling, ObservationSpec, make_q_network
from comper.networks.foresight import Foresight, can_foresee, with_foresight
from comper.networks.residual import make_residual_network
from comper.networks.stacking import NetworkFactory, Population, started_module

SPEC = ObservationSpec((8, 8), 2)
KINDS: dict[str, NetworkFactory] = {
    "cnn": make_q_network(SPEC, 3, output=Duelling),
    "residual": make_residual_network(1, SPEC, 3, output=Duelling),
}
K, B, A = 2, 4, 3


def pictures(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (*shape, 2, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def made(kind: str = "cnn") -> Foresight:
    module = started_module(with_foresight(KINDS[kind], A), np.random.default_rng(0))
    assert isinstance(module, Foresight)
    return module


def met(*trials: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Targets, the pictures that followed, the actions between, and how much each step counts."""
    generator = torch.Generator().manual_seed(seed)
    actions = torch.nn.functional.one_hot(torch.randint(0, A, (*trials, K, B), generator=generator), A).float()
    targets, weights = torch.rand(*trials, B, A, generator=generator), torch.rand(*trials, K, B, generator=generator)
    return targets, pictures(*trials, K * B, seed=seed + 1), actions, weights


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_the_network_and_losses_are_hubers(kind: str) -> None:
    network, (targets, *rest) = made(kind), met()
    q = network(pictures(B))
    torch.testing.assert_close(q, network.network(pictures(B)))
    answers, losses = network(pictures(B), targets, *rest).unbind(-1)
    assert answers.shape == (B, A + 1)
    torch.testing.assert_close(answers[:, :A], q)
    assert not answers[:, A].any()
    errors = (q - targets).abs()
    torch.testing.assert_close(losses[:, :A], torch.where(errors < 1, errors**2 / 2, errors - 0.5))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_foreseen_is_the_angle_to_what_the_network_makes_of_each_state_that_followed(kind: str) -> None:
    network, (targets, following, actions, weights) = made(kind), met()
    found = network(pictures(B), targets, following, actions, weights)[:, A, 1]
    inner = network.network
    features, expected = inner.features(pictures(B)), torch.zeros(B)
    for step in range(K):
        features = network._next(features, actions[step])
        guess = network.Guess(inner.hidden_sums(features))
        wanted = inner.hidden_sums(inner.features(following[step * B : (step + 1) * B]))
        cosine = (guess * wanted).sum(-1) / (guess.norm(dim=-1) * wanted.norm(dim=-1))
        expected = expected + weights[step] * (1 - cosine)
    torch.testing.assert_close(found, expected)
    assert (found > 0).all()


def test_the_next_features_depend_on_the_action_and_on_what_is_around_and_are_never_negative() -> None:
    network = made()
    features = network.network.features(pictures(1))
    one, other = (network._next(features, torch.eye(A)[None, i]) for i in (0, 1))
    assert one.shape == features.shape
    assert not torch.allclose(one, other)
    assert one.min() >= 0
    changed = features.clone()
    changed[..., 0, 0] += 1
    moved = (network._next(changed, torch.eye(A)[:1]) - one).abs().sum((0, 1)) > 0
    assert moved[0, 0]
    assert moved[2, 2], "two convolutions of 3 x 3 reach two pixels far"
    assert not moved[3:].any()
    assert not moved[:, 3:].any()
    assert (network._next(torch.zeros_like(features), torch.eye(A)[:1]) >= 0).all()


def test_what_was_not_met_teaches_nothing_and_what_was_met_is_taken_as_it_is() -> None:
    network, (targets, following, actions, weights) = made(), met()
    weights[1, 2] = 0.0
    other = following.clone()
    other[B + 2] = 255 - other[B + 2]
    first, second = (network(pictures(B), targets, x, actions, weights) for x in (following, other))
    assert torch.equal(first, second)
    # No gradient goes through what was wanted.
    unforeseen = first[:, A, 1].sum()
    gradient = torch.autograd.grad(unforeseen, [network.network.Dense1.weight, network.Guess.weight, network.Action.weight])
    assert all(g.abs().sum() > 0 for g in gradient)
    with torch.no_grad():
        wanted = network.network.hidden_sums(network.network.features(following))
    features, total = network.network.features(pictures(B)), torch.zeros(())
    for step in range(K):
        features = network._next(features, actions[step])
        guess = network.Guess(network.network.hidden_sums(features))
        cosine = torch.nn.functional.cosine_similarity(guess, wanted[step * B : (step + 1) * B], dim=-1)
        total = total + (weights[step] * (1 - cosine)).sum()
    by_hand = torch.autograd.grad(total, [network.network.Dense1.weight])
    torch.testing.assert_close(gradient[0], by_hand[0])


@pytest.mark.parametrize("kind", KINDS)
def test_stacked_trials_foresee_what_they_foresee_alone(kind: str) -> None:
    make = with_foresight(KINDS[kind], A)
    stacked, alone = (
        Population(make, [np.random.default_rng(seed) for seed in range(3)], torch.device("cpu"), stacked=s)
        for s in (True, False)
    )
    frames, inputs = pictures(3, B), met(3)
    together = stacked.forward(0, frames, *inputs)
    for trial in range(3):
        torch.testing.assert_close(together[trial], alone.forward(trial, frames[trial], *(x[trial] for x in inputs)))
    gradients = stacked.gradients(0, together[..., 1].sum())
    for trial in range(3):
        own = alone.gradients(trial, alone.forward(trial, frames[trial], *(x[trial] for x in inputs))[..., 1].sum())
        for name, gradient in own.items():
            expected = gradient if isinstance(gradient, Tensor) else gradient.tensor()
            found = gradients[name]
            assert isinstance(found, Tensor)
            torch.testing.assert_close(found[trial], expected, rtol=1e-3, atol=1e-5)


def test_a_network_without_convolutions_foresees_nothing() -> None:
    assert can_foresee(KINDS["cnn"])
    assert can_foresee(KINDS["residual"])
    assert not can_foresee(make_q_network(ObservationSpec((5,)), 3))
    with pytest.raises(TypeError, match="no convolutions"):
        with_foresight(make_q_network(ObservationSpec((5,)), 3), 3)()
    assert with_foresight(KINDS["cnn"], 3).description == "CNN of MinAtar for 8x8x2 pixels, with foresight"


def test_what_does_not_change_stays_and_what_is_negative_between_the_convolutions_is_nothing() -> None:
    network = made()
    features = network.network.features(pictures(1))
    assert features.max() > 0
    with torch.no_grad():
        network.Action.bias.fill_(-1e6)
    torch.testing.assert_close(network._next(features, torch.eye(A)[:1]), features)
