"""T networks of one architecture: a population, and the dense layer that computes all of its trials at once.

On a CPU a population is T modules and a trial computes exactly what it would compute alone. On a GPU the parameters of all
trials are stacked along a leading trial axis, so that one product serves all of them.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call, stack_module_state, vmap

from comper import native
from comper.networks.graphs import GraphedFunction

NetworkFactory = Callable[[], nn.Module]
"""Makes a network. A Q-network maps states (B, history, *observation_shape) to Q-values (B, actions)."""

Parameters = dict[str, Tensor]

LARGE = 1 << 18
"""Weights from which on a dense layer's gradient is kept as a product on a CPU: smaller ones stay in its cache."""


class Product(NamedTuple):
    """The gradient x'd of a dense layer's weights, of inputs (B, I) and the gradient of the outputs (B, O)."""

    x: Tensor
    d: Tensor

    def tensor(self) -> Tensor:
        """Multiply it out, as autograd does."""
        return self.x.t() @ self.d


Gradient = Tensor | Product
Tape = list[tuple[Tensor, Tensor, Tensor]]
"""(weights, inputs, outputs) of large dense layers."""


def computes_together(device: torch.device) -> bool:
    """Whether all trials are computed at once there (a GPU), or one after another, each exactly as if alone (a CPU)."""
    return device.type != "cpu"


def stacked(rows: Sequence[Tensor]) -> Tensor:
    """Rows of trials under one trial axis; a single one is not copied."""
    return rows[0].unsqueeze(0) if len(rows) == 1 else torch.stack(tuple(rows))


class Population:
    """T networks of one architecture, each started from its own random stream."""

    def __init__(
        self,
        make: NetworkFactory,
        rngs: Sequence[np.random.Generator],
        device: torch.device,
        *,
        stacked: bool | None = None,
    ):
        modules = [started_module(make, rng) for rng in rngs]
        if len({id(module) for module in modules}) < len(modules):
            raise ValueError("The network factory gave the same module twice: it must make a new one at every call.")
        self.num_trials = len(modules)
        self.device = device
        self.is_stacked = computes_together(device) if stacked is None else stacked
        self.takes_trial_axis = bool(getattr(modules[0], "takes_trial_axis", False))
        """Whether the module itself computes stacked trials: batched products are faster than what vmap makes of a module."""
        self.groups: list[Parameters]
        """Parameters by name: one dictionary per trial, or a single one with the trial axis first where they are stacked."""
        if self.is_stacked:
            parameters, buffers = stack_module_state(modules)
            self.groups, self._buffers = [_moved(parameters, device)], [_moved(buffers, device)]
            self._modules = [modules[0].to("meta")]  # the structure alone: the weights stand in `groups`
        else:
            self._modules = [module.to(device) for module in modules]
            self.groups = [dict(module.named_parameters()) for module in self._modules]
            self._buffers = [dict(module.named_buffers()) for module in self._modules]
        self._graphed = GraphedFunction(self._stacked_outputs)
        self._tapes: dict[int, Tape] = {}

    def __call__(self, *inputs: Tensor, trials: Sequence[int]) -> Tensor:
        """The outputs for the given trials, without gradients. The first axis of inputs and result runs over `trials`."""
        with torch.no_grad():
            if self.is_stacked:
                (result,) = self._graphed(*(self.expand(x, trials) for x in inputs))
                return self.select(result, trials)
            return stacked([self.forward(trial, *(x[row] for x in inputs)) for row, trial in enumerate(trials)])

    def forward(self, group: int, *inputs: Tensor) -> Tensor:
        """The outputs of one group, with gradients: of one trial, or of all of them where they are stacked."""
        if not self.takes_trial_axis:  # a user's module: it gets pixels between 0 and 1, ours scale them more cheaply
            inputs = tuple(as_floats(x) for x in inputs)
        if not self.is_stacked:
            with _taped() as tape:
                result: Tensor = self._modules[group](*inputs)
            if torch.is_grad_enabled() and self.takes_trial_axis:  # our own: a user may do anything with a weight
                self._tapes.setdefault(group, []).extend(tape)
        elif self.takes_trial_axis:
            result = self._functional(self.groups[0], self._buffers[0], *inputs)
        else:
            result = vmap(self._functional, randomness="different")(self.groups[0], self._buffers[0], *inputs)
        return result

    def gradients(self, group: int, loss: Tensor) -> dict[str, Gradient]:
        """The gradients of a loss that was computed by `forward`, for the parameters that it depends on."""
        taped: dict[int, list[Product]] = {}
        for weight, x, y in self._tapes.pop(group, []):
            taped.setdefault(id(weight), []).append(Product(x, y))
        # A layer that was used twice has a sum of products: autograd's.
        outputs = {key: products[0] for key, products in taped.items() if len(products) == 1}
        parameters = {name: p for name, p in self.groups[group].items() if p.requires_grad}
        wanted = [outputs[id(p)].d if id(p) in outputs else p for p in parameters.values()]
        with weights_not_wanted(p for p in parameters.values() if id(p) in outputs):
            found = torch.autograd.grad(loss, wanted, allow_unused=True)
        gradients: dict[str, Gradient] = {}
        for (name, p), g in zip(parameters.items(), found, strict=True):
            if g is not None:
                gradients[name] = Product(outputs[id(p)].x.detach(), g) if id(p) in outputs else g
        return gradients

    def explicit_gradients(
        self, group: int, inputs: Tensor, derivative: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, dict[str, Gradient]] | None:
        """Outputs, and gradients given the loss's derivative by them, where the network itself computes these; else None."""
        module: Any = self._modules[group]
        # A class that inherits `gradients` may have another `forward`; a user may have frozen a weight or put in other layers.
        is_whole = all(p.requires_grad for p in self.groups[group].values())
        is_ours = "gradients" in vars(type(module)) and all("backward" in vars(type(x)) for x in module.children())
        if self.is_stacked or not is_whole or not is_ours:
            return None
        with torch.no_grad(), _taped():  # as in `forward`: large layers are compiled ones
            found: tuple[Tensor, dict[str, Gradient]] = module.gradients(inputs, derivative)
        return found

    def _functional(self, parameters: Parameters, buffers: Parameters, *inputs: Tensor) -> Tensor:
        result: Tensor = functional_call(self._modules[0], (parameters, buffers), inputs)
        return result

    def _stacked_outputs(self, *inputs: Tensor) -> tuple[Tensor]:
        return (self.forward(0, *inputs),)

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

    def copy(self) -> Population:
        """Another population with these weights, such as a target network."""
        self._tapes.clear()  # what autograd refers to cannot be copied
        return copy.deepcopy(self)

    def copy_from(self, other: Population) -> None:
        """Take over all weights of a population of the same architecture."""
        with torch.no_grad():
            for mine, theirs in zip((*self.groups, *self._buffers), (*other.groups, *other._buffers), strict=True):
                for name, tensor in mine.items():
                    tensor.copy_(theirs[name])

    def of_trial(self, groups: Sequence[Parameters], trial: int) -> Parameters:
        """One trial's part of parameters, or of anything shaped like them, as views."""
        if self.is_stacked:
            return {name: tensor[trial] for name, tensor in groups[0].items()}
        return groups[trial]

    def buffers(self, trial: int) -> Parameters:
        """One trial's buffers, as views: what is written into them is what its network reads."""
        return self.of_trial(self._buffers, trial)

    def weights(self, trial: int) -> Parameters:
        """One trial's weights and buffers."""
        return copies(self.of_trial(self.groups, trial) | self.of_trial(self._buffers, trial))

    def load_weights(self, trial: int, weights: Parameters) -> None:
        """Take over weights of a network of the same architecture; other names or shapes are refused."""
        overwrite(self.of_trial(self.groups, trial) | self.of_trial(self._buffers, trial), weights)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's weights."""
        return {"weights": self.weights(trial)}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self.load_weights(trial, state["weights"])


