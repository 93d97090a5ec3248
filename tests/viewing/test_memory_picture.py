"""`comper memory`: what the picture shows is what the memory holds and what the networks say."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from comper import draw_memory, load, train
from comper.cli import main
from comper.runs.reader import read_run
from comper.viewing.memory_picture import CARD, HEAD, WIDTH, bytes_held, most_visited, q_curve, sizes
from tests.viewing.conftest import LEARNS, QUICK
from tests.viewing.test_saved_memory import memory_of
from tests.viewing.test_scenes import written  # noqa: F401 -- a fixture


def test_the_most_visited_sets_come_first(compact_run: Path) -> None:
    memory = memory_of(compact_run)
    visits = memory.remembered.visits
    assert visits is not None
    shown = most_visited(memory, 5)
    assert visits[shown].tolist() == sorted(visits.tolist(), reverse=True)[:5]


def test_a_curve_has_the_q_value_of_every_checkpoint_and_of_the_final_network(compact_run: Path) -> None:
    memory = memory_of(compact_run)
    row = int(most_visited(memory, 1)[0])
    policies = [load(compact_run, checkpoint=step, device="cpu") for step in (200, 100)] + [load(compact_run, device="cpu")]
    curve = q_curve(memory, policies, row)
    assert curve is not None
    assert curve.steps == (100, 200, read_run(compact_run).manifest.steps)
    action = int(memory.remembered.transitions.a[row])
    assert curve.values[1] == pytest.approx(float(policies[0].q_values(memory.pictures(row)[0])[action]))
    assert len(set(curve.values)) == 3


def test_the_picture_has_a_card_for_each_set_and_its_numbers(
    compact_run: Path,
    tmp_path: Path,
    written: list[str],  # noqa: F811
) -> None:
    path = draw_memory(compact_run, tmp_path / "m.png", num_sets=5, device="cpu", show_progress=False)
    with Image.open(path) as image:
        assert image.size == (WIDTH, HEAD + 3 * CARD[1] + 16)
    memory = memory_of(compact_run)
    visits = memory.remembered.visits
    assert visits is not None
    assert f"{visits.max():,}" in written
    assert f"{len(memory.remembered):,}" in written
    assert "memory at step 200: the most visited sets of similar transitions" in written


def test_sizes_are_those_of_the_run_s_log(compact_run: Path) -> None:
    memory, recorded = memory_of(compact_run), read_run(compact_run)
    line = np.flatnonzero(recorded.metrics["steps"] == 200)[0]
    assert bytes_held(compact_run, 200) == recorded.metrics["bytes_held"][line]
    assert bytes_held(compact_run, 1) is None
    facts = dict(sizes(memory, 1_000_000.0))
    assert facts["size"] == "1.0 MB, 5,000 bytes per transition met"
    assert facts["similar hits"] == f"{memory.remembered.similar_hits:,}"
    assert "size" not in dict(sizes(memory, None))


def test_a_replay_memory_is_drawn_by_its_newest_transitions(stacked_run: Path, tmp_path: Path, written: list[str]) -> None:  # noqa: F811
    draw_memory(stacked_run, tmp_path / "m.png", num_sets=2, device="cpu", show_progress=False)
    assert any(text.endswith("the newest transitions") for text in written)
    assert not any("visit" in text for text in written)


def test_vectors_are_drawn_too(tmp_path: Path) -> None:
    (run,) = train("gym:CartPole-v1", "comper-single", out=tmp_path, checkpoint_period_steps=100, **LEARNS, **QUICK)
    assert draw_memory(run, tmp_path / "m.png", num_sets=1, device="cpu", show_progress=False).stat().st_size > 1_000


def test_wrong_use_gets_a_sentence(
    compact_run: Path, random_run: Path, unsaved_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        ([str(compact_run), "--out", str(tmp_path / "a.svg")], "ends in .png"),
        ([str(compact_run), "--sets", "0"], "must be 1 to 200"),
        ([str(compact_run), "--checkpoint", "3"], "Its checkpoints: 100, 200."),
        ([str(random_run)], "keeps no memory of transitions. The agent random learns nothing."),
        ([str(unsaved_run)], "Train with --checkpoint-period-steps N"),
        ([str(tmp_path)], "not a run folder"),
        ([str(compact_run), "--out", str(tmp_path / "none" / "a.png")], "cannot be written"),
    ]
    for words, says in cases:
        assert main(["memory", *words, "--device", "cpu"]) == 2
        assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["memory", str(compact_run), "--out", str(tmp_path / "a.png"), "--sets", "1", "--device", "cpu"]) == 0


def test_a_picture_is_there_as_a_whole_and_never_written_through_a_link(
    compact_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "linked.png").symlink_to(tmp_path / "mine")
    words = ["memory", str(compact_run), "--sets", "1", "--device", "cpu", "--out"]
    assert main([*words, str(tmp_path / "linked.png")]) == 0
    assert (tmp_path / "mine").read_bytes() == b"mine"
    (tmp_path / "old.png").write_bytes(b"an older picture")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        assert main([*words, str(tmp_path / "old.png")]) == 4
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "old.png").read_bytes() == b"an older picture"
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "linked.png", "old.png"}
