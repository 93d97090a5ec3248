"""Learners: networks of T trials with their optimiser and their losses. A batch and targets come in, an update goes out.

States are frame ids; the frame bank turns them into pixels where the networks compute. Arrays and tensors have the trial axis
first; it runs over the trials named in the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from comper.learners.frame_bank import FrameBank, FrameReader
from comper.learners.optimisers import Optimiser, Rule
from comper.memory.transitions import Batch, TransitionBatch
from comper.networks.graphs import GraphedFunction
from comper.networks.qlstm import transition_vectors
from comper.networks.stacking import NetworkFactory, Parameters, Population, stacked

MAX_STATES = 256
"""States of one trial that are put through the network at a time."""

Network = Callable[..., Tensor]
LossFunction = Callable[..., tuple[Tensor, Tensor]]
"""(network, *tensors) -> (loss of each trial, the network's answer), for one trial or with the trial axis first."""


class Learner:
    """T networks, their optimiser, and the mean of their losses."""

    def __init__(self, network: NetworkFactory, bank: FrameBank, rngs: Sequence[np.random.Generator], *, optimiser: Rule):
        self._bank = bank
        self.population = Population(network, rngs, bank.device)
        self._optimiser = Optimiser(optimiser, self.population)
        self._graphs: dict[tuple[LossFunction, bool], GraphedFunction] = {}
        self.loss = LossMeter(len(rngs), bank.device)

    def copy(self) -> Population:
        """Networks of their own with the present weights: a target network."""
        return self.population.copy()

    def weights(self, trial: int) -> Parameters:
        """One trial's weights."""
        return self.population.weights(trial)

    def load_weights(self, trial: int, weights: Parameters) -> None:
        """Take over weights that `weights` returned; the optimiser goes on as it is."""
        self.population.load_weights(trial, weights)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """One trial's weights, its optimiser's averages, and the loss since the last log line."""
        return {
            "weights": self.weights(trial),
            "optimiser": self._optimiser.state_dict(trial),
            "loss": self.loss.state_dict(trial),
        }

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        self.load_weights(trial, state["weights"])
        self._optimiser.load_state_dict(trial, state["optimiser"])
        self.loss.load_state_dict(trial, state["loss"])

    def _update(
        self, loss_function: LossFunction, *inputs: Tensor, trials: Sequence[int], active: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One gradient step for each of the trials, or those marked in `active`; return losses and answers."""
        if self.population.is_stacked:
            return self._update_stacked(loss_function, inputs, trials, active)
        losses, answers = [], []
        for row, trial in enumerate(trials):
            if active is None or active[row]:
                loss, answer = self._update_group(trial, loss_function, [x[row] for x in inputs], None)
            else:
                loss, answer = torch.zeros(()), torch.zeros(inputs[0].shape[1])
            losses.append(loss)
            answers.append(answer)
        return stacked(losses), stacked(answers)

    def _update_stacked(
        self, loss_function: LossFunction, inputs: Sequence[Tensor], trials: Sequence[int], active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        population = self.population
        if active is None and len(trials) < population.num_trials:
            active = inputs[0].new_ones(len(trials), dtype=torch.bool)
        masked = [] if active is None else [active.float()]
        expanded = [population.expand(x, trials) for x in (*inputs, *masked)]
        loss, answer = self._graphed(loss_function, is_masked=bool(masked))(*expanded)
        return population.select(loss, trials), population.select(answer, trials)

    def _graphed(self, loss_function: LossFunction, *, is_masked: bool) -> GraphedFunction:
        """The update of all stacked trials as a function of tensors alone; the last is the mask where there is one."""
        key = (loss_function, is_masked)
        if key not in self._graphs:
            end = -1 if is_masked else None
            self._graphs[key] = GraphedFunction(
                lambda *x: self._update_group(0, loss_function, x[:end], x[-1] if is_masked else None)
            )
        return self._graphs[key]

    def _update_group(
        self, group: int, loss_function: LossFunction, inputs: Sequence[Tensor], active: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        loss, answer = loss_function(partial(self.population.forward, group), *inputs)
        # Trials share no weight, so the gradient of the sum of their losses is each trial's own gradient.
        self._optimiser.step(group, self.population.gradients(group, loss.sum()), active)
        return loss.detach(), answer.detach()


class QLearner(Learner):
    """The networks Q(s, ·; Θ) of T trials."""

    def __init__(
        self,
        network: NetworkFactory,
        bank: FrameBank,
        rngs: Sequence[np.random.Generator],
        *,
        loss: str,
        optimiser: Rule,
    ):
        super().__init__(network, bank, rngs, optimiser=optimiser)
        self._loss_function = TD_LOSSES[loss]

    def values(self, states: NDArray[np.int64], trials: Sequence[int], *, of: Population | None = None) -> Tensor:
        """Q(s, ·) of states (n, B, history): (n, B, actions). Another population, a target network, may answer instead."""
        population = of or self.population
        starts = range(0, states.shape[1], MAX_STATES)
        parts = [population(self._bank.gather(states[:, i : i + MAX_STATES], trials), trials=trials) for i in starts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def values_of_each(self, states: Sequence[NDArray[np.int64]], trials: Sequence[int]) -> list[NDArray[np.float32]]:
        """Q(s, ·) of any number of states (B, history) for each trial: (B, actions) each.

        Stacked trials are computed in one pass, all with as many states as the longest, in whole parts of MAX_STATES: so a
        GPU records one graph for all of them.
        """
        if not self.population.is_stacked:
            return [self.values(s[None], [trial])[0].numpy() for s, trial in zip(states, trials, strict=True)]
        if not states:
            return []
        num_rows = MAX_STATES * -(-max(map(len, states)) // MAX_STATES)
        padded = np.stack([np.resize(s, (num_rows, *s.shape[1:])) for s in states])
        q = self.values(padded, trials).cpu().numpy()
        return [row[: len(s)] for row, s in zip(q, states, strict=True)]

    def act(
        self,
        states: NDArray[np.int64],
        epsilon: Sequence[float],
        trials: Sequence[int],
        rngs: Sequence[np.random.Generator],
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """a_t, Q_t ← ε-Greedy(s_t, ε, Θ) for states (n, history), one per trial, each with its own ε and stream."""
        q = self.values(states[:, None], trials)[:, 0].cpu().numpy()
        chosen = [epsilon_greedy(row, e, rng) for row, e, rng in zip(q, epsilon, rngs, strict=True)]
        return np.array(chosen), q[np.arange(len(chosen)), chosen]

    def fit(self, batch: Batch, target: Tensor, frames: Tensor | None = None) -> Tensor:
        """One update of Θ towards the targets (n, B); `frames` may stand for those of s. Return Q(s, a) as it was before."""
        frames = self._bank.gather(batch.s, batch.trials) if frames is None else frames
        inputs = (frames, self._bank.tensor(batch.a), target)
        losses, q = self._update(self._loss_function, *inputs, trials=batch.trials)
        self.loss.add(losses / batch.a.shape[1], batch.trials)
        return q


def epsilon_greedy(q_values: NDArray[np.float32], epsilon: float, rng: np.random.Generator) -> int:
    """Choose the action of the highest Q-value, or with probability ε any. Algorithm 3."""
    if rng.random() > epsilon:  # l. 2-3
        return int(q_values.argmax())
    return int(rng.integers(len(q_values)))  # l. 6


def squared_td_loss(network: Network, s: Tensor, a: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """½ Σ (y - Q(s, a; Θ))²: its gradient is Δ of Algorithm 2, l. 19-21. Return it with the Q-values."""
    q = _taken(network(s), a)
    return 0.5 * (target - q).square().sum(-1), q


def huber_td_loss(network: Network, s: Tensor, a: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The same with each error clipped to ±1 in the gradient, as Mnih et al. do (A4b)."""
    q = _taken(network(s), a)
    return torch.nn.functional.huber_loss(q, target, reduction="none").sum(-1), q


def own_td_loss(network: Network, s: Tensor, a: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The loss that the network itself computes: a `HistogramNetwork`, an `Ensemble`."""
    q, losses = (_taken(x, a) for x in network(s, target.unsqueeze(-1)).unbind(-1))
    return losses.sum(-1), q


def _taken(q_values: Tensor, a: Tensor) -> Tensor:
    """Q(s, a) of Q(s, ·)."""
    return q_values.gather(-1, a.unsqueeze(-1)).squeeze(-1)


TD_LOSSES: dict[str, LossFunction] = {"squared": squared_td_loss, "huber": huber_td_loss, "own": own_td_loss}


class TrainingSet(NamedTuple):
    """QLSTM-TrainSet of one trial, Equation 5: transitions, their sets' Q-values so far, the Q-value aligned with each."""

    transitions: TransitionBatch
    q_history: NDArray[np.float32]
    following_q: NDArray[np.float32]


class QLSTMLearner(Learner):
    """The networks R(τ; Ω) of T trials: train on sets of similar transitions and predict target values. Section 4.4."""

    def __init__(
        self,
        network: NetworkFactory,
        bank: FrameBank,
        rngs: Sequence[np.random.Generator],
        *,
        batch_size: int,
        num_epochs: int,
        optimiser: Rule,
    ):
        super().__init__(network, bank, rngs, optimiser=optimiser)
        self._batch_size, self._num_epochs = batch_size, num_epochs
        self._scales_inputs = bool(self.population.buffers(0))

    def predict(self, batch: Batch) -> Tensor:
        """R(τ; Ω) of transitions (n, B)."""
        s, s_next = (self._bank.gather(ids, batch.trials) for ids in (batch.s, batch.s_next))
        a, r, q_history = (self._bank.tensor(column) for column in (batch.a, batch.r, batch.q_history))
        return self.population(s, a, r, s_next, q_history, trials=batch.trials)

    def fit(self, training_sets: Sequence[TrainingSet], trials: Sequence[int]) -> None:
        """Train Ω on one training set for each trial, in temporal order; a shorter one has its last batches empty (A4)."""
        pairs = zip(trials, training_sets, strict=True)
        not_empty = {trial: training_set for trial, training_set in pairs if len(training_set.following_q)}
        if not not_empty:
            return
        trials, size = list(not_empty), self._batch_size
        num_batches = max(-(-len(training_set.following_q) // size) for training_set in not_empty.values())
        s, a, r, s_next, history, target, weight = _padded(list(not_empty.values()), num_batches * size)
        # Everything goes to the device at once, so that the updates follow each other without waiting for the host.
        read_s, read_s_next = self._bank.reader(s, trials), self._bank.reader(s_next, trials)
        columns = [self._bank.tensor(column) for column in (a, r, history, target, weight)]
        if self._scales_inputs:
            parts = [slice(start, start + MAX_STATES) for start in range(0, num_batches * size, MAX_STATES)]
            self._set_scale((read_s, columns[0], columns[1], read_s_next), parts, trials)
        for start in [*range(0, num_batches * size, size)] * self._num_epochs:
            part = slice(start, start + size)
            a_part, r_part, *rest = (column[:, part] for column in columns)
            inputs = (read_s(part), a_part, r_part, read_s_next(part), *rest)
            has_samples = np.asarray(weight[:, part].any(axis=1))
            active = None if has_samples.all() else self._bank.tensor(has_samples)
            losses, _ = self._update(qlstm_loss, *inputs, trials=trials, active=active)
            self.loss.add(losses, trials, active)

    def _set_scale(self, transitions: Sequence[Tensor | FrameReader], parts: Sequence[slice], trials: Sequence[int]) -> None:
        """Let each input of the QLSTM run from 0 to 1 over s, a, r, s' of the training set; a constant one is shifted (A4a).

        Padding repeats a row of the set, so it changes no minimum and no maximum.
        """
        low, high = (
            transition_vectors(*(_over_rows(extreme, column, parts) for column in transitions))
            for extreme in (torch.amin, torch.amax)
        )
        span = high - low
        span[span == 0] = 1.0
        for row, trial in enumerate(trials):
            buffers = self.population.buffers(trial)
            buffers["input_low"].copy_(low[row])
            buffers["input_range"].copy_(span[row])


def _over_rows(extreme: Callable[..., Tensor], column: Tensor | FrameReader, parts: Sequence[slice]) -> Tensor:
    """The minimum or maximum over the rows (n, B, ...) of a column, or of the frames that a reader gives, part by part."""
    read = (lambda part: column[:, part]) if isinstance(column, Tensor) else column
    return extreme(torch.stack([extreme(read(part), dim=1) for part in parts]), dim=0)


def qlstm_loss(network: Network, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean squared error of the predictions that count: of inputs (s, a, r, s', Q-values), target, weight. Section 4.4."""
    *transitions, target, weight = inputs
    prediction = network(*transitions)
    num_samples = weight.sum(-1).clamp(min=1)
    return (weight * (prediction - target).square()).sum(-1) / num_samples, prediction


def _padded(training_sets: Sequence[TrainingSet], num_rows: int) -> list[NDArray[Any]]:
    """The columns of training sets, all of one length: a shorter set repeats its first row, with weight 0."""
    columns: list[list[NDArray[Any]]] = []
    for transitions, q_history, following_q in training_sets:
        is_sample = np.arange(num_rows) < len(following_q)
        rows = np.where(is_sample, np.arange(num_rows), 0)
        own = (transitions.s, transitions.a, transitions.r, transitions.s_next, q_history, following_q)
        columns.append([*(column[rows] for column in own), is_sample.astype(np.float32)])
    return [np.stack(column) for column in zip(*columns, strict=True)]


class LossMeter:
    """Mean losses between two log lines, one per trial, summed where they are computed and read only when asked for."""

    def __init__(self, num_trials: int, device: torch.device):
        self._sum = torch.zeros(num_trials, dtype=torch.float64, device=device)
        self._count = torch.zeros(num_trials, dtype=torch.float64, device=device)

    def add(self, losses: Tensor, trials: Sequence[int], active: Tensor | None = None) -> None:
        """Count one loss for each of the trials, or those marked in `active`."""
        losses = losses.double() if active is None else torch.where(active, losses.double(), 0.0)
        count = 1 if active is None else active
        if len(trials) == len(self._sum):  # the usual case: nothing to look up, so a GPU need not wait for the host
            self._sum += losses
            self._count += count
        else:
            rows = torch.as_tensor(trials, device=self._sum.device)
            self._sum[rows] += losses
            self._count[rows] += count

    def is_finite(self) -> bool:
        """Whether every loss since the last reading was a finite number."""
        return all(map(math.isfinite, self._sum.tolist()))

    def read(self, trial: int) -> float | None:
        """The mean since the last reading, None when nothing was learned."""
        total, count = self._sum[trial].item(), self._count[trial].item()
        self._sum[trial] = self._count[trial] = 0
        return total / count if count else None

    def state_dict(self, trial: int) -> dict[str, float]:
        """Sum and count since the last reading."""
        return {"sum": self._sum[trial].item(), "count": self._count[trial].item()}

    def load_state_dict(self, trial: int, state: dict[str, float]) -> None:
        """Read back what `state_dict` wrote."""
        self._sum[trial], self._count[trial] = state["sum"], state["count"]
