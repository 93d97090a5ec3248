"""Floors: what scores without learning. A random policy and every constant action, measured and kept as data.

`floors.json`, written by `save_floors` and read by `load_floors`; the numbers are frames per decision, because a random policy
scores differently when it holds each action longer (a constant action does not):

    {"format": 2, "about": "how it was measured",
     "environments": {"freeway": {"5": {
         "random": {"mean": 0.0, "sd": 0.0, "episodes": 30, "scores": [0.0, ...]},
         "constants": {"UP": {"mean": 21.2, "episodes": 30}, "NOOP": {"mean": 0.0, "episodes": 2}, ...},
         "best_constant": "UP", "floor": 21.2, "measured": "2026-11-15", "versions": {"ale_py": "0.12.1"}}}}}

Constant actions are screened on a few episodes each; the best of them are then played as often as the random policy, so
that the floor is not the luckiest of eighteen short tries.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from comper.environments.environment import EnvironmentInfo, EnvironmentSpec
from comper.environments.stepper import ProcessStepper, SerialStepper, Stepper
from comper.errors import DamagedFileError, UsageError, explaining_os_errors

FORMAT = 2
FLOORS_FILE = Path(__file__).parent / "floors.json"
"""The floors that come with the package."""

MAX_FILE_BYTES = 1 << 26

RANDOM = "random policy"
NUM_EPISODES = 30
"""Episodes of the random policy, and of each finalist among the constant actions."""
SCREENING_EPISODES = 2
NUM_FINALISTS = 2
MAX_EPISODE_STEPS = 200_000
"""An episode that a constant action never ends is given up after so many steps."""
NUM_PARTS = 3
"""Tasks that one measurement of 30 episodes is cut into, so that the cores have an equal share."""

SEEN_BY_AGENTS = ("frame_skip", "pooling", "screen_size", "view")
"""Settings of environments that change what an agent sees, not what a policy without eyes scores at a decision period."""

ABOUT = (
    f"Mean scores with the settings of docs/protocol.md: {NUM_EPISODES} episodes of the random policy; every constant action"
    f" on {SCREENING_EPISODES} episodes, the best {NUM_FINALISTS} of them on {NUM_EPISODES} more. Made by `comper floors`."
)


@dataclass(frozen=True)
class RandomFloor:
    """Scores of the uniformly random policy; `sd` is of the sample, over episodes."""

    mean: float
    sd: float
    episodes: int
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class ConstantFloor:
    """Scores of one action at every step; `episodes` is None where it was not recorded."""

    mean: float
    episodes: int | None


@dataclass(frozen=True)
class Floor:
    """What one environment pays without learning, at one decision period."""

    random: RandomFloor
    constants: dict[str, ConstantFloor]
    best_constant: str
    measured: str
    versions: dict[str, str]
    settings: dict[str, Any] | None = None
    """How the environment was played while it was measured; None: with the defaults, and comes with the package."""

    def __post_init__(self) -> None:
        if self.best_constant not in self.constants:
            raise ValueError(f"best_constant = {self.best_constant!r}: must be one of {', '.join(self.constants)}.")

    @property
    def constant(self) -> float:
        """Mean score of the best constant action."""
        return self.constants[self.best_constant].mean

    @property
    def value(self) -> float:
        """The larger of the two: what an agent must beat to have learned anything."""
        return max(self.random.mean, self.constant)


@dataclass(frozen=True)
class Floors:
    """The floors of all measured environments."""

    environments: Mapping[str, Mapping[int, Floor]]
    """By name, then by frames per decision."""
    about: str = ABOUT
    interim: bool = False

    @property
    def games(self) -> dict[str, Floor]:
        """The floor of every environment at its shortest measured decision period."""
        return {name: by_period[min(by_period)] for name, by_period in self.environments.items()}

    def find(self, name: str, frames_per_decision: int | None = None) -> Floor | None:
        """The floor of an environment where it was measured; None stands for the shortest decision period."""
        by_period = self.environments.get(name)
        if not by_period:
            return None
        return by_period.get(min(by_period) if frames_per_decision is None else frames_per_decision)

    def value(self, name: str, frames_per_decision: int | None = None) -> float:
        """An environment's floor, or NaN where it was never measured."""
        floor = self.find(name, frames_per_decision)
        return math.nan if floor is None else floor.value

    def with_measured(self, name: str, frames_per_decision: int, floor: Floor) -> Floors:
        """Put a new measurement in place of an old one."""
        by_period = dict(sorted({**self.environments.get(name, {}), frames_per_decision: floor}.items()))
        return replace(self, environments={**self.environments, name: by_period})


