"""After training: policies, scores without learning on, the user's own environments and networks."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
import torch

from comper import Evaluation, evaluate, load, resume, train
from comper.agents.registry import find_agent
from comper.cli import main
from comper.environments.families import find_environment
from comper.environments.floors import ConstantFloor, Floor, Floors, RandomFloor, save_floors
from comper.environments.minigrid import MiniGridSettings
from comper.errors import DivergedError, OutsideCodeError, StoppedError, UsageError
from comper.learners.autofire import Autofire
from comper.memory.known_values import KnownValues
from comper.protocol import ACTION_NAMES
from comper.runs.files import digest, sealed
from comper.runs.folder import MANIFEST_FILE, WEIGHTS_FILE
from comper.training.checkpointing import Checkpointer
from comper.training.randomness import environment_seed, evaluation_seed
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
        q = policy.q_values(observation)
        assert policy.predict(observation) == side
        assert q.shape == (2,)
        assert q.argmax() == side
        assert np.array_equal(policy.q_values(), q)
    with pytest.raises(ValueError, match="expected"):
        policy.predict(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="values that float32 has not"):
        policy.predict(np.full(2, np.nan))
    with pytest.raises(ValueError, match="epsilon = 5"):
        policy.predict(np.zeros(2, np.float32), epsilon=5)


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


def test_a_frozen_policy_acts_by_the_graph_as_the_agent_did(tmp_path: Path) -> None:
    pytest.importorskip("minigrid")
    short: dict[str, Any] = {
        "frames": 1_500,
        "replay_start_steps": 200,
        "epsilon_decay_frames": 1_000,
        "refresh_period_steps": 100,
    }
    [path] = train("minigrid:Empty-5x5-v0", "comper", out=tmp_path, checkpoint_period_steps=500, **QUICK, **short)
    with_graph = evaluate(path, episodes=5, epsilon=0.0, show_progress=False)
    assert with_graph.mean > 0.9  # the shortest way; the network of so few updates does not know it
    half_way = load(path, checkpoint=500)
    assert half_way.step == 500
    policy = load(path)
    agent: Any = policy._agent
    assert len(agent.graphs[0].given) > 20
    picture = find_environment("minigrid:Empty-5x5-v0").factory(MiniGridSettings(), seed=np.random.SeedSequence(0))().reset()
    by_graph = policy.q_values(picture)
    agent.graphs[0].given = KnownValues.none(1, len(by_graph))
    assert not np.array_equal(policy.q_values(picture), by_graph)


def test_wrong_use_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="episodes = 0"):
        evaluate(run, episodes=0)
    with pytest.raises(UsageError, match="cannot be trained together"):
        train(["freeway", "gym:CartPole-v1"], "random", frames=100, out=tmp_path, **QUICK)
    with pytest.raises(UsageError, match="frame_skip is not a setting of gym:CartPole-v1"):
        train("gym:CartPole-v1", "random", frames=100, frame_skip=3, out=tmp_path, **QUICK)


def test_a_network_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    def narrow(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return linear_network(state_shape, num_actions + 1)

    def blind(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return torch.nn.Linear(999, num_actions)

    for network, says in ((narrow, r"expected Q-values of shape \(2, 2\)"), (blind, "cannot read 2 states of shape")):
        with pytest.raises(UsageError, match=says):
            train(Light, "dqn", out=tmp_path, network=network, **SMALL, **QUICK)
    with pytest.raises(UsageError, match="has no network"):
        train(Light, "random", out=tmp_path, frames=100, network=linear_network, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_networks_that_could_not_be_repeated_or_saved_are_refused(tmp_path: Path) -> None:
    def drops(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return torch.nn.Sequential(linear_network(state_shape, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, num_actions))

    def lazy(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(num_actions))

    def normalises(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return torch.nn.Sequential(linear_network(state_shape, num_actions), torch.nn.BatchNorm1d(num_actions))

    def no_module(state_shape: tuple[int, ...], num_actions: int) -> Any:
        return lambda states: states

    cases = ((drops, "draws at random"), (lazy, "lazy layer"), (normalises, "cannot read"), (no_module, "not a torch.nn.Mod"))
    for network, says in cases:
        with pytest.raises(UsageError, match=says):
            train(Light, "dqn", out=tmp_path, network=network, **SMALL, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_an_evaluation_plays_other_episodes_than_training_did() -> None:
    def seeds(sequence: np.random.SeedSequence) -> list[int]:
        return [int(x) for x in np.random.default_rng(sequence).integers(2**31, size=5)]

    assert seeds(evaluation_seed(0)) != seeds(environment_seed(0))
    assert seeds(evaluation_seed(0)) == seeds(evaluation_seed(0))
    # The streams of training are those of the first four children, as ever.
    assert seeds(environment_seed(0)) == seeds(np.random.SeedSequence(0).spawn(4)[3])


def test_a_policy_without_learning_can_be_evaluated(tmp_path: Path) -> None:
    (folder,) = train("gym:CartPole-v1", "random", frames=100, out=tmp_path, **QUICK)
    assert evaluate(folder, episodes=3, show_progress=False).mean > 1


def test_two_environments_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Two environments are called python:Light"):
        train([lambda: Light(), lambda: Light()], "random", frames=100, out=tmp_path, **QUICK)
    with pytest.raises(UsageError, match="at least one environment"):
        train([], "random", frames=100, out=tmp_path, **QUICK)


def test_another_agent_than_the_run_was_made_with_is_refused(tmp_path: Path) -> None:
    first, second = (dataclasses.replace(find_agent("random"), name=name) for name in ("first", "second"))
    (folder,) = train(Light, first, frames=100, out=tmp_path, **QUICK)
    with pytest.raises(OutsideCodeError, match="a run of the agent python:first, not of python:second"):
        load(folder, agent=second, environment=Light)


def stopped(out: Path, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    after_step = Checkpointer.after_step

    def ask_to_stop(self: Checkpointer, trials: Any, step: int) -> None:
        self._request.name = "SIGTERM" if step == 30 else None
        after_step(self, trials, step)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "after_step", ask_to_stop)
        for name in names:
            with pytest.raises(StoppedError):
                train(name, "random", frames=400, out=out, **QUICK)


def test_runs_of_unlike_environments_are_resumed_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path, ["gym:CartPole-v1", "gym:Acrobot-v1"], monkeypatch)
    assert len(resume(tmp_path, **QUICK)) == 2


def test_one_environment_that_cannot_be_resumed_switches_checkpoints_off_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = QUICK | {"show_progress": True, "processes": 1}  # in processes of their own, the other is saved
    short: dict[str, Any] = {"frames": 100, "episode_cap_frames": 100, "checkpoint_period_steps": 10}
    folders = train(["freeway", "qbert"], "random", out=tmp_path, **short, **options)
    assert not any((folder / "checkpoints").exists() for folder in folders)
    assert "no checkpoints, because a run could not be resumed: ALE does not restore qbert" in capsys.readouterr().err


def test_q_values_change_nothing_and_see_the_history(tmp_path: Path) -> None:
    (folder,) = train("gym:CartPole-v1", "dqn", out=tmp_path, **SMALL, **QUICK)
    once, twice = load(folder, device="cpu"), load(folder, device="cpu")
    rng = np.random.default_rng(0)
    for _ in range(6):
        observation = rng.normal(size=4).astype(np.float32)
        peeked = twice.q_values(observation)
        assert np.array_equal(twice.q_values(observation), peeked)
        assert once.predict(observation) == twice.predict(observation)
        assert np.array_equal(once.q_values(), peeked)
        assert np.array_equal(twice.q_values(), peeked)
    once.reset()
    with pytest.raises(ValueError, match="No observation yet"):
        once.q_values()


def test_an_environment_as_an_object_and_wrong_agents_and_networks_get_a_sentence(tmp_path: Path) -> None:
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        (Light(), "dqn", {}, "not the object itself"),
        (Light, Light, {}, "give its name, or an AgentSpec"),
        (Light, "dqn", {"network": 3}, r"give a function \(state_shape, num_actions\)"),
    ]
    for environment, agent, settings, says in wrong:
        with pytest.raises(UsageError, match=says):
            train(environment, agent, out=tmp_path, **settings, **SMALL, **QUICK)
    (folder,) = train(Light, "random", frames=64, out=tmp_path, **QUICK)
    with pytest.raises(OutsideCodeError, match=r"made in python:Light, not in python:Other"):
        load(folder, environment=type("Other", (Light,), {}))


def test_settings_are_known_by_their_synonyms_and_as_whole_numbers(tmp_path: Path) -> None:
    (folder,) = train("gym:CartPole-v1", "dqn", out=tmp_path, lr=1e-3, gamma=0.9, timesteps=1e2, **QUICK)
    config = (folder / "config.toml").read_text()
    assert "step_size = 0.001\n" in config
    assert "discount = 0.9\n" in config
    assert "frames = 100\n" in config


@pytest.fixture(scope="module")
def saved_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints at steps 200 and 300."""
    out = tmp_path_factory.mktemp("saved")
    return train("gym:CartPole-v1", "dqn", out=out, checkpoint_period_steps=100, **SMALL, **QUICK)[0]


