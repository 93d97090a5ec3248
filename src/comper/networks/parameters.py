"""Parameters of T independent networks of one architecture: a population.

On a CPU every trial's parameters are tensors of their own, so that a trial computes exactly what it would compute alone.
On a GPU all trials' parameters are stacked along a leading trial axis, so that one product serves all of them. The network
functions take either (see `stacking.py`) and are written once, for one trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from comper.networks.devices import computes_together
from comper.networks.graphs import GraphedFunction

Parameters = dict[str, Tensor]


class ParameterSpec(NamedTuple):
    """One weight array: its shape and how it starts."""

    name: str
    shape: tuple[int, ...]
    fan_in: int = 0
    fan_out: int = 0
    constant: float | None = None
    """Start value; None: Glorot's uniform distribution (A17)."""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    def initial(self, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Draw the start values; NumPy's stream, so that every device starts from the same weights."""
        if self.constant is not None:
            return np.full(self.shape, self.constant, dtype=np.float32)
        limit = np.sqrt(6.0 / (self.fan_in + self.fan_out))
        return rng.uniform(-limit, limit, self.shape).astype(np.float32)


class LayerSpec(NamedTuple):
    """One row of the paper's architecture tables."""

    name: str
    parameters: tuple[ParameterSpec, ...]

    @property
    def num_parameters(self) -> int:
        return sum(spec.size for spec in self.parameters)


def dense(name: str, num_inputs: int, num_outputs: int) -> LayerSpec:
    """A fully connected layer."""
    weight = ParameterSpec(f"{name}.weight", (num_inputs, num_outputs), num_inputs, num_outputs)
    return LayerSpec(name, (weight, ParameterSpec(f"{name}.bias", (num_outputs,), constant=0.0)))


class Population:
    """T networks of one architecture, each started from its own random stream."""

    def __init__(self, layers: Sequence[LayerSpec], rngs: Sequence[np.random.Generator], device: torch.device):
        self.layers = tuple(layers)
        self.num_trials = len(rngs)
        self.device = device
        specs = [spec for layer in layers for spec in layer.parameters]
        trials = [{spec.name: torch.from_numpy(spec.initial(rng)) for spec in specs} for rng in rngs]
        self.is_stacked = computes_together(device)
        self._graphs: dict[Callable[..., Tensor], GraphedFunction] = {}
        if self.is_stacked:
            trials = [{spec.name: torch.stack([trial[spec.name] for trial in trials]).to(device) for spec in specs}]
        self.groups: list[Parameters] = [{k: v.requires_grad_() for k, v in trial.items()} for trial in trials]
        """One per trial on a CPU; a single one, with the trial axis first, on a GPU."""

    def apply(self, function: Callable[..., Tensor], *inputs: Tensor, trials: Sequence[int]) -> Tensor:
        """Compute function(parameters, *inputs) for the given trials; inputs and result have the trial axis first.

        The trial axis runs over `trials`.
        """
        with torch.no_grad():
            if self.is_stacked:
                (result,) = self._graphed(function)(*(self.expand(x, trials) for x in inputs))
                return self.select(result, trials)
            return torch.stack([function(self.groups[t], *(x[row] for x in inputs)) for row, t in enumerate(trials)])

    def _graphed(self, function: Callable[..., Tensor]) -> GraphedFunction:
        if function not in self._graphs:
            self._graphs[function] = GraphedFunction(lambda *inputs: (function(self.groups[0], *inputs),))
        return self._graphs[function]

    def expand(self, x: Tensor, trials: Sequence[int]) -> Tensor:
        """Give a tensor of some trials a row for every trial, zero where there is none: a stacked group computes them all."""
        if len(trials) == self.num_trials:
            return x
        full = x.new_zeros(self.num_trials, *x.shape[1:])
        full[list(trials)] = x
        return full

    def select(self, x: Tensor, trials: Sequence[int]) -> Tensor:
        """The rows of these trials."""
        return x if len(trials) == self.num_trials else x[list(trials)]

    def copy_from(self, other: Population) -> None:
        """Take over all weights of a population of the same architecture."""
        with torch.no_grad():
            for mine, theirs in zip(self.groups, other.groups, strict=True):
                for name, tensor in mine.items():
                    tensor.copy_(theirs[name])

    def of_trial(self, groups: Sequence[Parameters], trial: int) -> Parameters:
        """One trial's part of parameters, or of anything shaped like them, as views."""
        if self.is_stacked:
            return {name: tensor[trial] for name, tensor in groups[0].items()}
        return groups[trial]

    def state_dict(self, trial: int) -> Parameters:
        """One trial's weights."""
        return copies(self.of_trial(self.groups, trial))

    def load_state_dict(self, trial: int, state: Parameters) -> None:
        """Read back what `state_dict` wrote."""
        overwrite(self.of_trial(self.groups, trial), state)


def copies(parameters: Parameters) -> Parameters:
    """Copies in main memory."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in parameters.items()}


def overwrite(parameters: Parameters, state: Parameters) -> None:
    """Put saved values into tensors that others refer to."""
    with torch.no_grad():
        for name, tensor in parameters.items():
            tensor.copy_(state[name])
