"""A large dense layer for a batch in compiled code, with torch's bits: its products read the weights where they are.

MKL copies the weights into an order of its own first, which takes a third of the time. It sums up MKL_BLOCK products at a
time, first to last, and adds these sums to the result. Where a product has other bits, torch multiplies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

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
    """x W + b of (B, I) and (I, O)."""
    library = native.compiled()
    if library is None or not _is_plain(x, weight, bias) or not _has_torchs_bits(library, *_case(x, weight), False):
        return bias.addmm(x, weight)
    if torch.is_grad_enabled():
        y: Tensor = _DenseFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return y
    return _forward(library, x, weight, bias)


@contextmanager
def gradients_not_wanted(weights: Iterator[Tensor]) -> Iterator[None]:
    """Leave these weights without a gradient for a while: who asks for that of a layer's outputs multiplies it out later."""
    global _not_wanted
    before, _not_wanted = _not_wanted, frozenset(w.data_ptr() for w in weights)
    try:
        yield
    finally:
        _not_wanted = before


class _DenseFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        library = native.compiled()
        assert library is not None
        ctx.save_for_backward(x, weight)
        return _forward(library, x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        (d,) = gradients
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1] and weight.data_ptr() not in _not_wanted
        return _input_gradient(d, weight) if ctx.needs_input_grad[0] else None, x.t() @ d if wanted else None, d.sum(0)


def _input_gradient(d: Tensor, weight: Tensor) -> Tensor:
    library = native.compiled()
    if library is None or not _is_plain(d, weight) or not _has_torchs_bits(library, *_case(d, weight), True):
        return d @ weight.t()
    return _backward(library, d, weight)


def _is_plain(*tensors: Tensor) -> bool:
    return all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)


def _case(x: Tensor, weight: Tensor) -> tuple[int, torch.Size, int]:
    return len(x), weight.shape, torch.get_num_threads()


@cache
def _has_torchs_bits(library: ctypes.CDLL, batch: int, shape: torch.Size, num_threads: int, is_backward: bool) -> bool:
    """Whether a product has torch's bits, found by trying it on random numbers."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(shape, generator=generator), torch.randn(shape[1], generator=generator)
    x = torch.randn(batch, shape[1 if is_backward else 0], generator=generator)
    with torch.no_grad():
        try:
            found = _backward(library, x, weight) if is_backward else _forward(library, x, weight, bias)
        except NotImplementedError:
            return False
        return torch.equal(found, x @ weight.t() if is_backward else bias.addmm(x, weight))


def _forward(library: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = torch.empty(len(x), weight.shape[1])
    _multiply(library, x, weight, bias, y, is_backward=False)
    return y


def _backward(library: ctypes.CDLL, d: Tensor, weight: Tensor) -> Tensor:
    y = torch.empty(len(d), len(weight))
    _multiply(library, d.t().contiguous(), weight, None, y, is_backward=True)
    return y


def _multiply(library: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, *, is_backward: bool) -> None:
    places = (x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), y.data_ptr())
    arguments = _Dense(*places, len(y), *weight.shape, MKL_BLOCK)
    if library.comper_dense(ctypes.byref(arguments), int(is_backward), torch.get_num_threads()):
        raise NotImplementedError(f"a batch of {len(y)} for weights {tuple(weight.shape)}")
