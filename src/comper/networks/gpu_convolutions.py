"""The residual network's 3x3 convolutions on a GPU, each trial with its own weights: kernels in Triton, in 16-bit numbers.

A group of 16 channels is far too small for what libraries make of grouped convolutions: they take four times as long as
it takes to move the pictures. Here pictures (T, B, H, W, C) are read in blocks of pixels, all channels of a pixel together. A
block is multiplied by the weights of one tap after the other, and ReLU, bias and what is added stand in the same kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.errors import TritonError

FEWEST_CHANNELS = 16
"""What a matrix unit multiplies at a time."""
PIXELS = 128
"""Of a block in a convolution; a thread for each."""
SUMMED_PIXELS = 64
"""Of a block where products are summed over pixels."""
PROGRAMS = 4096
"""About so many sum over a part of the pixels each; their sums are added up in a fixed order."""
SUMS_OF_A_WARP = 512
"""Sums of products, for each tap, that 32 threads keep together."""


@triton.jit(do_not_specialize=["pixels"])
def _convolve_block(
    x_pointer,
    weight_pointer,
    bias_pointer,
    added_pointer,
    sign_pointer,
    y_pointer,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    TAPS_ACROSS: tl.constexpr,
    IS_BACKWARD: tl.constexpr,
    IS_RECTIFIED: tl.constexpr,
    IS_ADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y of a block of pixels of one trial: the convolution of x, or of the gradient of y back to that of x."""
    trial = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = place < pixels
    row = (place // WIDTH) % HEIGHT
    column = place % WIDTH
    i = tl.arange(0, IN)
    o = tl.arange(0, OUT)
    x_pointer += trial * pixels * IN
    weight_pointer += trial * 3 * TAPS_ACROSS * IN * OUT
    total = tl.zeros((BLOCK, OUT), tl.float32)
    for tap in tl.static_range(3 * TAPS_ACROSS):
        down = tap // TAPS_ACROSS - 1
        across = tap % TAPS_ACROSS - TAPS_ACROSS // 2
        is_met = is_inside & (row + down >= 0) & (row + down < HEIGHT) & (column + across >= 0) & (column + across < WIDTH)
        met = place + down * WIDTH + across
        x = tl.load(x_pointer + met[:, None] * IN + i[None, :], mask=is_met[:, None], other=0.0)
        if IS_BACKWARD:  # the taps in reverse, and from outputs to inputs: the weights are those of (OUT, IN)
            back = (3 * TAPS_ACROSS - 1 - tap) * IN * OUT
            weight = tl.load(weight_pointer + back + o[None, :] * IN + i[:, None])
        else:
            weight = tl.load(weight_pointer + tap * IN * OUT + i[:, None] * OUT + o[None, :])
            if IS_RECTIFIED:
                x = tl.where(x < 0, 0.0, x)
        total = tl.dot(x, weight, total)
    at = trial * pixels * OUT + place[:, None] * OUT + o[None, :]
    if IS_BACKWARD:
        if IS_RECTIFIED:
            sign = tl.load(sign_pointer + at, mask=is_inside[:, None], other=0.0)
            total = tl.where(sign > 0, total, 0.0)
    else:
        total += tl.load(bias_pointer + trial * OUT + o)[None, :]
    if IS_ADDED:
        total += tl.load(added_pointer + at, mask=is_inside[:, None], other=0.0).to(tl.float32)
    tl.store(y_pointer + at, total.to(y_pointer.dtype.element_ty), mask=is_inside[:, None])


@triton.jit(do_not_specialize=["pixels"])
def _sum_products(
    x_pointer,
    d_pointer,
    sums_pointer,
    bias_pointer,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    TAPS_ACROSS: tl.constexpr,
    IS_RECTIFIED: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradients of one trial's weights and biases from a part of its pixels, of the taps in one of the three rows."""
    part = tl.program_id(0)
    down = tl.program_id(1) - 1
    trial = tl.program_id(2).to(tl.int64)
    i = tl.arange(0, IN)
    o = tl.arange(0, OUT)
    x_pointer += trial * pixels * IN
    d_pointer += trial * pixels * OUT
    left = tl.zeros((IN, OUT), tl.float32)
    middle = tl.zeros((IN, OUT), tl.float32)
    right = tl.zeros((IN, OUT), tl.float32)
    of_bias = tl.zeros((BLOCK, OUT), tl.float32)
    for block in range(BLOCKS):
        place = (block * PARTS + part) * BLOCK + tl.arange(0, BLOCK)
        is_inside = place < pixels
        row = (place // WIDTH) % HEIGHT + down
        column = place % WIDTH
        is_row = is_inside & (row >= 0) & (row < HEIGHT)
        d = tl.load(d_pointer + place[:, None] * OUT + o[None, :], mask=is_inside[:, None], other=0.0)
        of_bias += d.to(tl.float32)
        at = (place + down * WIDTH)[:, None] * IN + i[None, :]
        x = tl.load(x_pointer + at, mask=is_row[:, None], other=0.0)
        if IS_RECTIFIED:
            x = tl.where(x < 0, 0.0, x)
        middle = tl.dot(tl.trans(x), d, middle)
        if TAPS_ACROSS == 3:
            x = tl.load(x_pointer + at - IN, mask=(is_row & (column > 0))[:, None], other=0.0)
            if IS_RECTIFIED:
                x = tl.where(x < 0, 0.0, x)
            left = tl.dot(tl.trans(x), d, left)
            x = tl.load(x_pointer + at + IN, mask=(is_row & (column < WIDTH - 1))[:, None], other=0.0)
            if IS_RECTIFIED:
                x = tl.where(x < 0, 0.0, x)
            right = tl.dot(tl.trans(x), d, right)
    tap = (part * tl.num_programs(2) + trial) * 3 * TAPS_ACROSS + (down + 1) * TAPS_ACROSS
    at = tap * IN * OUT + i[:, None] * OUT + o[None, :]
    if TAPS_ACROSS == 3:
        tl.store(sums_pointer + at, left)
        tl.store(sums_pointer + at + IN * OUT, middle)
        tl.store(sums_pointer + at + 2 * IN * OUT, right)
    else:
        tl.store(sums_pointer + at, middle)
    if down == 0:
        tl.store(bias_pointer + (part * tl.num_programs(2) + trial) * OUT + o, tl.sum(of_bias, 0))


@triton.jit(do_not_specialize=["pixels"])
def _gather_columns(
    x_pointer,
    y_pointer,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A pixel's channels and its neighbours' left and right, which makes a 3x3 convolution one of three taps down."""
    trial = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_inside = place < pixels
    picture = place // (HEIGHT * WIDTH)
    k = tl.arange(0, OUT)
    across = k // CHANNELS - 1
    column = (place % WIDTH)[:, None] + across[None, :]
    is_met = is_inside[:, None] & (across < 2)[None, :] & (column >= 0) & (column < WIDTH)
    # Channel c of a pixel stands c planes behind that of the first one, and a picture's planes behind those of the one before.
    first = picture * ((CHANNELS - 1) * HEIGHT * WIDTH) + place
    at = first[:, None] + (k % CHANNELS * (HEIGHT * WIDTH) + across)[None, :]
    x = tl.load(x_pointer + trial * pixels * CHANNELS + at, mask=is_met, other=0)
    at = trial * pixels * OUT + place[:, None] * OUT + k[None, :]
    tl.store(y_pointer + at, x.to(y_pointer.dtype.element_ty), mask=is_inside[:, None])


@triton.jit(do_not_specialize=["pixels"])
def _pool_block(
    x_pointer,
    y_pointer,
    chosen_pointer,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest of 3x3 pixels around every second one, and which it was."""
    trial = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    half_height: tl.constexpr = (HEIGHT + 1) // 2
    half_width: tl.constexpr = (WIDTH + 1) // 2
    is_inside = place < pixels
    row = place // half_width % half_height * 2
    column = place % half_width * 2
    first = place // (half_height * half_width) * (HEIGHT * WIDTH)
    c = tl.arange(0, CHANNELS)
    x_pointer += trial * (pixels // (half_height * half_width)) * (HEIGHT * WIDTH * CHANNELS)
    largest = tl.full((BLOCK, CHANNELS), -float("inf"), tl.float32)
    chosen = tl.zeros((BLOCK, CHANNELS), tl.int32)
    for tap in tl.static_range(9):
        y, x = row + tap // 3 - 1, column + tap % 3 - 1
        is_met = is_inside & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
        at = (first + y * WIDTH + x)[:, None] * CHANNELS + c[None, :]
        value = tl.load(x_pointer + at, mask=is_met[:, None], other=-float("inf")).to(tl.float32)
        is_larger = (value > largest) | (value != value)  # what is not a number stays so, as with torch
        largest = tl.where(is_larger, value, largest)
        chosen = tl.where(is_larger, tap, chosen)
    at = trial * pixels * CHANNELS + place[:, None] * CHANNELS + c[None, :]
    tl.store(y_pointer + at, largest.to(y_pointer.dtype.element_ty), mask=is_inside[:, None])
    tl.store(chosen_pointer + at, chosen.to(tl.uint8), mask=is_inside[:, None])


@triton.jit(do_not_specialize=["pixels"])
def _unpool_block(
    d_pointer,
    chosen_pointer,
    y_pointer,
    pixels,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient of pooled pixels back to those that were the largest of some: at most two rows and columns have it."""
    trial = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    half_height: tl.constexpr = (HEIGHT + 1) // 2
    half_width: tl.constexpr = (WIDTH + 1) // 2
    is_inside = place < pixels
    row = place // WIDTH % HEIGHT
    column = place % WIDTH
    first = place // (HEIGHT * WIDTH) * (half_height * half_width)
    c = tl.arange(0, CHANNELS)
    pooled = trial * (pixels // (HEIGHT * WIDTH)) * (half_height * half_width * CHANNELS)
    total = tl.zeros((BLOCK, CHANNELS), tl.float32)
    for corner in tl.static_range(4):
        lower, right = corner // 2, corner % 2
        y, x = (row + lower) // 2, (column + right) // 2
        is_met = is_inside & (row % 2 >= lower) & (column % 2 >= right) & (y < half_height) & (x < half_width)
        tap = (row - 2 * y + 1) * 3 + column - 2 * x + 1
        at = (first + y * half_width + x)[:, None] * CHANNELS + c[None, :]
        chosen = tl.load(chosen_pointer + pooled + at, mask=is_met[:, None], other=255).to(tl.int32)
        d = tl.load(d_pointer + pooled + at, mask=is_met[:, None], other=0.0).to(tl.float32)
        total += tl.where(chosen == tap[:, None], d, 0.0)
    at = trial * pixels * CHANNELS + place[:, None] * CHANNELS + c[None, :]
    tl.store(y_pointer + at, total.to(y_pointer.dtype.element_ty), mask=is_inside[:, None])


def try_out() -> None:
    """Run each kernel once; an error says what is missing."""
    try:
        _run_all()
    except (TritonError, AssertionError) as error:  # its own, and where it finds no driver
        raise RuntimeError(f"Triton: {error}") from error


def _run_all() -> None:
    images = torch.zeros(1, 1, 1, 4, 4, device="cuda")
    weight, bias = (torch.zeros(1, FEWEST_CHANNELS, *shape, device="cuda", requires_grad=True) for shape in ((1, 3, 3), ()))
    with torch.enable_grad():
        halved(convolved(columns_of(images), weight, bias)).sum().backward()


def columns_of(images: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Pictures (T, B, C, H, W) as (T, B, H, W, 3 C and some zeros): each pixel beside its neighbours left and right."""
    trials, batch, channels, height, width = images.shape
    images = images.contiguous()
    size = max(FEWEST_CHANNELS, triton.next_power_of_2(3 * channels))
    y = images.new_empty((trials, batch, height, width, size), dtype=dtype)
    pixels = batch * height * width
    _gather_columns[(triton.cdiv(pixels, PIXELS), trials)](images, y, pixels, height, width, channels, size, PIXELS)
    return y


def convolved(x: Tensor, weight: Tensor, bias: Tensor, *, is_rectified: bool = False, added: Tensor | None = None) -> Tensor:
    """The convolution of x (T, B, H, W, C), or of `columns_of` pictures, with `weight` (T, filters, C, 3, 3)."""
    y: Tensor = _Convolution.apply(x, weight, bias, is_rectified, added)
    return y


def halved(x: Tensor) -> Tensor:
    """The largest of 3x3 pixels around every second one of x (T, B, H, W, C)."""
    y: Tensor = _Pooling.apply(x)
    return y


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, is_rectified: bool, added: Tensor | None) -> Tensor:
        taps = _by_tap(weight, x)
        ctx.save_for_backward(x, taps)
        ctx.is_rectified, ctx.shape = is_rectified, weight.shape
        return _launch(x, taps, is_rectified=is_rectified, bias=bias, added=added)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None, Tensor | None]:
        x, taps = ctx.saved_tensors
        d = gradients[0].contiguous()
        d_x = _launch(d, taps, is_rectified=ctx.is_rectified, sign=x) if ctx.needs_input_grad[0] else None
        d_taps, d_bias = _sums(x, d, taps, is_rectified=ctx.is_rectified)
        return d_x, _from_taps(d_taps, ctx.shape), d_bias, None, d if ctx.needs_input_grad[4] else None


class _Pooling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        trials, batch, height, width, channels = x.shape
        y = x.new_empty((trials, batch, (height + 1) // 2, (width + 1) // 2, channels))
        chosen = torch.empty_like(y, dtype=torch.uint8)
        pixels = y.numel() // (trials * channels)
        _pool_block[(triton.cdiv(pixels, PIXELS), trials)](x, y, chosen, pixels, height, width, channels, PIXELS)
        ctx.save_for_backward(chosen)
        ctx.shape = x.shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (chosen,) = ctx.saved_tensors
        d = gradients[0].contiguous()
        trials, batch, height, width, channels = ctx.shape
        y = d.new_empty(ctx.shape)
        pixels = batch * height * width
        _unpool_block[(triton.cdiv(pixels, PIXELS), trials)](d, chosen, y, pixels, height, width, channels, PIXELS)
        return y


def _by_tap(weight: Tensor, x: Tensor) -> Tensor:
    """Weights (T, filters, C, 3, 3) as (T, 9, C, filters), of the type of x; for `columns_of` as (T, 3, 3 C, filters)."""
    trials, filters, channels = weight.shape[:3]
    taps = weight.permute(0, 3, 4, 2, 1)
    if x.shape[-1] == channels:
        return taps.reshape(trials, 9, channels, filters).to(x.dtype).contiguous()
    taps = taps.reshape(trials, 3, 3 * channels, filters)
    return torch.nn.functional.pad(taps, (0, 0, 0, x.shape[-1] - 3 * channels)).to(x.dtype).contiguous()


def _from_taps(taps: Tensor, shape: torch.Size) -> Tensor:
    """The same back again."""
    trials, filters, channels = shape[:3]
    if taps.shape[1] == 3:
        taps = taps[:, :, : 3 * channels]
    return taps.reshape(trials, 3, 3, channels, filters).permute(0, 4, 3, 1, 2)


def _launch(
    x: Tensor,
    taps: Tensor,
    *,
    is_rectified: bool,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    sign: Tensor | None = None,
) -> Tensor:
    """Convolve; with `sign`, the x of before, go back from the gradient of what came out."""
    assert x.is_contiguous()
    assert bias is None or bias.is_contiguous()
    trials, batch, height, width, channels = x.shape
    filters = taps.shape[2 if sign is not None else 3]
    y = x.new_empty((*x.shape[:4], filters))
    pixels = batch * height * width
    nothing = y
    _convolve_block[(triton.cdiv(pixels, PIXELS), trials)](
        x,
        taps,
        nothing if bias is None else bias,
        nothing if added is None else added,
        nothing if sign is None else sign,
        y,
        pixels,
        height,
        width,
        channels,
        filters,
        taps.shape[1] // 3,
        sign is not None,
        is_rectified,
        added is not None,
        PIXELS,
    )
    return y


def _sums(x: Tensor, d: Tensor, taps: Tensor, *, is_rectified: bool) -> tuple[Tensor, Tensor]:
    """The gradients of weights by tap and of biases, given that of what came out."""
    trials, batch, height, width, channels = x.shape
    pixels = batch * height * width
    blocks = triton.cdiv(pixels, SUMMED_PIXELS)
    parts = max(1, min(blocks, PROGRAMS // (3 * trials)))
    sums = x.new_empty((parts, *taps.shape), dtype=torch.float32)
    of_bias = x.new_empty((parts, trials, d.shape[-1]), dtype=torch.float32)
    _sum_products[(parts, 3, trials)](
        x,
        d,
        sums,
        of_bias,
        pixels,
        height,
        width,
        channels,
        d.shape[-1],
        taps.shape[1] // 3,
        is_rectified,
        parts,
        triton.cdiv(blocks, parts),
        SUMMED_PIXELS,
        num_warps=min(8, max(1, channels * d.shape[-1] // SUMS_OF_A_WARP)),
        num_stages=1,
    )
    return sums.sum(0), of_bias.sum(0)
