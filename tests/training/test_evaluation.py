"""After training: policies, scores without learning on, the user's own environments and networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper import evaluate, load, resume, train
from comper.errors import OutsideCodeError, StoppedError, UsageError
from comper.training.checkpointing import Checkpointer
from tests.training.lamp import Light, linear_network

QUICK: dict[str, Any] = {"device": "cpu", "workers": 0, "show_progress": False}
SMALL: dict[str, Any] = {"frames": 400, "replay_start_steps": 32, "target_period_steps": 40, "log_period_steps": 50}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on an environment and with a network that are Python objects."""
    settings = SMALL | {
        "frames": 2_000,
        "epsilon_decay_frames": 800,
        "step_size": 0.01,
        "observation": "single",
        "discount": 0.0,
    }
    out = tmp_path_factory.mktemp("runs")
    (folder,) = train(Light, "ddqn", out=out, network=linear_network, train_period_steps=1, **settings, **QUICK)
    return folder


def test_the_users_environment_and_network_are_recorded_by_name(run: Path) -> None:
    assert run.parts[-3:] == ("ddqn", "python-Light", "seed-0")
    config = (run / "config.toml").read_text()
    assert 'network = "python:linear_network"' in config
    assert "frame_skip" not in config  # a setting of Atari games


def test_a_trained_policy_scores_what_it_learned(run: Path) -> None:
    result = evaluate(run, episodes=20, environment=Light, network=linear_network, show_progress=False)
    assert len(result.scores) == 20
    assert result.mean > 14  # a random policy gets 8
    assert result.interval()[0] <= result.mean <= result.interval()[1]
    again = evaluate(run, episodes=20, environment=Light, network=linear_network, show_progress=False)
    assert again.scores == result.scores
    assert "score without learning: not measured" in str(result)


def test_a_policy_predicts_and_has_q_values(run: Path) -> None:
    policy = load(run, environment=Light, network=linear_network, device="cpu")
    for side in (0, 1):
        observation = np.eye(2, dtype=np.float32)[side]
        assert policy.predict(observation) == side
        q = policy.q_values(observation)
        assert q.shape == (2,)
        assert q.argmax() == side
    with pytest.raises(ValueError, match="expected"):
        policy.predict(np.zeros(3, np.float32))


def test_what_was_handed_over_from_python_must_be_handed_over_again(run: Path) -> None:
    with pytest.raises(OutsideCodeError, match=r"hand it over again, from Python, as environment=\.\.\."):
        load(run, network=linear_network)
    with pytest.raises(OutsideCodeError, match=r"as network=\.\.\."):
        load(run, environment=Light)


def test_a_run_of_a_python_environment_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(out: str) -> Path:
        settings = {"checkpoint_period_steps": 100, "network": linear_network, "observation": "single"}
        return train(lambda: Light(), "ddqn", out=tmp_path / out, **settings, **SMALL, **QUICK)[0]  # type: ignore[arg-type]

    whole = start("whole")
    after_step = Checkpointer.after_step

    def ask_to_stop(self: Checkpointer, trials: Any, step: int) -> None:
        self._request.name = "SIGTERM" if step == 230 else None
        after_step(self, trials, step)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "after_step", ask_to_stop)
        with pytest.raises(StoppedError):
            start("stopped")
    (folder,) = resume(tmp_path / "stopped", environment=Light, network=linear_network, **QUICK)
    for name in ("episodes.jsonl", "weights.safetensors"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("name", ["gym:CartPole-v1", "minatar:breakout", "minigrid:Empty-5x5-v0"])
def test_every_family_trains_evaluates_and_resumes_as_atari_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(out: str) -> Path:
        settings = SMALL | {"checkpoint_period_steps": 100}
        return train(name, "comper-single", out=tmp_path / out, **settings, **QUICK)[0]

    whole = start("whole")
    after_step = Checkpointer.after_step

    def ask_to_stop(self: Checkpointer, trials: Any, step: int) -> None:
        self._request.name = "SIGTERM" if step == 230 else None
        after_step(self, trials, step)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "after_step", ask_to_stop)
        with pytest.raises(StoppedError):
            start("stopped")
    (folder,) = resume(tmp_path / "stopped", **QUICK)
    for file in ("episodes.jsonl", "weights.safetensors"):
        assert (folder / file).read_bytes() == (whole / file).read_bytes()
    assert len(evaluate(folder, episodes=2, device="cpu", show_progress=False).scores) == 2


def test_wrong_use_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="episodes = 0"):
        evaluate(run, episodes=0)
    (random_run,) = train("gym:CartPole-v1", "random", frames=100, out=tmp_path, **QUICK)
    with pytest.raises(UsageError, match="has no weights"):
        load(random_run)
    with pytest.raises(UsageError, match="cannot be trained together"):
        train(["freeway", "gym:CartPole-v1"], "random", frames=100, out=tmp_path, **QUICK)
    with pytest.raises(UsageError, match="unknown setting 'frame_skip'"):
        train("gym:CartPole-v1", "random", frames=100, frame_skip=3, out=tmp_path, **QUICK)
