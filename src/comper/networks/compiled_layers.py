"""One state through the hidden layers of a CNN in compiled code, with torch's bits: what an agent computes at every step.

Little of the time that torch takes for a single state is arithmetic. Its sums have a fixed order on each machine: over a
filter's rows, columns and channels, the bias last (oneDNN); in blocks that are added to the bias (MKL's product); or from the
bias on (MKL's product with a vector). `compiled_layers` finds by trying which one a layer has; elsewhere torch computes.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from comper import native
from comper.networks.compiled_products import MKL_BLOCK
from comper.networks.stacking import Conv2d, Linear

Layers = Sequence[Conv2d | Linear]


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

    def __call__(self, layers: Layers, image: Tensor) -> Tensor | None:
        """What comes out of the last layer, (1, numbers), for one image (H, W, C); None where this code cannot do it."""
        places = ((x.weight.data_ptr(), None if x.bias is None else x.bias.data_ptr()) for x in layers)
        structures = (_Layer * len(layers))(*(_Layer(*p, *n) for p, n in zip(places, self._numbers, strict=True)))
        scratch, out = torch.empty(self._num_scratch), torch.empty(1, self._num_outputs)
        start, inputs, rest, result = ctypes.addressof(structures), image.data_ptr(), scratch.data_ptr(), out.data_ptr()
        return None if self._function(start, len(layers), inputs, rest, self._half, result) else out


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
