"""The commands of the study of the premise (docs/research/premise.md), one per line.

python experiments/premise/variants.py                                # COMPER as its preset is: the chosen reading
python experiments/premise/variants.py --chosen alignment-max         # another: names as in experiments/readings/variants.py
python experiments/premise/variants.py --seeds 10
python experiments/premise/variants.py --plan > experiments/premise/premise.toml       # for `comper study`
python experiments/premise/variants.py --small                        # three tasks, three seeds: minutes on two cores

Every environment has observations of its own shape, so each is a population of its own. `experiments/graph/variants.py`
prints the commands of the agent `comper` in the same tasks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from experiments.readings.variants import VARIANTS, Population, add_flags, show

MINATAR = tuple(f"minatar:{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"))
MINIGRID = tuple(
    f"minigrid:{task}-v0" for task in ("Empty-8x8", "LavaGapS7", "DoorKey-6x6", "SimpleCrossingS9N2", "FourRooms")
)
SMALL = ("minatar:breakout", "minigrid:Empty-8x8-v0", "minigrid:LavaGapS7-v0")

EQUAL: dict[str, Any] = {
    "observation": "single",
    "replay_start_steps": 1_000,
    "epsilon_end": 0.05,
    "epsilon_decay_frames": 20_000,
    "batch_size": 32,
    "train_period_steps": 4,
    "log_period_steps": 500,
}
"""The same for all agents; the reasons are in docs/research/premise.md."""
AGENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "comper-single": ("comper-single", {}),
    "comper-single-without-sets": ("comper-single", {"index": "none"}),
    "dqn": ("dqn", {}),
    "ddqn": ("ddqn", {"step_size": 0.00025}),
}


def population(
    environment: str, place: str, agent: tuple[str, dict[str, Any]], settings: dict[str, Any], seeds: range, frames: int
) -> Population:
    """One agent in one environment: a population of all seeds, in a process of its own."""
    name, own = agent
    return Population((environment,), name, settings | own, seeds, f"runs/{place}", frames, workers=0, processes=1)


def populations(environments: tuple[str, ...], reading: dict[str, Any], num_seeds: int, frames: int) -> list[Population]:
    """Every agent in every environment; COMPER with the chosen reading."""
    return [
        population(
            environment,
            f"premise/{name}",
            (agent, (reading if agent.startswith("comper") else {}) | settings),
            EQUAL,
            range(num_seeds),
            frames,
        )
        for environment in environments
        for name, (agent, settings) in AGENTS.items()
    ]


def main() -> None:
    """Print the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    reading = {key: value for name in args.chosen for key, value in VARIANTS[name].items()}
    size = (SMALL, reading, 3, 30_000) if args.small else (MINATAR + MINIGRID, reading, args.seeds, 100_000)
    show(populations(*size), args)


if __name__ == "__main__":
    main()
