"""What is asked of a network before it is trained: whether it fits, its layers, and the memory that an update takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from comper.networks.stacking import NetworkFactory

SMALL_NETWORK = 1 << 25
"""Weights up to which a network is computed with to find what it needs: 128 MiB, and some milliseconds."""


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
        raise ValueError(
            f"The network cannot read {len(states)} states of shape {tuple(states.shape[1:])} ({error})."
        ) from error


def described_layers(make: NetworkFactory) -> list[tuple[str, int]]:
    """The layers of the network that a factory makes, with their numbers of parameters."""
    with torch.random.fork_rng(devices=()):  # a user's module draws its weights
        return layer_sizes(make())


def num_parameters(make: NetworkFactory) -> int:
    """The number of parameters of the network that a factory makes."""
    return sum(size for _, size in described_layers(make))


def layer_sizes(module: nn.Module) -> list[tuple[str, int]]:
    """The layers of a module that have parameters, in order, with their number: rows of an architecture table."""
    own = [(name, sum(p.numel() for p in layer.parameters(recurse=False))) for name, layer in module.named_modules()]
    return [(name or type(module).__name__, size) for name, size in own if size]


def sample_bytes(make: NetworkFactory, example: Callable[[int], Sequence[Tensor]]) -> int:
    """Bytes that an update takes for each sample of its batch: the inputs, and what is kept for the way back.

    `example(n)` makes inputs of n samples. A large network is computed with on torch's device of shapes alone, which takes no
    memory but a second or two for what torch then imports. Measured against real updates of the CNN and the QLSTM it is 0.6
    to 1.1 of what they took; so a quarter is added.
    """
    with torch.device("meta"):
        num_weights = sum(p.numel() for p in make().parameters())
    device = "cpu" if num_weights < SMALL_NETWORK else "meta"
    small, large = (_update_bytes(make, example, size, device) for size in (2, 3))
    return (large - small) * 5 // 4


def _update_bytes(make: NetworkFactory, example: Callable[[int], Sequence[Tensor]], size: int, device: str) -> int:
    kept: list[int] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.numel() * x.element_size())
        return x

    with torch.device(device), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        inputs = example(size)
        make()(*inputs)
    return sum(kept) + sum(x.numel() * x.element_size() for x in inputs)
