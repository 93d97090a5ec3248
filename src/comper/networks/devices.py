"""What a device is good at."""

from __future__ import annotations

import torch


def computes_together(device: torch.device) -> bool:
    """Whether all trials are computed at once there (a GPU), or one after another, each exactly as if alone (a CPU)."""
    return device.type != "cpu"
