"""Networks that approximate Q(s, ·; Θ): the CNN of Appendix B, Table 9, smaller ones for smaller images, an MLP."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comper import native
from comper.networks.stacking import MKL_BLOCK, Gradient, Linear, NetworkFactory, as_floats, glorot

VECTOR_UNITS = 64
"""Hidden units, twice, for observations that are not images (D3)."""

OutputLayer = Callable[[int, int], Linear]
"""(number of inputs, number of actions) -> the layer that gives Q-values."""


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


class Geometry(NamedTuple):
    """A convolution of images, or a dense layer that takes all of their numbers: its size is 0."""

    size: int
    stride: int
    height: int
    width: int
    channels: int
    filters: int

    @property
    def num_outputs(self) -> int:
        """Numbers that come out for one state."""
        sides = [(side - self.size) // self.stride + 1 for side in (self.height, self.width)] if self.size else []
        return math.prod(sides) * self.filters

    @property
    def num_products(self) -> int:
        """Products in each sum."""
        return (self.size**2 or self.height * self.width) * self.channels


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
    observation: ObservationSpec, num_actions: int, *, first_bias: bool = True, output: OutputLayer = Linear
) -> QNetworkFactory:
    """A CNN that fits the size of images, an MLP for everything else.

    A16: Table 9's count for stacked frames leaves the first bias out (`first_bias`).
    """
    if observation.is_image:
        height, width, channels = observation.image_size
        for architecture in ARCHITECTURES:
            if min(height, width) >= architecture.smallest_side:
                make = partial(CNN, architecture, observation, num_actions, first_bias=first_bias, output=output)
                return QNetworkFactory(f"{architecture.name} for {height}x{width}x{channels} pixels", make)
    description = f"MLP {VECTOR_UNITS}-{VECTOR_UNITS} for {observation.size:,} numbers"
    return QNetworkFactory(description, partial(MLP, observation, num_actions, output=output))


class Conv2d(nn.Module):
    """A convolution of images (..., channels, height, width). Its weights are zero until `draw_weights`.

    In memory the channels come last, in weights and images: the layout that CPU and GPU kernels like best.
    """

    def __init__(self, channels: int, filters: int, size: int, stride: int, *, bias: bool = True):
        super().__init__()
        if size % stride:
            raise ValueError(f"size = {size}, stride = {stride}: the size must be a multiple of the stride.")
        self.stride = stride
        self.weight = nn.Parameter(torch.zeros(filters, size, size, channels))
        self.bias = nn.Parameter(torch.zeros(filters)) if bias else None

    def draw_weights(self, rng: np.random.Generator) -> None:
        """Start anew: Glorot's weights, no bias."""
        filters, height, width, channels = self.weight.shape
        glorot(self.weight, rng, fan_in=height * width * channels, fan_out=height * width * filters)

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """Convolve x · scale, (B, C, H, W), or (T, B, C, H, W) with stacked parameters."""
        # The scale goes into the weights: 2,048 products in Table 9's first layer in place of one for every pixel.
        weight = self.weight if scale == 1.0 else self.weight * scale
        if weight.dim() == 4:
            return F.conv2d(x, weight.permute(0, 3, 1, 2), self.bias, self.stride)
        y: Tensor = _StackedConv2d.apply(x.movedim(-3, -1), weight, self.stride)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            y = y + self.bias[:, None, None, None]
        return y.movedim(-1, -3)

    def backward(self, x: Tensor, d: Tensor, scale: float, *, wants_x: bool) -> tuple[Tensor, dict[str, Gradient]]:
        """The gradients of x, if it is wanted, and of the parameters, given that of the result for a batch (B, ...)."""
        weight = self.weight.permute(0, 3, 1, 2) * scale  # times 1 it is what it was
        geometry = ([len(weight)], [self.stride] * 2, [0, 0], [1, 1], False, [0, 0], 1)
        wanted = [wants_x, True, self.bias is not None]
        d_x, d_weight, d_bias = torch.ops.aten.convolution_backward.default(d, x, weight, *geometry, wanted)
        gradients = {"weight": d_weight.permute(0, 2, 3, 1) * scale}
        return d_x, gradients if d_bias is None else {**gradients, "bias": d_bias}


