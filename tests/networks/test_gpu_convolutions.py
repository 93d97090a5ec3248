"""The residual network's kernels against torch's own operations in double precision; of whole numbers, so that sums are exact.

On a machine without a GPU: `TRITON_INTERPRET=1 pytest tests/networks/test_gpu_convolutions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from comper.networks import residual
from comper.networks.cnn import ObservationSpec
from comper.networks.residual import KERNELS, ResidualCNN, make_residual_network
from comper.networks.stacking import Population
from tests.networks.interpreted_kernels import DEVICE, DTYPE, IS_INTERPRETED, assert_same, needs_gpu, needs_kernels

pytestmark = [pytest.mark.gpu, needs_kernels]

SIZES = [(2, 3, 5, 7), (1, 1, 1, 1), (3, 2, 4, 1), (1, 2, 1, 6), (2, 2, 13, 21)]
"""T, B, H, W; the last pictures are several blocks of pixels, also at half the size."""
sizes = pytest.mark.parametrize("size", SIZES, ids=str)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, which sums gradients in so few parts that several blocks of pixels belong to each."""
    module = import_module(KERNELS)
    monkeypatch.setattr(module, "PROGRAMS", 12)
    return module


def whole(*shape: int, seed: int = 0) -> Tensor:
    """Whole numbers from -2 to 2: many are equal, many are 0."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).double()


def assert_same_gradients(
    mine: Callable[..., Tensor], reference: Callable[..., Tensor], pictures: dict[str, Tensor], **weights: Tensor
) -> None:
    """Compare what two functions compute, and the gradients of all that they are given."""
    given = [x.clone().requires_grad_() for x in (pictures | weights).values()]
    expected = reference(**dict(zip(pictures | weights, given, strict=True)))
    here = [x.to(DEVICE, DTYPE).requires_grad_() for x in pictures.values()]
    here += [x.to(DEVICE, torch.float32).requires_grad_() for x in weights.values()]
    found = mine(**dict(zip(pictures | weights, here, strict=True)))
    assert found.dtype == DTYPE
    assert_same(found, expected)
    d = whole(*expected.movedim(-1, 2).shape, seed=9).movedim(2, -1)  # not in the order of memory
    gradients = torch.autograd.grad(found, here, d.to(DEVICE, DTYPE))
    for x, gradient, true_gradient in zip(here, gradients, torch.autograd.grad(expected, given, d), strict=True):
        assert gradient.dtype == x.dtype
        assert_same(gradient, true_gradient)


def convolved(x: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None = None, *, is_rectified: bool = False) -> Tensor:
    """Torch's own convolution, trial by trial, of (T, B, H, W, C)."""
    x = (x.relu() if is_rectified else x).movedim(-1, 2)
    y = torch.stack([F.conv2d(*trial, padding=1) for trial in zip(x, weight, bias, strict=True)]).movedim(2, -1)
    return y if added is None else y + added


@sizes
@pytest.mark.parametrize(
    ("channels", "filters", "is_rectified", "is_added"),
    [(16, 16, False, False), (16, 32, True, False), (32, 16, True, True), (16, 16, False, True)],
)
def test_a_convolution_and_its_gradients_are_torchs(
    kernels: ModuleType, size: tuple[int, ...], channels: int, filters: int, is_rectified: bool, is_added: bool
) -> None:
    pictures = {"x": whole(*size, channels)} | ({"added": whole(*size, filters, seed=1)} if is_added else {})
    assert_same_gradients(
        partial(kernels.convolved, is_rectified=is_rectified),
        partial(convolved, is_rectified=is_rectified),
        pictures,
        weight=whole(size[0], filters, channels, 3, 3, seed=2),
        bias=whole(size[0], filters, seed=3),
    )


@sizes
def test_half_the_size_and_its_gradient_are_torchs_also_where_the_largest_are_equal(
    kernels: ModuleType, size: tuple[int, ...]
) -> None:
    def halved(x: Tensor) -> Tensor:
        return torch.stack([F.max_pool2d(trial.movedim(-1, 1), 3, 2, 1) for trial in x]).movedim(2, -1)

    assert_same_gradients(kernels.halved, halved, {"x": whole(*size, 16)})
    assert_same_gradients(kernels.halved, halved, {"x": whole(*size, 32) - 5})


def test_what_is_not_a_number_stays_so_at_half_the_size(kernels: ModuleType) -> None:
    x = whole(1, 1, 4, 4, 16).to(DEVICE, DTYPE)
    x[0, 0, 0, 0] = torch.nan
    found = kernels.halved(x)[0, 0, :, :, 0].isnan()
    assert found.tolist() == [[True, False], [False, False]]


