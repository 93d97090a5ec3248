"""Where our kernels are tested: on a GPU in 16-bit numbers, or on a CPU in Triton's interpreter, which multiplies longer ones.

The environment variable TRITON_INTERPRET chooses before Triton is imported, and torch looks for Triton: hence a process of
its own, which `tests/networks/test_gpu_kernels.py` starts where there is Triton.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from comper.networks.gpu_kernels import OLDEST_GPU

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE, DTYPE = ("cpu", torch.float32) if IS_INTERPRETED else ("cuda", torch.bfloat16)
HAS_TRITON = find_spec("triton") is not None
HAS_GPU = not IS_INTERPRETED and torch.cuda.is_available() and torch.cuda.get_device_capability() >= OLDEST_GPU

needs_gpu = pytest.mark.skipif(not (HAS_TRITON and HAS_GPU), reason="needs Triton and a CUDA GPU")
needs_kernels = pytest.mark.skipif(
    not (HAS_TRITON and (HAS_GPU or IS_INTERPRETED)), reason="needs Triton and a CUDA GPU, or TRITON_INTERPRET=1"
)


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Equal, but for what a GPU rounds to store it in 16 bits."""
    torch.testing.assert_close(found.cpu().double(), expected.double(), rtol=0.0 if IS_INTERPRETED else 2**-8, atol=0.0)