def test_a_checkpoint_is_evaluated_with_its_own_weights(saved_run: Path) -> None:
    early, late = (load(saved_run, checkpoint=step, device="cpu") for step in (200, 300))
    final = load(saved_run, device="cpu")
    assert (early.step, late.step) == (200, 300)
    assert final.step is not None
    assert final.step > 300
    observation = np.full(4, 0.1, np.float32)
    values = [policy.q_values(observation).tolist() for policy in (early, late, final)]
    assert values[0] != values[1] != values[2]
    result = evaluate(saved_run, checkpoint=200, episodes=2, device="cpu", show_progress=False)
    assert (result.step, result.run) == (200, str(saved_run))
    with pytest.raises(UsageError, match=r"has no checkpoint at step 250\. Its checkpoints: 200, 300\."):
        load(saved_run, checkpoint=250)


def test_the_command_evaluates_all_runs_of_a_folder_and_prints_json(
    saved_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = saved_run.parents[2]
    train("gym:CartPole-v1", "random", frames=50, out=out, **QUICK)
    assert main(["evaluate", str(out), "--episodes", "2", "--device", "cpu", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["agent"] for line in lines] == ["dqn", "random"]
    assert all(len(line["scores"]) == 2 and line["interval"][0] <= line["mean"] <= line["interval"][1] for line in lines)
    assert lines[1]["step"] is None
    assert main(["evaluate", str(saved_run), "--episodes", "1", "--device", "cpu", "--checkpoint", "200"]) == 0
    assert "dqn on gym:CartPole-v1, weights of step 200: mean score" in capsys.readouterr().out
    assert main(["evaluate", str(out), "--checkpoint", "200", "--episodes", "1", "--device", "cpu"]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{saved_run}: dqn on")  # what could be played was
    assert "the agent random learns nothing" in captured.err


def test_floors_that_were_measured_stand_beside_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = tmp_path / "floors.json"
    constants = {"0": ConstantFloor(8.0, 2)}
    floor = Floor(RandomFloor(18.0, 1.0, 2), constants, "0", "2026-11-15", {}, {"episode_cap_frames": 0})
    save_floors(Floors({"gym:CartPole-v1": {1: floor}}), measured)
    (plain,) = train("gym:CartPole-v1", "dqn", out=tmp_path / "plain", **SMALL, **QUICK)
    (given,) = train("gym:CartPole-v1", "dqn", out=tmp_path / "given", floors=measured, **SMALL, **QUICK)
    words = ["evaluate", str(plain), "--episodes", "1", "--device", "cpu"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "score without learning: not measured" in captured.out
    assert "`comper floors gym:CartPole-v1 --out floors.json`, then --floors" in captured.err
    assert main([*words, "--floors", str(measured)]) == 0
    captured = capsys.readouterr()
    assert "score without learning: 18.0" in captured.out
    assert "comper floors" not in captured.err
    assert evaluate(given, episodes=1, device="cpu", show_progress=False).floor == 18.0, "as the run recorded it"
    assert main([*words, "--floors", str(tmp_path / "nothing.json")]) == 2


def test_a_score_counts_as_above_the_floor_where_its_whole_interval_is() -> None:
    results = [Evaluation("a", "e", 0.0, scores, 10.0) for scores in ((12.0, 13.0, 14.0), (2.0, 13.0, 30.0), (1.0, 2.0))]
    assert [result.is_above_floor for result in results] == [True, False, False]
    assert [str(result).rpartition(": ")[2] for result in results] == ["10.0 (above it)", *["10.0 (not above it)"] * 2]
    assert dataclasses.replace(results[0], floor=None).is_above_floor is None


def test_the_interval_of_very_many_episodes_is_drawn_in_parts() -> None:
    rng = np.random.default_rng(0)
    result = Evaluation("a", "e", 0.0, tuple(rng.normal(5, 2, 30_000).tolist()), None)
    low, high = result.interval(num_resamples=200)
    assert high - low == pytest.approx(2 * 1.96 * 2 / 30_000**0.5, rel=0.2)
    assert low < result.mean < high


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_a_policy_plays_in_a_plain_gymnasium_loop(name: str, tmp_path: Path) -> None:
    (run,) = train(f"gym:{name}", "dqn", out=tmp_path, **SMALL, **QUICK)
    policy, env = load(run, device="cpu"), gymnasium.make(name)
    observation, _ = env.reset(seed=0)
    for _ in range(30):
        action = policy.predict(observation)
        assert policy.q_values().argmax() == action
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            policy.reset()
            observation, _ = env.reset()
    if name == "FrozenLake-v1":
        assert np.array_equal(policy.q_values(3), policy.q_values(np.arange(16) == 3))
        with pytest.raises(ValueError, match="observation 99: expected 0 to 15"):
            policy.predict(99)


@pytest.mark.parametrize("is_by_turns", [True, False])
def test_a_policy_presses_the_button_as_has_paid_more(
    is_by_turns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Autofire, "weights", lambda autofire, trial: {"button": np.array([int(is_by_turns)])})
        small: dict[str, Any] = {"screen_size": 36, "episode_cap_frames": 60, "frames": 60}
        (run,) = train("asterix", "comper", autofire_steps=3, out=tmp_path, **small, **QUICK)
    policy = load(run, device="cpu")
    screens = np.random.default_rng(0).integers(0, 256, (20, 36, 36), np.uint8)
    seen = [ACTION_NAMES[policy.predict(screen, epsilon=1.0)] for screen in screens]
    assert (["FIRE" in name for name in seen] == [True, False] * 10) == is_by_turns
    assert len({name.removesuffix("FIRE") for name in seen}) > 4, "the stick is the network's"
    assert policy.q_values().shape == (18,)
    taken: list[int] = []
    press = Autofire.pressed

    def watched(*given: Any) -> int:
        taken.append(press(*given))
        return taken[-1]

    monkeypatch.setattr(Autofire, "pressed", watched)
    assert evaluate(run, episodes=1, epsilon=1.0, device="cpu", show_progress=False).scores == (0.0,)
    pressed = ["FIRE" in ACTION_NAMES[action] for action in taken]
    assert len(pressed) == 12
    assert (pressed == [True, False] * 6) == is_by_turns


def test_an_agent_without_q_values_says_so(tmp_path: Path) -> None:
    (folder,) = train("gym:CartPole-v1", "random", frames=50, out=tmp_path, **QUICK)
    policy = load(folder, device="cpu")
    assert not policy.has_q_values
    with pytest.raises(UsageError, match="The agent random has no Q-values"):
        policy.q_values(np.zeros(4, np.float32))


def with_huge_weights(run: Path, copy: Path) -> Path:
    """A copy of a run whose weights are finite, as its digests say, and much too large."""
    shutil.copytree(run, copy)
    weights = safetensors.numpy.load((copy / WEIGHTS_FILE).read_bytes())
    content = safetensors.numpy.save({name: np.full_like(array, 3e38) for name, array in weights.items()})
    (copy / WEIGHTS_FILE).write_bytes(content)
    manifest = json.loads((copy / MANIFEST_FILE).read_text())
    manifest["files"][WEIGHTS_FILE] = digest(content)
    del manifest["sha256"]
    (copy / MANIFEST_FILE).write_text(json.dumps(sealed(manifest)))
    return copy


def test_what_is_no_number_is_never_played_with(saved_run: Path, tmp_path: Path) -> None:
    run = with_huge_weights(saved_run, tmp_path / "seed-0")
    with pytest.raises(DivergedError, match=r"with the weights of step \d+, a Q-value is NaN or infinite"):
        evaluate(run, episodes=1, device="cpu", show_progress=False)
    with pytest.raises(DivergedError, match="a Q-value is NaN or infinite"):
        load(run, device="cpu").q_values(np.full(4, 0.1, np.float32))
    assert evaluate(run, checkpoint=200, episodes=1, device="cpu", show_progress=False).step == 200


def test_a_damaged_run_does_not_keep_the_others_from_being_evaluated(
    saved_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(saved_run, tmp_path / "a" / "seed-0")
    shutil.copytree(saved_run, tmp_path / "b" / "seed-0")
    (tmp_path / "a" / "seed-0" / WEIGHTS_FILE).write_bytes(b"")
    assert main(["evaluate", str(tmp_path), "--episodes", "1", "--device", "cpu"]) == 3
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{tmp_path / 'b' / 'seed-0'}: dqn on")
    assert f"{tmp_path / 'a' / 'seed-0'}: left out." in captured.err


def test_a_run_whose_library_is_missing_is_not_called_damaged(
    saved_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert main(["evaluate", str(saved_run), "--device", "cpu"]) == 2
    assert 'needs Gymnasium: pip install "comper[gymnasium]"' in capsys.readouterr().err