def started_module(make: NetworkFactory, rng: np.random.Generator) -> nn.Module:
    """A module with its start weights: our layers draw them from the stream, all others from torch, seeded by the stream.

    Both happen on the CPU, so that every device starts from the same weights. torch's global generator stays as it was.
    """
    seed = int(rng.spawn(1)[0].integers(2**63))  # a child's: the stream itself is left to our own layers
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        module = make()
    for layer in module.modules():
        if (draw_weights := getattr(layer, "draw_weights", None)) is not None:
            draw_weights(rng)
    return module


def as_floats(x: Tensor) -> Tensor:
    """Observations as a network computes with them: 8-bit pixels as 0 to 1, everything else as it is."""
    return x.float() * (1 / 255) if x.dtype == torch.uint8 else x.float()


def copies(parameters: Parameters) -> Parameters:
    """Copies in main memory."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in parameters.items()}


def overwrite(parameters: Parameters, state: Mapping[str, Any]) -> None:
    """Put saved values, tensors or arrays, into tensors that others refer to."""
    shapes = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    if shapes != {name: tuple(values.shape) for name, values in state.items()}:
        raise ValueError("the saved weights are of another network")
    with torch.no_grad():
        for name, tensor in parameters.items():
            tensor.copy_(torch.as_tensor(state[name]))


def _moved(tensors: dict[str, Any], device: torch.device) -> Parameters:
    return {name: x.detach().to(device).requires_grad_(x.requires_grad) for name, x in tensors.items()}


# A layer that takes the parameters of one trial, or of T trials stacked along a leading axis.


def glorot(parameter: nn.Parameter, rng: np.random.Generator, *, fan_in: int, fan_out: int) -> None:
    """Draw start values from Glorot's uniform distribution (A17)."""
    limit = np.sqrt(6.0 / (fan_in + fan_out))
    drawn = rng.uniform(-limit, limit, tuple(parameter.shape)).astype(np.float32)
    parameter.data = torch.from_numpy(drawn)


