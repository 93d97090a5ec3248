"""What scores in Atari games without looking (docs/research.md, experiment 27).

python experiments/graph/habits.py asteroids demon_attack --out results/graph/habits           # minutes per game and core

`by_turns.csv`: a button that is held shoots once in some games, so each of the joystick's nine positions is played with FIRE
at every second step; the best by two episodes is played on 30 more, as the floors are measured.
`presses.csv`: what a single press is worth, in random play: the mean return, γ = 0.97 and rewards clipped, where the button
was pressed or let go of (`changed`), and where it stayed as it was (`same`), with the standard deviation of a return.
`alone.csv`: trials of 100,000 frames in which the bandit over habits (`learners/habits.py`) chooses from the first step to
the last, and no network acts: any action stands for it. Scores by the paper's rule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate, product
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))

from experiments.study_tables import Row, exit_code_of, write_csv

from comper.environments.atari import AtariEnvironment
from comper.environments.environment import Step
from comper.environments.floors import NUM_EPISODES, SCREENING_EPISODES, load_floors
from comper.learners.habits import Habits
from comper.protocol import ACTION_NAMES, num_scored_episodes

FRAMES = 100_000
RANDOM_STEPS, DISCOUNT = 40_000, 0.97
HABIT_STEPS = 100
"""As in the runs of experiment 27 on the eight games."""
PRESSED = {name: ("" if name == "NOOP" else name) + "FIRE" for name in ACTION_NAMES if "FIRE" not in name}
"""Each position of the stick, and the same with the button pressed."""


def episode(environment: AtariEnvironment, next_action: Callable[[], int], note: Callable[[Step], None]) -> tuple[float, int]:
    """Play one episode; return its score and its frames."""
    environment.reset()
    score, frames, is_last = 0.0, 0, False
    while not is_last:
        step = environment.step(next_action())
        note(step)
        score, frames, is_last = score + step.reward, frames + step.num_frames, step.is_last
    return score, frames


def play_by_turns(game: str, position: str, seeds: range) -> float:
    """The mean score over episodes, one for each seed, of a position with the button pressed at every second step."""
    actions = [ACTION_NAMES.index(name) for name in (PRESSED[position], position)]
    scores = []
    for seed in seeds:
        turns = iter(actions * FRAMES)
        environment = AtariEnvironment(game, rng=np.random.default_rng(seed))
        scores.append(episode(environment, lambda turns=turns: next(turns), lambda step: None)[0])
    return float(np.mean(scores))


def by_turns(game: str) -> Row:
    """The best position by turns beside the game's floor."""
    screened = {position: play_by_turns(game, position, range(SCREENING_EPISODES)) for position in PRESSED}
    best = max(screened, key=lambda position: screened[position])
    score = play_by_turns(game, best, range(SCREENING_EPISODES, SCREENING_EPISODES + NUM_EPISODES))
    return {"game": game, "by_turns": f"{PRESSED[best]}, {best}", "score": round(score, 1), "floor": load_floors().value(game)}


def presses(game: str) -> Row:
    """The worth of a single press of the button, or of letting go of it, where everything else is random."""
    rng = np.random.default_rng(0)
    environment = AtariEnvironment(game, rng=np.random.default_rng(1))
    is_changed: list[bool] = []
    rewards: list[float] = []
    returns: list[float] = []
    is_pressed = [False]

    def next_action() -> int:
        action = int(rng.integers(len(ACTION_NAMES)))
        is_pressed.append("FIRE" in ACTION_NAMES[action])
        is_changed.append(is_pressed[-1] != is_pressed[-2])
        return action

    while len(returns) < RANDOM_STEPS:
        rewards.clear()
        episode(environment, next_action, lambda step: rewards.append(float(np.clip(step.reward, -1, 1))))
        returns += reversed(list(accumulate(reversed(rewards), lambda following, reward: reward + DISCOUNT * following)))
    worth, changed = np.array(returns), np.array(is_changed)
    row = {"changed": worth[changed].mean(), "same": worth[~changed].mean(), "deviation": worth.std()}
    return {"game": game, "steps": len(worth)} | {name: round(float(value), 4) for name, value in row.items()}


class HabitsAlone(Habits):
    """The bandit without turns that are kept for a network."""

    def _networks_share(self, trial: int) -> float:
        return 0.0


def alone(game: str, seed: int) -> Row:
    """The score of one trial of the bandit over habits without a network."""
    rng = np.random.default_rng(seed)
    habits = HabitsAlone([rng], ACTION_NAMES, HABIT_STEPS)
    environment = AtariEnvironment(game, rng=np.random.default_rng(1_000 + seed))
    scores: list[float] = []
    played = 0

    def next_action() -> int:
        action = habits.action(0)
        return int(rng.integers(len(ACTION_NAMES))) if action is None else action

    def note(step: Step) -> None:
        habits.note(0, step.reward, is_over=step.terminated, is_last=step.is_last)

    while played <= FRAMES:
        score, frames = episode(environment, next_action, note)
        scores.append(score)
        played += frames
    last = scores[-num_scored_episodes(game) :]
    return {"game": game, "seed": seed, "score": round(float(np.mean(last)), 1), "episodes": len(scores), "frames": played}


def analyse(args: argparse.Namespace) -> Iterator[str]:
    """Play side by side, one process for each core, and write the tables."""
    with ProcessPoolExecutor() as pool:
        turns = list(pool.map(by_turns, args.games))
        write_csv(args.out / "presses.csv", list(pool.map(presses, args.games)))
        trials = list(pool.map(alone, *zip(*product(args.games, range(args.trials)), strict=True)))
    write_csv(args.out / "by_turns.csv", turns)
    write_csv(args.out / "alone.csv", trials)
    for row in turns:
        scores = [trial["score"] for trial in trials if trial["game"] == row["game"]]
        yield f"{', '.join(f'{key} {value}' for key, value in row.items())}; alone {np.mean(scores):,.1f} {scores}"


def main() -> int:
    """Read the arguments; say what is wrong in a sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="+")
    parser.add_argument("--trials", type=int, default=5, help="trials of the bandit in each game (default: 5)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    args = parser.parse_args()
    return exit_code_of(lambda: analyse(args))


if __name__ == "__main__":
    sys.exit(main())
