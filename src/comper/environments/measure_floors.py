"""Measures the floors: what a uniformly random policy and each constant action score by the protocol.

Constant actions are screened on a few episodes each; the best of them are then played as often as the random policy, so that
the floor is not the luckiest of eighteen short tries.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import metadata
from multiprocessing import get_context

import numpy as np

from comper.protocol import ACTION_NAMES, NUM_ACTIONS, ProtocolConfig
from comper.report.floors import ConstantFloor, Floor, Floors, RandomFloor

RANDOM = "random"
NUM_EPISODES = 30
"""Episodes of the random policy, and of each finalist among the constant actions."""
SCREENING_EPISODES = 2
NUM_FINALISTS = 2
PARTS = 3
"""Tasks that one measurement of 30 episodes is cut into, so that the cores have an equal share."""


@dataclass(frozen=True)
class Task:
    """Some episodes of one policy on one game."""

    game: str
    policy: str
    episodes: int
    seed: int


def measure_floors(
    games: Sequence[str], *, seed: int = 0, workers: int | None = None, say: Callable[[str], None] = lambda line: None
) -> dict[str, Floor]:
    """Measure the floors of games by the protocol, one process a core."""
    context = get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool:
        screening = [Task(game, action, SCREENING_EPISODES, seed) for game in games for action in ACTION_NAMES]
        screened = _collect(pool, screening, say)
        finals = [task for game in games for task in _finals(game, screened, seed)]
        final = _collect(pool, finals, say)
    return {game: _floor(game, screened, final) for game in games}


def with_measured(floors: Floors, measured: dict[str, Floor]) -> Floors:
    """The floors with new measurements in place of old ones."""
    about = (
        f"Mean scores by the protocol of docs/protocol.md, a decision every 5 frames: {NUM_EPISODES} episodes of the random "
        f"policy; every constant action on {SCREENING_EPISODES} episodes, the best {NUM_FINALISTS} of them on {NUM_EPISODES} "
        "more. Made by `comper floors`."
    )
    games = floors.games | measured
    is_interim = floors.interim and set(floors.games) - set(measured) != set()
    return replace(floors, games=games, interim=is_interim, about=about)


def play(task: Task) -> list[float]:
    """The scores of a task's episodes."""
    from comper.environments.atari import AtariFactory

    sticky, exploration = np.random.SeedSequence(task.seed).spawn(2)
    environment = AtariFactory(task.game, sticky, ProtocolConfig())()
    rng = np.random.default_rng(exploration)

    def next_action() -> int:
        return int(rng.integers(NUM_ACTIONS)) if task.policy == RANDOM else ACTION_NAMES.index(task.policy)

    scores = []
    for _ in range(task.episodes):
        environment.reset()
        score, is_over = 0.0, False
        while not is_over:
            step = environment.step(next_action())
            score, is_over = score + step.reward, step.is_last
        scores.append(score)
    return scores


def _collect(
    pool: ProcessPoolExecutor, tasks: Sequence[Task], say: Callable[[str], None]
) -> dict[tuple[str, str], list[float]]:
    """All scores by game and policy; the order of tasks, not of their completion, decides the order of scores."""
    scores: dict[tuple[str, str], list[float]] = {}
    for number, (task, played) in enumerate(zip(tasks, pool.map(play, tasks), strict=True), start=1):
        scores.setdefault((task.game, task.policy), []).extend(played)
        say(f"{number} of {len(tasks)}: {task.game}, {task.policy}, mean {np.mean(played):,.1f}")
    return scores


def _finals(game: str, screened: dict[tuple[str, str], list[float]], seed: int) -> Iterator[Task]:
    ranked = sorted(ACTION_NAMES, key=lambda action: -float(np.mean(screened[game, action])))
    for policy in (RANDOM, *ranked[:NUM_FINALISTS]):
        for part in range(PARTS):
            yield Task(game, policy, NUM_EPISODES // PARTS, seed=seed + 1 + part)


def _floor(game: str, screened: dict[tuple[str, str], list[float]], final: dict[tuple[str, str], list[float]]) -> Floor:
    random = final[game, RANDOM]
    constants = {
        action: ConstantFloor(float(np.mean(scores)), len(scores))
        for action in ACTION_NAMES
        for scores in [final.get((game, action), screened[game, action])]
    }
    finalists = [action for action in ACTION_NAMES if (game, action) in final]
    return Floor(
        random=RandomFloor(float(np.mean(random)), float(np.std(random, ddof=1)), len(random), tuple(random)),
        constants=constants,
        best_constant=max(finalists, key=lambda action: constants[action].mean),
        measured=datetime.now(UTC).date().isoformat(),
        versions={name.replace("-", "_"): metadata.version(name) for name in ("ale-py", "numpy")}
        | {"python": sys.version.split()[0]},
    )
