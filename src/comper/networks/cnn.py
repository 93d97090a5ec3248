"""Networks that approximate Q(s, ·; Θ): the CNN of Appendix B, Table 9, smaller ones for smaller images, an MLP."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from comper import native
from comper.networks.compiled_layers import Geometry, hidden_of_one_state
from comper.networks.stacking import Conv2d, Linear, NetworkFactory, as_floats

VECTOR_UNITS = 64
"""Hidden units, twice, for observations that are not images (D3)."""


@dataclass(frozen=True)
class ObservationSpec:
    """What a state is made of: `history_length` observations of one shape."""

    shape: tuple[int, ...]
    history_length: int = 1
    kind: str | None = None
    """"pixels" or "vector"; None: pixels where there are two or three axes."""
    channels: str | None = None
    """"first" or "last", for pixels of three axes; None: found by `channel_axis`."""

    @property
    def size(self) -> int:
        """Numbers in a state."""
        return self.history_length * math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        """Whether the axes are rows, columns and perhaps channels."""
        return len(self.shape) in (2, 3) and self.kind in (None, "pixels")

    @property
    def channel_axis(self) -> int | None:
        """Where the channels are: 0, 2, or None for (H, W). The other two axes are equal, or larger than the channels."""
        if len(self.shape) == 2:
            return None
        if self.channels is not None:
            return 0 if self.channels == "first" else 2
        first, middle, last = self.shape
        if (first == middle) != (middle == last):
            return 2 if first == middle else 0
        return 2 if last <= first else 0

    @property
    def image_size(self) -> tuple[int, int, int]:
        """Height, width, and the channels of all observations of a state."""
        axis = self.channel_axis
        height, width = (n for i, n in enumerate(self.shape) if i != axis)
        return height, width, self.size // (height * width)


class Architecture(NamedTuple):
    """The hidden layers of a CNN."""

    name: str
    smallest_side: int
    """Pixels that the shorter side must have, so that the convolutions fit and make sense."""
    convolutions: tuple[tuple[int, int, int], ...]
    """Filters, kernel size, stride."""
    hidden_units: int


ARCHITECTURES = (
    Architecture("CNN of Table 9", 36, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    Architecture("CNN with two convolutions", 26, ((16, 4, 2), (32, 3, 1)), 256),
    Architecture("CNN of MinAtar", 3, ((16, 3, 1),), 128),  # Young and Tian, 2019
)
"""From the largest images to the smallest: the first that fits is taken."""


@dataclass(frozen=True)
class QNetworkFactory:
    """Makes a Q-network, and says which one in a line."""

    description: str
    make: NetworkFactory

    def __call__(self) -> nn.Module:
        return self.make()


def make_q_network(
    observation: ObservationSpec, num_actions: int, *, first_bias: bool = True, duelling: bool = False
) -> QNetworkFactory:
    """A CNN that fits the size of images, an MLP for everything else.

    A16: Table 9's count for stacked frames leaves the first bias out (`first_bias`).
    """
    if observation.is_image:
        height, width, channels = observation.image_size
        for architecture in ARCHITECTURES:
            if min(height, width) >= architecture.smallest_side:
                make = partial(CNN, architecture, observation, num_actions, first_bias=first_bias, duelling=duelling)
                return QNetworkFactory(f"{architecture.name} for {height}x{width}x{channels} pixels", make)
    description = f"MLP {VECTOR_UNITS}-{VECTOR_UNITS} for {observation.size:,} numbers"
    return QNetworkFactory(description, partial(MLP, observation, num_actions, duelling=duelling))


def check_q_network(make: NetworkFactory, state_shape: tuple[int, ...], num_actions: int) -> None:
    """Refuse a network that does not give one Q-value per action for states (B, history, *observation_shape)."""
    with torch.random.fork_rng(devices=()), torch.no_grad():
        module = make()
        if not isinstance(module, nn.Module):
            raise ValueError(f"The network is a {type(module).__name__}, not a torch.nn.Module.")
        if any(map(is_lazy, module.parameters())):
            raise ValueError("The network has a lazy layer, whose size is not known when it is made: give it its size.")
        for num_states in (2, 1):
            values = _values_of(module, torch.zeros(num_states, *state_shape))
            if not isinstance(values, Tensor) or values.shape != (num_states, num_actions):
                found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                expected = (num_states, num_actions)
                raise ValueError(f"The network gives {found} for {num_states} states: expected Q-values of shape {expected}.")
        state = torch.ones(1, *state_shape)
        if not torch.equal(_values_of(module, state), _values_of(module, state)):
            raise ValueError("The network draws at random (dropout?), so that a run could not be repeated or resumed exactly.")


def _values_of(module: nn.Module, states: Tensor) -> Any:
    try:
        return module(states)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"The network cannot read states of shape {tuple(states.shape)} ({error}).") from error


class Duelling(Linear):
    """One output for the state and one for each action: Q(s, a) = V + A(a) - mean of A. Wang et al. 2016."""

    def __init__(self, num_inputs: int, num_actions: int):
        super().__init__(num_inputs, 1 + num_actions)

    def forward(self, x: Tensor) -> Tensor:
        """Q-values of (B, inputs), or of (T, B, inputs) with stacked parameters."""
        y = super().forward(x)
        value, advantages = y[..., :1], y[..., 1:]
        return value + advantages - advantages.mean(-1, keepdim=True)


class CNN(nn.Module):
    """Convolutions, a hidden layer, one output for each action."""

    takes_trial_axis = True

    def __init__(
        self,
        architecture: Architecture,
        observation: ObservationSpec,
        num_actions: int,
        *,
        first_bias: bool = True,
        duelling: bool = False,
    ):
        super().__init__()
        self._channel_axis = observation.channel_axis
        height, width, channels = observation.image_size
        geometries = []
        for number, (filters, size, stride) in enumerate(architecture.convolutions, start=1):
            layer = Conv2d(channels, filters, size, stride, bias=first_bias or number > 1)
            self.add_module(f"Conv{number}", layer)
            geometries.append(Geometry(size, stride, height, width, channels, filters))
            channels, height, width = filters, (height - size) // stride + 1, (width - size) // stride + 1
        self._convolutions = tuple(layer for layer in self.children() if isinstance(layer, Conv2d))
        self._geometries = (*geometries, Geometry(0, 0, height, width, channels, architecture.hidden_units))
        self.Dense1 = Linear(height * width * channels, architecture.hidden_units)
        self.Dense2 = (Duelling if duelling else Linear)(architecture.hidden_units, num_actions)

    def forward(self, frames: Tensor) -> Tensor:
        """Q(s, ·; Θ) of states given as (..., B, history, *observation_shape)."""
        images = self._channels_last(frames)
        scale = 1 / 255 if frames.dtype == torch.uint8 else 1.0
        hidden = hidden_of_one_state((*self._convolutions, self.Dense1), self._geometries, images, scale)
        if hidden is None:
            hidden = self._hidden(images, scale)
        return self.Dense2.forward(hidden)

    def _hidden(self, images: Tensor, scale: float) -> Tensor:
        """The hidden layer's outputs for images (..., H, W, channels)."""
        x = images.movedim(-1, -3)
        for layer in self._convolutions:
            x = layer.forward(x, scale).relu_()  # `forward`: a module's `__call__` takes longer
            scale = 1.0
        return self.Dense1.forward(x.movedim(-3, -1).flatten(-3)).relu()

    def _channels_last(self, frames: Tensor) -> Tensor:
        """(..., history, H, W), (..., history, H, W, C) or (..., history, C, H, W) as floats (..., H, W, channels)."""
        if self._channel_axis is None:
            compiled = _compiled_channels_last(frames)
            return frames.movedim(-3, -1).contiguous().float() if compiled is None else compiled
        images = frames if self._channel_axis == 2 else frames.movedim(-3, -1)
        return images.movedim(-4, -2).flatten(-2).contiguous().float()  # laid out anew while it is still small


