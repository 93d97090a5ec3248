"""Optimisers: RMSProp as Mnih et al. (2015) define it (Table 5), plain RMSProp (Table 6) and Adam.

A rule (`MnihRMSProp`, `RMSProp`, `Adam`) is a formula with its settings. An `Optimiser` applies it to a population and keeps
the moving averages of every trial. On a CPU its cost is the memory it moves, not what it computes: compiled code does it in
one pass (`_Compiled`), with torch's own bits; without it torch runs over slices that fit the cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from comper import native
from comper.networks.stacking import Gradient, Parameters, Population, Product, copies, overwrite
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

    def coefficients(self, number: float) -> dict[str, float] | None:
        """The numbers of its formula at an update by their names in native.c, where compiled code knows it."""


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

    def coefficients(self, number: float) -> dict[str, float] | None:
        share, mean_share = 1 - self.squared_gradient_momentum, 1 - self.gradient_momentum
        numbers = {"keep": 1 - share, "share": share, "mean_share": mean_share}
        # From 0.5 on `lerp_` computes from the other end.
        return {**numbers, **_scale(self.min_squared_gradient, self.step_size)} if mean_share < 0.5 else None


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

    def coefficients(self, number: float) -> dict[str, float] | None:
        share = 1 - self.decay
        return None if self.momentum else {"keep": 1 - share, "share": share, **_scale(self.epsilon, self.step_size)}


def _scale(epsilon: float, step_size: float) -> dict[str, float]:
    return {"epsilon": epsilon, "step": -step_size}


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
        # Not `sqrt_`: MKL's last bit is not always that of a correctly rounded root, so no other code would have torch's bits.
        root = (n / turn.total_weight(self.squared_decay)).rsqrt_().reciprocal_().add_(self.epsilon)
        w.addcdiv_(m * turn.share(self.step_size / turn.total_weight(self.decay)), root, value=-1)

    def update_all(
        self,
        weights: Sequence[Tensor],
        gradients: Sequence[Tensor],
        means: Sequence[Tensor],
        mean_squares: Sequence[Tensor],
        *,
        numbers: Tensor,
    ) -> None:
        """Update stacked weights and their averages in place, given how many updates each trial has had with this one.

        torch's own kernel does it, which reads and writes everything once on a GPU.
        """
        torch._fused_adam_(
            *map(_rows, (weights, gradients, means, mean_squares)),  # type: ignore[call-overload]
            max_exp_avg_sqs=[],
            state_steps=[*numbers.float().unbind()] * len(weights),
            lr=self.step_size,
            beta1=self.decay,
            beta2=self.squared_decay,
            eps=self.epsilon,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )

    def coefficients(self, number: float) -> dict[str, float] | None:
        share, mean_share = 1 - self.squared_decay, 1 - self.decay
        total, step = 1 - self.squared_decay**number, -self.step_size / (1 - self.decay**number)
        numbers = {"keep": 1 - share, "share": share, "mean_share": mean_share, "total": total, "step": step}
        return {**numbers, "epsilon": self.epsilon} if mean_share < 0.5 else None


def _rows(stacks: Sequence[Tensor]) -> list[Tensor]:
    """What each trial has of stacked tensors, one after the other, as vectors that are views."""
    return [row for stack in stacks for row in stack.view(len(stack), -1).unbind()]


def _average_square(n: Tensor, g: Tensor, share: Factor) -> None:
    """n ← ρ n + (1-ρ) g², with 1-ρ = share."""
    if isinstance(share, Tensor):
        n.lerp_(g * g, share)
    else:
        n.mul_(1 - share).addcmul_(g, g, value=share)  # without a temporary: the cost is the memory that is moved


class _Update(ctypes.Structure):
    """The arguments of `comper_update`, as native.c declares them."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("w", "m", "n", "g", "x", "d")),
        *((name, ctypes.c_int64) for name in ("rows", "batch", "columns")),
        *((name, ctypes.c_float) for name in ("keep", "share", "mean_share", "epsilon", "step", "total")),
    )


class _Compiled:
    """A rule's update in one pass: weights and averages are read and written once, and a product x'd never goes to memory."""

    def __init__(self, library: ctypes.CDLL, rounds_once: bool):
        self._library, self._rounds_once = library, rounds_once

    def update(self, w: Tensor, averages: Sequence[Tensor], gradient: Gradient, coefficients: Mapping[str, float]) -> bool:
        """Update w and its averages in place, if that can be done with torch's bits; return whether it was done."""
        if not all(x.dtype == torch.float32 and x.is_contiguous() for x in (w, *averages)):
            return False
        operands = [x.contiguous() for x in (gradient if isinstance(gradient, Product) else [gradient])]
        if any(x.dtype != torch.float32 for x in operands):
            return False
        if len(operands) == 2 and not _is_equal_product(self._library, *(x.shape for x in operands), torch.get_num_threads()):
            return False
        update = _Update(**coefficients, **_places(w, averages, operands))
        failed: int = self._library.comper_update(ctypes.byref(update), int(self._rounds_once), torch.get_num_threads())
        return not failed


def _places(w: Tensor, averages: Sequence[Tensor], operands: Sequence[Tensor]) -> dict[str, Any]:
    """Addresses and sizes for `_Update`; the caller keeps the tensors."""
    *mean, mean_square = averages
    places = {"w": w.data_ptr(), "m": mean[0].data_ptr() if mean else None, "n": mean_square.data_ptr()}
    if len(operands) == 1:
        return {**places, "g": operands[0].data_ptr(), "rows": w.numel(), "columns": 1}
    return {**places, **_factors(*operands)}


