"""One name per environment: families, spellings, suggestions, trust."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from comper.environments.environment import EnvironmentSettings
from comper.environments.families import FAMILIES, all_names, find_environment, folder_name, outside_module
from comper.errors import UsageError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("freeway", "freeway"),
        ("ALE/SpaceInvaders-v5", "space_invaders"),
        ("gym:CartPole-v1", "gym:CartPole-v1"),
        ("Gym:cartpole-v1", "gym:CartPole-v1"),
        ("gym:minigrid:MiniGrid-Empty-5x5-v0", "gym:minigrid:MiniGrid-Empty-5x5-v0"),
        ("minatar:Space Invaders", "minatar:space_invaders"),
        (" minatar:breakout ", "minatar:breakout"),
        ("minigrid:DoorKey-6x6-v0", "minigrid:DoorKey-6x6-v0"),
        ("minigrid:MiniGrid-DoorKey-6x6-v0", "minigrid:DoorKey-6x6-v0"),
        ("minigrid:BabyAI-GoToLocal-v0", "minigrid:BabyAI-GoToLocal-v0"),
    ],
)
def test_usual_spellings_lead_to_the_one_name(spelling: str, name: str) -> None:
    spec = find_environment(spelling)
    assert spec.name == name
    assert spec.is_picklable
    assert find_environment(name) == spec


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.prefix or "atari")
def test_every_family_makes_its_example_and_names_it(family: object) -> None:
    assert isinstance(family, type(FAMILIES[""]))
    spec = find_environment(family.example)
    env = spec.factory(seed=np.random.SeedSequence(0))()
    assert env.info.name == spec.name == family.example
    assert env.reset().shape == env.info.observation_shape
    assert spec.name in all_names()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.prefix or "atari")
def test_settings_are_frozen_and_say_what_they_are(family: object) -> None:
    assert isinstance(family, type(FAMILIES[""]))
    assert isinstance(family.settings, EnvironmentSettings)
    for f in type(family.settings).__dataclass_fields__.values():
        assert f.metadata["help"]
        assert f.metadata["source"]
        assert f.type in ("int", "float", "str")


def test_factories_are_picklable_and_make_the_same_environment() -> None:
    factory = find_environment("gym:CartPole-v1").factory(seed=np.random.SeedSequence(4))
    copy = pickle.loads(pickle.dumps(factory))  # noqa: S301 -- as multiprocessing does
    np.testing.assert_array_equal(factory().reset(), copy().reset())


def test_atari_environment_draws_from_the_seed_alone() -> None:
    from comper.environments.atari import AtariEnvironment

    seed = np.random.SeedSequence(7)
    found = find_environment("asterix").factory(seed=seed)()
    direct = AtariEnvironment("asterix", rng=np.random.default_rng(seed))
    np.testing.assert_array_equal(found.reset(), direct.reset())
    for action in range(18):
        np.testing.assert_array_equal(found.step(action).frames, direct.step(action).frames)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("frewway", r"No environment is called 'frewway'\. Did you mean freeway"),
        ("cartpole", r"Did you mean gym:CartPole-v1"),
        ("gym:CartPole", r"Did you mean gym:CartPole-v1"),
        ("gymm:CartPole-v1", r"no module gymm in this folder.* Did you mean gym:CartPole-v1"),
        ("minatar:brekout", r"Did you mean minatar:breakout"),
        ("doorkey-6x6", r"Did you mean minigrid:DoorKey-6x6-v0"),
        ("0000", r"Names look like freeway, gym:CartPole-v1, minatar:breakout, minigrid:DoorKey-6x6-v0 or my_module:make_env"),
        ("no_such_module_here:make_env", r"There is no module no_such_module_here in this folder"),
        ("../evil:make_env", r"is not the name of a Python module"),
        ("python:MyEnv", r"made by a Python callable, which cannot be found by a name"),
        ("", r"No environment is called ''"),
    ],
)
def test_wrong_name_is_answered_with_a_remedy(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_environment(name)


def test_name_from_a_file_runs_no_code_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "untrusted_module.py").write_text("raise SystemError('it ran')")
    monkeypatch.chdir(tmp_path)
    for name in ("untrusted_module:make_env", "gym:untrusted_module:Env-v0"):
        expected = re.escape(f"{name}, which is code from outside comper") + ".*add --trust untrusted_module"
        with pytest.raises(UsageError, match=expected):
            find_environment(name, trusted=())
        assert outside_module(name) == "untrusted_module"
    for name in ("gym:CartPole-v1", "freeway", "minatar:breakout"):
        assert find_environment(name, trusted=()).name == name
        assert outside_module(name) is None


def test_what_a_python_callable_made_is_not_looked_for_by_name() -> None:
    with pytest.raises(UsageError, match="give the callable again from Python"):
        find_environment("python:MyEnv", trusted=())


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("minatar", "minatar:breakout", "minatar"), ("minigrid", "minigrid:DoorKey-6x6-v0", "minigrid")],
)
def test_missing_package_is_answered_with_the_install_command(module: str, name: str, extra: str) -> None:
    script = f"""
import sys
sys.modules["{module}"] = None
from comper.environments import find_environment
from comper.errors import UsageError
try:
    find_environment("{name}")
except UsageError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f'pip install "comper[{extra}]"' in result.stdout


def test_settings_of_another_family_are_refused() -> None:
    with pytest.raises(UsageError, match="minatar:breakout takes MinAtarSettings, not AtariSettings"):
        find_environment("minatar:breakout").factory(FAMILIES[""].settings, seed=np.random.SeedSequence(0))
    with pytest.raises(ValueError, match="observations_per_step = 0: must be 1 or more"):
        find_environment("minatar:breakout").factory(seed=np.random.SeedSequence(0), observations_per_step=0)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("freeway", "freeway"),
        ("gym:CartPole-v1", "gym-CartPole-v1"),
        ("minigrid:DoorKey-6x6-v0", "minigrid-DoorKey-6x6-v0"),
        ("gym:package:Name/Sub-v0", "gym-package-Name-Sub-v0"),
        ("my.module:make_env", "my.module-make_env"),
        ("../..", "environment"),
    ],
)
def test_folder_names_are_safe_and_keep_those_of_atari(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_importing_the_registry_imports_nothing_heavy() -> None:
    names = ["ale_py", "cv2", "gymnasium", "minatar", "minigrid", "torch", "matplotlib"]
    code = f"import sys, comper.environments.families; print([n for n in {names} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