@cache
def known_floor(name: str, frames_per_decision: int) -> float | None:
    """The floor that comes with the package, if it does."""
    floor = load_floors().find(name, frames_per_decision)
    return None if floor is None else floor.value


def all_floors(path: Path | None = None) -> Floors:
    """The floors that come with the package, and those of a file that `comper floors --out FILE` wrote."""
    floors = load_floors()
    if path is None:
        return floors
    if not path.exists():
        raise UsageError(f"{path}: there is no such file. `comper floors ENV --out {path}` makes it.")
    for name, by_period in load_floors(path).environments.items():
        for frames, floor in by_period.items():
            floors = floors.with_measured(name, frames, floor)
    return floors


def floor_for(floors: Floors, name: str, frames_per_decision: int, settings: Mapping[str, Any]) -> Floor | None:
    """The floor of an environment that is played as it was when its floor was measured; None where that is not known."""
    floor = floors.find(name, frames_per_decision)
    if floor is None or floor.settings is None:
        return None
    return floor if all(settings.get(key) == value for key, value in floor.settings.items()) else None


# The file


def load_floors(path: Path = FLOORS_FILE) -> Floors:
    """Read the floors; a file that is not what `save_floors` writes is refused."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError("not an ordinary file, or too large a one")  # nobody waits for a pipe, or reads /dev/zero
        return floors_from_json(json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedFileError(
            f"{path}: cannot be read as floors ({type(error).__name__}: {error}). Name another file."
        ) from None


def save_floors(floors: Floors, path: Path) -> None:
    """Write the floors, replacing the file in one step."""
    environments = {
        name: {str(frames): _floor_to_json(floor) for frames, floor in by_period.items()}
        for name, by_period in floors.environments.items()
    }
    document = {"format": FORMAT, "about": floors.about, "environments": environments}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with explaining_os_errors(path, is_typed=True):
            with open(temporary, "x", encoding="utf-8") as file:
                file.write(json.dumps(document, indent=1) + "\n")
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _floor_to_json(floor: Floor) -> dict[str, Any]:
    entry = asdict(floor) | {"floor": floor.value}
    return entry if floor.settings is not None else {key: value for key, value in entry.items() if key != "settings"}


def floors_from_json(document: Any) -> Floors:
    """The floors of a parsed file; ValueError, KeyError or TypeError where it does not fit."""
    if document["format"] != FORMAT:
        raise ValueError(f"format is {document['format']!r}, this version reads {FORMAT}")
    environments = {
        name: {int(frames): _floor_from_json(name, entry) for frames, entry in by_period.items()}
        for name, by_period in document["environments"].items()
    }
    return Floors(environments, str(document["about"]))


def _floor_from_json(name: str, entry: Any) -> Floor:
    random = entry["random"]
    floor = Floor(
        RandomFloor(
            _number(random["mean"]), _number(random["sd"]), int(random["episodes"]), tuple(map(_number, random["scores"]))
        ),
        {action: ConstantFloor(_number(c["mean"]), c["episodes"]) for action, c in entry["constants"].items()},
        entry["best_constant"],
        str(entry["measured"]),
        dict(entry["versions"]),
        dict(entry["settings"]) if "settings" in entry else None,
    )
    if _number(entry["floor"]) != floor.value:
        raise ValueError(f"{name}: floor is {entry['floor']}, but the larger of its floors is {floor.value}")
    return floor


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a number")
    return number


# The measurement


@dataclass(frozen=True)
class Series:
    """Some episodes of one policy: random, or the name of the action to take at every step."""

    policy: str
    episodes: int
    seed: int


def measure_floor(
    spec: EnvironmentSpec,
    *,
    observations_per_step: int = 1,
    seed: int = 0,
    workers: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[int, Floor]:
    """Measure an environment's floor with its default settings: frames per decision, and the floor.

    One worker process per core by default; 0 measures in this process, with the same result.
    """

    def play(tasks: Sequence[Series]) -> dict[str, list[float]]:
        return _play_all(spec, tasks, observations_per_step=observations_per_step, workers=workers, say=say)

    info = spec.factory(seed=np.random.SeedSequence(seed))().info
    screened = play([Series(action, SCREENING_EPISODES, seed) for action in info.action_names])
    finals = play(_finals(info.action_names, screened, seed))
    played = {name: value for name, value in vars(spec.settings).items() if name not in SEEN_BY_AGENTS}
    floor = replace(_floor(info, screened, finals), settings=played)
    return spec.settings.frames_per_observation * observations_per_step, floor


def _finals(action_names: Sequence[str], screened: Mapping[str, list[float]], seed: int) -> list[Series]:
    ranked = sorted(action_names, key=lambda action: -float(np.mean(screened[action])))
    return [
        Series(policy, NUM_EPISODES // NUM_PARTS, seed=seed + 1 + part)
        for policy in (RANDOM, *ranked[:NUM_FINALISTS])
        for part in range(NUM_PARTS)
    ]


def _floor(info: EnvironmentInfo, screened: Mapping[str, list[float]], final: Mapping[str, list[float]]) -> Floor:
    random = final[RANDOM]
    constants = {
        action: ConstantFloor(float(np.mean(scores)), len(scores))
        for action in info.action_names
        for scores in [final.get(action, screened[action])]
    }
    finalists = [action for action in info.action_names if action in final]
    return Floor(
        random=RandomFloor(float(np.mean(random)), float(np.std(random, ddof=1)), len(random), tuple(random)),
        constants=constants,
        best_constant=max(finalists, key=lambda action: constants[action].mean),
        measured=datetime.now(UTC).date().isoformat(),
        versions={**info.identity, "numpy": np.__version__, "python": sys.version.split()[0]},
    )


def _play_all(
    spec: EnvironmentSpec,
    tasks: Sequence[Series],
    *,
    observations_per_step: int,
    workers: int | None,
    say: Callable[[str], None],
) -> dict[str, list[float]]:
    """All scores by policy; the order of tasks, not of their completion, decides the order of scores."""
    seeds = [np.random.SeedSequence(task.seed).spawn(2) for task in tasks]
    factories = [spec.factory(seed=own, observations_per_step=observations_per_step) for own, _ in seeds]
    num_workers = (os.cpu_count() or 1) if workers is None else workers
    stepper: Stepper
    if spec.is_picklable and num_workers:
        stepper = ProcessStepper(factories, num_workers=num_workers)
    else:
        stepper = SerialStepper([factory() for factory in factories])
    with stepper:
        names = stepper.infos[0].action_names
        policies = [_policy(task.policy, names, exploration) for task, (_, exploration) in zip(tasks, seeds, strict=True)]
        played = _play(stepper, tasks, policies, say=lambda line: say(f"{spec.name}, {line}"))
    scores: dict[str, list[float]] = {}
    for task, own in zip(tasks, played, strict=True):
        scores.setdefault(task.policy, []).extend(own)
    return scores


def _policy(policy: str, action_names: Sequence[str], seed: np.random.SeedSequence) -> Callable[[], int]:
    if policy == RANDOM:
        rng = np.random.default_rng(seed)
        return lambda: int(rng.integers(len(action_names)))
    action = action_names.index(policy)
    return lambda: action


def _play(
    stepper: Stepper, tasks: Sequence[Series], policies: Sequence[Callable[[], int]], *, say: Callable[[str], None]
) -> list[list[float]]:
    """Play the tasks side by side, each as a trial of its own, and return their scores."""
    scores: list[list[float]] = [[] for _ in tasks]
    score = [0.0] * len(tasks)
    num_steps = [0] * len(tasks)
    running = list(range(len(tasks)))
    for trial in running:
        stepper.reset(trial)
    while running:
        steps = stepper.step([policies[trial]() for trial in running], running)
        for trial, step in zip(list(running), steps, strict=True):
            score[trial] += step.reward
            num_steps[trial] += 1
            if not step.is_last:
                _require_end(stepper.infos[trial].name, tasks[trial].policy, num_steps[trial])
                continue
            num_steps[trial] = 0
            scores[trial].append(score[trial])
            score[trial] = 0.0
            if len(scores[trial]) < tasks[trial].episodes:
                stepper.reset(trial)
            else:
                running.remove(trial)
                done = len(tasks) - len(running)
                say(f"{done} of {len(tasks)}: {_title(tasks[trial].policy)}, mean {np.mean(scores[trial]):,.1f}")
    return scores


def _title(policy: str) -> str:
    return policy if policy == RANDOM else f"always {policy}"


def _require_end(name: str, policy: str, num_steps: int) -> None:
    if num_steps >= MAX_EPISODE_STEPS:
        raise UsageError(
            f"{name}: an episode of {policy!r} did not end within {MAX_EPISODE_STEPS:,} steps, so it has no score; give the"
            " environment a time limit."
        )
