"""Mean losses between two lines of metrics.jsonl, summed where they are computed and read only when asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class LossMeter:
    """Running means, one a trial."""

    def __init__(self, num_trials: int, device: torch.device):
        self._sum = torch.zeros(num_trials, dtype=torch.float64, device=device)
        self._count = torch.zeros(num_trials, dtype=torch.float64, device=device)

    def add(self, losses: Tensor, trials: Sequence[int], active: Tensor | None = None) -> None:
        """Count one loss for each of the trials, or those marked in `active`."""
        active = torch.ones_like(losses, dtype=torch.bool) if active is None else active
        losses = torch.where(active, losses.double(), 0.0)
        if len(trials) == len(self._sum):  # the usual case: nothing to look up, so a GPU need not wait for the host
            self._sum += losses
            self._count += active
        else:
            rows = torch.as_tensor(trials, device=self._sum.device)
            self._sum[rows] += losses
            self._count[rows] += active

    def is_finite(self) -> bool:
        """Whether every loss since the last reading was a finite number."""
        return bool(torch.isfinite(self._sum).all())

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
