"""What a run is given: options that cost, settings that decide, and the same settings read back from its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from comper.agents.dqn import DQN, DQNConfig
from comper.agents.random_policy import RANDOM
from comper.agents.registry import AGENTS, find_agent
from comper.environments.environment import EnvironmentSettings
from comper.environments.families import find_environment
from comper.errors import DamagedFileError, OtherVersionError, OutsideCodeError, UsageError
from comper.protocol import AgentConfig
from comper.runs.files import digest
from comper.runs.manifest import Manifest
from comper.settings import fields_of, with_settings
from comper.training.options import (
    NO_OWN_CODE,
    OwnCode,
    RunOptions,
    RunSettings,
    default_settings,
    named_agent,
    recorded_environment,
    recorded_settings,
    resolve_settings,
)
from tests.training.lamp import Light, linear_network

ASTERIX, PONG, CARTPOLE = (find_environment(name) for name in ("asterix", "pong", "gym:CartPole-v1"))


def resolved(agent: Any = "dqn", environment: Any = ASTERIX, **changes: Any) -> RunSettings:
    return resolve_settings(agent, [environment], changes, where="test")


# Options.


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workers": -1}, r"workers = -1: must be 0 or more, at most 4,096"),
        ({"workers": 4_097}, r"workers = 4097"),
        ({"checkpoint_period_steps": -1}, r"checkpoint_period_steps = -1: must be 0 \(never\) or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RunOptions(**changes)


def test_checkpoints_are_off_at_a_period_of_zero_alone() -> None:
    assert [RunOptions(checkpoint_period_steps=period).with_checkpoints for period in (None, 0, 1)] == [True, False, True]


@pytest.mark.parametrize(
    ("cores", "trials", "expected"), [(8, 1, 0), (8, 2, 2), (8, 5, 5), (8, 40, 7), (2, 5, 0), (3, 5, 2), (1, 5, 0)]
)
def test_workers_are_chosen_by_trials_and_cores(
    cores: int, trials: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comper.training.options.usable_cores", lambda: cores)
    assert RunOptions().num_workers(trials) == expected
    assert RunOptions(workers=3).num_workers(trials) == 3
    assert RunOptions(workers=0).num_workers(trials) == 0


@pytest.mark.parametrize(
    ("device", "has_gpu", "expected"),
    [("auto", True, "cuda"), ("auto", False, "cpu"), ("cpu", True, "cpu"), ("cuda", True, "cuda")],
)
def test_the_device_is_a_gpu_where_there_is_one_and_it_is_wanted(
    device: str, has_gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert RunOptions(device).torch_device().type == expected


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="PyTorch sees no CUDA GPU"):
        RunOptions("cuda").torch_device()
    with pytest.raises(UsageError, match=r"Unknown device 'tpu'\. Devices: auto, cpu, cuda"):
        RunOptions("tpu").torch_device()


# Settings.


def test_an_agents_own_settings_come_before_the_environments_and_the_users_before_both() -> None:
    assert getattr(resolved("comper-single").environment, "pooling", None) != "max"
    assert resolved("dqn").environment.pooling == "max"  # type: ignore[attr-defined]
    changed = resolved("dqn", pooling="none", batch_size=7)
    assert changed.environment.pooling == "none"  # type: ignore[attr-defined]
    assert changed.config == DQNConfig(batch_size=7)
    assert not hasattr(default_settings(DQN, CARTPOLE.settings)[1], "pooling")  # nothing to change there


def test_an_agent_may_have_settings_of_its_own_in_a_family() -> None:
    own = dataclasses.replace(DQN, in_family={"gymnasium": DQNConfig(batch_size=7)})
    assert resolved(own, CARTPOLE).config == DQNConfig(batch_size=7)
    assert resolved(own, CARTPOLE, batch_size=8).changed() == {"batch_size": [8, 7]}
    assert resolved(own).config == DQN.config
    assert default_settings(own, EnvironmentSettings())[0] is DQN.config


@pytest.mark.parametrize(
    ("in_family", "says"),
    [
        ({"minatr": DQNConfig()}, "dqn has settings in_family 'minatr': write one of atari, gymnasium, minatar, minigrid"),
        ({"atari": AgentConfig()}, "dqn has settings in_family 'atari' of type AgentConfig: give a DQNConfig"),
        ({"atari": {"batch_size": 7}}, "of type dict: give a DQNConfig"),
    ],
)
def test_settings_in_a_family_that_nobody_would_get_are_refused(in_family: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        resolved(dataclasses.replace(DQN, in_family=in_family))


def test_changes_are_those_from_the_agents_own_settings() -> None:
    assert resolved("dqn").changed() == {}
    changed = resolved("dqn", discount=0.5, pooling="none").changed()
    assert changed == {"discount": [0.5, 0.99], "pooling": ["none", "max"]}


def test_environments_of_different_families_are_not_trained_together() -> None:
    assert resolve_settings("random", [ASTERIX, PONG], {}, where="test").environment == ASTERIX.settings
    with pytest.raises(UsageError, match="asterix and gym:CartPole-v1 cannot be trained together"):
        resolve_settings("random", [ASTERIX, PONG, CARTPOLE], {}, where="test")


def test_a_setting_of_another_environment_is_unknown() -> None:
    with pytest.raises(UsageError, match="test: frame_skip is not a setting of"):
        resolved("random", CARTPOLE, frame_skip=3)


def test_an_agent_handed_over_is_named_as_such() -> None:
    assert named_agent(RANDOM) == ("python:random", RANDOM)
    assert named_agent("random") == ("random", RANDOM)


# The user's own network.


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "networks_of_a_user.py").write_text("from tests.training.lamp import linear_network as make\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "networks_of_a_user"


def test_a_network_is_taken_from_python_or_by_name(own_module: str) -> None:
    handed_over = resolve_settings("dqn", [ASTERIX], {}, where="test", network=linear_network)
    assert (handed_over.network, handed_over.own_network) == (linear_network, "python:linear_network")
    named = resolved("dqn", network=f"{own_module}:make")
    assert named.network is linear_network
    assert named.outside_code == [f"{own_module}:make"]
    assert (resolved("dqn").network, resolved("dqn").own_network, resolved("dqn").outside_code) == (None, None, [])
    assert resolved("random", CARTPOLE).own_network is None


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ("my_network", "network = 'my_network': must be auto, or my_module:make_network"),
        ("python:linear_network", r"python:linear_network was handed over from Python; hand it over again as network="),
    ],
)
def test_a_name_that_leads_to_no_network_is_refused(network: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"^test: .*{says}"):
        resolved("dqn", network=network)


def test_an_agent_without_networks_takes_none() -> None:
    with pytest.raises(UsageError, match="test: the agent random has no network"):
        resolve_settings("random", [ASTERIX], {}, where="test", network=linear_network)


def test_a_network_that_cannot_be_made_is_said_before_the_run() -> None:
    def failing(state_shape: tuple[int, ...], num_actions: int) -> torch.nn.Module:
        raise TypeError("of my own")

    settings = resolve_settings("dqn", [CARTPOLE], {}, where="test", network=failing)
    with pytest.raises(OutsideCodeError, match=r"fails \(TypeError: of my own\)"):
        settings.check(CARTPOLE.info())
    resolve_settings("dqn", [CARTPOLE], {}, where="test", network=linear_network).check(CARTPOLE.info())


def test_an_agents_own_check_is_asked() -> None:
    resolved("constant", CARTPOLE, action="1").check(CARTPOLE.info())
    with pytest.raises(UsageError, match="action = 'UP'"):
        resolved("constant", CARTPOLE, action="UP").check(CARTPOLE.info())


def test_a_task_is_what_the_environment_says_of_itself() -> None:
    info = CARTPOLE.info()
    task = resolve_settings("dqn", [CARTPOLE], {}, where="test", network=linear_network).task(info)
    assert (task.observation_shape, task.observation_dtype, task.observation_kind) == ((4,), info.observation_dtype, "vector")
    assert (task.action_names, task.make_network) == (info.action_names, linear_network)


# A recorded run.


def record(folder: Path, settings: RunSettings, environment: str = "gym:CartPole-v1") -> Manifest:
    text = settings.to_toml()
    (folder / "config.toml").write_text(text)
    sha256 = digest(text.encode())["sha256"]
    return Manifest(agent=settings.agent_name, game=environment, seed=0, config_sha256=sha256)


def test_recorded_settings_are_those_the_run_was_made_with(tmp_path: Path) -> None:
    settings = resolved("dqn", CARTPOLE, batch_size=7, discount=0.5)
    assert recorded_settings(tmp_path, record(tmp_path, settings), NO_OWN_CODE) == settings


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("batch_size = 7", "batch_size = 8"), "not the configuration the run was started with"),
        (lambda text: text.replace("batch_size = 7", "batch_size = 0"), "greater than 0"),
        (lambda text: text + "colour = 1\n", "unknown setting 'colour'"),
        (lambda text: "batch_size =", "not a TOML file"),
    ],
    ids=["another value", "a wrong value", "an unknown name", "no TOML"],
)
def test_a_changed_configuration_is_damage(change: Callable[[str], str], says: str, tmp_path: Path) -> None:
    manifest = record(tmp_path, resolved("dqn", CARTPOLE, batch_size=7))
    path = tmp_path / "config.toml"
    path.write_text(change(path.read_text()))
    with pytest.raises(DamagedFileError, match=rf"config\.toml: .*{says}"):
        recorded_settings(tmp_path, manifest, NO_OWN_CODE)


def without(text: str, *names: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.split(" = ")[0] not in names)


def recorded_as(folder: Path, text: str, agent: str) -> Manifest:
    (folder / "config.toml").write_text(text)
    sha256 = digest(text.encode())["sha256"]
    return Manifest(agent=agent, game="gym:CartPole-v1", seed=0, config_sha256=sha256, versions={"comper": "0.1.9"})


def test_a_setting_that_was_added_since_is_what_was_done_before_it(tmp_path: Path) -> None:
    settings = resolved("comper-single", CARTPOLE, discount=0.5)
    assert vars(settings.config)["qlstm_mean_square_start"] == 1.0, "the default of now is another"
    names = ("qlstm_mean_square_start", "input_scale", "rtm")
    manifest = recorded_as(tmp_path, without(settings.to_toml(), *names), "comper-single")
    found = recorded_settings(tmp_path, manifest, NO_OWN_CODE)
    assert found == resolved("comper-single", CARTPOLE, discount=0.5, qlstm_mean_square_start=0.0)
    (tmp_path / "config.toml").write_text(settings.to_toml())
    with pytest.raises(DamagedFileError, match="not the configuration the run was started with"):
        recorded_settings(tmp_path, manifest, NO_OWN_CODE)


def test_other_settings_than_this_version_has_are_named_and_not_called_damage(tmp_path: Path) -> None:
    text = without(resolved("dqn", CARTPOLE).to_toml(), "batch_size", "discount") + "colour = 1\n"
    manifest = recorded_as(tmp_path, text, "dqn")
    says = r"comper 0\.1\.9, .*does not have batch_size, discount and has colour, which nothing here knows\. Go on with that"
    with pytest.raises(OtherVersionError, match=says):
        recorded_settings(tmp_path, manifest, NO_OWN_CODE)


def test_a_setting_that_was_taken_out_is_heeded_only_where_it_was_on(tmp_path: Path) -> None:
    settings = resolved("comper", CARTPOLE, batch_size=7)
    manifest = recorded_as(tmp_path, settings.to_toml() + "habit_steps = 0\n", "comper")
    assert recorded_settings(tmp_path, manifest, NO_OWN_CODE) == settings
    manifest = recorded_as(tmp_path, settings.to_toml() + "habit_steps = 100\n", "comper")
    with pytest.raises(OtherVersionError, match="the run has habit_steps, which nothing here knows"):
        recorded_settings(tmp_path, manifest, NO_OWN_CODE)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_was_done_before_a_setting_is_a_value_of_it(agent: str) -> None:
    parts = default_settings(find_agent(agent), CARTPOLE.settings)
    before = {f.name: f.metadata["before"] for _, f in fields_of(parts) if f.metadata["before"] is not None}
    changed = with_settings(parts, before, where="before")
    assert {f.name: getattr(part, f.name) for part, f in fields_of(changed) if f.name in before} == before


def test_a_run_of_comper_from_before_its_random_actions_were_by_count_goes_on_with_any(tmp_path: Path) -> None:
    settings = resolved("comper", CARTPOLE)
    manifest = recorded_as(tmp_path, without(settings.to_toml(), "random_actions"), "comper")
    found = recorded_settings(tmp_path, manifest, NO_OWN_CODE)
    assert found.to_dict() == settings.to_dict() | {"random_actions": "any"}


def test_code_that_a_file_names_is_imported_only_where_it_is_trusted(tmp_path: Path, own_module: str) -> None:
    manifest = record(tmp_path, resolved("dqn", CARTPOLE, network=f"{own_module}:make"))
    with pytest.raises(OutsideCodeError, match=f"--trust {own_module}"):
        recorded_settings(tmp_path, manifest, OwnCode(trusted=("another",)))
    assert recorded_settings(tmp_path, manifest, OwnCode(trusted=(own_module,))).network is linear_network


def test_what_was_handed_over_from_python_is_handed_over_again(tmp_path: Path) -> None:
    environment = find_environment(Light)
    settings = resolve_settings(DQN, [environment], {}, where="test", network=linear_network)
    manifest = record(tmp_path, settings, environment.name)
    whole: dict[str, Any] = {"agent": DQN, "environment": Light, "network": linear_network}
    assert recorded_settings(tmp_path, manifest, OwnCode(**whole)) == settings
    assert recorded_environment(manifest, OwnCode(environment=Light)).name == "python:Light"
    for what in whole:
        with pytest.raises(OutsideCodeError, match=rf"handed over from Python: hand it over again, from Python, as {what}="):
            recorded_settings(tmp_path, manifest, OwnCode(**{**whole, what: None}))


def test_a_trial_on_a_cpu_has_one_thread_unless_it_is_told_or_recorded_otherwise() -> None:
    before, cpu = torch.get_num_threads(), torch.device("cpu")
    found = []
    for options, recorded in ((RunOptions(), None), (RunOptions(threads=3), None), (RunOptions(), 2), (RunOptions(), 10**9)):
        with options.torch_threads(cpu, recorded):
            found.append(torch.get_num_threads())
        assert torch.get_num_threads() == before
    assert found == [1, 3, 2, before], "more threads than anyone has are not taken from a manifest"


def test_processes_share_the_workers_and_are_quiet() -> None:
    share = RunOptions(workers=5, processes=2).shared_by(2, 10)
    assert (share.workers, share.processes, share.show_progress) == (3, 1, False)
    assert RunOptions(workers=5).shared_by(2, 1).workers == 0, "one trial needs none"
