"""Several Q-networks in one: their mean, their losses, each one's own gradient, stacked trials."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from comper.learners.value_regression import weighted_own_loss
from comper.networks.cnn import Duelling, ObservationSpec, make_q_network
from comper.networks.ensemble import Ensemble, with_members
from comper.networks.histogram import with_histograms
from comper.networks.inspection import num_parameters
from comper.networks.joystick import Joystick
from comper.networks.stacking import NetworkFactory, Population, started_module

CPU = torch.device("cpu")
PLAIN = make_q_network(ObservationSpec((6, 6), 2), 3, output=Duelling)
PARTS = make_q_network(ObservationSpec((6, 6), 2), 3, output=partial(Joystick, shares=((1, 0, 0), (0, 1, 1))))
KINDS = {"values": PLAIN, "histograms": with_histograms(PLAIN, 21, 2.0), "parts": PARTS}


def states(*shape: int) -> Tensor:
    return torch.randint(0, 256, (*shape, 2, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def made(kind: str, num_members: int = 3) -> Ensemble:
    module = started_module(with_members(KINDS[kind], num_members), np.random.default_rng(0))
    assert isinstance(module, Ensemble)
    return module


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_is_the_members_mean(kind: str) -> None:
    network = made(kind)
    own = [member(states(5)) for member in network.members]
    assert not torch.allclose(own[0], own[1]), "they start differently"
    torch.testing.assert_close(network(states(5)), (own[0] + own[1] + own[2]) / 3)


def test_the_loss_is_the_sum_of_the_members_own() -> None:
    network, targets = made("values"), torch.tensor([[0.5, -3.0, 0.0]])
    q, losses = network(states(1), targets).unbind(-1)
    torch.testing.assert_close(q, network(states(1)))
    errors = [(member(states(1)) - targets).abs() for member in network.members]
    torch.testing.assert_close(losses, sum(torch.where(e < 1, e * e / 2, e - 0.5) for e in errors))


def test_the_loss_of_histograms_is_their_own() -> None:
    network, targets = made("histograms"), torch.tensor([[0.5, -1.5, 0.0]])
    q, losses = network(states(1), targets).unbind(-1)
    torch.testing.assert_close(q, network(states(1)))
    torch.testing.assert_close(losses, sum(member(states(1), targets)[..., 1] for member in network.members))


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_learns_as_if_it_were_alone(kind: str) -> None:
    network, targets, weights = made(kind), torch.rand(4, 3), torch.tensor([1.0, 0.0, 2.0])
    loss, _ = weighted_own_loss(network, states(4), targets, weights)
    together = iter(torch.autograd.grad(loss, list(network.parameters())))
    for member in network.members:
        alone = Ensemble(lambda member=member: member, 1)  # type: ignore[misc]
        loss, _ = weighted_own_loss(alone, states(4), targets, weights)
        for own in torch.autograd.grad(loss, list(alone.parameters())):
            torch.testing.assert_close(next(together), own)


@pytest.mark.parametrize("kind", KINDS)
def test_stacked_trials_compute_what_each_computes_alone(kind: str) -> None:
    make: NetworkFactory = with_members(KINDS[kind], 2)
    alone, stacked = (
        Population(make, [np.random.default_rng(seed) for seed in range(3)], CPU, stacked=together)
        for together in (False, True)
    )
    torch.testing.assert_close(stacked(states(3, 5), trials=[0, 1, 2]), alone(states(3, 5), trials=[0, 1, 2]))
    targets, weights = torch.rand(3, 5, 3), torch.rand(3, 5, 3)
    losses, _ = weighted_own_loss(partial(stacked.forward, 0), states(3, 5), targets, weights)
    for trial in range(3):
        inputs = (x[trial] for x in (states(3, 5), targets, weights))
        own, _ = weighted_own_loss(partial(alone.forward, trial), *inputs)
        torch.testing.assert_close(losses[trial], own)


def test_it_has_as_many_weights_as_its_members_and_says_how_many_they_are() -> None:
    make = with_members(PLAIN, 3)
    assert num_parameters(make) == 3 * num_parameters(PLAIN)
    assert make.description == f"3 times {PLAIN.description}"
