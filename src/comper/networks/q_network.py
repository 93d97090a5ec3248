"""The CNN that approximates Q(s, ·; Θ). Appendix B, Table 9."""

from __future__ import annotations

import torch
from torch import Tensor

from comper.networks.parameters import LayerSpec, Parameters, ParameterSpec, dense
from comper.networks.stacking import conv2d, linear

CONVOLUTIONS = (("Conv1", 32, 8, 4), ("Conv2", 64, 4, 2), ("Conv3", 64, 3, 1))
"""Name, filters, kernel size, stride. Table 9."""

HIDDEN_UNITS = 512
VECTOR_UNITS = 64
"""Hidden units, twice, for observations that are not images (D3)."""


def is_image(frame_shape: tuple[int, ...]) -> bool:
    """Whether the convolutions fit on it."""
    return len(frame_shape) == 2 and min(frame_shape) >= 36


def q_network_layers(
    history_length: int, frame_shape: tuple[int, ...], num_actions: int, *, first_bias: bool = True
) -> tuple[LayerSpec, ...]:
    """The layers of Table 9. A16: its count for stacked frames leaves the first bias out (`first_bias`)."""
    if not is_image(frame_shape):
        num_inputs = history_length * int(torch.Size(frame_shape).numel())
        return (
            dense("Dense1", num_inputs, VECTOR_UNITS),
            dense("Dense2", VECTOR_UNITS, VECTOR_UNITS),
            dense("Dense3", VECTOR_UNITS, num_actions),
        )
    layers, channels, (height, width) = [], history_length, frame_shape
    for name, filters, size, stride in CONVOLUTIONS:
        layers.append(_convolution(name, channels, filters, size, has_bias=first_bias or name != "Conv1"))
        channels, height, width = filters, (height - size) // stride + 1, (width - size) // stride + 1
    return (*layers, dense("Dense1", height * width * channels, HIDDEN_UNITS), dense("Dense2", HIDDEN_UNITS, num_actions))


def q_values(p: Parameters, frames: Tensor) -> Tensor:
    """Q(s, ·; Θ) of states given as (..., B, history, *frame_shape)."""
    lead = frames.shape[: p["Dense1.weight"].dim() - 1]  # B, or T and B
    scale = 1 / 255 if frames.dtype == torch.uint8 else 1.0
    if "Conv1.weight" not in p:
        x = frames.reshape(*lead, -1).float() * scale
        x = linear(x, p["Dense1.weight"], p["Dense1.bias"]).relu()
        x = linear(x, p["Dense2.weight"], p["Dense2.bias"]).relu()
        return linear(x, p["Dense3.weight"], p["Dense3.bias"])
    x = frames.movedim(-3, -1).contiguous().float()  # moved while it is still small
    for name, _, _, stride in CONVOLUTIONS:
        # The pixels' scale goes into the first weights: 2,048 products in place of one for every pixel.
        weight = p[f"{name}.weight"] * scale if name == "Conv1" else p[f"{name}.weight"]
        x = conv2d(x, weight, p.get(f"{name}.bias"), stride).relu()
    x = linear(x.reshape(*lead, -1), p["Dense1.weight"], p["Dense1.bias"]).relu()
    return linear(x, p["Dense2.weight"], p["Dense2.bias"])


def _convolution(name: str, channels: int, filters: int, size: int, *, has_bias: bool) -> LayerSpec:
    fan_in, fan_out = size * size * channels, size * size * filters
    weight = ParameterSpec(f"{name}.weight", (filters, size, size, channels), fan_in, fan_out)
    bias = (ParameterSpec(f"{name}.bias", (filters,), constant=0.0),) if has_bias else ()
    return LayerSpec(name, (weight, *bias))
