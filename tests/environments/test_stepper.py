"""Steppers: the same steps in this process and in workers, and workers that end."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from comper.environments import atari
from comper.environments import stepper as stepper_module
from comper.environments.atari import AtariSettings
from comper.environments.environment import EnvironmentFactory, EnvironmentInfo, Step
from comper.environments.stepper import ProcessStepper, SerialStepper, Stepper
from comper.errors import ComperError, ResourceError, UsageError

GAMES = ("freeway", "asterix", "klax")


class Counter:
    """An environment whose frame is the number of its steps, and which fails at action 9."""

    def __init__(self, trial: int, width: int) -> None:
        self.info = EnvironmentInfo(
            name="counter",
            observation_shape=(width,),
            observation_dtype=np.dtype(np.float32),
            observation_kind="vector",
            action_names=tuple("0123456789"),
        )
        self.observations_per_step = 2
        self._trial = trial
        self._count = 0

    def reset(self) -> NDArray[np.float32]:
        self._count = 0
        return np.full(self.info.observation_shape, self._trial, np.float32)

    def step(self, action: int) -> Step:
        if action == 9:
            raise ZeroDivisionError(f"nine in trial {self._trial}")
        if action == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1
        frames = np.full((2, *self.info.observation_shape), self._trial + self._count / 100, np.float32)
        return Step(frames, reward=action / 10, terminated=self._count == 3, truncated=False, num_frames=2)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = state["count"]


@dataclass(frozen=True)
class CounterFactory:
    trial: int
    width: int = 3

    def __call__(self) -> Counter:
        return Counter(self.trial, self.width)


@pytest.fixture(scope="module", params=["serial", "processes"])
def counters(request: pytest.FixtureRequest) -> Iterator[Stepper]:
    factories = [CounterFactory(trial) for trial in range(5)]
    if request.param == "serial":
        yield SerialStepper([factory() for factory in factories])
    else:
        with ProcessStepper(factories, num_workers=2) as stepper:
            yield stepper


def atari_factories(first_seed: int = 11) -> list[EnvironmentFactory]:
    settings = AtariSettings(episode_cap_frames=150)
    return [
        partial(atari.make, game, settings, seed=np.random.SeedSequence((first_seed, trial)), observations_per_step=4)
        for trial, game in enumerate(GAMES)
    ]


def play(stepper: Stepper, num_steps: int) -> list[tuple[int, bytes, float, bool, bool, int]]:
    """Step a changing choice of trials at random, and return all there is to see."""
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(num_steps):
        trials = rng.permutation(stepper.num_trials)[: rng.integers(1, stepper.num_trials + 1)].tolist()
        for trial, step in zip(trials, stepper.step(rng.integers(18, size=len(trials)).tolist(), trials), strict=True):
            seen.append((trial, step.frames.tobytes(), step.reward, step.terminated, step.truncated, step.num_frames))
            if step.is_last:
                seen.append((trial, stepper.reset(trial).tobytes(), 0.0, False, False, 0))
    return seen


def test_workers_and_one_process_play_the_same_games_and_exchange_their_states() -> None:
    serial = SerialStepper([factory() for factory in atari_factories()])
    with ProcessStepper(atari_factories(), num_workers=2) as processes:
        for trial in range(len(GAMES)):
            np.testing.assert_array_equal(serial.reset(trial), processes.reset(trial))
        assert play(serial, 20) == play(processes, 20)
        continued = SerialStepper([factory() for factory in atari_factories(first_seed=0)])
        for trial in range(len(GAMES)):
            continued.load_state_dict(trial, processes.state_dict(trial))
        expected = play(serial, 20)
        assert play(continued, 20) == expected
        for trial in range(len(GAMES)):
            processes.load_state_dict(trial, continued.state_dict(trial))
        assert play(processes, 10) == play(continued, 10)


def test_only_the_listed_trials_are_stepped_in_the_order_of_the_list(counters: Stepper) -> None:
    for trial in range(5):
        assert counters.reset(trial).tolist() == [trial] * 3
    steps = counters.step([1, 2, 3], [4, 0, 1])
    assert [step.frames[0, 0] for step in steps] == [np.float32(4.01), np.float32(0.01), np.float32(1.01)]
    assert [step.reward for step in steps] == [0.1, 0.2, 0.3]
    assert [counters.state_dict(trial)["count"] for trial in range(5)] == [1, 1, 0, 0, 1]


def test_frames_of_earlier_steps_are_not_overwritten(counters: Stepper) -> None:
    first = counters.reset(2)
    earlier = counters.step([0], [2])[0]
    counters.step([0], [2])
    assert first.tolist() == [2.0] * 3
    assert earlier.frames.tolist() == [[np.float32(2.01)] * 3] * 2


def test_end_of_an_episode_is_reported(counters: Stepper) -> None:
    counters.reset(3)
    steps = [counters.step([0], [3])[0] for _ in range(3)]
    assert [step.terminated for step in steps] == [False, False, True]
    assert all(step.num_frames == 2 and not step.truncated for step in steps)


def test_learner_may_work_between_send_and_receive_but_ask_nothing_else(counters: Stepper) -> None:
    counters.reset(0)
    counters.send([1], [0])
    for question in (lambda: counters.reset(0), lambda: counters.send([1], [1]), lambda: counters.state_dict(0)):
        with pytest.raises(ValueError, match=r"still stepping: call receive\(\) first"):
            question()
    assert len(counters.receive()) == 1
    with pytest.raises(ValueError, match=r"call send\(\) before receive"):
        counters.receive()


def test_no_trials_at_all_is_no_work(counters: Stepper) -> None:
    assert counters.step([], []) == []


@pytest.mark.parametrize(
    ("actions", "trials", "message"),
    [
        ([1], [0, 1], r"1 actions for the trials \[0, 1\]: each trial takes one"),
        ([1, 1], [0, 0], r"2 actions for the trials \[0, 0\]: each trial takes one"),
        ([1], [5], "trial = 5: must be 0 to 4"),
        ([1], [-1], "trial = -1: must be 0 to 4"),
    ],
)
def test_wrong_lists_are_refused(counters: Stepper, actions: list[int], trials: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        counters.step(actions, trials)


def test_failure_in_a_worker_is_one_sentence_and_the_others_go_on() -> None:
    with ProcessStepper([CounterFactory(trial) for trial in range(4)], num_workers=2) as stepper:
        for _ in range(2):
            with pytest.raises(ComperError, match="failed in its worker process: ZeroDivisionError: nine in trial 1"):
                stepper.step([0, 9, 0], [0, 1, 2])
        assert stepper.state_dict(2) == {"count": 2}
        assert stepper.step([5], [3])[0].reward == 0.5


def test_death_of_a_worker_is_one_sentence() -> None:
    with (
        ProcessStepper([CounterFactory(trial) for trial in range(4)], num_workers=2) as stepper,
        pytest.raises(ComperError, match=r"worker process of trials 1, 3 was killed \(SIGKILL\).*--workers"),
    ):
        stepper.step([0, 8], [0, 1])


def test_failure_to_make_an_environment_keeps_its_own_words() -> None:
    with pytest.raises(UsageError, match="Did you mean freeway"):
        ProcessStepper([partial(atari.make, "frewway", AtariSettings(), seed=np.random.SeedSequence(0))], num_workers=1)


def test_environments_of_different_shapes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Trial 1 \(counter\) has .* must be alike; train these with two commands"):
        SerialStepper([Counter(0, width=3), Counter(1, width=4)])


def test_empty_stepper_and_no_worker_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one environment"):
        SerialStepper([])
    with pytest.raises(ValueError, match="num_workers = 0: must be 1 or more"):
        ProcessStepper([CounterFactory(0)], num_workers=0)


def test_closed_stepper_says_so_and_can_be_closed_again() -> None:
    stepper = ProcessStepper([CounterFactory(0)], num_workers=1)
    process = stepper._workers[0].process
    stepper.close()
    stepper.close()
    assert process.exitcode == 0
    with pytest.raises(ValueError, match="The stepper is closed"):
        stepper.reset(0)


def test_shared_memory_has_no_name_left() -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no /dev/shm here")
    before = set(shared.glob("comper-*"))
    with ProcessStepper([CounterFactory(0)], num_workers=1):
        assert set(shared.glob("comper-*")) <= before


PARENT = """
import time
import numpy as np

