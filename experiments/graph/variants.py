"""The commands of the study of the agent `comper` (docs/research.md), one per line.

python experiments/graph/variants.py                                  # comper, and comper without its graph
python experiments/graph/variants.py --stage tune                     # which settings it should have, chosen before
python experiments/graph/variants.py --stage ablations                # one part changed at a time, on three tasks
python experiments/graph/variants.py --stage atari-tune               # candidates for Atari
python experiments/graph/variants.py --stage exploration              # how fast ε should fall
python experiments/graph/variants.py --stage pace                     # the first steps with comper's own pace
python experiments/graph/variants.py --stage dqn-pace                 # DQN with comper's own pace
python experiments/graph/variants.py --stage ensemble                 # several networks in one
python experiments/graph/variants.py --stage mirrors                  # mirrored pictures in MinAtar
python experiments/graph/variants.py --stage mirrored-trust           # how far values travel there
python experiments/graph/variants.py --stage mirrored-parts           # what else three-step returns do otherwise
python experiments/graph/variants.py --stage other-seeds              # comper with and without its graph in MinAtar
python experiments/graph/variants.py --stage mirrored-pace            # the first steps with them, at comper's own pace
python experiments/graph/variants.py --stage any-action-pace          # the same with any random action
python experiments/graph/variants.py --stage foresight                # what follows is foreseen, in MinAtar
python experiments/graph/variants.py --stage default-epsilon          # should comper explore for longer?
python experiments/graph/variants.py --stage lending                  # states that lend, where little recurs
python experiments/graph/variants.py --small                          # three tasks, three seeds: minutes on two cores
python experiments/graph/variants.py --plan > experiments/graph/study.toml             # for `comper study`

Tasks, seeds, frames, updates and exploration are those of the study of the premise; so are the agents `comper` is compared
with, whose commands `python experiments/premise/variants.py` prints. All runs go into one folder, an agent in each below it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[2]))

from experiments.premise.variants import EQUAL, MINATAR, MINIGRID, SMALL, population
from experiments.readings.variants import STAGE_1_GAMES, Population, add_flags, show

Agents = dict[str, tuple[str, dict[str, Any]]]

ANY = {"random_actions": "any"}
COUNTED = {"random_actions": "least-tried"}
NO_MIRRORS = {"mirror": False, "average_views": False}
PLAIN = NO_MIRRORS | COUNTED
"""What `comper` had in MinAtar before experiments 21 and 33, and has outside the study where nothing else is said."""

STUDY: Agents = {
    "comper": ("comper", {}),
    "comper-3-steps": ("comper", {"targets": "steps"}),
    "comper-counted": ("comper", COUNTED),
    "comper-plain": ("comper", NO_MIRRORS),
    "comper-plain-3-steps": ("comper", NO_MIRRORS | {"targets": "steps"}),
    "comper-plain-counted": ("comper", PLAIN),
    "comper-any-action": ("comper", NO_MIRRORS | ANY),
}
"""3-steps: returns from a plain replay memory, with a target network, and any random action, since nothing is counted there.

