"""How often transitions recur: the share of different ones among many steps, of a random policy or of a trained one.

python experiments/premise/recurrence.py paper minatar:breakout minigrid:Empty-8x8-v0 --out results/premise/recurrence.json
python experiments/premise/recurrence.py --runs runs/premise/comper-any-action --out results/premise/recurrence.json
python experiments/premise/recurrence.py space_invaders alien --distances --steps 2000 --out results/readings/distances.json

A transition is (s, a, r, s'), compared in every pixel as COMPER does with δ = 0; s is one observation, also where an agent
sees several, so that policies can be compared. `--distances` gives the distance (A9) of each transition to the
nearest one before it instead, from which values of δ > 0 are chosen. Rows are added to the file; those of the same
environment and policy are replaced.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.environments.environment import Environment
from comper.memory.frames import FrameStore, ObservationHistory
from comper.memory.transitions import Transition
from comper.progress import show_progress
from comper.runs.files import write_atomically
from comper.runs.folder import find_runs
from comper.training.evaluation import open_policy
from comper.training.options import OwnCode
from comper.training.randomness import evaluation_seed
from comper.training.train import find_environments

RANDOM = "random"
QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
Act = Callable[[NDArray[Any]], int]
"""Gives the action for the observations made since the last one."""


def shares(found: list[Transition]) -> dict[str, float]:
    """The shares of different transitions and of different states."""
    keys = {(t.s, t.a, t.r, t.s_next) for t in found}
    return {"different_transitions": len(keys) / len(found), "different_states": len({t.s for t in found}) / len(found)}


def nearest_distances(found: list[Transition], store: FrameStore) -> dict[str, float]:
    """Quantiles of the distance to the nearest transition before, over [s, a, r, s'] with 8-bit pixels / 255 (A9)."""
    scale = 255.0 if store.dtype == np.uint8 else 1.0
    pixels = [store.gather(np.array([*t.s, *t.s_next])).ravel() / scale for t in found]
    x = np.array([[*p, t.a, t.r] for p, t in zip(pixels, found, strict=True)], np.float32)
    squares = np.einsum("ij,ij->i", x, x)
    nearest = []
    for i in range(1, len(x)):
        j = (squares[:i] - 2 * (x[:i] @ x[i])).argmin()  # |x_j - x_i|² but for a constant: good enough to find the nearest
        nearest.append(np.linalg.norm(x[i].astype(np.float64) - x[j]))
    return {f"{q:g}": round(float(np.quantile(nearest, q)), 4) for q in QUANTILES}


class Player:
    """One environment with one policy. All frames are kept, so that equal ones have one number."""

    def __init__(self, env: Environment, act: Act, begin: Callable[[], None] = lambda: None):
        self.env, self._act, self._begin = env, act, begin
        self.store = FrameStore(env.info.observation_shape, env.info.observation_dtype)
        self._history = ObservationHistory(self.store, 1)

    def play(self, num_steps: int) -> list[Transition]:
        """All transitions of so many steps."""
        found: list[Transition] = []
        with show_progress(self.env.info.name) as shown:
            while len(found) < num_steps:
                found += self._episode(num_steps - len(found))
                shown.update(len(found), num_steps)
        return found

    def _episode(self, num_steps: int) -> Iterator[Transition]:
        self._begin()
        frames, is_over = self.env.reset()[None], False
        self._history.reset(frames[0])
        while num_steps and not is_over:
            action = self._act(frames)
            step = self.env.step(action)
            s, s_next = self._history.advance(step.frames)
            self.store.retain(s + s_next)
            yield Transition(s, action, step.reward, s_next, step.terminated)
            frames, is_over, num_steps = step.frames, step.is_last, num_steps - 1


def random_player(name: str, seed: int) -> Player:
    """A uniformly random policy in an environment with its own settings."""
    (spec,) = find_environments([name])
    env = spec.factory(spec.settings, seed=evaluation_seed(seed))()
    rng = np.random.default_rng(seed)
    return Player(env, lambda frames: int(rng.integers(env.info.num_actions)))


def trained_player(run: Path, seed: int, epsilon: float) -> Player:
    """The agent of a run with its final weights."""
    policy, env = open_policy(run, OwnCode(), seed=seed, device="cpu")
    return Player(env, lambda frames: policy.predict(frames, epsilon=epsilon), policy.reset)


def measured(player: Player, policy: str, args: argparse.Namespace) -> dict[str, Any]:
    """One row of the data."""
    found = player.play(args.steps)
    row = {"environment": player.env.info.name, "policy": policy, "steps": args.steps, "seed": args.seed}
    if args.distances:
        return row | {"nearest_distance_quantiles": nearest_distances(found, player.store)}
    return row | {key: round(share, 4) for key, share in shares(found).items()}


def add_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Put rows into a JSON file, in place of those of the same environment and policy."""
    before = json.loads(path.read_text()) if path.exists() else []
    merged = {(row["environment"], row["policy"]): row for row in [*before, *rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n ".join(json.dumps(merged[key]) for key in sorted(merged))
    write_atomically(path, f"[{lines}]\n".encode())


def main() -> None:
    """Measure environments or runs one after another, and keep each result at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="*", help="environments for the random policy; paper: the eight games")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders with finished runs: their trained policies")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epsilon", type=float, default=0.05, help="exploration of a trained policy (default: 0.05)")
    parser.add_argument("--distances", action="store_true", help="distances to the nearest transition before")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    specs = find_environments(args.environments) if args.environments else []
    for spec in specs:
        add_rows(args.out, [measured(random_player(spec.name, args.seed), RANDOM, args)])
    for run in find_runs(args.runs) if args.runs else []:
        player = trained_player(run, args.seed, args.epsilon)
        add_rows(args.out, [measured(player, f"{run.parts[-3]}, seed {run.name.removeprefix('seed-')}", args)])


if __name__ == "__main__":
    main()
