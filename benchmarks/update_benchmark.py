"""DQN's network, with foresight or without, and the residual one on a GPU: milliseconds of one update, recorded, for T trials.

python benchmarks/update_benchmark.py            # 32 states of four frames for each of 4, 20 and 40 trials
python benchmarks/update_benchmark.py --trials 8 15
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from comper.learners.frame_bank import FrameBank
from comper.learners.optimisers import Adam
from comper.learners.value_regression import Following, ValueLearner
from comper.memory.frames import FrameStore
from comper.networks.cnn import Duelling, ObservationSpec, make_q_network
from comper.networks.foresight import with_foresight
from comper.networks.graphs import WARM_UP_CALLS
from comper.networks.residual import make_residual_network
from comper.networks.stacking import NetworkFactory

STATES, NUM_ACTIONS, BATCH, REPEATS = ObservationSpec((84, 84), 4), 18, 32, 30
DQNS = make_q_network(STATES, NUM_ACTIONS, output=Duelling)
NETWORKS: dict[str, tuple[NetworkFactory, int]] = {
    "DQN's, duelling": (DQNS, 0),
    "with 1 step of foresight": (with_foresight(DQNS, NUM_ACTIONS), 1),
    "with 3 steps of foresight": (with_foresight(DQNS, NUM_ACTIONS), 3),
    "residual, duelling": (make_residual_network(1, STATES, NUM_ACTIONS, output=Duelling), 0),
}
"""Each with its steps of foresight."""


def pictures(*shape: int, device: torch.device) -> torch.Tensor:
    """States of random pixels."""
    return torch.randint(0, 256, (*shape, 4, 84, 84), dtype=torch.uint8, device=device)


def measured(make: NetworkFactory, foresight: int, num_trials: int, device: torch.device) -> float:
    """Milliseconds of an update, from pictures on the device to new weights."""
    trials = range(num_trials)
    learner = ValueLearner(
        make,
        FrameBank([FrameStore((84, 84))] * num_trials, device),
        [np.random.default_rng(seed) for seed in trials],
        loss="foresight" if foresight else "huber",
        optimiser=Adam(step_size=0.0001, epsilon=1.5e-4),
    )
    frames, ones = pictures(num_trials, BATCH, device=device), np.ones((num_trials, BATCH, NUM_ACTIONS), np.float32)
    following = None
    if foresight:
        actions = np.zeros((num_trials, foresight, BATCH, NUM_ACTIONS), np.float32)
        following = Following(pictures(num_trials, foresight * BATCH, device=device), actions, actions[..., 0] + 1)
    for call in range(WARM_UP_CALLS + 2 + REPEATS):
        if call == WARM_UP_CALLS + 2:
            torch.cuda.synchronize()
            began = time.perf_counter()
        learner.fit_values(frames, ones, ones, trials, following)
    torch.cuda.synchronize()
    return 1_000 * (time.perf_counter() - began) / REPEATS


def main() -> None:
    """Print a line for each network and number of trials."""
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU here.")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[4, 20, 40])
    for num_trials in parser.parse_args().trials:
        for name, (make, foresight) in NETWORKS.items():
            print(f"{name:<26} {num_trials:>3} trials {measured(make, foresight, num_trials, torch.device('cuda')):6.2f} ms")


if __name__ == "__main__":
    main()