class _StackedConv2d(torch.autograd.Function):
    """Convolutions of T trials, each with its own weights, as batched matrix products, forward and backward.

    Forward, the patches (T, B·H'·W', k·k·C) are multiplied by the weights (T, k·k·C, O). Backward, the gradient of the input
    is again a product over patches, now of the output's gradient: with stride s and k = m·s, the pixels of an s x s block all
    see the same m x m outputs, each pixel through its own weights.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        trials, batch = x.shape[:2]
        num_filters, size = weight.shape[1:3]
        columns, (height, width) = _patches(x, size, stride)
        ctx.save_for_backward(columns, weight)
        ctx.stride, ctx.input_shape = stride, x.shape
        with precision_of_convolutions():
            y = columns.bmm(weight.flatten(2).transpose(1, 2))
        return y.view(trials, batch, height, width, num_filters)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None]:
        (dy,) = gradients
        columns, weight = ctx.saved_tensors
        with precision_of_convolutions():
            d_weight = dy.flatten(1, 3).transpose(1, 2).bmm(columns).view_as(weight)
            d_x = _input_gradient(dy, weight, ctx.stride, ctx.input_shape) if ctx.needs_input_grad[0] else None
        return d_x, d_weight, None


@contextmanager
def precision_of_convolutions() -> Iterator[None]:
    """Multiply as torch's own convolutions do on a GPU: in TF32, unless it is switched off for them."""
    try:
        before, allows_tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError:  # a program that has set its own by torch's newer names, which do not mix with these, keeps them
        yield
        return
    if allows_tf32 and torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _patches(x_TBHWC: Tensor, size: int, stride: int) -> tuple[Tensor, tuple[int, int]]:
    """Patches as rows (T, B·H'·W', size·size·C), and how many there are in each direction."""
    views = x_TBHWC.unfold(2, size, stride).unfold(3, size, stride)  # T, B, H', W', C, size, size
    rows = views.permute(0, 1, 2, 3, 5, 6, 4).reshape(x_TBHWC.shape[0], -1, size * size * x_TBHWC.shape[4])
    return rows, (views.shape[2], views.shape[3])


def _input_gradient(dy: Tensor, weight: Tensor, stride: int, input_shape: torch.Size) -> Tensor:
    trials, batch, height, width, channels = input_shape
    num_filters, taps = weight.shape[1], weight.shape[2] // stride
    rows, (blocks_down, blocks_across) = _patches(F.pad(dy, (0, 0, *[taps - 1] * 4)), taps, 1)
    # weight[o, u·s + a, v·s + b, c], with u and v reversed, as (u, v, o) x (a, b, c)
    by_tap = weight.view(trials, num_filters, taps, stride, taps, stride, channels).flip(2, 4)
    product = rows.bmm(by_tap.permute(0, 2, 4, 1, 3, 5, 6).reshape(trials, taps * taps * num_filters, -1))
    blocks = product.view(trials, batch, blocks_down, blocks_across, stride, stride, channels)
    covered = blocks.permute(0, 1, 2, 4, 3, 5, 6).reshape(
        trials, batch, blocks_down * stride, blocks_across * stride, channels
    )
    # Rows and columns past the last patch were never read.
    return F.pad(covered, (0, 0, 0, width - covered.shape[3], 0, height - covered.shape[2]))