@sizes
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32])
@pytest.mark.parametrize(("channels", "columns"), [(1, 16), (4, 16), (5, 16), (6, 32)])
def test_pixels_stand_beside_their_neighbours(
    kernels: ModuleType, size: tuple[int, ...], dtype: torch.dtype, channels: int, columns: int
) -> None:
    trials, batch, height, width = size
    images = (torch.rand(trials, batch, height, width, channels) * (2 if dtype == torch.bool else 256)).to(dtype)
    images = images.movedim(-1, 2)  # not in the order of memory
    wide = F.pad(images.to(DTYPE), (1, 1))
    expected = torch.cat([wide[..., k : k + width] for k in range(3)], 2).movedim(2, -1)
    found = kernels.columns_of(images.to(DEVICE), DTYPE)
    assert found.shape == (*size, columns)
    torch.testing.assert_close(found.cpu(), F.pad(expected, (0, columns - 3 * channels)), rtol=0, atol=0)


@sizes
@pytest.mark.parametrize("channels", [4, 6])
def test_a_convolution_of_pictures_and_its_gradients_are_torchs(
    kernels: ModuleType, size: tuple[int, ...], channels: int
) -> None:
    trials, batch, height, width = size
    images = whole(trials, batch, channels, height, width)
    columns = kernels.columns_of(images.float().to(DEVICE), DTYPE)
    assert_same_gradients(
        partial(kernels.convolved, columns),
        partial(convolved, images.movedim(2, -1)),
        {},
        weight=whole(trials, 16, channels, 3, 3, seed=2),
        bias=whole(trials, 16, seed=3),
    )


@pytest.mark.parametrize(
    ("width", "observation", "dtype"),
    [
        (1, ObservationSpec((12, 9), 4), torch.uint8),
        (1, ObservationSpec((9, 10, 3), 2), torch.bool),
        (2, ObservationSpec((7, 5), 1), torch.float32),
    ],
    ids=["8 bits", "channels last", "twice as wide"],
)
def test_a_network_computes_with_kernels_what_it_computes_without(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch, width: int, observation: ObservationSpec, dtype: torch.dtype
) -> None:
    frames = torch.rand(2, 3, observation.history_length, *observation.shape, generator=torch.Generator().manual_seed(0))
    frames = (frames * {torch.uint8: 256, torch.bool: 2, torch.float32: 1}[dtype]).to(dtype)

    def values_and_gradients(device: str) -> dict[str, Tensor]:
        rngs = [np.random.default_rng(seed) for seed in range(2)]
        made = Population(make_residual_network(width, observation, 4), rngs, torch.device(device), stacked=True)
        for parameter in made.groups[0].values():  # biases that are not zero
            parameter.data += 0.01
        values = made.forward(0, frames.to(device))
        gradients = made.gradients(0, values.square().sum())
        return {"values": values} | {name: g if isinstance(g, Tensor) else g.tensor() for name, g in gradients.items()}

    expected = values_and_gradients("cpu")
    columns_of = partial(kernels.columns_of, dtype=DTYPE)
    used = SimpleNamespace(columns_of=columns_of, convolved=kernels.convolved, halved=kernels.halved)
    monkeypatch.setattr(ResidualCNN, "features", lambda self, frames: self._features_by(used, self._images(frames)))
    found = values_and_gradients(DEVICE)
    assert found.keys() == expected.keys()
    for name, true in expected.items():
        error = (found[name].cpu() - true).norm() / true.norm()
        rounded = 0.01 if name == "values" else 0.3  # in 16 bits other pixels may be the largest ones
        assert error < (1e-5 if IS_INTERPRETED else rounded), name


@needs_gpu
@pytest.mark.parametrize(("width", "asked"), [(1, [KERNELS]), (2, [KERNELS]), (3, [])])
def test_a_gpu_asks_for_kernels(monkeypatch: pytest.MonkeyPatch, width: int, asked: list[str]) -> None:
    names: list[str] = []
    monkeypatch.setattr(residual, "gpu_kernels", names.append)
    make = make_residual_network(width, ObservationSpec((8, 8), 1), 4)
    made = Population(make, [np.random.default_rng(0)], torch.device("cuda"), stacked=True)
    made.forward(0, torch.zeros(1, 2, 1, 8, 8, device="cuda"))
    assert names == asked


@pytest.mark.parametrize("name", ["TritonError", "AssertionError"])
def test_what_triton_lacks_is_told_as_an_error_of_running(
    monkeypatch: pytest.MonkeyPatch, kernels: ModuleType, name: str
) -> None:
    def fails() -> None:
        raise getattr(kernels, name, AssertionError)("no driver")

    monkeypatch.setattr(kernels, "_run_all", fails)
    with pytest.raises(RuntimeError, match="Triton: no driver"):
        kernels.try_out()
