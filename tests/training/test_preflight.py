"""What a run will need: estimated high enough, and refused where it is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comper.agents.registry import AGENTS
from comper.environments.families import find_environment
from comper.errors import ResourceError
from comper.runs import checkpoints
from comper.training import preflight
from comper.training.options import resolve_settings
from tests.training.small_runs import RUN, SMALL, start


def needs_of(agent: str, *, trials: int, with_checkpoints: bool = True, **changes: Any) -> preflight.Needs:
    spec = find_environment("asterix")
    settings = resolve_settings(agent, [spec], changes, where="test")
    info = spec.info(settings.environment)
    return preflight.needs_of(settings, info, trials=trials, with_checkpoints=with_checkpoints)


def test_the_estimate_covers_what_a_run_really_takes(tmp_path: Path) -> None:
    folder = start(tmp_path)
    size = sum(path.stat().st_size for path in checkpoints.paths(folder)[0].iterdir())
    assert size <= needs_of("comper-single", trials=1, **SMALL).checkpoint <= 3 * size


@pytest.mark.parametrize("agent", AGENTS)
def test_more_trials_need_more_and_no_checkpoints_less(agent: str) -> None:
    one, five = needs_of(agent, trials=1), needs_of(agent, trials=5)
    assert five.disk == 5 * one.disk
    assert one.memory < five.memory
    assert needs_of(agent, trials=1, with_checkpoints=False).disk <= one.disk


def test_too_little_disk_or_memory_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "available_disk", lambda folder: 60_000_000)
    with pytest.raises(ResourceError, match=r"needs up to .* of disk, and 10 MB are free") as error:
        start(tmp_path, frames=100_000)
    assert error.value.exit_code == 4
    monkeypatch.undo()
    monkeypatch.setattr(preflight, "available_memory", lambda: 100_000_000)
    with pytest.raises(ResourceError, match=r"needs up to .* of memory, and 0.1 GB are there"):
        start(tmp_path)
    assert not tmp_path.joinpath(RUN).exists()


def test_less_memory_is_asked_for() -> None:
    assert needs_of("dqn", trials=1, frame_compression="zlib").memory < needs_of("dqn", trials=1).memory
