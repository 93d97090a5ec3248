"""Pictures that a kernel moves and mirrors, against those of torch's own operations.

On a machine without a GPU: `TRITON_INTERPRET=1 pytest tests/learners/test_gpu_pictures.py`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
import torch

from comper.learners import pictures
from comper.learners.pictures import KERNELS, by_choice, by_lookup
from tests.networks.interpreted_kernels import DEVICE, needs_gpu, needs_kernels

pytestmark = [pytest.mark.gpu, needs_kernels]

SHAPES = [(2, 3, 4, 9, 7), (1, 5, 1, 6, 7, 3), (3, 2, 2, 1, 1), (2, 2, 4, 30, 20)]
"""n, B, history, H, W and perhaps channels; the last states are several blocks of pixels."""


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32])
@pytest.mark.parametrize(("is_moved", "is_mirrored"), [(True, False), (False, True), (True, True)])
def test_a_kernel_moves_and_mirrors_pictures_as_torch_does(
    shape: tuple[int, ...], dtype: torch.dtype, is_moved: bool, is_mirrored: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    num_trials, batch_size = shape[:2]
    frames = torch.rand(*shape[:3], *shape[:2:-1], generator=generator) * (2 if dtype == torch.bool else 256)
    frames = frames.to(dtype).permute(0, 1, 2, *range(len(shape) - 1, 2, -1))  # not in the order of memory, nor are the others
    views = torch.randint(-12, 13, (batch_size, num_trials, 3), generator=generator).transpose(0, 1)
    shifts = views[..., :2] if is_moved else None
    flips = views[..., 2] > 0 if is_mirrored else None
    expected = frames if shifts is None else by_lookup(frames, shifts)
    expected = expected if flips is None else by_choice(expected, flips)
    there = (None if view is None else view.to(DEVICE) for view in (shifts, flips))
    found = import_module(KERNELS).seen(frames.to(DEVICE), *there)
    assert found.dtype == dtype
    assert torch.equal(found.cpu(), expected)


@needs_gpu
@pytest.mark.parametrize("is_there", [True, False])
def test_a_gpu_sees_the_same_pictures_with_and_without_the_kernel(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    names: list[str] = []

    def kernels(name: str) -> ModuleType | None:
        names.append(name)
        return import_module(name) if is_there else None

    monkeypatch.setattr(pictures, "gpu_kernels", kernels)
    frames, shifts = torch.arange(12, device="cuda").view(1, 1, 1, 3, 4), torch.tensor([[[1, -1]]], device="cuda")
    found = pictures.seen(frames, shifts, torch.ones(1, 1, dtype=torch.bool, device="cuda"))
    assert found[0, 0, 0].tolist() == [[6, 5, 4, 4], [10, 9, 8, 8], [10, 9, 8, 8]]
    assert names == [KERNELS]
