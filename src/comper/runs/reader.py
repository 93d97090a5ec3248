"""The one reader of runs: a run folder as arrays and dictionaries, or an error that says what is damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from comper.errors import DamagedFileError
from comper.runs.logs import Array
from comper.runs.manifest import Manifest
from comper.runs.verify import verify_run


@dataclass(frozen=True)
class RecordedTrial:
    """One run folder, read and checked."""

    folder: Path
    manifest: Manifest
    config: dict[str, Any]
    scores: Array
    """Undiscounted raw score of each episode."""
    episode_frames: Array
    """Emulator frames of the trial at the end of each episode."""
    episode_steps: Array
    """Agent steps of the trial at the end of each episode."""
    metrics: dict[str, Array] = field(default_factory=dict)
    """Columns of metrics.jsonl; NaN where a line has no number."""
    variant: str = ""
    """The settings that tell it from another trial of the same agent, where there is one: "alignment max"."""

    @property
    def agent(self) -> str:
        """The agent as a report names it."""
        return f"{self.manifest.agent}, {self.variant}" if self.variant else self.manifest.agent

    @property
    def game(self) -> str:
        """The environment's name."""
        return self.manifest.game

    @property
    def seed(self) -> int:
        return self.manifest.seed

    @property
    def finished(self) -> bool:
        return self.manifest.is_finished

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes a trial one of its kind."""
        return self.agent, self.game, self.seed

    @property
    def name(self) -> str:
        """The trial as a report names it."""
        return f"{self.agent} / {self.game} / seed {self.seed}"

    @property
    def total_frames(self) -> int:
        """Emulator frames at the end of the last episode."""
        return int(self.episode_frames[-1]) if self.episode_frames.size else 0

    @property
    def total_steps(self) -> int:
        """Agent steps at the end of the last episode."""
        return int(self.episode_steps[-1]) if self.episode_steps.size else 0

    @property
    def wall_seconds(self) -> float | None:
        """Seconds from start to end, where the manifest says so."""
        return self.manifest.wall_seconds

    def metric(self, name: str) -> Array | None:
        """A column of the metrics, or None where the agent has no such thing."""
        column = self.metrics.get(name)
        return None if column is None or np.isnan(column).all() else column


def read_run(folder: Path) -> RecordedTrial:
    """Read a run's manifest, configuration and logs; raise DamagedFileError if `comper verify` would object to them."""
    verdict = verify_run(folder, with_states=False)
    if verdict.damaged:
        first, *others = verdict.damaged.values()
        raise DamagedFileError(first + (f" And {len(others)} more: see `comper verify`." if others else ""))
    assert verdict.manifest is not None
    assert verdict.config is not None
    assert verdict.episodes is not None
    assert verdict.metrics is not None
    scores, frames, steps = verdict.episodes.scores, verdict.episodes.frames, verdict.episodes.steps
    return RecordedTrial(folder, verdict.manifest, verdict.config, scores, frames, steps, verdict.metrics)
