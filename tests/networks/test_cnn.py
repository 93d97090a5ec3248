"""Q-networks: parameter counts of Table 9, an independent network of torch's own layers, which network fits what."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from comper import native
from comper.networks.cnn import (
    ARCHITECTURES,
    CNN,
    Conv2d,
    Duelling,
    ObservationSpec,
    make_q_network,
    precision_of_convolutions,
)
from comper.networks.inspection import layer_sizes
from comper.networks.stacking import Gradient, Linear, Population, Product, started_module

CPU = torch.device("cpu")
STRIDES = {8: 4, 4: 2, 3: 1}
"""Of each kernel size that our networks use."""


def population(
    observation: ObservationSpec, trials: int = 1, *, stacked: bool = False, first_bias: bool = True, duelling: bool = False
) -> Population:
    rngs = [np.random.default_rng(seed) for seed in range(trials)]
    network = make_q_network(observation, 18, first_bias=first_bias, output=Duelling if duelling else Linear)
    return Population(network, rngs, CPU, stacked=stacked)


def pixels(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def reference_values(module: nn.Module, images: Tensor) -> Tensor:
    """What torch's own layers make of images (B, C, H, W) with the module's weights, in double precision."""
    x = images
    layers = list(module.children())
    for layer in layers:
        if isinstance(layer, Conv2d):
            weight = layer.weight.permute(0, 3, 1, 2).double()
            bias = None if layer.bias is None else layer.bias.double()
            x = nn.functional.conv2d(x, weight, bias, STRIDES[weight.shape[-1]]).relu()
        elif isinstance(layer, Linear):
            x = x.permute(0, 2, 3, 1).flatten(1) if x.dim() == 4 else x
            x = x @ layer.weight.double() + layer.bias.double()
            x = x if layer is layers[-1] else x.relu()
    return x


@pytest.mark.parametrize(
    ("history", "first_bias", "first"), [(1, True, 2_080), (4, False, 8_192)], ids=["single frame", "stacked frames"]
)
def test_parameter_counts_equal_table_9(history: int, first_bias: bool, first: int) -> None:
    network = make_q_network(ObservationSpec((84, 84), history), 18, first_bias=first_bias)()
    counts = {"Conv1": first, "Conv2": 32_832, "Conv3": 36_928, "Dense1": 1_606_144, "Dense2": 9_234}
    assert dict(layer_sizes(network)) == counts
    assert sum(tensor.numel() for tensor in network.parameters()) == sum(counts.values())


@pytest.mark.parametrize("side", [84, 30, 10, 3])
@pytest.mark.parametrize("history", [1, 4])
def test_values_equal_those_of_a_plain_torch_network(side: int, history: int) -> None:
    network = started_module(make_q_network(ObservationSpec((side, side), history), 18), np.random.default_rng(0))
    frames = pixels(5, history, side, side)
    expected = reference_values(network, frames.double() / 255)
    assert expected.std() > 0
    torch.testing.assert_close(network(frames).double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("history", [1, 2])
@pytest.mark.parametrize("channels_first", [True, False])
def test_channels_may_come_first_or_last(history: int, channels_first: bool) -> None:
    frames = pixels(5, history, 10, 10, 3) % 2 == 0  # truth values, as MinAtar gives them: not scaled
    shape = (3, 10, 10) if channels_first else (10, 10, 3)
    network = started_module(make_q_network(ObservationSpec(shape, history), 4), np.random.default_rng(0))
    images = frames.permute(0, 2, 3, 1, 4).flatten(-2).permute(0, 3, 1, 2).double()
    given = frames.permute(0, 1, 4, 2, 3) if channels_first else frames
    torch.testing.assert_close(network(given).double(), reference_values(network, images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_only_8_bit_pixels_are_scaled(dtype: torch.dtype) -> None:
    for observation in (ObservationSpec((10, 10)), ObservationSpec((6,))):
        network = started_module(make_q_network(observation, 4), np.random.default_rng(0))
        ones = torch.ones(1, 1, *observation.shape, dtype=torch.uint8)
        torch.testing.assert_close(network(255 * ones), network(ones.to(dtype)))


@pytest.mark.parametrize(
    ("observation", "description"),
    [
        (ObservationSpec((84, 84)), "CNN of Table 9 for 84x84x1 pixels"),
        (ObservationSpec((84, 84), 4), "CNN of Table 9 for 84x84x4 pixels"),
        (ObservationSpec((210, 160, 3)), "CNN of Table 9 for 210x160x3 pixels"),
        (ObservationSpec((3, 210, 160)), "CNN of Table 9 for 210x160x3 pixels"),
        (ObservationSpec((36, 36)), "CNN of Table 9 for 36x36x1 pixels"),
        (ObservationSpec((35, 90)), "CNN with two convolutions for 35x90x1 pixels"),
        (ObservationSpec((25, 25, 20)), "CNN of MinAtar for 25x25x20 pixels"),
        (ObservationSpec((10, 10, 4), 2), "CNN of MinAtar for 10x10x8 pixels"),
        (ObservationSpec((7, 7, 20)), "CNN of MinAtar for 7x7x20 pixels"),  # one-hot: more channels than pixels
        (ObservationSpec((20, 7, 7)), "CNN of MinAtar for 7x7x20 pixels"),
        (ObservationSpec((8, 9, 20), channels="last"), "CNN of MinAtar for 8x9x20 pixels"),
        (ObservationSpec((4, 9, 8), channels="first"), "CNN of MinAtar for 9x8x4 pixels"),
        (ObservationSpec((2, 9)), "MLP 64-64 for 18 numbers"),
        (ObservationSpec((10, 10), kind="vector"), "MLP 64-64 for 100 numbers"),
        (ObservationSpec((4,), 2), "MLP 64-64 for 8 numbers"),
        (ObservationSpec(()), "MLP 64-64 for 1 numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_network_fits_the_observation_and_says_so(observation: ObservationSpec, description: str) -> None:
    factory = make_q_network(observation, 18)
    assert factory.description == description
    frames = torch.zeros(2, observation.history_length, *observation.shape)
    assert factory()(frames).shape == (2, 18)


def test_small_images_get_the_usual_network_of_minatar() -> None:
    network = make_q_network(ObservationSpec((10, 10, 4)), 6)()
    # 3x3 kernels, 4 channels, 16 filters; 8x8 places of 16 filters to 128 units; 6 actions.
    assert layer_sizes(network) == [("Conv1", 3 * 3 * 4 * 16 + 16), ("Dense1", 1_024 * 128 + 128), ("Dense2", 128 * 6 + 6)]


@pytest.mark.parametrize("observation", [ObservationSpec((84, 84)), ObservationSpec((10, 10, 4)), ObservationSpec((4,), 2)])
def test_stacked_parameters_compute_what_each_trial_computes_alone(observation: ObservationSpec) -> None:
    frames = pixels(3, 2, observation.history_length, *observation.shape)
    together, alone = population(observation, 3, stacked=True), population(observation, 3)
    expected = alone(frames, trials=[0, 1, 2])
    torch.testing.assert_close(together(frames, trials=[0, 1, 2]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("duelling", [False, True], ids=["plain", "duelling"])
@pytest.mark.parametrize("first_bias", [True, False], ids=["with first bias", "without"])
@pytest.mark.parametrize("observation", [ObservationSpec((84, 84), 4), ObservationSpec((30, 30)), ObservationSpec((6, 6, 21))])
def test_stacked_gradients_equal_those_of_each_trial_alone(
    observation: ObservationSpec, *, first_bias: bool, duelling: bool
) -> None:
    frames = pixels(2, 3, observation.history_length, *observation.shape)
    together = population(observation, 2, stacked=True, first_bias=first_bias, duelling=duelling)
    alone = population(observation, 2, first_bias=first_bias, duelling=duelling)
    loss = together.forward(0, frames).square().sum()
    stacked = torch.autograd.grad(loss, list(together.groups[0].values()))
    for i in range(2):
        single = torch.autograd.grad(alone.forward(i, frames[i]).square().sum(), list(alone.groups[i].values()))
        for a, b in zip(stacked, single, strict=True):
            torch.testing.assert_close(a[i], b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "history", "first_bias", "duelling"),
    [((84, 84), 4, True, True), ((84, 84), 4, False, False), ((28, 28, 3), 1, True, False), ((10, 10, 4), 1, True, True)],
)
def test_a_networks_own_gradients_have_the_bits_of_autograds(
    shape: tuple[int, ...], history: int, first_bias: bool, duelling: bool
) -> None:
    made = population(ObservationSpec(shape, history), first_bias=first_bias, duelling=duelling)
    frames, d = pixels(32, history, *shape), torch.randn(32, 18, generator=torch.Generator().manual_seed(1))
    expected_q = made.forward(0, frames)
    expected = made.gradients(0, (expected_q * d).sum())
    found = made.explicit_gradients(0, frames, lambda q: d)
    assert found is not None
    q, gradients = found
    assert torch.equal(q, expected_q)
    assert not q.requires_grad
    assert set(gradients) == set(expected)
    for name, gradient in gradients.items():
        assert type(gradient) is type(expected[name]), name
        assert torch.equal(_multiplied(gradient), _multiplied(expected[name])), name


def _multiplied(gradient: Gradient) -> Tensor:
    return gradient.tensor() if isinstance(gradient, Product) else gradient


@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_a_convolutions_own_gradients_are_autograds_also_that_of_its_images(scale: float) -> None:
    generator, layer = torch.Generator().manual_seed(0), Conv2d(3, 5, 4, 2)
    layer.draw_weights(np.random.default_rng(0))
    x = torch.randn(2, 3, 10, 10, generator=generator, requires_grad=True)
    y = layer.forward(x, scale)
    d = torch.randn(y.shape, generator=generator)
    expected = torch.autograd.grad(y, (x, *layer.parameters()), d)
    d_x, of_parameters = layer.backward(x.detach(), d, scale, wants_x=True)
    for mine, its in zip((d_x, of_parameters["weight"], of_parameters["bias"]), expected, strict=True):
        torch.testing.assert_close(mine, its)


def test_autograd_is_left_the_networks_that_another_may_have_changed() -> None:
    class Changed(CNN):
        def forward(self, frames: Tensor) -> Tensor:
            return 2 * super().forward(frames)

    observation, rngs = ObservationSpec((10, 10)), [np.random.default_rng(0)]
    frozen = population(observation)
    frozen.groups[0]["Conv1.bias"].requires_grad_(False)

    def with_other_layer() -> CNN:
        made = CNN(ARCHITECTURES[-1], observation, 18)
        made.Dense2 = torch.nn.Linear(128, 18)  # type: ignore[assignment]
        return made

    for made in (
        Population(with_other_layer, rngs, CPU),
        Population(lambda: Changed(ARCHITECTURES[-1], observation, 18), rngs, CPU),
        population(ObservationSpec((4,), kind="vector")),
        population(observation, stacked=True),
        frozen,
    ):
        assert made.explicit_gradients(0, pixels(1, 1, 10, 10), lambda q: q) is None


def test_same_stream_same_weights_other_stream_other_weights() -> None:
    a, b = (population(ObservationSpec((84, 84)), 2).groups for _ in range(2))
    assert torch.equal(a[0]["Dense1.weight"], b[0]["Dense1.weight"])
    assert not torch.equal(a[0]["Dense1.weight"], a[1]["Dense1.weight"])


@pytest.mark.parametrize("history", [1, 2, 3, 4, 5])
def test_values_have_the_same_bits_without_compiled_code(history: int, monkeypatch: pytest.MonkeyPatch) -> None:
    networks, states = population(ObservationSpec((84, 84), history)), pixels(1, 3, history, 84, 84)
    with_compiled_code = networks(states, trials=[0])
    monkeypatch.setattr(native, "compiled", lambda: None)
    assert torch.equal(networks(states, trials=[0]), with_compiled_code)


def test_a_duelling_output_is_the_value_of_the_state_and_advantages_that_sum_to_nothing() -> None:
    layer = Duelling(2, 3)
    layer.weight.data = torch.tensor([[1.0, 3.0, 0.0, 0.0], [10.0, 0.0, 0.0, 6.0]])
    assert layer(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).tolist() == [[3.0, 0.0, 0.0], [8.0, 8.0, 14.0]]
    stacked = torch.func.functional_call(layer, {"weight": layer.weight[None], "bias": layer.bias[None]}, torch.eye(2)[None])
    assert stacked[0].tolist() == layer(torch.eye(2)).tolist()


@pytest.mark.parametrize("shape", [(84, 84), (10, 10, 4), (5,)])
def test_a_duelling_network_has_one_output_more_inside_and_as_many_outside(shape: tuple[int, ...]) -> None:
    plain, duelling = (make_q_network(ObservationSpec(shape), 6, output=output)() for output in (Linear, Duelling))
    assert duelling(torch.zeros(2, 1, *shape)).shape == (2, 6)
    last = list(plain.parameters())[-1].numel()
    assert list(duelling.parameters())[-1].numel() == last + 1


@pytest.mark.parametrize(("size", "stride", "length"), [(8, 4, 20), (4, 2, 20), (3, 1, 9), (4, 2, 21)])
def test_stacked_convolution_and_its_gradients_equal_those_of_torch(size: int, stride: int, length: int) -> None:
    generator = torch.Generator().manual_seed(0)
    layer = Conv2d(5, 7, size, stride)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)

    x, weight, bias = drawn(2, 3, 5, length, length), drawn(2, 7, size, size, 5), drawn(2, 7)
    together = functional_call(layer, {"weight": weight, "bias": bias}, x)
    alone = torch.stack([nn.functional.conv2d(x[i], weight[i].permute(0, 3, 1, 2), bias[i], stride) for i in range(2)])
    torch.testing.assert_close(together, alone)
    single = functional_call(layer, {"weight": weight[1], "bias": bias[1]}, x[1])
    torch.testing.assert_close(single, alone[1])
    downstream = torch.randn(together.shape, generator=generator, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad(together, (x, weight, bias), downstream),
        torch.autograd.grad(alone, (x, weight, bias), downstream),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_a_convolution_refuses_a_size_that_is_no_multiple_of_its_stride() -> None:
    with pytest.raises(ValueError, match="size = 3, stride = 2"):
        Conv2d(1, 1, 3, 2)


@pytest.mark.parametrize(("allowed", "within"), [(True, "high"), (False, "medium")])
def test_convolutions_of_stacked_trials_have_the_precision_of_torchs_own(
    allowed: bool, within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    torch.set_float32_matmul_precision("medium")
    try:
        with precision_of_convolutions():
            assert torch.get_float32_matmul_precision() == within
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_precisions_set_by_torchs_newer_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed() -> str:
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: pytest.fail("changed"))
    with precision_of_convolutions():
        pass
