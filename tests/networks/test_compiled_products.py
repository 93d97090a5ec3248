"""Compiled products of a dense layer: torch's bits where they are used, right numbers anywhere, autograd's gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from comper import native
from comper.networks import stacking
from comper.networks.stacking import dense, product, weights_not_wanted

LIBRARY = native.compiled()
needs_compiler = pytest.mark.skipif(LIBRARY is None, reason=native.loops().status)
TABLE_9 = (32, 3136, 512)


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer(batch: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """x, W and b."""
    return noise(batch, inputs).relu(), noise(inputs, outputs, seed=2), noise(outputs, seed=3)


@needs_compiler
@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize(("batch", "inputs", "outputs"), [TABLE_9, (16, 400, 192), (64, 8, 32), (32, 200, 64)])
def test_compiled_products_are_right_whatever_the_number_of_threads(
    batch: int, inputs: int, outputs: int, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)  # torch itself goes on with as many as it has
    assert LIBRARY is not None
    x, weight, bias = layer(batch, inputs, outputs)
    for a, b in ((x, bias), (noise(batch, outputs), None)):
        found = stacking._compiled_product(LIBRARY, a, weight, b)
        if found is None:
            assert batch % 32  # numbers in two registers of AVX-512
        else:
            expected = stacking._torchs_product(a.double(), weight.double(), None if b is None else b.double())
            torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
            if stacking._has_torchs_bits(LIBRARY, batch, weight.shape, b is None, num_threads):
                assert torch.equal(found, stacking._torchs_product(a, weight, b))


@pytest.mark.parametrize(("batch", "inputs", "outputs"), [TABLE_9, (5, 7, 3)])
def test_a_dense_layer_and_its_gradients_have_autograds_bits(batch: int, inputs: int, outputs: int) -> None:
    tensors = [t.requires_grad_() for t in layer(batch, inputs, outputs)]
    x, weight, bias = tensors
    downstream = noise(batch, outputs, seed=4)
    ours, theirs = dense(x, weight, bias), bias.addmm(x, weight)
    assert torch.equal(ours, theirs)
    found = torch.autograd.grad(ours, tensors, downstream)
    for mine, gradient in zip(found, torch.autograd.grad(theirs, tensors, downstream), strict=True):
        assert torch.equal(mine, gradient)


@needs_compiler
def test_weights_that_are_not_wanted_get_no_gradient_until_they_are() -> None:
    x, weight, bias = layer(*TABLE_9)
    weight.requires_grad_()
    with weights_not_wanted([weight]):
        found = torch.autograd.grad(dense(x, weight, bias).sum(), [weight], allow_unused=True)
    assert list(found) == [None]
    (gradient,) = torch.autograd.grad(dense(x, weight, bias).sum(), [weight])
    assert torch.equal(gradient, x.t() @ torch.ones(TABLE_9[0], TABLE_9[2]))


@needs_compiler
def test_torch_multiplies_where_the_bits_or_the_kind_of_numbers_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = layer(*TABLE_9)
    expected = bias.addmm(x, weight)
    assert product(x.double(), weight.double(), bias.double()).dtype == torch.float64
    assert torch.equal(product(x, weight.t().contiguous().t(), bias), bias.addmm(x, weight.t().contiguous().t()))
    by_torch = stacking._torchs_product
    monkeypatch.setattr(stacking, "_torchs_product", lambda *inputs: by_torch(*inputs).nextafter(torch.tensor(1e9)))
    assert not stacking._has_torchs_bits.__wrapped__(LIBRARY, TABLE_9[0], weight.shape, False, 1)
    monkeypatch.undo()
    monkeypatch.setattr(stacking, "_has_torchs_bits", lambda *case: False)
    monkeypatch.setattr(stacking, "_compiled_product", lambda *inputs: pytest.fail("compiled code was used"))
    assert torch.equal(product(x, weight, bias), expected)


def test_torch_multiplies_without_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "compiled", lambda: None)
    x, weight, bias = layer(*TABLE_9)
    assert torch.equal(dense(x, weight, bias), bias.addmm(x, weight))
    assert torch.equal(product(noise(32, 512), weight), noise(32, 512) @ weight.t())
