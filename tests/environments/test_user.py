"""Environments of the user's own: `my_module:make_env`, and Python callables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from comper.environments.environment import EnvironmentInfo, Step
from comper.environments.families import find_environment
from comper.environments.stepper import ProcessStepper
from comper.errors import UsageError

MODULE = """
import gymnasium

class Short(gymnasium.Wrapper):
    pass

def make_env():
    return Short(gymnasium.make("CartPole-v1"))

number = 7
"""


class Countdown:
    """An environment with the project's own interface."""

    def __init__(self, seed: int = 0) -> None:
        self.info = EnvironmentInfo(
            name="countdown",
            observation_shape=(1,),
            observation_dtype=np.dtype(np.int64),
            observation_kind="vector",
            action_names=("wait",),
        )
        self.observations_per_step = 1
        self.seed = seed
        self._left = 3

    def reset(self) -> NDArray[Any]:
        self._left = 3
        return np.array([self._left])

    def step(self, action: int) -> Step:
        self._left -= 1
        return Step(np.array([[self._left]]), 1.0, self._left == 0, False, 1)

    def state_dict(self) -> dict[str, Any]:
        return {"left": self._left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._left = state["left"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module of the user's; what the import leaves behind is undone."""
    (tmp_path / "users_own_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "users_own_module", raising=False)
    return tmp_path


def seed(number: int = 0) -> np.random.SeedSequence:
    return np.random.SeedSequence(number)


@pytest.mark.usefixtures("folder")
def test_function_in_a_module_of_the_working_folder_is_found_and_runs_in_workers() -> None:
    spec = find_environment("users_own_module:make_env")
    assert spec.is_picklable
    env = spec.factory(seed=seed())()
    assert (env.info.name, env.info.observation_shape, env.info.resume) == ("users_own_module:make_env", (4,), "")
    with ProcessStepper([spec.factory(seed=seed())], num_workers=1) as stepper:
        np.testing.assert_array_equal(stepper.reset(0), env.reset())


def test_working_folder_comes_last_where_modules_are_looked_for(folder: Path) -> None:
    assert str(folder) not in sys.path
    find_environment("users_own_module:make_env")
    assert sys.path[-1] == str(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("users_own_module:mak_env", r"has no 'mak_env'\. Did you mean users_own_module:make_env"),
        ("users_own_module:number", "users_own_module:number is not a function or class"),
        ("broken_module:make_env", r"broken_module fails when it is imported: ZeroDivisionError.*broken_module\.py, line 2"),
        ("needy_module:make_env", "needy_module needs no_such_library, which is not installed"),
    ],
)
def test_what_is_wrong_with_a_module_is_one_sentence(folder: Path, name: str, message: str) -> None:
    (folder / "broken_module.py").write_text("\n1 / 0\n")
    (folder / "needy_module.py").write_text("import no_such_library\n")
    with pytest.raises(UsageError, match=message):
        find_environment(name)


def test_callable_is_called_by_the_class_of_what_it_makes_and_stays_in_this_process() -> None:
    for make in (Countdown, lambda: Countdown()):
        spec = find_environment(make)
        assert (spec.name, spec.is_picklable) == ("python:Countdown", False)
    assert find_environment(lambda: gymnasium.make("CartPole-v1")).name == "python:CartPoleEnv"


def test_a_callable_that_needs_an_argument_is_refused() -> None:
    def make_env(size: int) -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1", max_episode_steps=size)

    with pytest.raises(UsageError, match="needs size: it must be callable without arguments"):
        find_environment(make_env)


def test_own_interface_is_used_as_it_is_and_gets_the_seed() -> None:
    factory = find_environment(Countdown).factory(seed=seed(3))
    first, second = factory(), factory()
    assert isinstance(first, Countdown)
    assert isinstance(second, Countdown)
    assert first.seed == second.seed != Countdown().seed
    assert first.reset().tolist() == [3]


def test_actions_of_an_own_interface_are_held() -> None:
    env = find_environment(Countdown).factory(seed=seed(), observations_per_step=4)()
    env.reset()
    step = env.step(0)
    assert step.frames.tolist() == [[2], [1], [0], [0]]
    assert (step.num_frames, step.reward, step.terminated) == (3, 3.0, True)


def test_same_object_again_is_refused() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(UsageError, match="returns the same object every time"):
        find_environment(lambda: env).factory(seed=seed())()


def test_environment_that_can_be_made_only_once_trains_but_says_that_it_cannot_resume() -> None:
    made: list[Any] = []

    class Lonely(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self) -> None:
            if made:
                raise OSError("the port is in use")
            made.append(self)
            super().__init__(gymnasium.make("CartPole-v1"))

    env = find_environment(Lonely).factory(seed=seed())()
    assert "cannot be made and played a second time (OSError: the port is in use)" in env.info.resume
    assert env.reset().shape == (4,)


@pytest.mark.parametrize("made", [7, object()])
def test_what_is_no_environment_is_refused(made: object) -> None:
    with pytest.raises(UsageError, match="neither a Gymnasium environment nor one with info, observations_per_step"):
        find_environment(lambda: made).factory(seed=seed())()


def test_info_of_another_kind_is_refused() -> None:
    class Wrong(Countdown):
        def __init__(self) -> None:
            super().__init__()
            self.info: Any = {"name": "wrong"}

    with pytest.raises(UsageError, match="`info` that is not a comper"):
        find_environment(Wrong).factory(seed=seed())()
