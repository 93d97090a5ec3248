"""Values as histograms: the loss by a plain loop, the mean of a target's histogram, every network, stacked trials."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comper.learners.value_regression import weighted_own_loss
from comper.networks.cnn import Duelling, ObservationSpec, OutputLayer, make_q_network
from comper.networks.histogram import HistogramNetwork, histograms, with_histograms
from comper.networks.inspection import check_q_network, described_layers
from comper.networks.residual import make_residual_network
from comper.networks.stacking import Linear, NetworkFactory, Population, started_module

CPU = torch.device("cpu")
NUM_ACTIONS, CLASSES, RANGE = 3, 21, 5.0
MAKERS: dict[str, tuple[Callable[[OutputLayer], NetworkFactory], tuple[int, ...]]] = {
    "CNN": (lambda output: make_q_network(ObservationSpec((10, 10, 4)), NUM_ACTIONS, output=output), (1, 10, 10, 4)),
    "MLP": (lambda output: make_q_network(ObservationSpec((6,)), NUM_ACTIONS, output=output), (1, 6)),
    "residual": (lambda output: make_residual_network(1, ObservationSpec((8, 8), 2), NUM_ACTIONS, output=output), (2, 8, 8)),
}
every_network = pytest.mark.parametrize(("name", "duelling"), [(name, d) for name in MAKERS for d in (False, True)])


def made(name: str, duelling: bool) -> tuple[NetworkFactory, tuple[int, ...]]:
    make, shape = MAKERS[name]
    return with_histograms(make(Duelling if duelling else Linear), CLASSES, RANGE), shape


def pixels(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def expected_histogram(target: float) -> list[float]:
    """Of one target, class by class."""
    width = 2 * RANGE / (CLASSES - 1)
    target, sigma = min(max(target, -RANGE), RANGE), 0.75 * width

    def below(x: float) -> float:
        return (1 + math.erf((x - target) / sigma / math.sqrt(2))) / 2

    centres = [-RANGE + width * i for i in range(CLASSES)]
    parts = [below(centre + width / 2) - below(centre - width / 2) for centre in centres]
    return [part / sum(parts) for part in parts]


def expected_answers(outputs: list[float], target: float, *, duelling: bool) -> list[tuple[float, float]]:
    """Q(s, a) and the cross-entropy for each action of one state, from the last layer's outputs, by plain loops."""
    rows = [outputs[i : i + CLASSES] for i in range(0, len(outputs), CLASSES)]
    if duelling:
        value, *advantages = rows
        means = [sum(column) / len(advantages) for column in zip(*advantages, strict=True)]
        rows = [[v + a - m for v, a, m in zip(value, row, means, strict=True)] for row in advantages]
    found = []
    for row in rows:
        total = sum(math.exp(logit) for logit in row)
        p = [math.exp(logit) / total for logit in row]
        q = sum(share * (-RANGE + i * 2 * RANGE / (CLASSES - 1)) for i, share in enumerate(p))
        found.append((q, -sum(t * math.log(share) for t, share in zip(expected_histogram(target), p, strict=True))))
    return found


@every_network
def test_values_and_cross_entropies_are_those_of_a_plain_loop(name: str, duelling: bool) -> None:
    make, shape = made(name, duelling)
    check_q_network(make, shape, NUM_ACTIONS)
    module = started_module(make, np.random.default_rng(0))
    assert isinstance(module, HistogramNetwork)
    for parameter in module.parameters():  # biases that are not zero, logits that are not small
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    states, targets = pixels(4, *shape), torch.tensor([0.3, -4.9, 99.0, 2.5])
    answers, outputs = module(states, targets[:, None]), module.network(states)
    assert torch.equal(module(states), answers[..., 0])
    for row, target, found in zip(outputs.tolist(), targets.tolist(), answers.tolist(), strict=True):
        np.testing.assert_allclose(found, expected_answers(row, target, duelling=duelling), rtol=1e-3, atol=1e-4)


@every_network
def test_stacked_trials_have_the_losses_and_gradients_of_each_alone(name: str, duelling: bool) -> None:
    make, shape = made(name, duelling)
    rng, states = np.random.default_rng(0), pixels(2, 5, *shape)
    targets = torch.from_numpy(rng.normal(scale=3, size=(2, 5, NUM_ACTIONS)).astype(np.float32))
    weights = torch.from_numpy((rng.random((2, 5, NUM_ACTIONS)) < 0.5).astype(np.float32))
    alone, stacked = (
        Population(make, [np.random.default_rng(seed) for seed in range(2)], CPU, stacked=choice) for choice in (False, True)
    )
    losses, q = weighted_own_loss(lambda *x: stacked.forward(0, *x), states, targets, weights)
    together = stacked.gradients(0, losses.sum())
    torch.testing.assert_close(stacked(states, trials=[0, 1]), q)
    for trial in range(2):
        loss, own_q = weighted_own_loss(
            lambda *x, trial=trial: alone.forward(trial, *x), states[trial], targets[trial], weights[trial]
        )
        torch.testing.assert_close(losses[trial], loss)
        torch.testing.assert_close(q[trial], own_q)
        own = alone.gradients(trial, loss)
        assert own.keys() == together.keys() == dict(stacked.groups[0]).keys()
        for weight, gradient in own.items():
            found, expected = (g if isinstance(g, Tensor) else g.tensor() for g in (together[weight][trial], gradient))
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_the_mean_of_a_targets_histogram_is_the_target_and_a_target_beyond_the_range_counts_as_its_end() -> None:
    width = 2 * RANGE / (CLASSES - 1)
    centres = torch.linspace(-RANGE, RANGE, CLASSES)
    inside = torch.linspace(-RANGE + 2 * width, RANGE - 2 * width, 101)
    found = histograms(inside, CLASSES, RANGE)
    torch.testing.assert_close(found.sum(-1), torch.ones(101))
    torch.testing.assert_close(found @ centres, inside, rtol=0, atol=0.005 * width)
    ends = histograms(torch.tensor([-1e9, -RANGE, RANGE, math.inf]), CLASSES, RANGE)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[2], ends[3])
    assert (RANGE - ends @ centres * torch.tensor([-1, -1, 1, 1])).max() < 0.4 * width, "the curve is cut off there"


@pytest.mark.parametrize(("classes", "largest"), [(2, 1.0), (1_001, 1e6), (51, 1e-3)])
def test_any_number_of_classes_over_any_range_has_finite_losses(classes: int, largest: float) -> None:
    make = with_histograms(make_q_network(ObservationSpec((6,)), NUM_ACTIONS), classes, largest)
    module = started_module(make, np.random.default_rng(0))
    answers = module(pixels(4, 1, 6), torch.tensor([[0.0], [largest], [-largest], [9e9]]))
    assert answers.isfinite().all()
    assert (answers[..., 0].abs() <= largest).all()


def test_a_network_with_classes_has_the_same_layers_with_a_wider_output_and_says_so() -> None:
    plain = make_q_network(ObservationSpec((10, 10, 4)), NUM_ACTIONS, output=Duelling)
    wide = with_histograms(plain, CLASSES, RANGE)
    assert wide.description == f"{plain.description}, {CLASSES} classes of values"
    before, after = described_layers(plain), described_layers(wide)
    assert [f"network.{name}" for name, _ in before] == [name for name, _ in after]
    assert after[:-1] == [(f"network.{name}", size) for name, size in before[:-1]]
    assert after[-1][1] == CLASSES * before[-1][1]


def test_a_network_of_unknown_layers_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be given classes"):
        HistogramNetwork(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), CLASSES, RANGE)
