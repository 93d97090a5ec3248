"""Linear and convolutional layers that take the parameters of one trial, or of T trials stacked along a leading axis.

Images are laid out (..., height, width, channels): what both a CPU's and a GPU's kernels like best.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + b: x is (B, I) and W (I, O), or both with a trial axis in front."""
    if weight.dim() == 2:
        return bias.addmm(x, weight) if x.dim() == 2 else x @ weight + bias
    return bias.unsqueeze(1).baddbmm(x, weight)


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """Convolve (B, H, W, C) with (O, k, k, C), or both with a trial axis in front; the result is (..., H', W', O)."""
    if weight.dim() == 4:
        y = F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2), bias, stride)
        return y.permute(0, 2, 3, 1)
    z: Tensor = _StackedConv2d.apply(x, weight, stride)  # type: ignore[no-untyped-call]
    return z if bias is None else z + bias[:, None, None, None]


class _StackedConv2d(torch.autograd.Function):
    """Convolutions of T trials, each with its own weights, as batched matrix products, forward and backward.

    Forward, the patches (T, B·H'·W', k·k·C) are multiplied by the weights (T, k·k·C, O). Backward, the gradient of the input
    is again a product over patches, now of the output's gradient: with stride s and k = m·s, the pixels of an s x s block all
    see the same m x m outputs, each pixel through its own weights.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        trials, batch = x.shape[:2]
        num_filters, size = weight.shape[1:3]
        columns, (height, width) = _patches(x, size, stride)
        ctx.save_for_backward(columns, weight)
        ctx.stride, ctx.input_shape = stride, x.shape
        y = columns.bmm(weight.flatten(2).transpose(1, 2))
        return y.view(trials, batch, height, width, num_filters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (dy,) = gradients
        columns, weight = ctx.saved_tensors
        d_weight = dy.flatten(1, 3).transpose(1, 2).bmm(columns).view_as(weight)
        d_x = _input_gradient(dy, weight, ctx.stride, ctx.input_shape) if ctx.needs_input_grad[0] else None
        return d_x, d_weight, None


def _patches(x_TBHWC: Tensor, size: int, stride: int) -> tuple[Tensor, tuple[int, int]]:
    """Patches as rows (T, B·H'·W', size·size·C), and how many there are in each direction."""
    views = x_TBHWC.unfold(2, size, stride).unfold(3, size, stride)  # T, B, H', W', C, size, size
    rows = views.permute(0, 1, 2, 3, 5, 6, 4).reshape(x_TBHWC.shape[0], -1, size * size * x_TBHWC.shape[4])
    return rows, (views.shape[2], views.shape[3])


def _input_gradient(dy: Tensor, weight: Tensor, stride: int, input_shape: torch.Size) -> Tensor:
    trials, batch, height, width, channels = input_shape
    num_filters, taps = weight.shape[1], weight.shape[2] // stride
    rows, (blocks_down, blocks_across) = _patches(F.pad(dy, (0, 0, *[taps - 1] * 4)), taps, 1)
    # weight[o, u·s + a, v·s + b, c], with u and v reversed, as (u, v, o) x (a, b, c)
    by_tap = weight.view(trials, num_filters, taps, stride, taps, stride, channels).flip(2, 4)
    product = rows.bmm(by_tap.permute(0, 2, 4, 1, 3, 5, 6).reshape(trials, taps * taps * num_filters, -1))
    blocks = product.view(trials, batch, blocks_down, blocks_across, stride, stride, channels)
    covered = blocks.permute(0, 1, 2, 4, 3, 5, 6).reshape(
        trials, batch, blocks_down * stride, blocks_across * stride, channels
    )
    # Rows and columns past the last patch were never read.
    return F.pad(covered, (0, 0, 0, width - covered.shape[3], 0, height - covered.shape[2]))