def _factors(x: Tensor, d: Tensor) -> dict[str, int]:
    return {"x": x.data_ptr(), "d": d.data_ptr(), "rows": x.shape[1], "batch": len(x), "columns": d.shape[1]}


def _compiled(rule: Rule) -> _Compiled | None:
    """The rule's compiled update, None where there is none that gives torch's bits: found by trying it.

    torch was compiled with fused multiplication and addition for some processors and without it for others.
    """
    library, coefficients = native.compiled(), rule.coefficients(3)
    if library is None or coefficients is None:
        return None
    generator = torch.Generator().manual_seed(0)
    size = (2 + len(rule.averages), 4099)
    w, g, *averages = torch.randn(size, generator=generator) * 10 ** (12 * torch.rand(size, generator=generator) - 10)
    averages[-1].square_()
    expected = [x.clone() for x in (w, *averages)]
    rule.update(expected[0], g, expected[1:], Turn(None, 3))
    for rounds_once in (True, False):
        compiled, (found_w, *found) = _Compiled(library, rounds_once), [x.clone() for x in (w, *averages)]
        if compiled.update(found_w, found, g, coefficients) and all(map(torch.equal, (found_w, *found), expected)):
            return compiled
    return None


@cache
def _is_equal_product(library: ctypes.CDLL, x_shape: torch.Size, d_shape: torch.Size, num_threads: int) -> bool:
    """Whether torch's x'd has the bits of the compiled one: it has where it, too, sums over the batch from first to last."""
    generator = torch.Generator().manual_seed(0)
    product = Product(torch.randn(x_shape, generator=generator), torch.randn(d_shape, generator=generator))
    expected = product.tensor()
    found = torch.empty_like(expected)
    failed = library.comper_product(ctypes.byref(_Update(**_factors(*product))), ctypes.c_void_p(found.data_ptr()))
    return not failed and torch.equal(found, expected)


class Optimiser:
    """Applies a rule to a population and keeps the averages of each trial, shaped like the population's groups."""

    def __init__(self, rule: Rule, population: Population):
        self._rule = rule
        self._population = population
        self.averages = {name: _filled_like(population.groups, start) for name, start in rule.averages.items()}
        self._compiled = None if population.is_stacked else _compiled(rule)
        is_on_gpu = population.is_stacked and population.device.type == "cuda"
        self._rule_of_all = rule if is_on_gpu and isinstance(rule, Adam) else None
        self._num_updates = torch.zeros(population.num_trials, dtype=torch.float64, device=population.device)

    def step(self, group: int, gradients: Mapping[str, Gradient], active: Tensor | None = None) -> None:
        """Update one group's parameters in place; `active` (T,) leaves the other trials of a stacked group as they are.

        A parameter without a gradient is skipped: nothing ever moves it.
        """
        states = [self._population.groups[group], *(groups[group] for groups in self.averages.values())]
        if active is None and self._rule_of_all:
            self._step_together(self._rule_of_all, states, gradients)
            return
        pieces = self._stacked_pieces if self._population.is_stacked else self._pieces_of_trial
        with torch.no_grad():
            for (w, *averages, g), turn in pieces(group, states, gradients, active):
                self._rule.update(w, g, averages, turn)

    def _step_together(self, rule: Adam, states: Sequence[Parameters], gradients: Mapping[str, Gradient]) -> None:
        self._num_updates += 1.0
        w, *averages = ([state[name] for name in gradients] for state in states)
        g = []
        for name, gradient in gradients.items():
            assert isinstance(gradient, Tensor), name
            g.append(gradient.contiguous())
        with torch.no_grad():
            rule.update_all(w, g, *averages, numbers=self._num_updates)

    def _pieces_of_trial(
        self, trial: int, states: Sequence[Parameters], gradients: Mapping[str, Gradient], active: Tensor | None
    ) -> Iterator[tuple[Sequence[Tensor], Turn]]:
        """Matching slices of one trial's parameters, averages and gradients, as far as compiled code has not done it."""
        number = self._num_updates[trial].add_(1).item()
        turn, coefficients = Turn(None, number), self._rule.coefficients(number) or {}
        for name, gradient in gradients.items():
            w, *averages = (state[name] for state in states)
            if self._compiled is not None and self._compiled.update(w, averages, gradient, coefficients):
                continue
            tensors = [w, *averages, gradient.tensor() if isinstance(gradient, Product) else gradient]
            for pieces in zip(*(torch.split(tensor.view(-1), SLICE) for tensor in tensors), strict=True):
                yield pieces, turn

    def _stacked_pieces(
        self, group: int, states: Sequence[Parameters], gradients: Mapping[str, Gradient], active: Tensor | None
    ) -> Iterator[tuple[Sequence[Tensor], Turn]]:
        """Parameters, averages and gradients of all trials; the gradients are zero for trials that are not active."""
        self._num_updates += 1.0 if active is None else active
        for name, gradient in gradients.items():
            assert isinstance(gradient, Tensor), name
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
        if not 0 <= state["num_updates"] < 2**53:
            raise ValueError(f"{state['num_updates']} updates.")
        self._num_updates[trial] = state["num_updates"]


def _filled_like(groups: Sequence[Parameters], start: float) -> list[Parameters]:
    return [{name: torch.full_like(w, start, requires_grad=False) for name, w in group.items()} for group in groups]