def _compiled_channels_last(frames: Tensor) -> Tensor | None:
    """Bytes (..., history, H, W) as floats (..., H, W, history), in one pass of compiled code where there is any."""
    *lead, channels, height, width = frames.shape
    library = native.compiled() if frames.device.type == "cpu" and frames.dtype == torch.uint8 and channels > 1 else None
    if library is None or not frames.is_contiguous():
        return None
    floats = torch.empty(*lead, height, width, channels)
    transpose = library.comper_channels_last
    transpose.argtypes, transpose.restype = [ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p], None
    transpose(frames.data_ptr(), math.prod(lead), channels, height * width, floats.data_ptr())
    return floats


class MLP(nn.Module):
    """Two hidden layers for observations that are not images (D3)."""

    takes_trial_axis = True

    def __init__(self, observation: ObservationSpec, num_actions: int, *, duelling: bool = False):
        super().__init__()
        self._num_axes = 1 + len(observation.shape)
        self.Dense1 = Linear(observation.size, VECTOR_UNITS)
        self.Dense2 = Linear(VECTOR_UNITS, VECTOR_UNITS)
        self.Dense3 = (Duelling if duelling else Linear)(VECTOR_UNITS, num_actions)

    def forward(self, frames: Tensor) -> Tensor:
        """Q(s, ·; Θ) of states given as (..., B, history, *observation_shape)."""
        x = as_floats(frames.flatten(-self._num_axes)).float()
        x = self.Dense1.forward(x).relu()
        x = self.Dense2.forward(x).relu()
        return self.Dense3.forward(x)
