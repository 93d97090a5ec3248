"""`comper watch`: films of real runs of every family."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper import evaluate, train, watch
from comper.cli import main
from comper.errors import StoppedError, UsageError
from comper.training.evaluation import Policy
from comper.training.options import OwnCode
from comper.viewing import watching
from comper.viewing.scenes import HEIGHT, WIDTH, Moment, Scene
from tests.training.lamp import Light
from tests.viewing.conftest import QUICK
from tests.viewing.test_films import read


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> list[Moment]:
    """What every film is made of."""
    seen: list[Moment] = []
    draw = Scene.draw

    def note(self: Scene, moment: Moment) -> Any:
        seen.append(moment)
        return draw(self, moment)

    monkeypatch.setattr(Scene, "draw", note)
    return seen


def film(run: Path, out: Path, **options: Any) -> Path:
    return watch(run, out, device="cpu", show_progress=False, **options)


def test_a_film_shows_the_episode_that_evaluate_plays(compact_run: Path, tmp_path: Path, moments: list[Moment]) -> None:
    path = film(compact_run, tmp_path / "a.gif", fps=10, epsilon=0.0)
    result = evaluate(compact_run, episodes=1, epsilon=0.0, device="cpu", show_progress=False)
    assert moments[-1].score == result.scores[0]
    shown = read(path)
    assert len(shown) <= len(moments)  # a GIF joins pictures that are equal
    assert shown[0].shape == (HEIGHT, WIDTH, 3)
    assert all(moment.q is not None and int(moment.q.argmax()) == moment.action for moment in moments)


def test_an_action_that_is_held_shows_all_its_observations(stacked_run: Path, tmp_path: Path, moments: list[Moment]) -> None:
    path = film(stacked_run, tmp_path / "a.mp4", seconds=2, fps=10)
    assert len(read(path)) == len(moments) == 20
    assert [moment.step for moment in moments[:9]] == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert not np.array_equal(moments[4].screen, moments[5].screen)
    result = evaluate(stacked_run, episodes=1, device="cpu", show_progress=False)
    moments.clear()
    film(stacked_run, tmp_path / "b.gif", fps=10)
    assert moments[-1].score == result.scores[0]


def test_a_checkpoint_plays_with_its_own_weights_and_memory(
    compact_run: Path, tmp_path: Path, moments: list[Moment], monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[Any] = []
    made = Scene.__init__

    def note(self: Scene, *words: Any) -> None:
        titles.append(words)
        made(self, *words)

    monkeypatch.setattr(Scene, "__init__", note)
    film(compact_run, tmp_path / "a.gif", checkpoint=100, seconds=1)
    film(compact_run, tmp_path / "b.gif", seconds=1)
    assert [words[1].split(" · ")[0] for words in titles] == [
        "weights of step 100",
        f"weights of step {final_step(compact_run)}",
    ]
    assert [words[3].memory.step for words in titles] == [100, 200]


def final_step(run: Path) -> int:
    policy, _ = watching._open(run, OwnCode(), device="cpu")
    assert isinstance(policy, Policy)
    assert policy.step is not None
    return policy.step


def test_a_random_policy_and_a_run_without_checkpoints_are_filmed_with_what_they_have(
    random_run: Path, unsaved_run: Path, tmp_path: Path, moments: list[Moment]
) -> None:
    film(random_run, tmp_path / "a.gif", episodes=2, seconds=20)
    assert {moment.episode for moment in moments} == {1, 2}
    assert all(moment.q is None for moment in moments)
    moments.clear()
    film(unsaved_run, tmp_path / "b.gif", seconds=1)
    assert all(moment.q is not None for moment in moments)


def test_wrong_use_gets_a_sentence(
    compact_run: Path, random_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        ("--out", str(tmp_path / "a.avi")): "a film ends in .mp4 or .gif",
        ("--out", str(tmp_path / "no" / "a.gif")): "its folder is not there",
        ("--episodes", "0"): "1 episode or more",
        ("--seconds", "0"): "at most 3,600 seconds",
        ("--fps", "1000"): "pictures per second",
        ("--epsilon", "7"): "epsilon must be 0 to 1",
        ("--checkpoint", "7"): "Its checkpoints: 100, 200.",
    }
    for words, says in cases.items():
        assert main(["watch", str(compact_run), "--out", str(tmp_path / "a.gif"), *words]) == 2
        assert says in capsys.readouterr().err
    assert main(["watch", str(tmp_path), "--out", str(tmp_path / "a.gif")]) == 2
    assert "not a run folder" in capsys.readouterr().err
    assert main(["watch", str(compact_run.parent), "--out", str(tmp_path / "a.gif")]) == 2
    assert f"Did you mean {compact_run}" in capsys.readouterr().err
    assert main(["watch", str(random_run), "--checkpoint", "5", "--out", str(tmp_path / "a.gif")]) == 2
    assert "learns nothing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_environment_that_cannot_be_drawn_leaves_no_film(tmp_path: Path) -> None:
    (run,) = train(Light, "random", frames=20, out=tmp_path / "runs", **QUICK)
    with pytest.raises(UsageError, match="python:Light cannot be watched"):
        film(run, tmp_path / "a.gif", environment=Light)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_the_command_writes_a_film(compact_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.mp4"
    assert main(["watch", str(compact_run), "--out", str(path), "--seconds", "0.5", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == f"written to {path}\n"
    assert path.stat().st_size > 1_000


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_film_although_pygame_would_keep_it_and_nothing_is_left(
    name: str, random_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Scene.draw

    def signalled(self: Scene, moment: Moment) -> Any:
        os.kill(os.getpid(), getattr(signal, name))
        return draw(self, moment)

    monkeypatch.setattr(Scene, "draw", signalled)
    with pytest.raises(StoppedError, match=f"stopped by {name}: no film was written"):
        film(random_run, tmp_path / "a.gif", episodes=5)
    assert not list(tmp_path.iterdir())
