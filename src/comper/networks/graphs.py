"""CUDA graphs: a function of tensors that launches many small kernels, recorded once and replayed as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WARM_UP_CALLS = 3
"""Calls that run as they are: libraries allocate their workspaces then, which must not happen while recording."""

Outputs = tuple[Tensor, ...]


class GraphedFunction:
    """A function whose calls with inputs of the same shapes are recorded and replayed.

    The function must do the same work for every call of one shape, on tensors that stay where they are (weights, averages).
    What a replay returns is overwritten by the next one.
    """

    def __init__(self, function: Callable[..., Outputs]):
        self._function = function
        self._calls: dict[Any, int] = {}
        self._recordings: dict[Any, _Recording] = {}

    def __call__(self, *inputs: Tensor) -> Outputs:
        if inputs[0].device.type != "cuda":
            return self._function(*inputs)
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key in self._recordings:
            return self._recordings[key].replay(inputs)
        self._calls[key] = self._calls.get(key, 0) + 1
        if self._calls[key] <= WARM_UP_CALLS:
            return self._function(*inputs)
        self._recordings[key] = _Recording(self._function, inputs)
        return self._recordings[key].replay(inputs)


class _Recording:
    """One recorded call: where its inputs are read from and its outputs are left."""

    def __init__(self, function: Callable[..., Outputs], inputs: tuple[Tensor, ...]):
        self._inputs = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs)
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):  # recorded, not executed
            self._outputs = function(*self._inputs)

    def replay(self, inputs: tuple[Tensor, ...]) -> Outputs:
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._outputs
