"""A large dense layer for a batch in compiled code, with torch's bits: its products read the weights where they are.

MKL copies the weights into an order of its own first, which takes a third of its time. It sums up MKL_BLOCK products at a
time, first to last, and adds these sums to the result, and so does `comper_dense`. Where the bits differ, torch multiplies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from comper import native

MKL_BLOCK = 192
"""Products that MKL sums up at a time on AMD's processors."""

_not_wanted: frozenset[int] = frozenset()


class _Dense(ctypes.Structure):
    """The arguments of `comper_dense`, as native.c declares them."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "w", "bias", "y")),
        *((name, ctypes.c_int64) for name in ("batch", "inputs", "outputs", "block")),
    )


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + b of x (B, I) and W (I, O)."""
    if native.compiled() is None:
        return bias.addmm(x, weight)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    y: Tensor = _DenseFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


@contextmanager
def weights_not_wanted(weights: Iterable[Tensor]) -> Iterator[None]:
    """Compute no gradient of these for a while. Autograd tells its own functions what is asked for, but not ours."""
    global _not_wanted
    before, _not_wanted = _not_wanted, frozenset(weight.data_ptr() for weight in weights)
    try:
        yield
    finally:
        _not_wanted = before


class _DenseFunction(torch.autograd.Function):
    """A dense layer with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        wants_weight = wants_weight and weight.data_ptr() not in _not_wanted
        d_x = product(d.contiguous(), weight) if wants_x else None
        return d_x, x.t() @ d if wants_weight else None, d.sum(0) if wants_bias else None


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W + b, or x W' without a bias."""
    library = native.compiled()
    is_plain = all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in (x, weight))
    case = (len(x), weight.shape, bias is None, torch.get_num_threads())
    if library is not None and is_plain and _has_torchs_bits(library, *case):
        y = _compiled_product(library, x, weight, bias)
        assert y is not None, case
        return y
    return _by_torch(x, weight, bias)


def _by_torch(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.t() if bias is None else bias.addmm(x, weight)


@cache
def _has_torchs_bits(library: ctypes.CDLL, batch: int, shape: torch.Size, is_backward: bool, num_threads: int) -> bool:
    """Whether the compiled product has torch's bits: found by trying it on random numbers."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(shape, generator=generator), torch.randn(shape[1], generator=generator)
    inputs = torch.randn(batch, shape[1 if is_backward else 0], generator=generator), weight, None if is_backward else bias
    with torch.no_grad():
        found = _compiled_product(library, *inputs)
        return found is not None and torch.equal(found, _by_torch(*inputs))


def _compiled_product(library: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """The same in compiled code; None where it cannot do it."""
    y = torch.empty(len(x), weight.shape[0 if bias is None else 1])
    x = x.t().contiguous() if bias is None else x
    places = (x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), y.data_ptr())
    arguments = _Dense(*places, len(y), *weight.shape, MKL_BLOCK)
    failed = library.comper_dense(ctypes.byref(arguments), int(bias is None), torch.get_num_threads())
    return None if failed else y