class Duelling(Linear):
    """One output for the state and one for each action: Q(s, a) = V + A(a) - mean of A. Wang et al. 2016."""

    def __init__(self, num_inputs: int, num_actions: int):
        super().__init__(num_inputs, 1 + num_actions)

    def forward(self, x: Tensor) -> Tensor:
        """Q-values of (B, inputs), or of (T, B, inputs) with stacked parameters."""
        value, advantages = super().forward(x).split_with_sizes((1, self.weight.shape[-1] - 1), -1)
        return value + advantages - advantages.mean(-1, keepdim=True)

    def backward(self, x: Tensor, d: Tensor) -> tuple[Tensor, dict[str, Gradient]]:
        """The gradients of x and of the parameters, given that of the Q-values of a batch (B, actions)."""
        total = d.sum(-1, keepdim=True)
        return super().backward(x, torch.cat([total, d - total / d.shape[-1]], -1))


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
        output: OutputLayer = Linear,
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
        self.num_filters = channels
        self.Dense1 = Linear(height * width * channels, architecture.hidden_units)
        self.Dense2 = output(architecture.hidden_units, num_actions)

    def forward(self, frames: Tensor) -> Tensor:
        """Q(s, ·; Θ) of states given as (..., B, history, *observation_shape)."""
        images, scale = self._channels_last(frames), _scale_of(frames)
        hidden = hidden_of_one_state((*self._convolutions, self.Dense1), self._geometries, images, scale)
        if hidden is None:
            hidden = self._activations(images, scale)[-1]
        return self.Dense2.forward(hidden)

    def gradients(self, frames: Tensor, derivative: Callable[[Tensor], Tensor]) -> tuple[Tensor, dict[str, Gradient]]:
        """Q(s, ·; Θ) of a batch and the gradients of Θ, given the loss's derivative by Q, without autograd.

        The bits are autograd's. What it notes and looks up takes a third of the time of a small network's update.
        """
        scale = _scale_of(frames)
        *images, hidden = self._activations(self._channels_last(frames), scale)
        last = images[-1].movedim(-3, -1)
        q = self.Dense2.forward(hidden)
        d, dense2 = self.Dense2.backward(hidden, derivative(q))
        d, dense1 = self.Dense1.backward(last.flatten(-3), _through_relu(d, hidden))
        d = d.view(last.shape).movedim(-1, -3)
        found = {"Dense1": dense1, "Dense2": dense2}
        for number in range(len(self._convolutions), 0, -1):
            layer, is_first = self._convolutions[number - 1], number == 1
            d = _through_relu(d, images[number])
            d, found[f"Conv{number}"] = layer.backward(images[number - 1], d, scale if is_first else 1.0, wants_x=not is_first)
        return q, {f"{layer}.{name}": g for layer, gradients in found.items() for name, g in gradients.items()}

    def features(self, frames: Tensor) -> Tensor:
        """What the last convolution says of states (..., B, history, *observation_shape): (..., B, filters, H, W)."""
        return self._convolved(self._channels_last(frames), _scale_of(frames))[-1]

    def hidden_sums(self, features: Tensor) -> Tensor:
        """What the hidden layer makes of them, (..., B, units), before what is negative becomes 0."""
        return self.Dense1.forward(features.movedim(-3, -1).flatten(-3))

    def answer(self, sums: Tensor) -> Tensor:
        """Q(s, ·; Θ) of them."""
        return self.Dense2.forward(sums.relu())

    def _activations(self, images: Tensor, scale: float) -> list[Tensor]:
        """The images as `_convolved` has them, and what comes out of each hidden layer."""
        found = self._convolved(images, scale)
        return [*found, self.hidden_sums(found[-1]).relu()]

    def _convolved(self, images: Tensor, scale: float) -> list[Tensor]:
        """The images (..., H, W, channels) as (..., channels, H, W), and what comes out of each convolution."""
        found = [images.movedim(-1, -3)]
        for layer in self._convolutions:
            x = layer.forward(found[-1], scale)  # `forward`: a module's `__call__` takes longer
            found.append(x.relu() if layer.bias is None else x.relu_())  # without a bias it may be a view, which stays
            scale = 1.0
        return found

    def _channels_last(self, frames: Tensor) -> Tensor:
        """(..., history, H, W), (..., history, H, W, C) or (..., history, C, H, W) as floats (..., H, W, channels)."""
        if self._channel_axis is None:
            compiled = _compiled_channels_last(frames)
            return frames.movedim(-3, -1).contiguous().float() if compiled is None else compiled
        images = frames if self._channel_axis == 2 else frames.movedim(-3, -1)
        return images.movedim(-4, -2).flatten(-2).contiguous().float()  # laid out anew while it is still small


def _scale_of(frames: Tensor) -> float:
    """What pixels are multiplied by: those of 8 bits are 0 to 1 for a network."""
    return 1 / 255 if frames.dtype == torch.uint8 else 1.0


def _through_relu(d: Tensor, y: Tensor) -> Tensor:
    """The gradient of x, given that of y = max(0, x)."""
    result: Tensor = torch.ops.aten.threshold_backward.default(d, y, 0)
    return result


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

    def __init__(self, observation: ObservationSpec, num_actions: int, *, output: OutputLayer = Linear):
        super().__init__()
        self._num_axes = 1 + len(observation.shape)
        self.Dense1 = Linear(observation.size, VECTOR_UNITS)
        self.Dense2 = Linear(VECTOR_UNITS, VECTOR_UNITS)
        self.Dense3 = output(VECTOR_UNITS, num_actions)

    def forward(self, frames: Tensor) -> Tensor:
        """Q(s, ·; Θ) of states given as (..., B, history, *observation_shape)."""
        x = as_floats(frames.flatten(-self._num_axes)).float()
        x = self.Dense1.forward(x).relu()
        x = self.Dense2.forward(x).relu()
        return self.Dense3.forward(x)


# One state through the hidden layers in compiled code, with torch's bits: what an agent computes at every step. Little of the
# time that torch takes for it is arithmetic. Its sums have a fixed order on each machine: over a filter's rows, columns and
# channels, the bias last (oneDNN); in blocks that are added to the bias (MKL's product); or from the bias on (MKL's product
# with a vector). `compiled_layers` finds by trying which one a layer has; elsewhere torch computes.

