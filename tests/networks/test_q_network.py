"""The CNN: parameter counts of Table 9, the convolution against an independent one, stacking."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comper.networks.parameters import Parameters, Population
from comper.networks.q_network import q_network_layers, q_values
from comper.networks.stacking import conv2d

CPU = torch.device("cpu")


def population(history: int, trials: int = 1, shape: tuple[int, ...] = (84, 84), *, first_bias: bool = True) -> Population:
    layers = q_network_layers(history, shape, 18, first_bias=first_bias)
    return Population(layers, [np.random.default_rng(seed) for seed in range(trials)], CPU)


def stacked(members: Population) -> Parameters:
    return {name: torch.stack([group[name].detach() for group in members.groups]) for name in members.groups[0]}


@pytest.mark.parametrize(
    ("history", "first_bias", "first"), [(1, True, 2_080), (4, False, 8_192)], ids=["single frame", "stacked frames"]
)
def test_parameter_counts_equal_table_9(history: int, first_bias: bool, first: int) -> None:
    layers = q_network_layers(history, (84, 84), 18, first_bias=first_bias)
    counts = {layer.name: layer.num_parameters for layer in layers}
    assert counts == {"Conv1": first, "Conv2": 32_832, "Conv3": 36_928, "Dense1": 1_606_144, "Dense2": 9_234}
    held = population(history, first_bias=first_bias).groups[0]
    assert sum(tensor.numel() for tensor in held.values()) == sum(counts.values())


def test_q_values_equal_a_plain_torch_network() -> None:
    p = population(4).groups[0]
    frames = torch.randint(0, 256, (5, 4, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    x = frames.double() / 255
    for name, stride in (("Conv1", 4), ("Conv2", 2), ("Conv3", 1)):
        weight = p[f"{name}.weight"].permute(0, 3, 1, 2).double()
        x = torch.nn.functional.conv2d(x, weight, p[f"{name}.bias"].double(), stride).relu()
    assert x.shape == (5, 64, 7, 7)
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = (x @ p["Dense1.weight"].double() + p["Dense1.bias"].double()).relu()
    expected = x @ p["Dense2.weight"].double() + p["Dense2.bias"].double()
    torch.testing.assert_close(q_values(p, frames).double(), expected, rtol=1e-4, atol=1e-5)


def test_stacked_parameters_compute_what_each_trial_computes_alone() -> None:
    members = population(1, trials=3)
    frames = torch.randint(0, 256, (3, 2, 1, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([q_values(members.groups[i], frames[i]) for i in range(3)])
    torch.testing.assert_close(q_values(stacked(members), frames), alone, rtol=1e-4, atol=1e-5)


def test_stacked_gradients_equal_those_of_each_trial_alone() -> None:
    members = population(1, trials=2)
    frames = torch.randint(0, 256, (2, 3, 1, 84, 84), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    p = {name: tensor.clone().requires_grad_() for name, tensor in stacked(members).items()}
    together = torch.autograd.grad(q_values(p, frames).square().sum(), list(p.values()))
    for i in range(2):
        alone = torch.autograd.grad(q_values(members.groups[i], frames[i]).square().sum(), list(members.groups[i].values()))
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-3, atol=1e-4)


def test_observations_that_are_no_images_get_dense_layers() -> None:
    members = population(2, shape=(4,))
    assert [layer.name for layer in members.layers] == ["Dense1", "Dense2", "Dense3"]
    assert q_values(members.groups[0], torch.randn(7, 2, 4)).shape == (7, 18)


def test_same_stream_same_weights_other_stream_other_weights() -> None:
    a, b = population(1, trials=2), population(1, trials=2)
    assert torch.equal(a.groups[0]["Dense1.weight"], b.groups[0]["Dense1.weight"])
    assert not torch.equal(a.groups[0]["Dense1.weight"], a.groups[1]["Dense1.weight"])


@pytest.mark.parametrize(("size", "stride", "length"), [(8, 4, 20), (4, 2, 20), (3, 1, 9), (4, 2, 21)])
def test_stacked_convolution_and_its_gradients_equal_those_of_torch(size: int, stride: int, length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, length, length, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 7, size, size, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    together = conv2d(x, weight, bias, stride)
    alone = torch.stack([conv2d(x[i], weight[i], bias[i], stride) for i in range(2)])
    torch.testing.assert_close(together, alone)
    downstream = torch.randn(together.shape, generator=generator, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(together, (x, weight, bias), downstream),
        torch.autograd.grad(alone, (x, weight, bias), downstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
