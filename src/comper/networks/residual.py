"""A residual Q-network for pictures: the fifteen small convolutions of IMPALA (Espeholt et al. 2018), and a hidden layer."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comper.networks.cnn import ObservationSpec, OutputLayer, QNetworkFactory
from comper.networks.gpu_kernels import gpu_kernels
from comper.networks.stacking import Linear, as_floats, glorot

KERNELS = "comper.networks.gpu_convolutions"
FILTERS = (16, 32, 32)
"""Of the three stages, each of which halves the picture."""
HIDDEN_UNITS = 512
MOST_CHANNELS = 64
"""That our kernels take. More were not tried, and 256 are too many for the shared memory of most GPUs."""
MOST_OFFSETS = 2**31
"""Of 32 bits, with which they find a number of a trial's pictures."""


def make_residual_network(
    width: int, observation: ObservationSpec, num_actions: int, *, output: OutputLayer = Linear, layer_norm: bool = False
) -> QNetworkFactory:
    """A residual CNN, `width` times as wide as IMPALA's."""
    height, columns, channels = observation.image_size
    make = partial(ResidualCNN, width, observation, num_actions, output=output, layer_norm=layer_norm)
    return QNetworkFactory(f"residual CNN for {height}x{columns}x{channels} pixels", make)


class Conv3x3(nn.Module):
    """A convolution that keeps the size of pictures. Its weights are zero until `draw_weights`.

    Pictures of T trials stand side by side in the channels, (B, T·C, H, W): a group of channels for each trial.
    """

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(filters, channels, 3, 3))
        self.bias = nn.Parameter(torch.zeros(filters))

    def draw_weights(self, rng: np.random.Generator) -> None:
        """Start anew: Glorot's weights, no bias."""
        filters, channels, height, width = self.weight.shape
        glorot(self.weight, rng, fan_in=height * width * channels, fan_out=height * width * filters)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve (B, C, H, W), or (B, T·C, H, W) with stacked parameters."""
        if self.weight.dim() == 4:
            return F.conv2d(x, self.weight, self.bias, padding=1)
        return F.conv2d(x, self.weight.flatten(0, 1), self.bias.flatten(), padding=1, groups=len(self.weight))


class Stage(nn.Module):
    """A convolution, half the size, and twice two convolutions whose result is added to what came in."""

    def __init__(self, channels: int, filters: int):
        super().__init__()
        self.Conv1 = Conv3x3(channels, filters)
        self.Conv2, self.Conv3, self.Conv4, self.Conv5 = (Conv3x3(filters, filters) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Pictures of half the height and width, rounded up."""
        x = F.max_pool2d(self.Conv1.forward(x), 3, stride=2, padding=1)
        x = x + self.Conv3.forward(self.Conv2.forward(x.relu()).relu())
        return x + self.Conv5.forward(self.Conv4.forward(x.relu()).relu())


class ResidualCNN(nn.Module):
    """Three stages, a hidden layer, one output for each action."""

    takes_trial_axis = True

    def __init__(
        self,
        width: int,
        observation: ObservationSpec,
        num_actions: int,
        *,
        output: OutputLayer = Linear,
        layer_norm: bool = False,
    ):
        super().__init__()
        self._layer_norm = layer_norm
        self._channel_axis = observation.channel_axis
        height, columns, channels = observation.image_size
        self._fits_kernels = max(3 * channels, width * max(FILTERS)) <= MOST_CHANNELS
        for number, filters in enumerate(FILTERS, start=1):
            self.add_module(f"Stage{number}", Stage(channels, width * filters))
            channels, height, columns = width * filters, (height + 1) // 2, (columns + 1) // 2
        self._stages = tuple(stage for stage in self.children() if isinstance(stage, Stage))
        self.num_filters = channels
        self.Dense1 = Linear(height * columns * channels, HIDDEN_UNITS)
        self.Dense2 = output(HIDDEN_UNITS, num_actions)

    def forward(self, frames: Tensor) -> Tensor:
        """Q(s, ·; Θ) of states given as (..., B, history, *observation_shape)."""
        return self.answer(self.hidden_sums(self.features(frames)))

    def features(self, frames: Tensor) -> Tensor:
        """What the last stage says of states, (..., B, filters, H, W)."""
        images = self._images(frames)
        is_stacked, is_gpu = images.dim() == 5, images.device.type == "cuda"
        if is_stacked and is_gpu and (kernels := self._kernels(images)):
            return self._features_by(kernels, images)
        images = as_floats(images)
        x = images.movedim(0, 1).flatten(1, 2) if is_stacked else images
        x = x.contiguous(memory_format=torch.channels_last) if is_gpu else x
        # 16-bit numbers are 1.5 times as fast there as TF32; each weight is used once, so that no copy is worth keeping.
        with torch.autocast("cuda", torch.bfloat16, enabled=is_gpu, cache_enabled=False):
            for stage in self._stages:
                x = stage.forward(x)
        x = x.relu().float()
        return x.view(len(x), len(images), -1, *x.shape[2:]).movedim(1, 0) if is_stacked else x

    def _kernels(self, images: Tensor) -> ModuleType | None:
        """Our own, for images (T, B, C, H, W), where they run."""
        is_small = images[0, :, 0].numel() * MOST_CHANNELS < MOST_OFFSETS
        return gpu_kernels(KERNELS) if self._fits_kernels and is_small else None

    def _features_by(self, kernels: ModuleType, images: Tensor) -> Tensor:
        """The same by our own kernels, of images (T, B, C, H, W)."""
        x = kernels.columns_of(images)
        scale = 1 / 255 if images.dtype == torch.uint8 else 1.0
        for stage in self._stages:
            convolve = partial(kernels.convolved, is_rectified=True)
            layers = [stage.Conv1, stage.Conv2, stage.Conv3, stage.Conv4, stage.Conv5]
            (first, first_bias), *others = [(layer.weight, layer.bias) for layer in layers]
            x = kernels.halved(kernels.convolved(x, first * scale, first_bias))
            for one, two in ((0, 1), (2, 3)):
                x = convolve(convolve(x, *others[one]), *others[two], added=x)
            scale = 1.0
        features: Tensor = x.relu().float().movedim(-1, 2)
        return features

    def hidden_sums(self, features: Tensor) -> Tensor:
        """What the hidden layer makes of them, (..., B, units), before what is negative becomes 0."""
        return self._norm(self.Dense1.forward(self._norm(features.flatten(-3))))

    def answer(self, sums: Tensor) -> Tensor:
        """Q(s, ·; Θ) of them."""
        return self.Dense2.forward(sums.relu())

    def _norm(self, x: Tensor) -> Tensor:
        """Layer norm without weights of its own (Ba et al. 2016): mean 0 and variance 1 in every state."""
        return F.layer_norm(x, x.shape[-1:]) if self._layer_norm else x

    def _images(self, frames: Tensor) -> Tensor:
        """(..., history, H, W), (..., history, H, W, C) or (..., history, C, H, W) as images (..., channels, H, W)."""
        if self._channel_axis is not None:
            frames = (frames if self._channel_axis == 0 else frames.movedim(-1, -3)).flatten(-4, -3)
        return frames