Plain: without mirrors and views. Counted: random actions by count in MinAtar, too, as before experiment 33. Any-action: in no
task by count, as before experiment 11, and plain, so that it differs from plain-3-steps by the graph and
what goes with it: replay by set, acting by its values, no target network.
"""

GRAPH_ACTS = ANY | {"act_with": "graph"}
TUNE: Agents = {
    "network-acts": ("comper", ANY | {"act_with": "network"}),
    "graph-acts": ("comper", GRAPH_ACTS),
    "graph-acts-least-tried": ("comper", GRAPH_ACTS | {"random_actions": "least-tried"}),
    "graph-acts-surprise": ("comper", GRAPH_ACTS | {"replay": "surprise"}),
    "graph-acts-trust-0.8": ("comper", GRAPH_ACTS | {"trust": 0.8}),
    "graph-acts-trust-by-action": ("comper", GRAPH_ACTS | {"trust_grows": "best-action"}),
    "both-act": ("comper", ANY | {"act_with": "both"}),
    "both-act-surprise": ("comper", ANY | {"act_with": "both", "replay": "surprise"}),
    "three-steps": ("comper", {"targets": "steps"}),
    "ddqn-0.0001": ("ddqn", {"step_size": 0.0001}),
    "ddqn-0.00025": ("ddqn", {"step_size": 0.00025}),
}
TUNE_TASKS = ("minatar:breakout", "minatar:space_invaders", "minigrid:DoorKey-5x5-v0", "minigrid:SimpleCrossingS9N1-v0")
TUNE_SEEDS = range(100, 102)
TUNE_SETTINGS = EQUAL | {"epsilon_decay_frames": 10_000}
"""Half the frames of the study, so half its exploration."""

ABLATIONS: Agents = {
    "constant-trust": ("comper", ANY | {"trust_grows": "never"}),
    "whole-trust": ("comper", ANY | {"trust": 1.0}),
    "untried-max": ("comper", ANY | {"untried": "max"}),
    "by-visit": ("comper", ANY | {"replay": "visit"}),
    "by-surprise": ("comper", ANY | {"replay": "surprise"}),
    "one-action": ("comper", ANY | {"all_tried": False}),
    "not-duelling": ("comper", ANY | {"duelling": False}),
    "double": ("comper", ANY | {"double": True}),
    "network-acts": ("comper", ANY | {"act_with": "network"}),
    "least-tried-actions": ("comper", COUNTED),
    "held-actions": ("comper", ANY | {"held_steps": 20}),
}
ABLATION_TASKS = ("minatar:breakout", "minigrid:DoorKey-6x6-v0", "minatar:space_invaders")
"""Two where the graph decides, and one in which little recurs."""

EXPLORATION: Agents = {
    f"epsilon-{end}-in-{frames}": ("comper", {"epsilon_end": end, "epsilon_decay_frames": frames})
    for end, frames in ((0.05, 20_000), (0.05, 10_000), (0.05, 5_000), (0.05, 2_500), (0.01, 5_000))
}
"""How fast ε falls; the first is that of the study."""

PACE: Agents = {
    "own-pace": ("comper", {"train_period_steps": 2, "epsilon_end": 0.01, "epsilon_decay_frames": 10_000}),
}
"""What `comper` did where nothing else was asked for, before experiment 18."""

DQN_PACE: Agents = {"dqn-own-pace": ("dqn", PACE["own-pace"][1])}
"""DQN with as many updates, and as little exploration."""

DEFAULT_EPSILON: Agents = {
    "epsilon-0.01-in-10000": PACE["own-pace"],
    "epsilon-0.05-in-20000": ("comper", {"train_period_steps": 2}),
    "epsilon-0.01-in-20000": ("comper", {"train_period_steps": 2, "epsilon_end": 0.01}),
}
DEFAULT_EPSILON_TASKS = ("minigrid:DoorKey-6x6-v0", "minatar:breakout", "minigrid:LavaGapS7-v0")

MIRRORED = {"mirror": True, "average_views": True}
MIRRORS: Agents = {
    "comper": ("comper", {}),
    "mirrors": ("comper", {"mirror": True}),
    "mirrors-and-views": ("comper", MIRRORED),
}
MIRRORED_TRUST: Agents = {
    "trust-0.8": ("comper", MIRRORED | {"trust": 0.8}),
    "trust-0.9": ("comper", MIRRORED | {"trust": 0.9}),
    "three-steps": ("comper", MIRRORED | {"targets": "steps"}),
}
"""Beside `mirrors-and-views` of `mirrors`, which has the same seeds and frames, and λ = 0.6."""
AS_STEPS_DO = ANY | {"replay": "visit", "act_with": "network", "all_tried": False}
"""What three-step returns have besides their targets."""
MIRRORED_PARTS: Agents = {
    "any-random-action": ("comper", MIRRORED | ANY),
    "by-visit": ("comper", MIRRORED | {"replay": "visit"}),
    "network-acts": ("comper", MIRRORED | {"act_with": "network"}),
    "all-but-targets": ("comper", MIRRORED | AS_STEPS_DO),
    "fresh-values": ("comper", MIRRORED | {"asked_states": 20_000}),
}
"""Beside `mirrors-and-views` and `three-steps` of the two stages before."""
OTHER_SEEDS: Agents = {
    "comper": ("comper", MIRRORED | ANY),
    "comper-3-steps": ("comper", MIRRORED | ANY | {"targets": "steps"}),
}
"""The study's two of these names, in MinAtar."""
MIRRORED_PACE: Agents = {"own-pace-mirrored": ("comper", PACE["own-pace"][1] | MIRRORED)}
ANY_ACTION_PACE: Agents = {
    "own-pace-mirrored-any": ("comper", PACE["own-pace"][1] | MIRRORED | ANY),
    "own-pace-any": ("comper", PACE["own-pace"][1] | ANY),
}
FORESIGHT: Agents = {
    "foresight-1": ("comper", {"foresight_steps": 1}),
    "foresight-3": ("comper", {"foresight_steps": 3}),
}
"""Beside `comper` of the stage before, which has the same seeds and frames."""
FORESIGHT_TASKS = ("minatar:breakout", "minatar:space_invaders")

