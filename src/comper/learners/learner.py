"""A population of networks with its optimiser: what an agent fits and asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from comper.learners.optimisers import Gradients
from comper.networks.graphs import GraphedFunction
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
        self._graphs: dict[tuple[LossFunction, bool], GraphedFunction] = {}

    def __call__(self, function: Callable[..., Tensor], *inputs: Tensor, trials: Sequence[int]) -> Tensor:
        """Compute function(parameters, *inputs) without learning."""
        return self.population.apply(function, *inputs, trials=trials)

    def fit(
        self, loss_function: LossFunction, *inputs: Tensor, trials: Sequence[int], active: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One gradient step for each of the trials, or those marked in `active`; return losses and outputs."""
        if self.population.is_stacked:
            return self._fit_stacked(loss_function, inputs, trials, active)
        losses, outputs = [], []
        for row, trial in enumerate(trials):
            if active is None or active[row]:
                loss, output = self._fit_group(trial, loss_function, [x[row] for x in inputs], None)
            else:
                loss, output = torch.zeros(()), torch.zeros(inputs[0].shape[1])
            losses.append(loss)
            outputs.append(output)
        return torch.stack(losses), torch.stack(outputs)

    def _fit_stacked(
        self, loss_function: LossFunction, inputs: Sequence[Tensor], trials: Sequence[int], active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        population = self.population
        if active is None and len(trials) < population.num_trials:
            active = inputs[0].new_ones(len(trials), dtype=torch.bool)
        masked = [] if active is None else [active.float()]
        expanded = [population.expand(x, trials) for x in (*inputs, *masked)]
        loss, output = self._graphed(loss_function, is_masked=bool(masked))(*expanded)
        return population.select(loss, trials), population.select(output, trials)

    def _graphed(self, loss_function: LossFunction, *, is_masked: bool) -> GraphedFunction:
        key = (loss_function, is_masked)
        if key not in self._graphs:
            end = -1 if is_masked else None
            self._graphs[key] = GraphedFunction(
                lambda *x: self._fit_group(0, loss_function, x[:end], x[-1] if is_masked else None)
            )
        return self._graphs[key]

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
