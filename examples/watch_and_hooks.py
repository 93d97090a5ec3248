"""Hooks while training; then evaluate, a film and a picture of the memory.

    python watch_and_hooks.py

A hook of your own hears of every episode and checkpoint, in your process, between two steps. Here it plays two episodes with
the weights of each checkpoint, without learning, and keeps the best.
"""

from __future__ import annotations

from comper import Hook, TensorBoard, draw_memory, evaluate, load, train, watch
from comper.training.hooks import CheckpointEvent, EpisodeEvent


class KeepBest(Hook):
    """Remembers the best episode and the checkpoint that plays best."""

    def __init__(self) -> None:
        self.best_episode = float("-inf")
        self.scores: dict[int, float] = {}

    def on_episode(self, event: EpisodeEvent) -> None:
        self.best_episode = max(self.best_episode, event.episode.score)

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        result = evaluate(event.trial.run, checkpoint=event.step, episodes=2, show_progress=False)
        self.scores[event.step] = result.mean


def main(frames: int = 1_500) -> None:
    best = KeepBest()
    hooks = [best, TensorBoard("curves")]
    (run,) = train("minatar:breakout", frames=frames, checkpoint_period_steps=frames // 3, hooks=hooks)
    print(f"best episode {best.best_episode:g}; mean scores of the checkpoints: {best.scores}")

    print(evaluate(run, episodes=10))
    policy = load(run)
    print(policy, "trained for", policy.step, "steps")
    print("film:", watch(run, "breakout.gif", seconds=5))
    print("picture:", draw_memory(run, "memory.png"))


if __name__ == "__main__":
    main()
