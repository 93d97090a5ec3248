"""Linear and convolutional layers that take the parameters of one trial, or of T trials stacked along a leading axis.

Images are laid out (..., height, width, channels): what both a CPU's and a GPU's kernels like best.
"""

from __future__ import annotations

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
    return _stacked_conv2d(x, weight, bias, stride)


def _stacked_conv2d(x_TBHWC: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """One batched product over all trials: patches (T, B·H'·W', k·k·C) times weights (T, k·k·C, O)."""
    trials, batch = x_TBHWC.shape[:2]
    num_filters, size = weight.shape[1:3]
    patches = x_TBHWC.unfold(2, size, stride).unfold(3, size, stride)  # T, B, H', W', C, k, k
    height, width = patches.shape[2:4]
    columns = patches.permute(0, 1, 2, 3, 5, 6, 4).reshape(trials, batch * height * width, -1)
    kernel = weight.reshape(trials, num_filters, -1).transpose(1, 2)
    y = columns.bmm(kernel) if bias is None else bias.unsqueeze(1).baddbmm(columns, kernel)
    return y.reshape(trials, batch, height, width, num_filters)
