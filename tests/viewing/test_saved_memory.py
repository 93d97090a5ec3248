"""Memories read from checkpoints, and what in them is most like a screen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from comper.environments.families import find_environment
from comper.errors import DamagedFileError, UsageError
from comper.runs import checkpoints
from comper.runs.files import digest, sealed
from comper.runs.reader import read_run
from comper.viewing.saved_memory import MemorySearch, SavedMemory, newest_checkpoint, read_memory


def memory_of(run: Path, step: int | None = None, *, environment: str = "minatar:breakout") -> SavedMemory:
    checkpoint = newest_checkpoint(run, step)
    assert checkpoint is not None
    memory = read_memory(checkpoint, find_environment(environment).info())
    assert memory is not None
    return memory


def test_the_memory_is_what_the_run_logged_at_that_step(compact_run: Path) -> None:
    memory, recorded = memory_of(compact_run), read_run(compact_run)
    line = np.flatnonzero(recorded.metrics["steps"] == memory.step)[0]
    remembered = memory.remembered
    assert memory.step == 200
    assert remembered.visits is not None
    assert len(remembered) == recorded.metrics["known_sets"][line]
    assert remembered.similar_hits == recorded.metrics["similar_hits"][line]
    assert remembered.visits.max() == recorded.metrics["max_set_size"][line]
    assert remembered.visits.sum() == memory.step  # every step is a visit of some set
    assert memory_of(compact_run, 100).step == 100


def test_frames_are_those_of_the_game_and_states_end_with_them(compact_run: Path) -> None:
    memory = memory_of(compact_run)
    before, after = memory.pictures(5)
    assert before.shape == after.shape == (10, 10, 4)
    assert np.array_equal(memory.state(5)[-1], before)
    assert before[:, :, 0].sum() == 1  # one paddle
    assert memory.largest is None


def test_a_remembered_frame_finds_itself_and_the_same_action_first(compact_run: Path) -> None:
    memory = memory_of(compact_run)
    search, t = MemorySearch(memory), memory.remembered.transitions
    for number in range(0, len(t.a), 7):
        match = search.find(memory.pictures(number)[0], int(t.a[number]))
        assert match.distance == 0
        assert t.s[match.number, -1] == t.s[number, -1]
        assert t.a[match.number] == t.a[number]
    changed = memory.pictures(3)[0].copy()
    changed[0, 0, :] ^= True
    assert search.find(changed, 0).distance > 0


def test_of_equal_frames_and_other_actions_the_most_visited_is_found(compact_run: Path) -> None:
    memory = memory_of(compact_run)
    t, visits = memory.remembered.transitions, memory.remembered.visits
    assert visits is not None
    ids, counts = np.unique(t.s[:, -1], return_counts=True)
    rows = np.flatnonzero(t.s[:, -1] == ids[counts.argmax()])
    match = MemorySearch(memory).find(memory.pictures(int(rows[0]))[0], 99)
    assert match.number in rows
    assert visits[match.number] == visits[rows].max()


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(compact_run: Path, unsaved_run: Path) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint at step 150\. Its checkpoints: 100, 200\."):
        newest_checkpoint(compact_run, 150)
    with pytest.raises(UsageError, match=r"Train with --checkpoint-period-steps N"):
        newest_checkpoint(unsaved_run, 1)
    assert newest_checkpoint(unsaved_run) is None


def test_a_memory_of_another_environment_is_refused(compact_run: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"not as long as it says|not a memory of this environment"):
        memory_of(compact_run, environment="gym:CartPole-v1")


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("table/a", lambda a: a + 1000),
        ("table/a", lambda a: a - 1000),
        ("table/s", lambda s: s + 10**6),
        ("table/s_next", lambda s: s[:, :0]),
        ("table/r", lambda r: r[:, None]),
        ("occurrences", lambda visits: visits * 0),
        ("occurrences", lambda visits: visits - 10**6),
        ("occurrences", lambda visits: visits * 0 + 2**62),
        ("q", lambda q: q[:, :, None]),
        ("num_q", lambda num_q: num_q * 0),
    ],
)
def test_transitions_of_what_is_not_there_are_refused(column: str, change: Any, compact_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(compact_run, run)
    newest = checkpoints.paths(run)[0]
    forged(newest, f"agent/tm/{column}", change)
    with pytest.raises(DamagedFileError, match="not a memory of this environment"):
        memory_of(run)


def test_a_damaged_checkpoint_is_left_for_the_one_before(compact_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(compact_run, run)
    (checkpoints.paths(run)[0] / "frames.zlib").write_bytes(b"")
    assert memory_of(run).step == 100
    (checkpoints.paths(run)[1] / "frames.zlib").write_bytes(b"")
    with pytest.raises(DamagedFileError, match="frames"):
        memory_of(run)


def forged(checkpoint: Path, name: str, change: Any) -> None:
    """Change an array of a checkpoint, and make its digests fit."""
    arrays = safetensors.numpy.load_file(checkpoint / "state.safetensors")
    content = safetensors.numpy.save({**arrays, name: np.ascontiguousarray(change(arrays[name]))})
    (checkpoint / "state.safetensors").write_bytes(content)
    about = json.loads((checkpoint / "checkpoint.json").read_text())
    del about["sha256"]
    about["files"]["state.safetensors"] = digest(content)
    (checkpoint / "checkpoint.json").write_text(json.dumps(sealed(about)))
