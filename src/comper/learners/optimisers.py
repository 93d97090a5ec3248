"""RMSProp, twice: as Mnih et al. (2015) define it for the CNN (Table 5), and the plain form for the QLSTM (Table 6).

Each keeps its moving averages per parameter, shaped like the population's groups. The arithmetic runs over slices that fit a
CPU's cache, because the optimiser's cost is the memory it moves, not what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from comper.networks.devices import computes_together
from comper.networks.parameters import Parameters, Population

SLICE = 1 << 18
"""Elements handled at a time on a CPU, so that the intermediate results stay in its cache."""

Gradients = dict[str, Tensor]


class MnihRMSProp:
    """w ← w - α · g / sqrt(n - m² + ε), with m and n the moving averages of g and g² (A13)."""

    def __init__(
        self,
        population: Population,
        *,
        step_size: float,
        gradient_momentum: float,
        squared_gradient_momentum: float,
        min_squared_gradient: float,
    ):
        self._step_size = step_size
        self._decay, self._squared_decay = gradient_momentum, squared_gradient_momentum
        self._min_squared_gradient = min_squared_gradient
        self._mean = _zeros_like(population)
        self._mean_square = _zeros_like(population)

    def step(self, population: Population, group: int, gradients: Gradients, active: Tensor | None = None) -> None:
        """Update one group's parameters in place; `active` (T,) leaves the other trials of a stacked group as they are."""
        states = (population.groups[group], self._mean[group], self._mean_square[group])
        with torch.no_grad():
            for (w, m, n, g), share in _slices(states, gradients, active):
                _average_square(n, g, share(1 - self._squared_decay))
                m.lerp_(g, share(1 - self._decay))
                scale = torch.addcmul(n, m, m, value=-1).clamp_(min=0).add_(self._min_squared_gradient).rsqrt_()
                w.addcmul_(g, scale, value=-self._step_size)

    @property
    def averages(self) -> dict[str, list[Parameters]]:
        """What a resumed run needs, by name."""
        return {"mean": self._mean, "mean_square": self._mean_square}


class RMSProp:
    """v ← μ v + α · g / sqrt(n + ε), w ← w - v, with n the moving average of g². Table 6: μ = 0."""

    def __init__(self, population: Population, *, step_size: float, momentum: float, decay: float, epsilon: float):
        self._step_size, self._momentum, self._decay, self._epsilon = step_size, momentum, decay, epsilon
        self._mean_square = _zeros_like(population)
        self._velocity = _zeros_like(population) if momentum else None

    def step(self, population: Population, group: int, gradients: Gradients, active: Tensor | None = None) -> None:
        """Update one group's parameters in place; `active` (T,) leaves the other trials of a stacked group as they are."""
        velocity = self._velocity[group] if self._velocity else self._mean_square[group]
        states = (population.groups[group], self._mean_square[group], velocity)
        with torch.no_grad():
            for (w, n, v, g), share in _slices(states, gradients, active):
                _average_square(n, g, share(1 - self._decay))
                scale = n.add(self._epsilon).rsqrt_()
                if self._velocity:
                    v.lerp_(v * self._momentum + self._step_size * (g * scale), share(1.0))
                    w.addcmul_(v, torch.ones_like(v).mul_(share(1.0)), value=-1)
                else:
                    w.addcmul_(g, scale, value=-self._step_size)

    @property
    def averages(self) -> dict[str, list[Parameters]]:
        """What a resumed run needs, by name."""
        return {"mean_square": self._mean_square} | ({"velocity": self._velocity} if self._velocity else {})


def _average_square(n: Tensor, g: Tensor, share: float | Tensor) -> None:
    """n ← ρ n + (1-ρ) g², with 1-ρ = share."""
    if isinstance(share, Tensor):
        n.lerp_(g * g, share)
    else:
        n.mul_(1 - share).addcmul_(g, g, value=share)  # without a temporary: the cost is the memory that is moved


def _zeros_like(population: Population) -> list[Parameters]:
    return [{name: torch.zeros_like(w, requires_grad=False) for name, w in group.items()} for group in population.groups]


Share = Callable[[float], float | Tensor]


def _slices(
    states: Sequence[Parameters], gradients: Gradients, active: Tensor | None
) -> Iterator[tuple[tuple[Tensor, ...], Share]]:
    """Matching pieces of each state and gradient, and a function that makes a weight count for active trials alone.

    A parameter without a gradient is skipped: its averages are zero and would stay so. An inactive trial's gradient becomes
    zero, its weights in averages too, so that nothing of it changes.
    """
    for name, gradient in gradients.items():
        if active is not None:
            mask = active.view(-1, *[1] * (gradient.dim() - 1))
            yield (*(state[name] for state in states), gradient * mask), mask.mul
            continue
        tensors = [*(state[name] for state in states), gradient]
        size = max(1, gradient.numel()) if computes_together(gradient.device) else SLICE
        for pieces in zip(*(torch.split(tensor.view(-1), size) for tensor in tensors), strict=True):
            yield pieces, lambda weight: weight
