"""What scores in Atari games without looking (docs/research.md, experiment 27).

python experiments/graph/habits.py asteroids demon_attack --out results/graph/habits           # minutes per game and core

`by_turns.csv`: a button that is held shoots once in some games, so each of the joystick's nine positions is played with FIRE
at every second step; the best by two episodes is played on 30 more, as the floors are measured.
`alone.csv`: trials of 100,000 frames in which the bandit over habits (`learners/habits.py`) chooses as in `comper`, but no
network acts: where `comper` lets its network act, any action is taken. Scores by the paper's rule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
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
HABIT_STEPS, NETWORK_STEPS = 50, 20_000
"""As in experiment 27's last candidate."""
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


def alone(game: str, seed: int) -> Row:
    """The score of one trial of the bandit over habits without a network."""
    rng = np.random.default_rng(seed)
    habits = Habits([rng], ACTION_NAMES, steps=HABIT_STEPS, network_steps=NETWORK_STEPS)
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
