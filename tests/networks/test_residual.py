"""The residual network: an independent one of torch's own layers, stacked trials, any layout of channels, its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from comper.networks.cnn import Duelling, ObservationSpec
from comper.networks.inspection import layer_sizes
from comper.networks.residual import make_residual_network
from comper.networks.stacking import Population, started_module

CPU = torch.device("cpu")


def pixels(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def reference_values(weights: dict[str, Tensor], images: Tensor, *, layer_norm: bool = False) -> Tensor:
    """IMPALA's network by torch's own layers, in double precision, of images (B, C, H, W); a duelling output."""

    def norm(x: Tensor) -> Tensor:
        if not layer_norm:
            return x
        return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()

    def convolve(x: Tensor, name: str) -> Tensor:
        weight = weights[f"{name}.weight"].double()
        layer = nn.Conv2d(weight.shape[1], weight.shape[0], 3, padding=1, dtype=torch.float64)
        layer.load_state_dict({"weight": weight, "bias": weights[f"{name}.bias"].double()})
        return layer.forward(x)

    x = images.double() / 255
    for stage in ("Stage1", "Stage2", "Stage3"):
        x = nn.MaxPool2d(3, 2, 1)(convolve(x, f"{stage}.Conv1"))
        for first, second in (("Conv2", "Conv3"), ("Conv4", "Conv5")):
            x = x + convolve(convolve(x.relu(), f"{stage}.{first}").relu(), f"{stage}.{second}")
    hidden = norm(x.relu().flatten(1)) @ weights["Dense1.weight"].double() + weights["Dense1.bias"].double()
    y = norm(hidden).relu() @ weights["Dense2.weight"].double() + weights["Dense2.bias"].double()
    return y[:, :1] + y[:, 1:] - y[:, 1:].mean(1, keepdim=True)


@pytest.mark.parametrize(("side", "layer_norm"), [(84, False), (10, False), (1, False), (84, True), (10, True)])
def test_values_equal_those_of_torchs_own_layers(side: int, layer_norm: bool) -> None:
    make = make_residual_network(1, ObservationSpec((side, side), 4), 6, output=Duelling, layer_norm=layer_norm)
    network = started_module(make, np.random.default_rng(0))
    for parameter in network.parameters():  # biases that are not zero
        parameter.data += 0.01
    images = pixels(3, 4, side, side)
    expected = reference_values(network.state_dict(), images, layer_norm=layer_norm)
    torch.testing.assert_close(network(images).double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_stacked_trials_compute_what_each_computes_alone_and_so_do_their_gradients(layer_norm: bool) -> None:
    make = make_residual_network(1, ObservationSpec((12, 9), 2), 4, layer_norm=layer_norm)
    states = pixels(3, 5, 2, 12, 9)
    alone, stacked = (
        Population(make, [np.random.default_rng(seed) for seed in range(3)], CPU, stacked=is_stacked)
        for is_stacked in (False, True)
    )
    torch.testing.assert_close(stacked(states, trials=[0, 1, 2]), alone(states, trials=[0, 1, 2]))
    together = stacked.gradients(0, stacked.forward(0, states).square().sum())
    for trial in range(3):
        own = alone.gradients(trial, alone.forward(trial, states[trial]).square().sum())
        for name, gradient in own.items():
            found, expected = (g if isinstance(g, Tensor) else g.tensor() for g in (together[name][trial], gradient))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_channels_may_come_first_or_last() -> None:
    last = started_module(make_residual_network(1, ObservationSpec((8, 8, 3), 2), 4), np.random.default_rng(0))
    first = started_module(
        make_residual_network(1, ObservationSpec((3, 8, 8), 2, channels="first"), 4), np.random.default_rng(0)
    )
    frames = pixels(5, 2, 8, 8, 3)
    torch.testing.assert_close(first(frames.movedim(-1, -3)), last(frames))


def test_width_multiplies_the_filters() -> None:
    narrow, wide = (make_residual_network(width, ObservationSpec((84, 84), 4), 18) for width in (1, 2))
    assert narrow.description == "residual CNN for 84x84x4 pixels"
    sizes = [dict(layer_sizes(make())) for make in (narrow, wide)]
    assert [size["Stage1.Conv1"] for size in sizes] == [9 * 4 * 16 + 16, 9 * 4 * 32 + 32]
    assert [size["Stage3.Conv5"] for size in sizes] == [9 * 32 * 32 + 32, 9 * 64 * 64 + 64]
    assert [size["Dense1"] for size in sizes] == [11 * 11 * 32 * 512 + 512, 11 * 11 * 64 * 512 + 512]
