"""CUDA graphs: a function of tensors that launches many small kernels, recorded once and replayed as one."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

WARM_UP_CALLS = 3
"""Calls that run as they are: libraries allocate their workspaces then, which must not happen while recording."""

RECORDING_DEVICE = "cuda"
"""The type of device that can record; elsewhere the function runs as it is."""

Outputs = tuple[Tensor, ...]


class GraphedFunction:
    """A function whose calls with inputs of the same shapes are recorded and replayed.

    The function must do the same work for every call of one shape, on tensors that stay where they are (weights, averages).
    """

    def __init__(self, function: Callable[..., Outputs]):
        self._function = function
        self._calls: dict[Any, int] = {}
        self._recordings: dict[Any, _Recording] = {}

    def __call__(self, *inputs: Tensor) -> Outputs:
        if inputs[0].device.type != RECORDING_DEVICE:
            return self._function(*inputs)
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self._recordings:
            self._calls[key] = self._calls.get(key, 0) + 1
            if self._calls[key] <= WARM_UP_CALLS:
                return self._function(*inputs)
            self._recordings[key] = _Recording(self._function, inputs)
        # The next replay overwrites what this one leaves, so the caller gets copies.
        return tuple(x.clone() for x in self._recordings[key].replay(inputs))

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphedFunction:
        """A copy works on other tensors: it records anew."""
        return GraphedFunction(copy.deepcopy(self._function, memo))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """To free the graphs of a learner that is gone, as the collector may at any line, spoils what is being recorded."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Recording:
    """One recorded call: where its inputs are read from and its outputs are left."""

    def __init__(self, function: Callable[..., Outputs], inputs: tuple[Tensor, ...]):
        self._inputs = tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs)
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with without_garbage_collection(), torch.cuda.graph(self._graph):  # recorded, not executed
            self._outputs = function(*self._inputs)

    def replay(self, inputs: tuple[Tensor, ...]) -> Outputs:
        """The outputs for these inputs; the next replay overwrites them."""
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._outputs
