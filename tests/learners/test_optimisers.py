"""Optimisers against numbers worked out by hand and against torch's own, and the mask that leaves a trial untouched."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from comper import native
from comper.learners import optimisers
from comper.learners.optimisers import Adam, MnihRMSProp, Optimiser, RMSProp, Rule, Turn
from comper.networks.stacking import Population, Product

MNIH = MnihRMSProp(step_size=0.1, gradient_momentum=0.8, squared_gradient_momentum=0.8, min_squared_gradient=0.01)
RULES: dict[str, Rule] = {
    "mnih": MNIH,
    "plain": RMSProp(step_size=0.1, momentum=0.0, decay=0.9, epsilon=1e-10),
    "momentum": RMSProp(step_size=0.1, momentum=0.9, decay=0.9, epsilon=1e-10),
    "adam": Adam(step_size=0.1),
}


class OneWeight(nn.Module):
    """A network that is one weight, 1 at first."""

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(size))


def weights(num_trials: int = 1, *, stacked: bool = False, size: int = 1, device: str = "cpu") -> Population:
    rngs = [np.random.default_rng(seed) for seed in range(num_trials)]
    return Population(lambda: OneWeight(size), rngs, torch.device(device), stacked=stacked)


def after(rule: Rule, *gradients: float) -> float:
    """The weight after steps along these gradients."""
    population = weights()
    optimiser = Optimiser(rule, population)
    for gradient in gradients:
        optimiser.step(0, {"w": torch.tensor([gradient])})
    return population.groups[0]["w"].item()


def test_rmsprop_of_mnih_by_hand() -> None:
    # m = 0.2·2 = 0.4, n = 0.2·4 = 0.8, root = sqrt(0.8 - 0.16 + 0.01) = sqrt(0.65)
    w = 1 - 0.1 * 2 / math.sqrt(0.65)
    assert after(MNIH, 2.0) == pytest.approx(w, rel=1e-6)
    # m = 0.8·0.4 - 0.2 = 0.12, n = 0.8·0.8 + 0.2 = 0.84, root = sqrt(0.84 - 0.0144 + 0.01)
    w += 0.1 / math.sqrt(0.8356)
    assert after(MNIH, 2.0, -1.0) == pytest.approx(w, rel=1e-6)


def test_rmsprop_of_mnih_stays_finite_when_the_two_decays_differ() -> None:
    rule = MnihRMSProp(step_size=0.1, gradient_momentum=0.5, squared_gradient_momentum=0.8, min_squared_gradient=0.01)
    # m = 0.5·2 = 1, n = 0.2·4 = 0.8: n - m² is negative and counts as 0, the root is sqrt(0.01).
    assert after(rule, 2.0) == pytest.approx(1 - 0.1 * 2 / 0.1, rel=1e-6)


def test_plain_rmsprop_by_hand() -> None:
    # n = 0.1·9 = 0.9 -> w = 1 - 0.1·3 / sqrt(0.9)
    assert after(RULES["plain"], 3.0) == pytest.approx(1 - 0.3 / math.sqrt(0.9), rel=1e-6)


def test_the_mean_square_starts_where_the_rule_says() -> None:
    # n = 0.9·1 + 0.1·9 = 1.8 -> w = 1 - 0.1·3 / sqrt(1.8)
    rule = RMSProp(step_size=0.1, momentum=0.0, decay=0.9, epsilon=1e-10, mean_square_start=1.0)
    assert after(rule, 3.0) == pytest.approx(1 - 0.3 / math.sqrt(1.8), rel=1e-6)


def test_plain_rmsprop_with_momentum_by_hand() -> None:
    rule = RMSProp(step_size=0.1, momentum=0.5, decay=0.9, epsilon=1e-10)
    v = 0.3 / math.sqrt(0.9)
    w = 1 - v - (0.5 * v + 0.3 / math.sqrt(0.9 * 0.9 + 0.9))
    assert after(rule, 3.0, 3.0) == pytest.approx(w, rel=1e-6)
    started = dataclasses.replace(rule, mean_square_start=1.0)  # which says nothing of the velocity
    assert after(started, 3.0) == pytest.approx(1 - 0.3 / math.sqrt(1.8), rel=1e-6)


def test_adam_by_hand() -> None:
    # The first step, freed of its bias: m̂ = 3, n̂ = 9 -> w = 1 - 0.1·3 / 3.
    assert after(Adam(step_size=0.1), 3.0) == pytest.approx(0.9, rel=1e-6)


@pytest.mark.parametrize("stacked", [True, False])
def test_adam_equals_torchs_own(stacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimisers, "SLICE", 16)  # several slices, as large layers have
    population = weights(2, stacked=stacked, size=50)
    optimiser = Optimiser(Adam(step_size=0.01, decay=0.8, squared_decay=0.95, epsilon=1e-4), population)
    references = [torch.ones(50, requires_grad=True) for _ in range(2)]
    torchs = [torch.optim.Adam([w], lr=0.01, betas=(0.8, 0.95), eps=1e-4) for w in references]
    generator = torch.Generator().manual_seed(0)
    for step in range(40):
        gradients = torch.randn(2, 50, generator=generator)
        # The second trial takes part in the last steps alone: its first update is then its own first.
        takes_part = [True, step >= 30]
        if stacked:
            active = None if all(takes_part) else torch.tensor(takes_part).float()
            optimiser.step(0, {"w": gradients}, active)
        for trial in [0, 1] if all(takes_part) else [0]:
            if not stacked:
                optimiser.step(trial, {"w": gradients[trial]})
            references[trial].grad = gradients[trial]
            torchs[trial].step()
    for trial, reference in enumerate(references):
        found = population.weights(trial)["w"]
        torch.testing.assert_close(found, reference.detach(), rtol=1e-5, atol=1e-6)
        assert found.std() > 0


def test_adam_in_one_pass_is_adam() -> None:
    rule, generator = Adam(step_size=0.01, decay=0.8, squared_decay=0.95, epsilon=1e-4), torch.Generator().manual_seed(0)
    shapes = ((3, 5, 7), (3, 11), (3,))
    ours, theirs = ([torch.ones(shape) for shape in shapes] for _ in range(2))
    averages, other_averages = ([[torch.zeros(shape) for shape in shapes] for _ in range(2)] for _ in range(2))
    for step in range(1, 30):
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        numbers = torch.tensor([step, step + 2, step + 10], dtype=torch.float64)
        rule.update_all(ours, gradients, *averages, numbers=numbers)
        for w, g, *both in zip(theirs, gradients, *other_averages, strict=True):
            rule.update(w, g, both, Turn(None, numbers.view(-1, *[1] * (w.dim() - 1))))
    for found, expected in zip(
        [*ours, *averages[0], *averages[1]], [*theirs, *other_averages[0], *other_averages[1]], strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.gpu
def test_adam_on_a_gpu_is_that_of_a_cpu_also_where_a_trial_waits() -> None:
    made = [weights(3, stacked=True, size=50, device=device) for device in ("cuda", "cpu")]
    rule = Adam(step_size=0.01, epsilon=1e-4)
    on_gpu, on_cpu = (Optimiser(rule, population) for population in made)
    assert on_gpu._rule_of_all is rule
    assert on_cpu._rule_of_all is None
    generator = torch.Generator().manual_seed(0)
    for step in range(30):
        gradient = torch.randn(3, 50, generator=generator)
        active = torch.tensor([1.0, 0.0, 1.0]) if step % 5 == 3 else None
        on_gpu.step(0, {"w": gradient.cuda()}, None if active is None else active.cuda())
        on_cpu.step(0, {"w": gradient}, active)
    for trial in range(3):
        torch.testing.assert_close(made[0].weights(trial)["w"], made[1].weights(trial)["w"], rtol=1e-4, atol=1e-5)
        assert on_gpu.state_dict(trial)["num_updates"] == on_cpu.state_dict(trial)["num_updates"] == (24 if trial == 1 else 30)


@pytest.mark.parametrize("kind", RULES)
def test_an_inactive_trial_of_a_stacked_group_stays_as_it_is(kind: str) -> None:
    population = weights(2, stacked=True)
    optimiser = Optimiser(RULES[kind], population)
    gradient = {"w": torch.tensor([[1.0], [1.0]])}
    optimiser.step(0, gradient)
    before, w = optimiser.state_dict(1), population.weights(1)["w"].item()
    for _ in range(2):
        optimiser.step(0, gradient, active=torch.tensor([1.0, 0.0]))
    assert population.weights(1)["w"].item() == w
    assert optimiser.state_dict(1) == before
    assert population.weights(0)["w"].item() < w


@pytest.mark.parametrize("kind", RULES)
def test_stacked_trials_move_as_each_moves_alone(kind: str) -> None:
    together, alone = weights(2, stacked=True, size=5), weights(2, size=5)
    stacked, separate = (Optimiser(RULES[kind], population) for population in (together, alone))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        gradients = torch.randn(2, 5, generator=generator)
        stacked.step(0, {"w": gradients})
        for trial in range(2):
            separate.step(trial, {"w": gradients[trial]})
    for trial in range(2):
        torch.testing.assert_close(together.weights(trial)["w"], alone.weights(trial)["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("kind", RULES)
def test_an_optimiser_goes_on_from_its_saved_state(kind: str, stacked: bool) -> None:
    def run(gradients: list[float], state: dict[str, Any] | None) -> tuple[Population, Optimiser]:
        population = weights(2, stacked=stacked)
        optimiser = Optimiser(RULES[kind], population)
        if state is not None:
            population.load_weights(1, state["weights"])
            optimiser.load_state_dict(1, state["optimiser"])
        for gradient in gradients:
            optimiser.step(*((0, {"w": torch.full((2, 1), gradient)}) if stacked else (1, {"w": torch.tensor([gradient])})))
        return population, optimiser

    halfway, optimiser = run([1.0, -2.0], None)
    resumed, _ = run([0.5, 3.0], {"weights": halfway.weights(1), "optimiser": optimiser.state_dict(1)})
    straight, _ = run([1.0, -2.0, 0.5, 3.0], None)
    assert resumed.weights(1)["w"].item() == straight.weights(1)["w"].item()


needs_compiler = pytest.mark.skipif(native.compiled() is None, reason=native.loops().status)
COMPILED_RULES: dict[str, Rule] = {
    "mnih": MnihRMSProp(step_size=0.00025, gradient_momentum=0.95, squared_gradient_momentum=0.95, min_squared_gradient=0.01),
    "plain": RMSProp(step_size=0.00025, momentum=0.0, decay=0.9, epsilon=1e-10),
    "adam": Adam(step_size=0.00025, epsilon=1.5e-4),
}


class Matrix(nn.Module):
    """A network that is one matrix."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, rows * columns).view(rows, columns))


