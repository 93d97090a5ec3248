"""What a person sees while trials run."""

from __future__ import annotations

import io
from typing import Any

import pytest

from comper.memory.frames import FrameStore
from comper.memory.history import ObservationHistory
from comper.training import progress as progress_module
from comper.training.loop import Trial
from comper.training.progress import describe, progress
from tests.toys import Tape


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
    assert describe(trials, 50, 10.0) == "4 episodes, last scores 21, 0.5, 10 steps/s, TM 800, RTM 4,500"
    trials[1].is_running = False
    assert describe(trials, 50, 10.0).endswith("1 of 2 trials running")


def test_lines_are_plain_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "LINE_PERIOD_SECONDS", 0.0)
    stream = io.StringIO()
    running = trial(total_frames=500, num_episodes=1, last_score=7.0)
    with progress([running], 1_000, stream=stream) as watcher:
        watcher.update([running], 100)
        running.total_frames = 1_200
        watcher.update([running], 240)
    first, second = stream.getvalue().splitlines()
    assert first.startswith("500 of 1,000 frames (50 %), 1 episode, last score 7")
    assert first.endswith("left")
    assert second.startswith("1,000 of 1,000 frames (100 %)")
    assert second.endswith("the last episode is played out")
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    finished = trial(total_frames=1_000, num_episodes=2, last_score=1.0, is_running=False)
    with progress([finished], 1_000, stream=stream) as watcher:
        watcher.update([finished], 10)
    assert "1,000/1,000 frames" in stream.getvalue()
