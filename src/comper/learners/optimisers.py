"""Optimisers: RMSProp as Mnih et al. (2015) define it (Table 5), plain RMSProp (Table 6) and Adam.

A rule (`MnihRMSProp`, `RMSProp`, `Adam`) is a formula with its settings. An `Optimiser` applies it to a population and keeps
the moving averages of every trial. The arithmetic runs over slices that fit a CPU's cache, because the optimiser's cost is the
memory it moves, not what it computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from comper.networks.stacking import Parameters, Population, copies, overwrite
from comper.protocol import LearnerConfig

SLICE = 1 << 18
"""Elements handled at a time on a CPU, so that the intermediate results stay in its cache."""

Factor = float | Tensor
"""One number, or one per trial, shaped to be multiplied with stacked parameters."""


class Turn(NamedTuple):
    """Which trials take part in an update, and how many updates they have had."""

    mask: Tensor | None
    """1 for the trials that take part, 0 for the others; None: all of them take part."""
    number: Factor
    """Updates so far, including this one."""

    def share(self, weight: Factor) -> Factor:
        """A weight that is 0 for the trials that do not take part."""
        return weight if self.mask is None else self.mask * weight

    def total_weight(self, decay: float) -> Factor:
        """The sum of a moving average's weights so far: 1 - decay^number."""
        total = 1 - decay**self.number
        return total.float() if isinstance(total, Tensor) else total


class Rule(Protocol):
    """How a gradient changes the weights."""

    @property
    def averages(self) -> Mapping[str, float]:
        """The moving averages it needs, each shaped like the parameters, and where each starts."""

    def update(self, w: Tensor, g: Tensor, averages: Sequence[Tensor], turn: Turn) -> None:
        """Update w and its averages in place. g is zero where a trial does not take part."""


@dataclass(frozen=True, kw_only=True)
class MnihRMSProp:
    """w ← w - α · g / sqrt(n - m² + ε), with m and n the moving averages of g and g² (A13)."""

    step_size: float
    gradient_momentum: float
    squared_gradient_momentum: float
    min_squared_gradient: float

    averages: ClassVar = {"mean": 0.0, "mean_square": 0.0}

    def update(self, w: Tensor, g: Tensor, averages: Sequence[Tensor], turn: Turn) -> None:
        """Update w and its averages in place."""
        m, n = averages
        _average_square(n, g, turn.share(1 - self.squared_gradient_momentum))
        m.lerp_(g, turn.share(1 - self.gradient_momentum))
        scale = torch.addcmul(n, m, m, value=-1).clamp_(min=0).add_(self.min_squared_gradient).rsqrt_()
        w.addcmul_(g, scale, value=-self.step_size)


def paper_optimiser(config: LearnerConfig) -> MnihRMSProp:
    """The CNN's optimiser with the settings of Table 5."""
    return MnihRMSProp(
        step_size=config.step_size,
        gradient_momentum=config.gradient_momentum,
        squared_gradient_momentum=config.squared_gradient_momentum,
        min_squared_gradient=config.min_squared_gradient,
    )


@dataclass(frozen=True, kw_only=True)
class RMSProp:
    """v ← μ v + α · g / sqrt(n + ε), w ← w - v, with n the moving average of g². Table 6: μ = 0."""

    step_size: float
    momentum: float
    decay: float
    epsilon: float
    mean_square_start: float = 0.0

    @property
    def averages(self) -> Mapping[str, float]:
        return {"mean_square": self.mean_square_start} | ({"velocity": 0.0} if self.momentum else {})

    def update(self, w: Tensor, g: Tensor, averages: Sequence[Tensor], turn: Turn) -> None:
        """Update w and its averages in place."""
        n, *velocity = averages
        _average_square(n, g, turn.share(1 - self.decay))
        scale = n.add(self.epsilon).rsqrt_()
        if velocity:
            (v,) = velocity
            v.lerp_(v * self.momentum + self.step_size * (g * scale), turn.share(1.0))
            w.addcmul_(v, torch.ones_like(v).mul_(turn.share(1.0)), value=-1)
        else:
            w.addcmul_(g, scale, value=-self.step_size)


