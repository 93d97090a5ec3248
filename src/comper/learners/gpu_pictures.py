"""Pictures moved and mirrored in one pass on a GPU: a kernel in Triton, which comes with torch for GPUs."""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 2_048
"""That a program moves."""


@triton.jit
def _move_pixels(
    x_pointer,
    y_pointer,
    shifts_pointer,
    flips_pointer,
    size,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    IS_SHIFTED: tl.constexpr,
    IS_MIRRORED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Some pixels of one state: each is looked up where it was before the picture was moved, and then mirrored."""
    state = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel = place % CHANNELS
    column = place // CHANNELS % WIDTH
    row = place // (CHANNELS * WIDTH) % HEIGHT
    frame = place // (CHANNELS * WIDTH * HEIGHT)
    if IS_MIRRORED:
        column = tl.where(tl.load(flips_pointer + state) != 0, WIDTH - 1 - column, column)
    if IS_SHIFTED:
        row = tl.minimum(tl.maximum(row + tl.load(shifts_pointer + 2 * state).to(tl.int32), 0), HEIGHT - 1)
        column = tl.minimum(tl.maximum(column + tl.load(shifts_pointer + 2 * state + 1).to(tl.int32), 0), WIDTH - 1)
    x = tl.load(x_pointer + state * size + ((frame * HEIGHT + row) * WIDTH + column) * CHANNELS + channel, mask=place < size)
    tl.store(y_pointer + state * size + place, x, mask=place < size)


def try_out() -> None:
    """Run the kernel once; an error says what is missing."""
    seen(torch.zeros(1, 1, 1, 2, 2, device="cuda"), None, torch.zeros(1, 1, dtype=torch.bool, device="cuda"))


def seen(frames: Tensor, shifts: Tensor | None, flips: Tensor | None) -> Tensor:
    """Pictures (n, B, history, H, W, ...) moved by shifts (n, B, 2), the edge repeated; then mirrored where `flips` (n, B)."""
    frames = frames.contiguous()
    y = torch.empty_like(frames)
    height, width, *channels = frames.shape[3:]
    num_states, size = prod(frames.shape[:2]), prod(frames.shape[2:])
    _move_pixels[(num_states, triton.cdiv(size, PIXELS))](
        frames,
        y,
        frames if shifts is None else shifts.contiguous(),
        frames if flips is None else flips.contiguous().view(torch.uint8),
        size,
        height,
        width,
        prod(channels),
        shifts is not None,
        flips is not None,
        PIXELS,
    )
    return y