_tape: Tape | None = None


@contextmanager
def _taped() -> Iterator[Tape]:
    """A list that `linear` notes its large layers in."""
    global _tape
    before, _tape = _tape, []
    try:
        yield _tape
    finally:
        _tape = before


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + b: x is (B, I) and W (I, O), or both with a trial axis in front."""
    if weight.dim() == 2:
        if _tape is None or x.dim() != 2 or weight.numel() < LARGE:
            return bias.addmm(x, weight) if x.dim() == 2 else x @ weight + bias
        y = dense(x, weight, bias)
        _tape.append((weight, x, y))
        return y
    return bias.unsqueeze(1).baddbmm(x, weight)


class Linear(nn.Module):
    """A fully connected layer. Its weights are zero until `draw_weights`."""

    def __init__(self, num_inputs: int, num_outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_inputs, num_outputs))
        self.bias = nn.Parameter(torch.zeros(num_outputs))

    def draw_weights(self, rng: np.random.Generator) -> None:
        """Start anew: Glorot's weights, no bias."""
        fan_in, fan_out = self.weight.shape
        glorot(self.weight, rng, fan_in=fan_in, fan_out=fan_out)

    def forward(self, x: Tensor) -> Tensor:
        """x W + b of (B, inputs), or of (T, B, inputs) with stacked parameters."""
        return linear(x, self.weight, self.bias)

    def backward(self, x: Tensor, d: Tensor) -> tuple[Tensor, dict[str, Gradient]]:
        """The gradients of x and of the parameters, given that of the result for a batch (B, outputs)."""
        is_large, of_weight = self.weight.numel() >= LARGE, Product(x, d)
        d_x = product(d, self.weight) if is_large else d @ self.weight.t()
        return d_x, {"weight": of_weight if is_large else of_weight.tensor(), "bias": d.sum(0)}


# A large dense layer for a batch in compiled code, with torch's bits: its products read the weights where they are. MKL copies
# them into an order of its own first, which takes a third of its time. Where the bits differ, torch multiplies.

MKL_BLOCK = 192
"""Products that MKL sums up at a time on AMD's processors, first to last, before it adds these sums to the result."""

_not_wanted: frozenset[int] = frozenset()


class _DenseArguments(ctypes.Structure):
    """The arguments of `comper_dense`, as native.c declares them."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "w", "bias", "y")),
        *((name, ctypes.c_int64) for name in ("batch", "inputs", "outputs", "block")),
    )


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W + b of x (B, I) and W (I, O)."""
    if native.compiled() is None:
        return bias.addmm(x, weight)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    y: Tensor = _DenseFunction.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


@contextmanager
def weights_not_wanted(weights: Iterable[Tensor]) -> Iterator[None]:
    """Compute no gradient of these for a while. Autograd tells its own functions what is asked for, but not ours."""
    global _not_wanted
    before, _not_wanted = _not_wanted, frozenset(weight.data_ptr() for weight in weights)
    try:
        yield
    finally:
        _not_wanted = before


class _DenseFunction(torch.autograd.Function):
    """A dense layer with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        wants_weight = wants_weight and weight.data_ptr() not in _not_wanted
        d_x = product(d.contiguous(), weight) if wants_x else None
        return d_x, x.t() @ d if wants_weight else None, d.sum(0) if wants_bias else None


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W + b, or x W' without a bias."""
    library = native.compiled()
    is_plain = all(t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous() for t in (x, weight))
    case = (len(x), weight.shape, bias is None, torch.get_num_threads())
    if library is not None and is_plain and _has_torchs_bits(library, *case):
        y = _compiled_product(library, x, weight, bias)
        assert y is not None, case
        return y
    return _torchs_product(x, weight, bias)


def _torchs_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.t() if bias is None else bias.addmm(x, weight)


@cache
def _has_torchs_bits(library: ctypes.CDLL, batch: int, shape: torch.Size, is_backward: bool, num_threads: int) -> bool:
    """Whether the compiled product has torch's bits: found by trying it on random numbers."""
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(shape, generator=generator), torch.randn(shape[1], generator=generator)
    inputs = torch.randn(batch, shape[1 if is_backward else 0], generator=generator), weight, None if is_backward else bias
    with torch.no_grad():
        found = _compiled_product(library, *inputs)
        return found is not None and torch.equal(found, _torchs_product(*inputs))


def _compiled_product(library: ctypes.CDLL, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """The same in compiled code; None where it cannot do it."""
    y = torch.empty(len(x), weight.shape[0 if bias is None else 1])
    x = x.t().contiguous() if bias is None else x
    places = (x.data_ptr(), weight.data_ptr(), None if bias is None else bias.data_ptr(), y.data_ptr())
    arguments = _DenseArguments(*places, len(y), *weight.shape, MKL_BLOCK)
    failed = library.comper_dense(ctypes.byref(arguments), int(bias is None), torch.get_num_threads())
    return None if failed else y
