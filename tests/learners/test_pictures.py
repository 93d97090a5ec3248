"""Pictures that are moved and mirrored, by slices and by looking up each pixel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from comper.learners.pictures import by_choice, by_lookup, by_slices, mirrored, one_by_one, shifted


@pytest.mark.parametrize("shift", [shifted, by_slices, by_lookup])
def test_a_picture_moves_by_its_own_shift_and_its_edge_is_repeated(shift: Callable[[Tensor, Tensor], Tensor]) -> None:
    frames = torch.arange(2 * 2 * 3 * 4).view(1, 2, 2, 3, 4)
    moved = shift(frames, torch.tensor([[[0, 0], [1, -2]]]))
    assert torch.equal(moved[0, 0], frames[0, 0])
    for picture, original in zip(moved[0, 1], frames[0, 1], strict=True):
        rows, columns = [1, 2, 2], [0, 0, 0, 1]
        assert torch.equal(picture, original[rows][:, columns])


@pytest.mark.parametrize("shape", [(2, 3, 4, 9, 7), (1, 5, 1, 6, 6, 3), (1, 2, 2, 1, 1), (2, 1, 1, 3, 2)])
@pytest.mark.parametrize("most", [0, 1, 4, 12])
def test_slices_and_looked_up_pixels_are_the_same(shape: tuple[int, ...], most: int) -> None:
    generator = torch.Generator().manual_seed(most)
    frames = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    shifts = torch.randint(-most, most + 1, (*shape[:2], 2), generator=generator)
    assert torch.equal(by_slices(frames, shifts), by_lookup(frames, shifts))


@pytest.mark.parametrize("mirror", [mirrored, by_choice, one_by_one])
@pytest.mark.parametrize("channels", [(), (2,)], ids=["grey", "channels last"])
def test_pictures_are_mirrored_left_for_right_where_they_are_marked(
    channels: tuple[int, ...], mirror: Callable[[Tensor, Tensor], Tensor]
) -> None:
    frames = torch.arange(2 * 2 * 3 * 4 * 5 * 2, dtype=torch.uint8)[: 2 * 2 * 3 * 4 * 5 * (2 if channels else 1)]
    frames = frames.view(2, 2, 3, 4, 5, *channels)
    found = mirror(frames, torch.tensor([[True, False], [False, True]]))
    for trial, state, row, column in np.ndindex(2, 2, 4, 5):
        from_column = 4 - column if trial == state else column
        assert torch.equal(found[trial, state, :, row, column], frames[trial, state, :, row, from_column])


@pytest.mark.parametrize("shift", [by_slices, by_lookup])
def test_pictures_with_channels_move_alike_in_all_of_them(shift: Callable[[Tensor, Tensor], Tensor]) -> None:
    frames = torch.rand(1, 1, 1, 5, 5, 3)
    moved = shift(frames, torch.tensor([[[1, 1]]]))
    assert torch.equal(moved[0, 0, 0, :4, :4], frames[0, 0, 0, 1:, 1:])
