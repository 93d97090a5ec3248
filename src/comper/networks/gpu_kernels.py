"""Our own kernels for GPUs, in Triton, which comes with torch for GPUs and compiles them at first use.

They save time. Where they cannot be had (no Triton, no C compiler, an older GPU), torch does the same work.
"""

from __future__ import annotations

import importlib
import subprocess
from functools import cache
from types import ModuleType

OLDEST_GPU = (8, 0)
"""CUDA's compute capability, of Ampere's generation: the first that multiplies bfloat16 numbers."""


@cache
def gpu_kernels(name: str) -> ModuleType | None:
    """A module of kernels that have run on this machine's GPU, by the name of the module; None: torch does the work.

    A module's `try_out` raises a RuntimeError where something of Triton's is missing.
    """
    import torch

    if torch.cuda.get_device_capability() < OLDEST_GPU:
        return None
    try:
        module = importlib.import_module(name)
        module.try_out()
    except torch.OutOfMemoryError:  # nothing is missing: others have the memory
        raise
    except (ImportError, RuntimeError, OSError, subprocess.SubprocessError):
        return None
    return module
