"""One picture of a film: what is drawn is what the agent did and knew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.viewing.canvas import BLUE, ORANGE, Canvas, number
from comper.viewing.saved_memory import MemorySearch
from comper.viewing.scenes import BARS_X, HEIGHT, SCREEN, TOP, WIDTH, Moment, Scene
from tests.viewing.test_saved_memory import memory_of

ACTIONS = ("NOOP", "LEFT", "UP")


def moment(**changes: Any) -> Moment:
    values: dict[str, Any] = {
        "screen": np.full((10, 10, 3), 200, np.uint8),
        "observation": np.zeros((10, 10, 4), np.bool_),
        "q": np.array([0.0, 1.0, 0.5], np.float32),
        "action": 1,
        "is_greedy": True,
        "score": 12.0,
        "step": 3,
        "episode": 1,
    }
    return Moment(**(values | changes))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All texts that are drawn."""
    texts: list[str] = []
    draw = Canvas.text

    def note(self: Canvas, x: float, y: float, text: str, **options: Any) -> None:
        texts.append(text)
        draw(self, x, y, text, **options)

    monkeypatch.setattr(Canvas, "text", note)
    return texts


def lengths(picture: Any, colour: tuple[int, int, int]) -> list[int]:
    """The lengths of the bars of a colour, from top to bottom; names of actions have thin strokes and do not count."""
    is_bar = (picture[TOP + 30 :, BARS_X:700] == colour).all(axis=2).sum(axis=1)
    rows = np.flatnonzero(is_bar > 20)
    groups = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    return [int(np.median(is_bar[group])) for group in groups if len(group)]


def test_the_chosen_action_has_its_own_colour_and_bars_are_as_long_as_q_values_say() -> None:
    picture = Scene("agent on game", "", ACTIONS, None, "none").draw(moment())
    assert picture.shape == (HEIGHT, WIDTH, 3)
    (chosen,), (half,) = lengths(picture, ORANGE), lengths(picture, BLUE)  # the lowest has no length
    assert half / chosen == pytest.approx(0.5, abs=0.05)


def test_the_screen_is_drawn_with_enlarged_pixels() -> None:
    picture = Scene("", "", ACTIONS, None, "").draw(moment())
    middle = picture[TOP : TOP + SCREEN[1], 32 : 32 + SCREEN[0]]
    assert int((middle == 200).all(axis=2).sum()) == 320 * 320


def test_the_memory_beside_the_screen_is_the_most_similar_one(compact_run: Path, written: list[str]) -> None:
    memory = memory_of(compact_run)
    t, visits, q = memory.remembered.transitions, memory.remembered.visits, memory.remembered.q
    assert visits is not None
    assert q is not None
    row = int(visits.argmax())
    names = tuple("ABCDEF")
    scene = Scene("", "", names, MemorySearch(memory), "")
    scene.draw(moment(observation=memory.pictures(row)[0], action=int(t.a[row]), q=np.zeros(6, np.float32)))
    assert f"{names[int(t.a[row])]}, as now" in written
    assert "0, the same frame" in written
    assert f"{int(visits[row]):,}" in written
    assert number(float(q[row, -1])) in written
    assert "at step 200" in written


def test_what_is_not_there_is_said(written: list[str]) -> None:
    Scene("", "", ACTIONS, None, "The memory is in the checkpoints of a run.").draw(moment(q=None))
    assert "this agent has no Q-values" in written
    assert "The memory is in the checkpoints of a run." in written


def test_an_action_that_is_not_the_best_is_marked_and_of_many_actions_the_best_are_shown(written: list[str]) -> None:
    names = tuple(f"act-{i}" for i in range(40))
    q = np.arange(40, dtype=np.float32)
    Scene("", "", names, None, "").draw(moment(q=q, action=2, is_greedy=False))
    shown = [text for text in written if text.startswith("act-")]
    assert shown == ["act-2", *names[-19:]]
    assert "not greedy; bars from 0.0 to 39.0" in written
    written.clear()
    Scene("", "", names, None, "").draw(moment(q=q, action=39))
    assert "bars from 0.0 to 39.0" in written