from comper.environments import ProcessStepper, find_environment

if __name__ == "__main__":
    factories = [find_environment(game).factory(seed=np.random.SeedSequence(0)) for game in ("freeway", "pong")]
    stepper = ProcessStepper(factories, num_workers=2)
    print(*[worker.process.pid for worker in stepper._workers], flush=True)
    time.sleep(60)
"""


def test_workers_import_no_file_of_the_working_folder(tmp_path: Path) -> None:
    script, folder = tmp_path / "parent.py", tmp_path / "downloaded"
    script.write_text(PARENT.replace("time.sleep(60)", "stepper.close()"))
    folder.mkdir()
    for module in ("struct", "selectors", "cv2"):
        (folder / f"{module}.py").write_text(f"open('{module}-ran', 'w')\nraise ImportError\n")
    source = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}  # not relative: the working folder is another
    subprocess.run([sys.executable, str(script)], cwd=folder, env=os.environ | source, check=True, capture_output=True)
    assert sorted(path.name for path in folder.iterdir()) == ["cv2.py", "selectors.py", "struct.py"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_workers_die_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    deadline = time.monotonic() + 10
    while any(_is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "orphans"
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# What the system refuses


def full_shared_memory(monkeypatch: pytest.MonkeyPatch, *, everywhere: bool) -> list[Path]:
    """Let no room be left in /dev/shm, or nowhere; return the folders that were tried."""
    tried: list[Path] = []
    reserved_file = stepper_module._reserved_file

    def fail(folder: Path, num_bytes: int) -> Path:
        tried.append(folder)
        if everywhere or len(tried) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return reserved_file(folder, num_bytes)

    monkeypatch.setattr(stepper_module, "_reserved_file", fail)
    return tried


def test_full_shared_memory_is_replaced_by_a_file_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = full_shared_memory(monkeypatch, everywhere=False)
    with ProcessStepper([CounterFactory(0)], num_workers=1) as stepper:
        assert stepper.step([1], [0])[0].reward == 0.1
    assert tried == [Path("/dev/shm"), Path(tempfile.gettempdir())]


def test_no_room_for_shared_memory_is_a_sentence_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    full_shared_memory(monkeypatch, everywhere=True)
    with pytest.raises(ResourceError, match=r"No space left on device.*--workers 0"):
        ProcessStepper([CounterFactory(0)], num_workers=1)


def test_the_bytes_of_shared_memory_are_there_before_they_are_written_to(tmp_path: Path) -> None:
    path = stepper_module._reserved_file(tmp_path, 1_000_000)
    assert path.stat().st_blocks * 512 >= 1_000_000, "a hole would be a bus error once the disk is full"


def test_a_worker_without_memory_is_exit_code_4() -> None:
    def hungry() -> None:
        raise MemoryError("Unable to allocate 2 TiB")

    error, _ = stepper_module._answer(hungry)
    assert isinstance(error, ResourceError)
    assert "too little memory" in str(error)