@dataclass(frozen=True, kw_only=True)
class Adam:
    """w ← w - α · m̂ / (sqrt(n̂) + ε), m̂ and n̂ the bias-corrected moving averages of g and g². Kingma and Ba (2015)."""

    step_size: float
    decay: float = 0.9
    squared_decay: float = 0.999
    epsilon: float = 1e-8

    averages: ClassVar = {"mean": 0.0, "mean_square": 0.0}

    def update(self, w: Tensor, g: Tensor, averages: Sequence[Tensor], turn: Turn) -> None:
        """Update w and its averages in place."""
        m, n = averages
        m.lerp_(g, turn.share(1 - self.decay))
        _average_square(n, g, turn.share(1 - self.squared_decay))
        root = (n / turn.total_weight(self.squared_decay)).sqrt_().add_(self.epsilon)
        w.addcdiv_(m * turn.share(self.step_size / turn.total_weight(self.decay)), root, value=-1)


def _average_square(n: Tensor, g: Tensor, share: Factor) -> None:
    """n ← ρ n + (1-ρ) g², with 1-ρ = share."""
    if isinstance(share, Tensor):
        n.lerp_(g * g, share)
    else:
        n.mul_(1 - share).addcmul_(g, g, value=share)  # without a temporary: the cost is the memory that is moved


class Optimiser:
    """Applies a rule to a population and keeps the averages of each trial, shaped like the population's groups."""

    def __init__(self, rule: Rule, population: Population):
        self._rule = rule
        self._population = population
        self.averages = {name: _filled_like(population.groups, start) for name, start in rule.averages.items()}
        self._num_updates = torch.zeros(population.num_trials, dtype=torch.float64, device=population.device)

    def step(self, group: int, gradients: Parameters, active: Tensor | None = None) -> None:
        """Update one group's parameters in place; `active` (T,) leaves the other trials of a stacked group as they are.

        A parameter without a gradient is skipped: nothing ever moves it.
        """
        states = [self._population.groups[group], *(groups[group] for groups in self.averages.values())]
        pieces = self._stacked_pieces if self._population.is_stacked else self._pieces_of_trial
        with torch.no_grad():
            for (w, *averages, g), turn in pieces(group, states, gradients, active):
                self._rule.update(w, g, averages, turn)

    def _pieces_of_trial(
        self, trial: int, states: Sequence[Parameters], gradients: Parameters, active: Tensor | None
    ) -> Iterator[tuple[Sequence[Tensor], Turn]]:
        """Matching slices of one trial's parameters, averages and gradients."""
        self._num_updates[trial] += 1
        turn = Turn(None, self._num_updates[trial].item())
        for name, gradient in gradients.items():
            tensors = [*(state[name] for state in states), gradient]
            for pieces in zip(*(torch.split(tensor.view(-1), SLICE) for tensor in tensors), strict=True):
                yield pieces, turn

    def _stacked_pieces(
        self, group: int, states: Sequence[Parameters], gradients: Parameters, active: Tensor | None
    ) -> Iterator[tuple[Sequence[Tensor], Turn]]:
        """Parameters, averages and gradients of all trials; the gradients are zero for trials that are not active."""
        self._num_updates += 1.0 if active is None else active
        for name, gradient in gradients.items():
            per_trial = (-1, *[1] * (gradient.dim() - 1))
            number = self._num_updates.clamp(min=1).view(per_trial)
            mask = None if active is None else active.view(per_trial)
            masked = gradient if mask is None else gradient * mask
            yield [*(state[name] for state in states), masked], Turn(mask, number)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's averages and its number of updates."""
        saved = {name: copies(self._population.of_trial(groups, trial)) for name, groups in self.averages.items()}
        return {**saved, "num_updates": int(self._num_updates[trial].item())}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        for name, groups in self.averages.items():
            overwrite(self._population.of_trial(groups, trial), state[name])
        self._num_updates[trial] = state["num_updates"]


def _filled_like(groups: Sequence[Parameters], start: float) -> list[Parameters]:
    return [{name: torch.full_like(w, start, requires_grad=False) for name, w in group.items()} for group in groups]
