"""One state through compiled layers: torch's bits where it is used, the right numbers anywhere, and torch for all the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from comper import native
from comper.networks import cnn
from comper.networks.cnn import CNN, CompiledLayers, Conv2d, Geometry, ObservationSpec, hidden_of_one_state, make_q_network
from comper.networks.stacking import Linear, started_module

LIBRARY = native.compiled()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason=native.loops().status)
CONVOLUTIONS = (Geometry(8, 4, 84, 84, 4, 32), Geometry(4, 2, 20, 20, 32, 64), Geometry(3, 1, 9, 9, 64, 64))
TABLE_9 = (*CONVOLUTIONS, Geometry(0, 0, 7, 7, 64, 512))
SMALL = (Geometry(3, 1, 10, 10, 4, 16), Geometry(3, 1, 6, 6, 21, 16), Geometry(3, 1, 9, 7, 3, 48))
"""With so few filters that one register of AVX-512 holds them, or one and two."""


def network(history: int, *, first_bias: bool = True, side: int = 84) -> CNN:
    make = make_q_network(ObservationSpec((side, side), history), 18, first_bias=first_bias)
    module = started_module(make, np.random.default_rng(0))
    for name, p in module.named_parameters():
        if name.endswith("bias"):
            p.data = 0.1 * noise(*p.shape)
    assert isinstance(module, CNN)
    return module


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def images(history: int, number: int) -> Tensor:
    """Bytes as floats; every other image is flat in its upper half."""
    pixels = torch.randint(0, 256, (1, 84, 84, history), generator=torch.Generator().manual_seed(number)).float()
    pixels[:, : 42 * (number % 2)] = 0.0
    return pixels


def compiled_hidden(module: CNN, image: Tensor) -> Tensor | None:
    return hidden_of_one_state((*module._convolutions, module.Dense1), module._geometries, image, 1 / 255)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("first_bias", [True, False])
@pytest.mark.parametrize("history", [1, 4])
def test_one_state_has_torchs_bits(history: int, first_bias: bool) -> None:
    module = network(history, first_bias=first_bias)
    with torch.no_grad():
        for number in range(6):
            found = compiled_hidden(module, images(history, number))
            if found is None:
                pytest.skip("torch sums in another order on this machine")
            assert torch.equal(found, module._activations(images(history, number), 1 / 255)[-1])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 10, 10), (6, 6, 21), (19, 19, 21)])
def test_one_state_of_a_small_world_has_torchs_bits(shape: tuple[int, ...]) -> None:
    module = started_module(make_q_network(ObservationSpec(shape), 6), np.random.default_rng(0))
    assert isinstance(module, CNN)
    with torch.no_grad():
        for number in range(6):
            cells = (torch.rand(1, *shape, generator=torch.Generator().manual_seed(number)) < 0.3).float()
            found = hidden_of_one_state((*module._convolutions, module.Dense1), module._geometries, cells, 1.0)
            if found is None:
                pytest.skip("torch sums in another order on this machine")
            assert torch.equal(found, module._activations(cells, 1.0)[-1])


@pytest.mark.parametrize("block", [10_000, 192, 50])
@pytest.mark.parametrize("geometry", [*TABLE_9, *SMALL, Geometry(3, 3, 20, 11, 5, 96), Geometry(0, 0, 2, 3, 5, 7)])
def test_any_order_gives_the_right_numbers(geometry: Geometry, block: int) -> None:
    size, stride, height, width, channels, filters = geometry
    layer = Conv2d(channels, filters, size, stride) if size else Linear(height * width * channels, filters)
    for p in layer.parameters():
        p.data = noise(*p.shape)
    image = noise(1, height, width, channels).relu()
    found = CompiledLayers(LIBRARY, [geometry], [block], 0.5 if size else 1.0)([layer], image)  # type: ignore[arg-type]
    expected = cnn._by_torch(layer.double(), image.double(), 0.5)
    assert found is not None
    assert found.shape == (1, geometry.num_outputs)
    torch.testing.assert_close(found.double(), expected.detach(), rtol=1e-4, atol=1e-4)


def test_an_undefined_number_is_not_rectified() -> None:
    module, image = network(4), images(4, 0)
    image[0, 0, 0, 0] = torch.nan
    with torch.no_grad():
        found, expected = compiled_hidden(module, image), module._activations(image, 1 / 255)[-1]
    assert expected.isnan().any()
    assert found is None or torch.equal(found.isnan(), expected.isnan())


def test_torch_computes_gradients_batches_other_numbers_and_odd_filters() -> None:
    module, image = network(4), images(4, 0)
    assert compiled_hidden(module, image) is None  # its gradient may be wanted
    with torch.no_grad():
        assert compiled_hidden(module, image.expand(2, -1, -1, -1).contiguous()) is None
        assert compiled_hidden(module, image.transpose(1, 2)) is None
        assert compiled_hidden(module.double(), image) is None
        odd = Geometry(3, 1, 10, 10, 4, 18)
        assert CompiledLayers(LIBRARY, [odd], [36], 1.0)([Conv2d(4, 18, 3, 1)], noise(1, 10, 10, 4)) is None  # type: ignore[arg-type]


def test_torch_computes_where_it_sums_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    by_torch = cnn._by_torch
    monkeypatch.setattr(cnn, "_by_torch", lambda *inputs: by_torch(*inputs).nextafter(torch.tensor(1e9)))
    assert cnn.compiled_layers.__wrapped__(LIBRARY, TABLE_9, 1 / 255, 1) is None


def test_torch_computes_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "compiled", lambda: None)
    with torch.no_grad():
        assert compiled_hidden(network(4), images(4, 0)) is None
