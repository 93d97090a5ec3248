"""Training from the command line and from Python: what is written, and what is refused before anything is."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from comper import Agent, AgentConfig, AgentSpec, Task, TrialSetup
from comper.agents.registry import AGENTS
from comper.cli import main
from comper.environments.families import find_environment
from comper.environments.floors import Floors, measure_floor, save_floors
from comper.errors import UsageError
from comper.protocol import PAPER_GAMES
from comper.runs.manifest import Manifest
from comper.training.options import resolve_settings
from comper.training.start import introduction
from comper.training.train import find_environments, train
from tests.training.lamp import Light, linear_network
from tests.training.small_runs import SMALL, interrupted

QUICK: dict[str, Any] = {"device": "cpu", "workers": 0, "processes": 1, "show_progress": False}
SHORT = ["--frames", "400", "--episode-cap-frames", "600"]
AGENT_FLAGS = {
    "comper": ["--replay-start-steps", "20", "--refresh-period-steps", "40"],
    "comper-single": ["--replay-start-steps", "20", "--target-period-steps", "40"],
    "comper-stacked": ["--replay-start-steps", "8", "--target-period-steps", "12", "--alignment", "max"],
    "dqn": ["--replay-start-steps", "20", "--target-period-steps", "40"],
    "ddqn": ["--replay-start-steps", "20", "--target-period-steps", "40"],
    "random": [],
    "constant": ["--action", "UP"],
}


def episodes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("agent", list(AGENTS))
def test_train_writes_a_complete_run_folder(agent: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["train", "Asterix", "--agent", agent, "--out", str(tmp_path), *SHORT, *AGENT_FLAGS[agent]]
    assert main([*words, "--log-period-steps", "20"]) == 0
    folder = tmp_path / agent / "asterix" / "seed-0"
    table = capsys.readouterr().out
    assert "asterix" in table
    assert "floor" in table
    assert str(folder) in table
    played = episodes(folder)
    assert list(played[0]) == ["episode", "score", "frames", "steps", "total_frames", "truncated"]
    assert played[-1]["total_frames"] > 400
    assert played[-1]["total_frames"] == sum(episode["frames"] for episode in played)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert {"agent", "game", "seed", "device", "versions", "commit", "identity", "created", "wall_seconds"} <= set(manifest)
    assert set(manifest["identity"]) == {"rom_md5", "ale_py", "opencv"}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    expected = {"steps", "total_frames", "episodes", "epsilon", "steps_per_second"}
    if agent == "comper":
        expected |= {"cnn_loss", "nodes", "edges", "visits", "travelled_steps", "refresh_passes", "bytes_held"}
    if agent.startswith("comper-"):
        expected |= {"cnn_loss", "qlstm_loss", "tm_sets", "rtm_sets", "known_sets", "similar_hits", "bytes_held"}
        assert lines[-1]["cnn_loss"] is not None
        assert 0 < lines[-1]["rtm_sets"] <= lines[-1]["known_sets"]
    assert expected <= set(lines[-1])
    # A second run into the same folder is refused, and nothing is touched.
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert main(words) == 2
    assert "already holds" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
def test_same_seed_same_log_other_seed_other_log_and_company_changes_nothing(tmp_path: Path) -> None:
    flags = ["--agent", "comper-single", *SHORT, *AGENT_FLAGS["comper-single"]]
    for name, seed in (("first", "0"), ("again", "0"), ("other", "1")):
        assert main(["train", "asterix", "--seed", seed, "--out", str(tmp_path / name), *flags]) == 0
    assert main(["train", "asterix", "pong", "--trials", "2", "--workers", "2", "--out", str(tmp_path / "many"), *flags]) == 0

    def log(name: str, seed: int) -> bytes:
        return (tmp_path / name / "comper-single" / "asterix" / f"seed-{seed}" / "episodes.jsonl").read_bytes()

    assert log("first", 0) == log("again", 0) == log("many", 0)
    assert log("other", 1) == log("many", 1)
    assert log("first", 0) != log("other", 1)


@pytest.mark.slow
def test_library_trains_in_three_lines(tmp_path: Path) -> None:
    (folder,) = train("pong", "random", frames=200, episode_cap_frames=300, out=tmp_path, show_progress=False)
    assert episodes(folder)[-1]["truncated"]


def test_train_offers_to_resume_what_is_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = interrupted(tmp_path, monkeypatch)
    flags = [word for key, value in SMALL.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    assert main(["train", "asterix", "--agent", "comper-single", "--out", str(tmp_path), *flags]) == 2
    assert f"unfinished run of the same configuration. Continue it with `comper resume {folder}`" in capsys.readouterr().err
    assert main(["train", "asterix", "--agent", "comper-single", "--out", str(tmp_path)]) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_a_network_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    def narrow(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return linear_network(state_shape, num_actions + 1)

    def blind(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        return torch.nn.Linear(999, num_actions)

    def failing(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        raise ValueError("no such layer")

    cases = [(narrow, r"expected Q-values of shape \(2, 2\)"), (blind, "cannot read 2 states of shape")]
    cases += [(failing, r"failing\(state_shape, num_actions\) fails \(ValueError: no such layer\)")]
    for network, says in cases:
        with pytest.raises(UsageError, match=says):
            train(Light, "dqn", out=tmp_path, network=network, frames=400, **QUICK)
    with pytest.raises(UsageError, match="has no network"):
        train(Light, "random", out=tmp_path, frames=100, network=linear_network, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_an_agent_without_a_method_it_needs_is_refused(tmp_path: Path) -> None:
    class Half(Agent):
        def __init__(self, config: AgentConfig, task: Task, trials: Sequence[TrialSetup], *, device: Any) -> None: ...

    half: Any = Half
    with pytest.raises(UsageError, match="The agent half lacks act"):
        train(Light, AgentSpec("half", "half an agent", half, AgentConfig()), out=tmp_path, frames=100, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_argument_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown setting 'agnet'\. Did you mean agent"):
        train("gym:CartPole-v1", agnet="dqn", out=tmp_path)


def test_everything_that_is_not_installed_is_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("torch", "cv2"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r'^Not installed: torch, cv2\. pip install "comper\[train,atari\]"$'):
        train(["freeway", "pong"], out=tmp_path)


def test_a_floor_that_the_user_measured_is_recorded(tmp_path: Path) -> None:
    spec = find_environment("gym:CartPole-v1")
    frames, floor = measure_floor(spec, workers=0)
    save_floors(Floors({}).with_measured(spec.name, frames, floor), tmp_path / "floors.json")
    options: dict[str, Any] = {"frames": 30, "show_progress": False, "floors": tmp_path / "floors.json", "workers": 0}
    [plain] = train("gym:CartPole-v1", "random", out=tmp_path / "a", **options)
    assert Manifest.read(plain).floor == floor.value
    [capped] = train("gym:CartPole-v1", "random", out=tmp_path / "b", episode_cap_frames=10, **options)
    assert Manifest.read(capped).floor is None  # it was not measured with this limit
    [held] = train("gym:CartPole-v1", "random", out=tmp_path / "c", observation="stacked", **options)
    assert Manifest.read(held).floor is None


def test_environments_are_found_each_once_and_paper_stands_for_eight() -> None:
    assert [spec.name for spec in find_environments(["Pong", "pong", "asterix"])] == ["pong", "asterix"]
    assert [spec.name for spec in find_environments(["asterix", "paper"])] == sorted(PAPER_GAMES, key="asterix".__ne__)


@pytest.mark.parametrize(("trials", "seed"), [(0, 0), (-1, 0), (100_001, 0), (1, -1), (1, 2**63)])
def test_numbers_of_trials_and_seeds_that_make_no_sense_are_refused(trials: int, seed: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"trials = {trials}, seed = {seed}: there must be at least 1 trial"):
        train("gym:CartPole-v1", "random", trials=trials, seed=seed, out=tmp_path, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_trials_are_the_seeds_of_every_environment_and_know_each_other(tmp_path: Path) -> None:
    names = ["pong", "asterix"]
    folders = train(names, "random", seed=3, trials=2, frames=30, episode_cap_frames=50, out=tmp_path, **QUICK)
    trials = [f"{name}/seed-{seed}" for name in names for seed in (3, 4)]
    manifests = [Manifest.read(folder) for folder in folders]
    assert [manifest.trial for manifest in manifests] == trials
    assert all(manifest.population == trials for manifest in manifests)
    assert all(manifest.is_finished and manifest.learns is False for manifest in manifests)
    assert {tuple(manifest.changed) for manifest in manifests} == {("frames", "episode_cap_frames")}
    assert manifests[0].identity["rom_md5"] != manifests[2].identity["rom_md5"]  # each environment's own


def test_one_folder_that_is_taken_stops_all_trials_before_the_first_frame(tmp_path: Path) -> None:
    train("gym:CartPole-v1", "random", seed=1, frames=30, out=tmp_path, **QUICK)
    with pytest.raises(UsageError, match="already holds a run"):
        train("gym:CartPole-v1", "random", seed=0, trials=2, frames=40, out=tmp_path, **QUICK)
    assert [path.name for path in tmp_path.rglob("seed-*")] == ["seed-1"]


def test_a_network_by_name_is_a_setting_and_auto_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "networks_to_train.py").write_text("from tests.training.lamp import linear_network as make\n")
    monkeypatch.syspath_prepend(tmp_path)
    (named,) = train(Light, "dqn", frames=30, out=tmp_path / "named", network="networks_to_train:make", **QUICK)
    assert Manifest.read(named).network == "networks_to_train:make"
    (automatic,) = train(Light, "dqn", frames=30, out=tmp_path / "auto", network="auto", **QUICK)
    assert Manifest.read(automatic).network is None
    (handed_over,) = train(Light, "dqn", frames=30, out=tmp_path / "handed", network=linear_network, **QUICK)
    assert Manifest.read(handed_over).network == "python:linear_network"


def test_the_introduction_says_what_is_trained_on_what_and_what_is_changed() -> None:
    spec = find_environment("gym:CartPole-v1")
    info = spec.info()
    settings = resolve_settings("dqn", [spec], {"discount": 0.5}, where="test")
    first, *others = introduction(settings, [info, info], "cpu").splitlines()
    assert first == "dqn on gym:CartPole-v1: 2 trials, cpu"
    assert others[0].startswith("network: MLP")
    assert others[1:] == ["changed: discount = 0.5"]
    plain = resolve_settings("random", [spec], {}, where="test")
    assert introduction(plain, [info], "cpu") == "random on gym:CartPole-v1: 1 trial, cpu"
    forgetful = dataclasses.replace(info, resume="it forgets.")
    assert introduction(plain, [forgetful], "cpu").endswith("a run could not be resumed: it forgets.")
