"""DQN's network and the residual one on a GPU: milliseconds of one pass forward and back, recorded, for T trials.

python benchmarks/residual_benchmark.py            # 32 states of four frames for each of 4, 20 and 40 trials
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from comper.networks.cnn import Duelling, ObservationSpec, make_q_network
from comper.networks.graphs import GraphedFunction
from comper.networks.residual import make_residual_network
from comper.networks.stacking import NetworkFactory, Population

STATES, NUM_ACTIONS, REPEATS = ObservationSpec((84, 84), 4), 18, 20
NETWORKS: dict[str, NetworkFactory] = {
    "DQN's, duelling": make_q_network(STATES, NUM_ACTIONS, output=Duelling),
    "residual, duelling": make_residual_network(1, STATES, NUM_ACTIONS, output=Duelling),
}


def measured(make: NetworkFactory, num_trials: int, device: torch.device) -> tuple[float, bool]:
    """Milliseconds of a pass, and whether a second one gives the same gradients."""
    population = Population(make, [np.random.default_rng(seed) for seed in range(num_trials)], device)
    states = torch.randint(0, 256, (num_trials, 32, 4, 84, 84), dtype=torch.uint8, device=device)

    def gradients(states: Tensor) -> tuple[Tensor, ...]:
        found = population.gradients(0, population.forward(0, states).square().sum())
        return tuple(g if isinstance(g, Tensor) else g.tensor() for g in found.values())

    recorded = GraphedFunction(gradients)
    first = [recorded(states) for _ in range(5)][-1]
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(REPEATS):
        last = recorded(states)
    torch.cuda.synchronize()
    took = (time.perf_counter() - began) / REPEATS
    return 1_000 * took, all(torch.equal(a, b) for a, b in zip(first, last, strict=True))


def main() -> None:
    """Print a line for each network and number of trials."""
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU here.")
    for num_trials in (4, 20, 40):
        for name, make in NETWORKS.items():
            milliseconds, is_same = measured(make, num_trials, torch.device("cuda"))
            print(f"{name:<20} {num_trials:>3} trials {milliseconds:6.2f} ms  same bits again: {is_same}")


if __name__ == "__main__":
    main()