def moved(rule: Rule, rows: int, columns: int, batch: int) -> list[torch.Tensor]:
    """The weights and averages after some updates, with gradients that are products and with plain ones."""
    population = Population(lambda: Matrix(rows, columns), [np.random.default_rng(0)], torch.device("cpu"))
    optimiser = Optimiser(rule, population)
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        x, d = (10.0**-step * torch.randn(batch, n, generator=generator) for n in (rows, columns))
        x[:, step::7] = 0
        product = Product(x, d)
        optimiser.step(0, {"w": product.tensor() if step % 2 else product})
    return [population.groups[0]["w"].detach(), *(groups[0]["w"] for groups in optimiser.averages.values())]


@needs_compiler
@pytest.mark.parametrize("kind", COMPILED_RULES)
@pytest.mark.parametrize(("rows", "columns", "batch"), [(1, 1, 1), (5, 33, 2), (3_874, 192, 16), (801, 512, 32), (402, 18, 7)])
def test_compiled_updates_have_torchs_bits(
    kind: str, rows: int, columns: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = COMPILED_RULES[kind]
    assert optimisers._compiled(rule) is not None
    found = moved(rule, rows, columns, batch)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with_threads = moved(rule, rows, columns, batch)
    monkeypatch.setattr(optimisers, "_compiled", lambda rule: None)
    for ours, threads, torchs in zip(found, with_threads, moved(rule, rows, columns, batch), strict=True):
        assert torch.equal(ours, torchs)
        assert torch.equal(threads, torchs)


@needs_compiler
def test_large_products_are_never_multiplied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    moved(COMPILED_RULES["plain"], 3_874, 192, 16)  # compares the product's bits with torch's, once for each shape
    monkeypatch.setattr(Product, "tensor", lambda product: pytest.fail("multiplied out"))
    population = Population(lambda: Matrix(3_874, 192), [np.random.default_rng(0)], torch.device("cpu"))
    Optimiser(COMPILED_RULES["plain"], population).step(0, {"w": Product(torch.ones(16, 3_874), torch.ones(16, 192))})
    assert (population.groups[0]["w"][0] < -1).all()


@needs_compiler
def test_infinite_and_undefined_numbers_stay_what_they_are_in_compiled_updates() -> None:
    gradient = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1e30, -1e-30])
    for rule in COMPILED_RULES.values():
        compiled = optimisers._compiled(rule)
        assert compiled is not None
        ours, torchs = ([torch.ones(6), *(torch.zeros(6) for _ in rule.averages)] for _ in range(2))
        assert compiled.update(ours[0], ours[1:], gradient, rule.coefficients(1) or {})
        rule.update(torchs[0], gradient, torchs[1:], optimisers.Turn(None, 1))
        for x, y in zip(ours, torchs, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


def test_rules_without_a_compiled_form_are_torchs_alone() -> None:
    slow_mean = MnihRMSProp(step_size=0.1, gradient_momentum=0.4, squared_gradient_momentum=0.8, min_squared_gradient=0.01)
    for rule in (RULES["momentum"], Adam(step_size=0.1, decay=0.4), slow_mean):
        assert optimisers._compiled(rule) is None


def test_weights_of_double_precision_are_torchs_alone() -> None:
    population = Population(lambda: Matrix(3, 4).double(), [np.random.default_rng(0)], torch.device("cpu"))
    before = population.weights(0)["w"]
    Optimiser(COMPILED_RULES["plain"], population).step(0, {"w": torch.ones(3, 4, dtype=torch.float64)})
    assert (population.weights(0)["w"] < before).all()
