"""The commands of the study of readings (docs/research/readings.md), one per line.

python experiments/readings/variants.py                                   # stage 1: one factor at a time
python experiments/readings/variants.py --stage combined --chosen alignment-fresh inputs-minmax
python experiments/readings/variants.py --stage final --chosen alignment-fresh inputs-minmax
python experiments/readings/variants.py --small                           # four variants, one game: minutes on two cores
python experiments/readings/variants.py --plan > experiments/readings/stage1.toml        # for `comper study`

A variant is one population with a folder of its own. `--chosen` names the variants of stage 1 whose settings were chosen.
"""

from __future__ import annotations

import argparse
import json
import shlex
from typing import Any, NamedTuple

STAGE_1_GAMES = ("space_invaders", "alien", "ms_pacman", "breakout")
"""Outside the paper's eight, but for the one on which the paper tuned."""
FRAMES = 100_000

BASE: dict[str, Any] = {"reward_clip": 0, "qlstm_mean_square_start": 0}
"""The reading around which one factor at a time is changed: rewards not clipped, by published evidence (A4c)."""
EARLIER: dict[str, Any] = {"reward_clip": 1, "qlstm_mean_square_start": 0}
"""The presets before this study."""
DELTAS = (0.5, 1, 2, 4)
"""Chosen from results/readings/distances.json."""

VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "epochs-15": {"qlstm_epochs": 15},  # the longest first: several run at a time
    **{f"delta-{delta:g}": {"similarity_threshold": delta} for delta in DELTAS},
    "clip-on": {"reward_clip": 1},
    "alignment-fresh": {"alignment": "successor-fresh"},
    "alignment-max": {"alignment": "max"},
    "alignment-set": {"alignment": "set"},
    "epochs-5": {"qlstm_epochs": 5},
    "inputs-minmax": {"input_scale": "minmax"},
    "mean-square-1": {"qlstm_mean_square_start": 1},
    "rtm-replace": {"rtm": "replace"},
}
"""Name -> what differs from the base."""
SMALL = ("base", "clip-on", "alignment-max", "inputs-minmax")


class Population(NamedTuple):
    """One command: environments x seeds of one agent with some settings, into one folder."""

    environments: tuple[str, ...]
    agent: str
    settings: dict[str, Any]
    seeds: range
    out: str
    frames: int = FRAMES
    workers: int | None = None
    processes: int | None = None

    @property
    def command(self) -> str:
        """The command line."""
        flags = {**self.settings, "trials": len(self.seeds), "seed": self.seeds.start, "frames": self.frames, "out": self.out}
        flags |= {name: n for name in ("workers", "processes") if (n := getattr(self, name)) is not None}
        given = [word for key, value in flags.items() for word in (f"--{key.replace('_', '-')}", _text(value))]
        return shlex.join(["comper", "train", *self.environments, "--agent", self.agent, *given])

    @property
    def num_trials(self) -> int:
        return len(self.environments) * len(self.seeds)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def stage_1() -> list[Population]:
    """Every variant, two seeds."""
    return [
        Population(STAGE_1_GAMES, "comper-single", BASE | changes, range(2), f"runs/readings/stage1/{name}", workers=2)
        for name, changes in VARIANTS.items()
    ]


def combined(chosen: list[str]) -> list[Population]:
    """The base and all chosen values together, on seeds that stage 1 has not seen."""
    settings = {"base": BASE, "chosen": BASE | _merged(chosen), "present": EARLIER}
    return [
        Population(STAGE_1_GAMES, "comper-single", changes, range(2, 4), f"runs/readings/combined/{name}", workers=2)
        for name, changes in settings.items()
    ]


def final(chosen: list[str]) -> list[Population]:
    """Stage 2: the chosen reading beside the earlier presets and the baselines, the eight games, five seeds."""
    reading = BASE | _merged(chosen)
    agents = {
        "chosen-single": ("comper-single", reading),
        "chosen-stacked": ("comper-stacked", reading),
        "comper-single": ("comper-single", EARLIER),
        "comper-stacked": ("comper-stacked", EARLIER),
        "dqn": ("dqn", {}),
        "ddqn": ("ddqn", {}),
    }
    return [
        Population(("paper",), agent, settings, range(5), f"runs/readings/final/{name}", workers=5)
        for name, (agent, settings) in agents.items()
    ]


def small() -> list[Population]:
    """A few variants on one game, for two cores."""
    return [
        Population(
            ("space_invaders",), "comper-single", BASE | VARIANTS[name], range(1), f"runs/readings/small/{name}", 10_000
        )
        for name in SMALL
    ]


def _merged(chosen: list[str]) -> dict[str, Any]:
    return {key: value for name in chosen for key, value in VARIANTS[name].items()}


def cost(populations: list[Population]) -> str:
    """Populations, trials and frames, in words."""
    trials = [8 * len(p.seeds) if p.environments == ("paper",) else p.num_trials for p in populations]
    frames = sum(n * p.frames for n, p in zip(trials, populations, strict=True))
    return f"{len(populations)} populations, {sum(trials)} trials, {frames:,} frames"


def plan(populations: list[Population]) -> str:
    """The same as a plan for `comper study`; all populations have the same seeds and frames."""
    first = populations[0]
    environments = dict.fromkeys(name for population in populations for name in population.environments)
    lines = [
        "# Printed by variants.py in this folder, which says more; change that.",
        f"environments = {json.dumps(list(environments))}",
        f"seeds = {list(first.seeds)}",
        f"settings = {{ frames = {first.frames} }}",
    ]
    for name, population in {p.out.rpartition("/")[2]: p for p in populations}.items():
        settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in population.settings.items())
        lines += ["", "[[variants]]", f'name = "{name}"', f'agent = "{population.agent}"']
        lines += [f"settings = {{ {settings} }}"] if settings else []
    return "\n".join(lines)


def show(populations: list[Population], args: argparse.Namespace) -> None:
    """Print commands, a plan or the cost."""
    if args.plan:
        print(plan(populations))
    elif args.cost:
        print(cost(populations))
    else:
        print("\n".join(population.command for population in populations))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that both studies have."""
    parser.add_argument("--chosen", nargs="*", choices=[name for name in VARIANTS if name != "base"], default=[])
    parser.add_argument("--small", action="store_true", help="at a size for two cores")
    parser.add_argument("--cost", action="store_true", help="count trials and frames instead")
    parser.add_argument("--plan", action="store_true", help="print a plan for `comper study` instead")


def main() -> None:
    """Print the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=("1", "combined", "final"), default="1")
    add_flags(parser)
    args = parser.parse_args()
    if args.small:
        found = small()
    else:
        found = stage_1() if args.stage == "1" else {"combined": combined, "final": final}[args.stage](args.chosen)
    show(found, args)


if __name__ == "__main__":
    main()