ENSEMBLE: Agents = {"one-network": ("comper", {}), "three-networks": ("comper", {"ensemble": 3})}

LENDING: Agents = {
    "comper": ("comper", {}),
    "lent-half": ("comper", {"lending_reach": 0.5}),
    "lent-1": ("comper", {"lending_reach": 1.0}),
}
LENDING_TASKS = ("minatar:asterix", "minatar:seaquest", "minatar:space_invaders")
"""In which little recurs."""

ATARI: dict[str, Any] = {
    "observation": "rolling",
    "discount": 0.99,
    "trust": 0.6,
    "train_period_steps": 1,
    "step_size": 0.0001,
    "epsilon_end": 0.05,
    "epsilon_decay_frames": 25_000,
    "updates_at_a_time": 1,
    "joystick": "off",
    "mirror": False,
    "average_views": False,
    "autofire_steps": 0,
}
"""What all candidates for Atari share, where nothing else is said: 100,000 frames are 20,000 steps there."""
SHIFTS = ATARI | {"shift_pixels": 4}
FOUR = SHIFTS | {"updates_at_a_time": 4}
NEAR, RESIDUAL = {"discount": 0.97}, {"residual_width": 1}
LESS_RANDOM = {"epsilon_end": 0.01, "epsilon_decay_frames": 10_000}
CHOSEN = SHIFTS | NEAR | LESS_RANDOM | {"trust": 0.9}
"""What `comper` had in Atari games from experiment 7 to 22; from then on it is `all-views-2-updates`."""
PARTS, MIRROR, VIEWS = {"joystick": "shared"}, {"mirror": True}, {"average_views": True}
"""Experiment 19."""
ALONE = {"joystick": "alone"}
ALL_VIEWS = CHOSEN | ALONE | MIRROR | VIEWS
"""Experiment 22, whose candidates with a background are in commit 7aaf0d8."""
FRESH = {"asked_states": 100_000}
"""The network is asked about every state before values travel."""
LAYER_NORM, CLASSES = RESIDUAL | {"layer_norm": True}, RESIDUAL | {"value_classes": 51}
ATARI_TUNE: Agents = {
    "shifts": ("comper", SHIFTS),
    "shifts-4-updates": ("comper", FOUR),
    "shifts-4-updates-3-steps": ("comper", FOUR | {"targets": "steps"}),
    "shifts-3-steps": ("comper", SHIFTS | {"targets": "steps"}),
    "shifts-21-cells": ("comper", SHIFTS | {"similarity_cells": 21}),
    "single-shifts": ("comper", SHIFTS | {"observation": "single"}),
    "single-shifts-21-cells": ("comper", SHIFTS | {"observation": "single", "similarity_cells": 21}),
    "single-shifts-delta-1": ("comper", SHIFTS | {"observation": "single", "similarity_threshold": 1}),
    "ddqn": ("ddqn", {}),
    "shifts-discount-0.97": ("comper", SHIFTS | NEAR),
    "shifts-discount-0.97-less-random": ("comper", SHIFTS | NEAR | LESS_RANDOM),
    "shifts-discount-0.97-trust-0.8": ("comper", SHIFTS | NEAR | {"trust": 0.8}),
    "shifts-discount-0.97-trust-0.8-less-random": ("comper", SHIFTS | NEAR | LESS_RANDOM | {"trust": 0.8}),
    "shifts-discount-0.97-trust-0.9": ("comper", SHIFTS | NEAR | {"trust": 0.9}),
    "shifts-discount-0.97-trust-0.9-less-random": ("comper", CHOSEN),
    "chosen-3-steps": ("comper", CHOSEN | {"targets": "steps"}),
    "chosen-10-steps": ("comper", CHOSEN | {"targets": "steps", "num_steps": 10}),
    "chosen-residual": ("comper", CHOSEN | RESIDUAL),
    "fresh": ("comper", CHOSEN | FRESH),
    "fresh-double": ("comper", CHOSEN | FRESH | {"double": True}),
    "fresh-2-updates": ("comper", CHOSEN | FRESH | {"updates_at_a_time": 2}),
    "fresh-4-updates": ("comper", CHOSEN | FRESH | {"updates_at_a_time": 4}),
    "fresh-residual": ("comper", CHOSEN | FRESH | RESIDUAL),
    "fresh-held": ("comper", CHOSEN | FRESH | {"held_steps": 100}),
    "fresh-lent-1": ("comper", CHOSEN | FRESH | {"lending_reach": 1.0}),
    "fresh-lent-3": ("comper", CHOSEN | FRESH | {"lending_reach": 3.0}),
    "chosen-surprise": ("comper", CHOSEN | {"replay": "surprise"}),
    "chosen-ensemble": ("comper", CHOSEN | {"ensemble": 3}),
    "chosen-joystick": ("comper", CHOSEN | PARTS),
    "chosen-joystick-alone": ("comper", CHOSEN | ALONE),
    "chosen-joystick-held": ("comper", CHOSEN | PARTS | {"held_steps": 100}),
    "chosen-mirror": ("comper", CHOSEN | MIRROR),
    "chosen-views": ("comper", CHOSEN | VIEWS),
    "chosen-joystick-mirror": ("comper", CHOSEN | PARTS | MIRROR),
    "chosen-joystick-mirror-views": ("comper", CHOSEN | PARTS | MIRROR | VIEWS),
    "chosen-joystick-mirror-ensemble": ("comper", CHOSEN | PARTS | MIRROR | {"ensemble": 3}),
    "all-views": ("comper", ALL_VIEWS),
    "all-views-brightest": ("comper", ALL_VIEWS | {"pooling": "max"}),
    "all-views-2-updates": ("comper", ALL_VIEWS | {"updates_at_a_time": 2}),
    "all-views-classes": ("comper", ALL_VIEWS | {"value_classes": 51}),
    "all-views-larger-steps": ("comper", ALL_VIEWS | {"step_size": 0.00025}),
    "foresight-1-2-updates": ("comper", ALL_VIEWS | {"updates_at_a_time": 2, "foresight_steps": 1}),
    "foresight-3": ("comper", ALL_VIEWS | {"foresight_steps": 3}),
    "residual-all-views-2-updates": ("comper", ALL_VIEWS | RESIDUAL | {"updates_at_a_time": 2}),
    "chosen-residual-layer-norm": ("comper", CHOSEN | LAYER_NORM),
    "chosen-residual-classes": ("comper", CHOSEN | CLASSES),
    "residual": ("comper", SHIFTS | RESIDUAL),
    "residual-discount-0.97": ("comper", SHIFTS | RESIDUAL | NEAR),
    "residual-discount-0.97-less-random": ("comper", SHIFTS | RESIDUAL | NEAR | LESS_RANDOM),
}


