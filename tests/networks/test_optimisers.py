"""Both RMSProps against numbers worked out by hand, and the mask that leaves a trial untouched."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from comper.learners.optimisers import MnihRMSProp, RMSProp
from comper.networks.parameters import LayerSpec, ParameterSpec, Population

ONE_WEIGHT = [LayerSpec("L", (ParameterSpec("w", (1,), constant=1.0),))]


def one_weight() -> Population:
    return Population(ONE_WEIGHT, [np.random.default_rng(0)], torch.device("cpu"))


def test_rmsprop_of_mnih_by_hand() -> None:
    population = one_weight()
    optimiser = MnihRMSProp(
        population, step_size=0.1, gradient_momentum=0.8, squared_gradient_momentum=0.8, min_squared_gradient=0.01
    )
    optimiser.step(population, 0, {"w": torch.tensor([2.0])})
    # m = 0.2·2 = 0.4, n = 0.2·4 = 0.8, root = sqrt(0.8 - 0.16 + 0.01) = sqrt(0.65)
    w = 1 - 0.1 * 2 / math.sqrt(0.65)
    assert population.groups[0]["w"].item() == pytest.approx(w, rel=1e-6)
    optimiser.step(population, 0, {"w": torch.tensor([-1.0])})
    # m = 0.8·0.4 - 0.2 = 0.12, n = 0.8·0.8 + 0.2 = 0.84, root = sqrt(0.84 - 0.0144 + 0.01)
    w += 0.1 / math.sqrt(0.8356)
    assert population.groups[0]["w"].item() == pytest.approx(w, rel=1e-6)


def test_rmsprop_of_mnih_stays_finite_when_the_two_decays_differ() -> None:
    population = one_weight()
    optimiser = MnihRMSProp(
        population, step_size=0.1, gradient_momentum=0.5, squared_gradient_momentum=0.8, min_squared_gradient=0.01
    )
    # m = 0.5·2 = 1, n = 0.2·4 = 0.8: n - m² is negative and counts as 0, the root is sqrt(0.01).
    optimiser.step(population, 0, {"w": torch.tensor([2.0])})
    assert population.groups[0]["w"].item() == pytest.approx(1 - 0.1 * 2 / 0.1, rel=1e-6)


def test_plain_rmsprop_by_hand() -> None:
    population = one_weight()
    optimiser = RMSProp(population, step_size=0.1, momentum=0.0, decay=0.9, epsilon=1e-10)
    optimiser.step(population, 0, {"w": torch.tensor([3.0])})
    # n = 0.1·9 = 0.9 -> w = 1 - 0.1·3 / sqrt(0.9)
    assert population.groups[0]["w"].item() == pytest.approx(1 - 0.3 / math.sqrt(0.9), rel=1e-6)


def test_plain_rmsprop_with_momentum_by_hand() -> None:
    population = one_weight()
    optimiser = RMSProp(population, step_size=0.1, momentum=0.5, decay=0.9, epsilon=1e-10)
    optimiser.step(population, 0, {"w": torch.tensor([3.0])})
    v = 0.3 / math.sqrt(0.9)
    optimiser.step(population, 0, {"w": torch.tensor([3.0])})
    w = 1 - v - (0.5 * v + 0.3 / math.sqrt(0.9 * 0.9 + 0.9))
    assert population.groups[0]["w"].item() == pytest.approx(w, rel=1e-6)


@pytest.mark.parametrize("kind", ["mnih", "plain"])
def test_an_inactive_trial_of_a_stacked_group_stays_as_it_is(kind: str) -> None:
    population = one_weight()
    population.groups = [{"w": torch.tensor([[1.0], [1.0]], requires_grad=True)}]  # two trials, stacked
    optimiser: MnihRMSProp | RMSProp
    if kind == "mnih":
        optimiser = MnihRMSProp(
            population, step_size=0.1, gradient_momentum=0.9, squared_gradient_momentum=0.9, min_squared_gradient=0.01
        )
    else:
        optimiser = RMSProp(population, step_size=0.1, momentum=0.9, decay=0.9, epsilon=1e-10)
    gradient = {"w": torch.tensor([[1.0], [1.0]])}
    optimiser.step(population, 0, gradient, active=torch.tensor([1.0, 0.0]))
    optimiser.step(population, 0, gradient, active=torch.tensor([1.0, 0.0]))
    assert population.groups[0]["w"][1].item() == 1.0
    assert population.groups[0]["w"][0].item() < 1.0
    assert all(state[0]["w"][1].item() == 0.0 for state in optimiser.averages.values())
