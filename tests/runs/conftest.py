"""Small run folders, written by the recorder itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comper.runs.files import SEAL, sealed
from comper.runs.folder import EpisodeRecord, run_path
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder

MakeRun = Callable[..., Path]


def change_manifest(folder: Path, *, seal: bool = True, **changes: Any) -> None:
    """Change keys of a manifest, and seal it again or leave its seal stale."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(sealed({key: value for key, value in content.items() if key != SEAL}) if seal else content))


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run folder under tmp_path/runs; every episode has 100 frames and 20 steps, with two lines of metrics."""

    def make(
        agent: str = "comper-single",
        game: str = "asterix",
        seed: int = 0,
        scores: list[float] | None = None,
        *,
        out: Path = tmp_path / "runs",
        finished: bool = True,
        frames: int | None = None,
        memory: bool = True,
        weights: dict[str, Any] | None = None,
    ) -> Path:
        scores = [float((7 * (seed + 1) * (i + 1)) % 50) for i in range(12)] if scores is None else scores
        budget = 100 * len(scores) if frames is None else frames
        path = run_path(out, agent=agent, game=game, seed=seed)
        record = Recorder.create(path, f"frames = {budget}\n", Manifest(agent=agent, game=game, seed=seed))
        for i, score in enumerate(scores):
            for steps in (20 * i + 10, 20 * i + 20):
                record.metrics({"steps": steps, "total_frames": 5 * steps, "episodes": i, "epsilon": 0.5} | _memory(memory))
            record.episode(EpisodeRecord(i + 1, score, 100, 20, 100 * (i + 1), False))
        if finished:
            totals = {"steps": 20 * len(scores), "total_frames": 100 * len(scores), "episodes": len(scores)}
            record.finish(totals, weights)
        record.close()
        return path

    return make


def _memory(wanted: bool) -> dict[str, Any]:
    return {"tm_sets": 90, "cnn_loss": 0.1, "qlstm_loss": None} if wanted else {}