class Stage(NamedTuple):
    """Agents, each in every task."""

    agents: Agents
    tasks: tuple[str, ...]
    settings: dict[str, Any] = EQUAL
    seeds: range = TUNE_SEEDS
    """Others than the study's, where something is chosen."""
    frames: int = 50_000
    folder: str = ""
    """The stage's name, if empty."""


ALL_TASKS = MINATAR + MINIGRID
STAGES = {
    "study": Stage(STUDY, ALL_TASKS, EQUAL, range(5), 100_000, "premise"),
    "tune": Stage(TUNE, TUNE_TASKS, TUNE_SETTINGS),
    "ablations": Stage(ABLATIONS, ABLATION_TASKS, EQUAL, range(5), 100_000),
    "lending": Stage(LENDING, LENDING_TASKS, TUNE_SETTINGS, range(100, 103), 30_000),
    "exploration": Stage(EXPLORATION, TUNE_TASKS),
    "pace": Stage(PACE, ALL_TASKS, EQUAL, range(5), 20_000),
    "dqn-pace": Stage(DQN_PACE, ALL_TASKS, EQUAL, range(5), 100_000),
    "ensemble": Stage(ENSEMBLE, TUNE_TASKS),
    "mirrors": Stage(MIRRORS, MINATAR, seeds=range(100, 104)),
    "mirrored-trust": Stage(MIRRORED_TRUST, MINATAR, seeds=range(100, 104)),
    "mirrored-parts": Stage(MIRRORED_PARTS, MINATAR, seeds=range(100, 104)),
    "other-seeds": Stage(OTHER_SEEDS, MINATAR, EQUAL, range(5, 10), 100_000),
    "any-action-pace": Stage(ANY_ACTION_PACE, MINATAR, EQUAL, range(5), 20_000, "pace"),
    "mirrored-pace": Stage(MIRRORED_PACE, MINATAR, EQUAL, range(5), 20_000, "pace"),
    "foresight": Stage(FORESIGHT, FORESIGHT_TASKS, seeds=range(100, 104)),
    "default-epsilon": Stage(DEFAULT_EPSILON, DEFAULT_EPSILON_TASKS, frames=100_000),
}
ATARI_STAGE = "atari-tune"