Layers = Sequence[Conv2d | Linear]


class _Layer(ctypes.Structure):
    """A layer for `comper_hidden`, as native.c declares it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("w", "bias")),
        *((name, ctypes.c_int64) for name in (*Geometry._fields, "block")),
        ("scale", ctypes.c_float),
    )


class CompiledLayers:
    """Layers whose sums have a known order, each followed by max(0, y); their weights come with each call."""

    def __init__(self, library: ctypes.CDLL, geometries: Sequence[Geometry], blocks: Sequence[int], scale: float):
        scales = (scale, *[1.0] * (len(geometries) - 1))
        self._numbers = [(*g, block, s) for g, block, s in zip(geometries, blocks, scales, strict=True)]
        self._half = max(g.num_outputs for g in geometries)
        self._num_scratch = 2 * self._half + max(g.num_products * g.filters * bool(g.size) for g in geometries)
        self._num_outputs = geometries[-1].num_outputs
        self._function = library.comper_hidden
        self._function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p] * 2
        self._described = cache(self._describe)  # an address stands for whatever is there

    def __call__(self, layers: Layers, image: Tensor) -> Tensor | None:
        """What comes out of the last layer, (1, numbers), for one image (H, W, C); None where this code cannot do it."""
        structures = self._described(*[None if p is None else p.data_ptr() for x in layers for p in (x.weight, x.bias)])
        scratch, out = torch.empty(self._num_scratch), torch.empty(1, self._num_outputs)
        start, inputs, rest, result = ctypes.addressof(structures), image.data_ptr(), scratch.data_ptr(), out.data_ptr()
        return None if self._function(start, len(layers), inputs, rest, self._half, result) else out

    def _describe(self, *places: int | None) -> ctypes.Array[_Layer]:
        """The layers whose weights and biases are at these addresses."""
        pairs = zip(places[::2], places[1::2], self._numbers, strict=True)
        return (_Layer * len(self._numbers))(*(_Layer(weight, bias, *numbers) for weight, bias, numbers in pairs))


def hidden_of_one_state(layers: Layers, geometries: tuple[Geometry, ...], images: Tensor, scale: float) -> Tensor | None:
    """Outputs (1, units) of the last layer for images (1, H, W, C) · scale; None where torch has to compute them."""
    library = native.compiled()
    if library is None or torch.is_grad_enabled() or images.shape[:-3] != (1,) or not images.is_contiguous():
        return None
    weights = [layer.weight for layer in layers]
    if not all(w.device.type == "cpu" and w.dtype == torch.float32 and w.is_contiguous() for w in weights):
        return None
    compiled = compiled_layers(library, geometries, scale, torch.get_num_threads())
    return None if compiled is None else compiled(layers, images)


@cache
def compiled_layers(
    library: ctypes.CDLL, geometries: tuple[Geometry, ...], scale: float, num_threads: int
) -> CompiledLayers | None:
    """The compiled layers, None where one of them does not have torch's bits: found by trying it on random numbers."""
    scales = (scale, *[1.0] * (len(geometries) - 1))
    blocks = [_block(library, geometry, s) for geometry, s in zip(geometries, scales, strict=True)]
    return None if None in blocks else CompiledLayers(library, geometries, [b for b in blocks if b], scale)


def _block(library: ctypes.CDLL, geometry: Geometry, scale: float) -> int | None:
    """How many products this layer sums up at a time, if that is all there is to its order."""
    generator = torch.Generator().manual_seed(0)
    size, stride, height, width, channels, filters = geometry
    inputs = geometry.num_products
    layer = Conv2d(channels, filters, size, stride) if size else Linear(inputs, filters)
    for p in layer.parameters():
        p.data = torch.randn(p.shape, generator=generator)
    image = torch.randn(1, height, width, channels, generator=generator).relu()
    with torch.no_grad():
        expected = _by_torch(layer, image, scale)
        for block in (inputs, MKL_BLOCK):
            found = CompiledLayers(library, [geometry], [block], scale)([layer], image)
            if found is not None and torch.equal(found, expected):
                return block
    return None


def _by_torch(layer: Conv2d | Linear, image: Tensor, scale: float) -> Tensor:
    if isinstance(layer, Linear):
        return layer.forward(image.flatten(1)).relu()
    return layer.forward(image.movedim(-1, -3), scale).relu().movedim(-3, -1).flatten(1)
