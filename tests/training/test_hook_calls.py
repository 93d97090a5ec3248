"""Hooks while real trials run: what they hear, in which order, and what comes of their mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comper import Hook, evaluate, resume, train
from comper.errors import OutsideCodeError, StoppedError, UsageError
from comper.training import population
from comper.training.checkpointing import Checkpointer
from comper.training.hooks import METHODS, CheckpointEvent, EndEvent, EpisodeEvent, Event, StartEvent, StepEvent, UpdateEvent
from tests.training.small_runs import SMALL, outcome, start

QUICK: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False}


class Tape(Hook):
    """Writes down every event."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_start(self, event: StartEvent) -> None:
        self.events.append(event)

    def on_step(self, event: StepEvent) -> None:
        self.events.append(event)

    def on_update(self, event: UpdateEvent) -> None:
        self.events.append(event)

    def on_episode(self, event: EpisodeEvent) -> None:
        self.events.append(event)

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        self.events.append(event)

    def on_end(self, event: EndEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[Event], seed: int = 0) -> list[Any]:
        return [event for event in self.events if type(event) is kind and event.trial.seed == seed]


def lines(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def stop_at(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    after_step = Checkpointer.after_step

    def ask_to_stop(self: Checkpointer, trials: Any, step: int) -> None:
        self._request.name = "SIGTERM" if step == at else None
        after_step(self, trials, step)

    monkeypatch.setattr(Checkpointer, "after_step", ask_to_stop)


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tape]:
    """A run of two trials, and what a hook heard of it."""
    tape, out = Tape(), tmp_path_factory.mktemp("heard")
    return start(out, trials=2, hooks=[tape]), tape


def test_hooks_hear_what_the_logs_say_of_every_trial(heard: tuple[Path, Tape]) -> None:
    run, tape = heard
    for seed in (0, 1):
        folder = run.with_name(f"seed-{seed}")
        episodes, metrics = lines(folder, "episodes.jsonl"), lines(folder, "metrics.jsonl")
        heard_episodes = tape.of(EpisodeEvent, seed)
        assert [(e.episode.score, e.total_frames) for e in heard_episodes] == [
            (e["score"], e["total_frames"]) for e in episodes
        ]
        assert [event.metrics for event in tape.of(UpdateEvent, seed)] == metrics
        assert [event.step for event in tape.of(UpdateEvent, seed)] == [line["steps"] for line in metrics]
        steps = tape.of(StepEvent, seed)
        assert [event.step for event in steps] == list(range(1, sum(e["steps"] for e in episodes) + 1))
        assert sum(event.reward for event in steps) == sum(e["score"] for e in episodes)
        assert [event.step for event in steps if event.is_last] == [event.step for event in heard_episodes]
        assert all(0 <= event.action < 18 for event in steps)
        assert len({event.action for event in steps}) > 3
        assert {event.trial.run for event in steps} == {folder}


def test_a_trial_starts_and_ends_once_and_a_step_comes_before_what_it_led_to(heard: tuple[Path, Tape]) -> None:
    _, tape = heard
    for seed in (0, 1):
        own = [event for event in tape.events if event.trial.seed == seed]
        assert [type(event) for event in (own[0], own[1], own[-1])] == [StartEvent, StepEvent, EndEvent]
        assert len(tape.of(StartEvent, seed)) == len(tape.of(EndEvent, seed)) == 1
        assert own[-1].is_finished
        assert (own[0].step, own[0].total_frames, own[0].settings["frames"]) == (0, 0, SMALL["frames"])
        order = list(METHODS)
        by_step: dict[int, list[int]] = {}
        for event in own:
            by_step.setdefault(event.step, []).append(order.index(type(event)))
        ranks = {order.index(StepEvent): 0, order.index(EpisodeEvent): 1, order.index(UpdateEvent): 2}
        for kinds in by_step.values():
            sequence = [ranks.get(kind, kind) for kind in kinds]
            assert sequence == sorted(sequence)
    assert len({event.trial.id for event in tape.events}) == 2


def test_every_checkpoint_is_told_while_it_is_there(tmp_path: Path) -> None:
    class Scores(Tape):
        def on_checkpoint(self, event: CheckpointEvent) -> None:
            assert event.path.is_dir()
            result = evaluate(event.trial.run, checkpoint=event.step, episodes=1, device="cpu", show_progress=False)
            self.events.append((event.step, result.step))

    scores = Scores()
    settings: dict[str, Any] = {"frames": 60, "replay_start_steps": 16, "out": tmp_path, **QUICK}
    train("gym:CartPole-v1", "dqn", checkpoint_period_steps=20, hooks=[scores], **settings)
    told = [event for event in scores.events if isinstance(event, tuple)]
    assert told[:3] == [(20, 20), (40, 40), (60, 60)]


def test_hooks_change_no_result_and_without_any_nothing_is_put_into_the_loop(
    heard: tuple[Path, Tape], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("hooks are called though there are none")

    with monkeypatch.context() as patch:
        patch.setattr(population, "HookCaller", refuse)
        plain = start(tmp_path / "plain", trials=2)
    assert outcome(heard[0]) == outcome(plain)


def test_hooks_that_are_python_objects_hear_of_trials_that_could_run_elsewhere(tmp_path: Path) -> None:
    tape = Tape()
    start(tmp_path, trials=2, processes=2, hooks=[tape])
    assert len(tape.of(EndEvent, 0)) == len(tape.of(EndEvent, 1)) == 1


def test_steps_are_not_told_to_a_hook_that_does_not_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Hook):
        pass

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a step event is made though nobody listens")

    monkeypatch.setattr("comper.training.hook_calls.StepEvent", refuse)
    start(tmp_path, hooks=[Silent()])


def test_a_resumed_run_goes_on_with_the_same_id_from_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Tape(), Tape()
    with monkeypatch.context() as patch:
        stop_at(patch, 35)
        with pytest.raises(StoppedError):
            start(tmp_path, hooks=[first])
    (end,) = first.of(EndEvent)
    assert (end.is_finished, end.step) == (False, 35)
    assert first.of(CheckpointEvent)[-1].step == 35  # the one that the signal asked for
    resume(tmp_path, hooks=[second], **QUICK)
    (begin,) = second.of(StartEvent)
    assert (begin.step, begin.total_frames, begin.trial.id) == (35, end.total_frames, end.trial.id)
    assert [event.step for event in (*first.of(StepEvent), *second.of(StepEvent))] == list(
        range(1, second.of(EndEvent)[0].step + 1)
    )


@pytest.mark.parametrize("method", ["on_step", "on_update", "on_episode", "on_checkpoint"])
def test_a_hook_that_fails_is_named_and_nothing_is_lost(method: str, tmp_path: Path, heard: tuple[Path, Tape]) -> None:
    class Broken(Hook):
        pass

    def fail(self: Hook, event: Event) -> None:
        if event.step >= 30:
            raise ZeroDivisionError("by zero")

    setattr(Broken, method, fail)
    tape = Tape()
    says = rf"The hook Broken\.{method} failed at step 3\d: ZeroDivisionError: by zero \(test_hook_calls\.py, line \d+\)\."
    with pytest.raises(OutsideCodeError, match=says + r" Mend it and continue with `comper resume \S+`, saved at step 3\d\."):
        start(tmp_path, hooks=[Broken(), tape])
    assert [event.is_finished for event in tape.of(EndEvent)] == [False]
    (run,) = resume(tmp_path, **QUICK)
    assert outcome(run) == outcome(heard[0])


def test_a_hook_that_fails_at_the_end_leaves_a_finished_run(tmp_path: Path, heard: tuple[Path, Tape]) -> None:
    class Broken(Hook):
        def on_end(self, event: EndEvent) -> None:
            raise RuntimeError("too late")

    with pytest.raises(OutsideCodeError, match=r"Broken\.on_end failed at step \d+: RuntimeError: too late .*\.$") as caught:
        start(tmp_path, hooks=[Broken()])
    assert "resume" not in str(caught.value)
    assert outcome(tmp_path / heard[0].relative_to(heard[0].parents[2])) == outcome(heard[0])


def test_a_hook_that_fails_while_a_run_is_stopped_does_not_hide_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Hook):
        def on_end(self, event: EndEvent) -> None:
            raise RuntimeError("cannot close")

    stop_at(monkeypatch, 25)
    with pytest.raises(StoppedError):
        start(tmp_path, hooks=[Broken()])
    assert "The hook Broken.on_end failed at step 25: RuntimeError: cannot close" in capsys.readouterr().err


def test_an_error_that_is_a_sentence_already_stays_one(tmp_path: Path) -> None:
    class Refuses(Hook):
        def on_start(self, event: StartEvent) -> None:
            raise UsageError("not today.")

    with pytest.raises(UsageError, match=r"^not today\.$"):
        start(tmp_path, hooks=[Refuses()])
