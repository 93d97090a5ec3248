"""What CUDA graphs do to their outputs, on a CPU: every replay leaves its results where the one before left them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from comper.networks import graphs


class StaticRecording:
    """A recording whose replays compute as they are, but into outputs that stay where they are."""

    def __init__(self, function: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...]):
        self._function = function
        self._outputs: tuple[Tensor, ...] = ()

    def replay(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        found = self._function(*inputs)
        self._outputs = self._outputs or tuple(x.clone() for x in found)
        for mine, new in zip(self._outputs, found, strict=True):
            mine.copy_(new)
        return self._outputs


def record_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every graphed function replay static recordings on this machine's CPU."""
    monkeypatch.setattr(graphs, "RECORDING_DEVICE", "cpu")
    monkeypatch.setattr(graphs, "WARM_UP_CALLS", 0)
    monkeypatch.setattr(graphs, "_Recording", StaticRecording)
