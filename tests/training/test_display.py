"""What a person sees while trials run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comper.memory.frames import FrameStore, ObservationHistory
from comper.training.display import PoolProgress, TrainingProgress, TrialStatus, describe
from comper.training.loop import Trial
from tests.toys import Tape

LABELS = {"tm_sets": "TM", "rtm_sets": "RTM"}


def trial(number: int = 0, **counters: Any) -> Trial:
    made = Trial(number, "toy", number, ObservationHistory(FrameStore((1,)), 1), Tape())
    for name, value in counters.items():
        setattr(made, name, value)
    return made


def test_a_line_says_episodes_scores_speed_and_memories() -> None:
    trials = [
        trial(0, num_episodes=3, last_score=21.0, latest_metrics={"tm_sets": 900, "rtm_sets": 5000}),
        trial(1, num_episodes=1, last_score=0.5, latest_metrics={"tm_sets": 700, "rtm_sets": 4000}),
    ]
    line = "last scores 21, 0.5, 10 steps/s, 4 episodes, TM 800, RTM 4,500"
    assert describe(trials, speed=10.0, metric_labels=LABELS) == line
    trials[1].is_running = False
    assert describe(trials, speed=10.0, metric_labels=LABELS).endswith("1 of 2 trials done")


class Shown:
    """A progress bar that only remembers."""

    def __init__(self) -> None:
        self.updates: list[tuple[int, int, str]] = []

    def update(self, done: int, total: int, details: str | Callable[[], str] = "") -> None:
        self.updates.append((done, total, details if isinstance(details, str) else details()))


def test_frames_past_the_budget_do_not_count_and_the_last_episode_is_named() -> None:
    shown = Shown()
    running = trial(total_frames=500, num_episodes=1, last_score=7.0)
    progress = TrainingProgress(shown, 1_000, LABELS)
    progress.after_step([running], 100)
    running.total_frames = 1_200
    progress.after_step([running], 240)
    (first_done, total, first), (second_done, _, second) = shown.updates
    assert (first_done, second_done, total) == (500, 1_000, 1_000)
    assert first.startswith("last score 7, ")
    assert second.startswith("the last episode is played out")
    running.is_running = False
    progress.after_step([running], 241)
    assert shown.updates[-1][0] == 1_000
    assert "played out" not in shown.updates[-1][2]


def test_trials_of_several_processes_are_shown_as_one() -> None:
    shown = Shown()
    waiting = [[TrialStatus.waiting("pong", seed, budget=100, frames=20 * seed)] for seed in range(3)]
    progress = PoolProgress(shown, waiting)
    progress.update(1, [TrialStatus("pong", 1, 60, 100, 12, 2, 7.0, {"TM": 30}, True)])
    progress.update(0, [TrialStatus("pong", 0, 100, 100, 20, 1, 3.0, {"TM": 50}, False)])
    assert [update[:2] for update in shown.updates] == [(100, 300), (200, 300)]
    assert shown.updates[-1][2].startswith("last scores 3, 7, ")
    assert shown.updates[-1][2].endswith("3 episodes, TM 40, 1 of 3 trials done")