def atari_tune() -> list[Population]:
    """Candidates for Atari, on games outside the paper's eight but for the one on which it tuned."""
    return [
        Population(STAGE_1_GAMES, agent, settings, TUNE_SEEDS, f"runs/atari-tune/{name}", workers=2, processes=2)
        for name, (agent, settings) in ATARI_TUNE.items()
    ]


def populations(stage: str, *, small: bool) -> list[Population]:
    """Every agent in every task of a stage; `small`: three tasks, three seeds, fewer frames."""
    if stage == ATARI_STAGE:
        return atari_tune()
    chosen = STAGES[stage]
    if small:
        chosen = chosen._replace(tasks=SMALL, seeds=range(3), frames=30_000)
    agents, tasks, settings, seeds, frames, folder = chosen
    if stage != "study":
        agents = {name: (agent, (PLAIN if agent == "comper" else {}) | own) for name, (agent, own) in agents.items()}
    every = [(task, name, agent) for task in tasks for name, agent in agents.items()]
    return [population(task, f"{folder or stage}/{name}", agent, settings, seeds, frames) for task, name, agent in every]


def main() -> None:
    """Print the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=(*STAGES, ATARI_STAGE), default="study")
    add_flags(parser)
    args = parser.parse_args()
    show(populations(args.stage, small=args.small), args)


if __name__ == "__main__":
    main()
