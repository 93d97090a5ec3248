"""What one constant action scores in Freeway under the paper's exploration schedule; see docs/reproduction.md.

python experiments/always_up_freeway.py --held-frames 20 --seeds 5    # stacked frames: a decision every 20 frames
python experiments/always_up_freeway.py --held-frames 5 --seeds 5     # single frame: a decision every 5 frames
"""

from __future__ import annotations

import argparse
import json

import ale_py
import numpy as np
from ale_py import roms

BUDGET_FRAMES = 100_000
EPSILON_DECAY_FRAMES = 90_000
FRAME_SKIP = 5


def play(seed: int, held_frames: int) -> list[int]:
    """Scores of one trial: UP always, but a random action with probability ε; nothing is learned."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.25)
    ale.setInt("frame_skip", FRAME_SKIP)
    ale.loadROM(roms.get_rom_path("freeway"))
    actions, rng = ale.getLegalActionSet(), np.random.default_rng(seed)
    frames, scores = 0, []
    while frames < BUDGET_FRAMES:
        ale.reset_game()
        score = 0
        while not ale.game_over():
            epsilon = max(0.001, 1 - 0.999 * frames / EPSILON_DECAY_FRAMES)
            action = actions[rng.integers(len(actions))] if rng.random() < epsilon else ale_py.Action.UP
            for _ in range(held_frames // FRAME_SKIP):
                if not ale.game_over():
                    score += ale.act(action)
                    frames += FRAME_SKIP
        scores.append(int(score))
    return scores


def main() -> None:
    """Print the scores of some trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-frames", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    for seed in range(args.seeds):
        scores = play(seed, args.held_frames)
        print(json.dumps({"seed": seed, "scores": scores, "last three": round(sum(scores[-3:]) / 3, 2)}), flush=True)


if __name__ == "__main__":
    main()
