"""Small synthetic run folders and logs in the format of those published with the paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comper.report.facts import load_floors
from comper.report.reading import read_runs
from comper.report.summary import Summary
from comper.report.tables.table import Table
from comper.runs.files import log_digest
from comper.runs.folder import LOG_FILES, run_path

SHARED = Path(__file__).parents[2].parent / "shared" / "reference"

MakeRun = Callable[..., Path]
MakeLog = Callable[..., Path]


def write_manifest(folder: Path, **changes: Any) -> None:
    """Change keys of a manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def summary_of(*folders: Path) -> Summary:
    """The summary of all runs below some folders."""
    return Summary(read_runs(list(folders)), load_floors(), seed=0)


def only(tables: Iterator[Table]) -> Table:
    """The one table that a function yields."""
    (table,) = tables
    return table


def row_of(table: Table, *words: str) -> dict[str, str]:
    """The row that begins with these words, by title of its column in the CSV."""
    header, *rows = table.csv_rows()
    (row,) = [row for row in rows if tuple(row[: len(words)]) == words]
    return dict(zip(header, row, strict=True))


@pytest.fixture
def summary(make_run: MakeRun, tmp_path: Path) -> Summary:
    """Two agents, one of which never scores, in a game of the paper and in another."""
    for seed in range(3):
        make_run("ours", "freeway", seed, [0.0, 10.0, 20.0, 21.0, 22.0 + seed])
        make_run("other", "freeway", seed, [0.0] * 5)
    make_run("ours", "breakout", 0, [1.0, 2.0, 3.0])
    return summary_of(tmp_path)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run folder under tmp_path/runs with the given scores; every episode has `length` frames and 20 steps."""

    def make(
        agent: str = "comper-single",
        game: str = "asterix",
        seed: int = 0,
        scores: list[float] | None = None,
        *,
        out: Path = tmp_path / "runs",
        finished: bool = True,
        length: int = 100,
        memory: bool = True,
        metrics: dict[str, Any] | None = None,
        **config: Any,
    ) -> Path:
        scores = [float((7 * (seed + 1) * (i + 1)) % 50) for i in range(12)] if scores is None else scores
        folder = run_path(out, agent=agent, game=game, seed=seed)
        folder.mkdir(parents=True)
        settings = {"frames": length * len(scores), "frame_skip": 5} | config
        (folder / "config.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
        (folder / "episodes.jsonl").write_text("".join(_episode(i, score, length) for i, score in enumerate(scores)))
        (folder / "metrics.jsonl").write_text("".join(_metrics(i, metrics, memory=memory) for i in range(2 * len(scores))))
        manifest: dict[str, Any] = {
            "format": 1, "agent": agent, "game": game, "seed": seed, "status": "finished" if finished else "running",
            "device": "cpu", "versions": {"python": "3.11"}, "commit": "0" * 40, "rom_md5": "0" * 32,
            "created": "2026-01-01T00:00:00",
        }  # fmt: skip
        if finished:
            manifest |= {"finished": "2026-01-01T01:00:00", "wall_seconds": 3600.0 + 60 * seed, "steps": 20 * len(scores)}
            manifest |= {"total_frames": length * len(scores), "episodes": len(scores)}
            manifest |= {"files": {name: log_digest(folder / name) for name in LOG_FILES}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


def _episode(index: int, score: float, length: int) -> str:
    record = {"episode": index + 1, "score": score, "frames": length, "steps": 20}
    return json.dumps(record | {"total_frames": length * (index + 1), "truncated": False}) + "\n"


def _metrics(index: int, metrics: dict[str, Any] | None, *, memory: bool) -> str:
    record: dict[str, Any] = {"steps": 10 * (index + 1), "total_frames": 50 * (index + 1), "episodes": index // 2}
    if metrics is not None:
        return json.dumps(record | metrics) + "\n"
    record["epsilon"] = 0.5
    if memory:
        record |= {"tm_sets": 90 + index % 7, "rtm_sets": 10 * index, "known_sets": 11 * index, "similar_hits": 3 * index}
        record |= {"mean_set_size": 1 + index / 10, "max_set_size": 2 + index, "cnn_loss": 0.1, "qlstm_loss": None}
    return json.dumps(record) + "\n"


@pytest.fixture
def make_log(tmp_path: Path) -> MakeLog:
    """A published log, tmp_path/released/v5-GAME-TRIAL/progress.json: a line within each episode and one at its end."""

    def make(game: str = "asterix", trial: int = 1, scores: tuple[int, ...] = (100, 250, 0, 50), *, per_step: int = 5) -> Path:
        path = tmp_path / "released" / f"v5-{game}-{trial}" / "progress.json"
        path.parent.mkdir(parents=True)
        lines: list[dict[str, Any]] = []
        finished = sums = 0.0
        for episode, score in enumerate(scores):
            for is_end in (False, True):
                iteration = 40 * episode + (40 if is_end else 20)
                current = score if is_end else score // 2
                sums += finished + score if is_end else 0
                lines.append({
                    "Count": len(lines), "Rom": game, "Time": f"05-09-2021 13:{len(lines):02d}:41", "Itr": iteration,
                    "EpFramesNumber": per_step * (40 if is_end else 20), "TMCount": 98, "RTMCount": 7 * len(lines), "Eps": 0.9,
                    "Episodes": episode, "EndEp": is_end, "CurrEpRewardSum": current, "EpRewardsSum": finished + current,
                    "AvgEpReturn": sums / (episode + 1) if is_end else float("nan"), "TDE": float("nan"),
                    "TotalFramesNumber": per_step * iteration,
                })  # fmt: skip
            finished += score
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return make


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is most of a report's time; these tests look at its words and numbers."""
    monkeypatch.setattr("comper.report.report.draw_figures", lambda summary, progress: [])
