"""A population of networks with its optimiser: what an agent fits and asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from comper.networks.graphs import GraphedFunction
from comper.networks.optimisers import Gradients
from comper.networks.parameters import Parameters, Population, copies, overwrite

LossFunction = Callable[..., tuple[Tensor, Tensor]]
"""(parameters, *inputs) -> (loss of each trial, what else came out), both with the trial axis first where there is one."""


class Optimiser(Protocol):
    """Updates one group of a population in place."""

    def step(self, population: Population, group: int, gradients: Gradients, active: Tensor | None = None) -> None: ...

    @property
    def averages(self) -> dict[str, list[Parameters]]: ...


class Learner:
    """T networks and their optimiser. Inputs and results have the trial axis first; it runs over the given trials."""

    def __init__(self, population: Population, optimiser: Optimiser):
        self.population = population
        self._optimiser = optimiser
        self._graphs: dict[LossFunction, GraphedFunction] = {}

    def __call__(self, function: Callable[..., Tensor], *inputs: Tensor, trials: Sequence[int]) -> Tensor:
        """Compute function(parameters, *inputs) without learning."""
        return self.population.apply(function, *inputs, trials=trials)

    def fit(
        self, loss_function: LossFunction, *inputs: Tensor, trials: Sequence[int], active: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One gradient step for each trial marked in `active` (one flag for each of `trials`); return losses and outputs."""
        if self.population.is_stacked:
            expanded = [self.population.expand(x, trials) for x in (*inputs, active.float())]
            loss, output = self._graphed(loss_function)(*expanded)
            return self.population.select(loss, trials), self.population.select(output, trials)
        losses, outputs = [], []
        for row, trial in enumerate(trials):
            if active[row]:
                loss, output = self._fit_group(trial, loss_function, [x[row] for x in inputs], None)
            else:
                loss, output = torch.zeros(()), torch.zeros(inputs[0].shape[1])
            losses.append(loss)
            outputs.append(output)
        return torch.stack(losses), torch.stack(outputs)

    def _graphed(self, loss_function: LossFunction) -> GraphedFunction:
        if loss_function not in self._graphs:
            self._graphs[loss_function] = GraphedFunction(lambda *x: self._fit_group(0, loss_function, x[:-1], x[-1]))
        return self._graphs[loss_function]

    def _fit_group(
        self, group: int, loss_function: LossFunction, inputs: Sequence[Tensor], active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        parameters = self.population.groups[group]
        loss, output = loss_function(parameters, *inputs)
        # Trials share no weight, so the gradient of the sum of their losses is each trial's own gradient.
        gradients = torch.autograd.grad(loss.sum(), list(parameters.values()), allow_unused=True)
        used = {name: g for name, g in zip(parameters, gradients, strict=True) if g is not None}
        self._optimiser.step(self.population, group, used, active)
        return loss.detach(), output.detach()

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's weights and its optimiser's averages."""
        averages = self._optimiser.averages.items()
        saved = {name: copies(self.population.of_trial(groups, trial)) for name, groups in averages}
        return {"weights": self.population.state_dict(trial), "optimiser": saved}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self.population.load_state_dict(trial, state["weights"])
        for name, groups in self._optimiser.averages.items():
            overwrite(self.population.of_trial(groups, trial), state["optimiser"][name])
