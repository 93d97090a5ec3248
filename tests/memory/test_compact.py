"""CompactMemory: sets, forgetting, frames that never leak, sampling, and files that are whole or refused."""

from __future__ import annotations

import doctest
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from comper.errors import DamagedFileError, ResourceError, UsageError
from comper.memory import CompactMemory, SampledTransitions, array_folder, compact

Pixels = npt.NDArray[np.uint8]


def pixels(*values: int) -> Pixels:
    return np.array(values, np.uint8)


def played(memory: CompactMemory, count: int, *, seed: int = 0, levels: int = 4) -> list[int]:
    """Add random transitions between observations of few levels; return the set ids."""
    rng = np.random.default_rng(seed)
    high = min(levels, 2) if memory.dtype == np.bool_ else levels
    ids = []
    for _ in range(count):
        s, s_next = rng.integers(0, high, (2, *memory.observation_shape)).astype(memory.dtype)
        ids.append(memory.add(s, int(rng.integers(3)), float(rng.integers(2)), s_next, bool(rng.random() < 0.2)))
    return ids


def columns(batch: SampledTransitions) -> list[bytes]:
    return [array.tobytes() for array in vars(batch).values()]


def check(memory: CompactMemory) -> None:
    is_valid, message = memory.check_valid()
    assert is_valid, message


# Sets.


def test_the_example_in_the_docstring_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(compact)
    assert (result.failed, result.attempted > 8) == (0, True)


def test_equal_transitions_are_one_set_and_others_are_not() -> None:
    memory = CompactMemory(10, (2,))
    a, b = pixels(1, 2), pixels(3, 4)
    assert memory.add(a, 0, 1.0, b, False) == 0
    assert memory.add(a, 0, 1.0, b, False) == 0
    for others in ((b, 0, 1.0, b), (a, 1, 1.0, b), (a, 0, 0.5, b), (a, 0, 1.0, a)):
        assert memory.add(*others, False) == len(memory) - 1
    assert (len(memory), memory.set_sizes.tolist(), memory.set_ids.tolist()) == (5, [2, 1, 1, 1, 1], [0, 1, 2, 3, 4])
    assert [memory.count(i) for i in (-1, 0, 4, 5)] == [0, 2, 1, 0]
    check(memory)


def test_similar_transitions_join_the_nearest_set() -> None:
    memory = CompactMemory(10, (1,), similarity=10 / 255)
    for value, set_id in ((100, 0), (130, 1), (110, 0), (120, 1), (141, 2), (115, 3)):
        assert memory.add(pixels(value), 0, 0.0, pixels(0), False) == set_id
    assert memory.set_sizes.tolist() == [2, 2, 1, 1]
    drawn = memory.sample(100)
    assert set(drawn.observations.ravel().tolist()) == {100, 130, 141, 115}  # the first transition of a set stands for it
    check(memory)


def test_the_latest_transition_of_a_set_says_whether_the_episode_terminated() -> None:
    memory = CompactMemory(1, (1,))
    for terminated in (True, False, True):
        memory.add(pixels(1), 0, 0.0, pixels(2), terminated)
        assert memory.sample(1).terminated.tolist() == [terminated]


def test_the_oldest_set_is_forgotten_and_new_if_it_is_met_again() -> None:
    memory = CompactMemory(2, (1,))
    assert [memory.add(pixels(v), 0, 0.0, pixels(v), False) for v in (0, 1, 0, 2, 1, 0)] == [0, 1, 0, 2, 1, 3]
    assert memory.set_ids.tolist() == [2, 3]
    assert memory.set_sizes.tolist() == [1, 1]
    assert [memory.count(i) for i in range(5)] == [0, 0, 1, 1, 0]
    check(memory)


@pytest.mark.parametrize("similarity", [0.0, 0.01])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_only_the_frames_of_remembered_sets_are_held(similarity: float, compression: str) -> None:
    memory = CompactMemory(100, (5, 5), similarity=similarity, compression=compression)
    rng = np.random.default_rng(0)
    observations = rng.integers(0, 256, (2_001, 5, 5), dtype=np.uint8)
    for t in range(2_000):
        memory.add(observations[t], 0, 0.0, observations[t + 1], False)
    assert len(memory) == 100
    assert len(memory._store) == 101
    assert memory._store.capacity <= 1024
    check(memory)
    drawn = memory.sample(500)
    assert (drawn.observations == observations[drawn.set_ids]).all()
    assert (drawn.next_observations == observations[drawn.set_ids + 1]).all()


def test_stacks_of_frames_share_their_frames() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (54, 6, 6), dtype=np.uint8)
    stacked, whole = CompactMemory(100, (4, 6, 6), frame_stack=True), CompactMemory(100, (4, 6, 6))
    for memory in (stacked, whole):
        for t in range(50):
            memory.add(frames[t : t + 4], t, 0.0, frames[t + 1 : t + 5], False)
        check(memory)
    assert len(stacked._store) == 54
    assert stacked._store.nbytes < whole._store.nbytes / 3
    drawn = stacked.sample(60)
    assert columns(drawn) == columns(whole.sample(60))
    np.testing.assert_array_equal(drawn.observations, np.stack([frames[t : t + 4] for t in drawn.actions]))


def test_the_memory_keeps_copies() -> None:
    memory, observation = CompactMemory(5, (2,)), pixels(1, 2)
    memory.add(observation, 0, 0.0, observation, False)
    observation[:] = 9
    memory.sample(1).observations[:] = 7
    assert memory.sample(1).observations.tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 2)])
def test_observations_of_any_shape_and_kind_of_number(dtype: type, shape: tuple[int, ...], tmp_path: Path) -> None:
    memory = CompactMemory(50, shape, dtype=dtype, similarity=0.5)
    played(memory, 80)
    check(memory)
    drawn = memory.sample(7)
    assert (drawn.observations.shape, drawn.observations.dtype) == ((7, *shape), np.dtype(dtype))
    kinds = [array.dtype for array in (drawn.actions, drawn.rewards, drawn.terminated, drawn.set_ids)]
    assert kinds == [np.int64, np.float32, np.bool_, np.int64]
    memory.save(tmp_path)
    assert columns(CompactMemory.load(tmp_path).sample(9)) == columns(memory.sample(9))


def test_sampling_is_uniform_over_sets() -> None:
    memory = CompactMemory(10, (1,))
    for v in range(15):
        for _ in range(v):  # how often a set was met does not matter
            memory.add(pixels(v), 0, 0.0, pixels(v), False)
    counts = np.bincount(memory.sample(100_000).set_ids)
    # 10,000 expected of each, standard deviation 95: five of them are 475.
    assert np.abs(counts[4:] - 10_000).max() < 475
    assert not counts[:4].any()


def test_the_seed_alone_decides_the_samples() -> None:
    drawn = []
    for seed in (0, 0, 1):
        memory = CompactMemory(50, (2,), seed=seed)
        played(memory, 60)
        drawn.append(columns(memory.sample(20)))
    assert drawn[0] == drawn[1] != drawn[2]


def test_no_transitions_are_drawn_if_none_are_wanted() -> None:
    memory = CompactMemory(5, (3, 2))
    played(memory, 3)
    assert memory.sample(0).observations.shape == (0, 3, 2)


# Mistakes.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 0}, "capacity = 0"),
        ({"similarity": -1.0}, "similarity = -1.0: must be 0 or more"),
        ({"similarity": float("nan")}, "similarity = nan"),
        ({"dtype": object}, "dtype = object"),
        ({"observation_shape": (2, 0)}, "observation_shape"),
        ({"observation_shape": (), "frame_stack": True}, "observation_shape"),
        ({"compression": "rar"}, "compression = 'rar'"),
        ({"compression": ["zlib"]}, "compression = "),
        ({"capacity": 2.5}, "capacity = 2.5: must be an integer"),
        ({"capacity": None}, "capacity = None: must be an integer"),
        ({"observation_shape": 84}, "observation_shape = 84: must be a tuple of integers"),
        ({"observation_shape": ("84",)}, "observation_shape = '84': must be an integer"),
        ({"similarity": None}, "similarity = None: must be a finite number"),
        ({"similarity": "near"}, "similarity = 'near': must be a finite number"),
        ({"dtype": "pixels"}, "dtype = 'pixels': must be a kind of number"),
    ],
)
def test_wrong_settings_are_errors(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompactMemory(**{"capacity": 5, "observation_shape": (2,), **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"observation": np.zeros(3, np.uint8)}, r"observation of uint8\(3,\): the memory holds uint8\(2,\)"),
        ({"next_observation": np.zeros(2)}, r"observation of float64\(2,\)"),
        ({"action": 2**31}, "32-bit integer"),
        ({"action": 0.5}, "integer"),
        ({"reward": float("nan")}, "finite"),
        ({"reward": 1e39}, "finite"),
        ({"reward": None}, "reward = None: must be a finite number"),
        ({"reward": 10**400}, "must be a finite number"),
        ({"action": None}, "action = None: must be an integer"),
        ({"observation": None}, "observation of object"),
        ({"observation": [[1], [2, 3]]}, "observation"),
    ],
)
def test_a_wrong_transition_is_an_error_and_changes_nothing(wrong: dict[str, Any], message: str) -> None:
    memory = CompactMemory(5, (2,))
    right: dict[str, Any] = {"observation": pixels(1, 2), "action": 0, "reward": 0.0}
    right |= {"next_observation": pixels(3, 4), "terminated": False}
    with pytest.raises(ValueError, match=message):
        memory.add(**right | wrong)
    assert (len(memory), len(memory._store)) == (0, 0)
    memory.add(**right)
    check(memory)


def test_observations_that_are_no_numbers_are_errors() -> None:
    memory = CompactMemory(5, (2,), dtype=np.float32)
    with pytest.raises(ValueError, match="finite"):
        memory.add(np.array([0, np.nan], np.float32), 0, 0.0, np.zeros(2, np.float32), False)


def test_an_empty_memory_refuses_to_sample() -> None:
    with pytest.raises(ValueError, match="empty"):
        CompactMemory(5, (2,)).sample(1)


@pytest.mark.parametrize("n", [-1, 2.5, None, "3"])
def test_a_wrong_number_of_samples_is_an_error(n: Any) -> None:
    memory = CompactMemory(5, (2,))
    played(memory, 3)
    with pytest.raises(ValueError, match=r"n = .*: must be"):
        memory.sample(n)


def test_the_memory_says_what_it_is() -> None:
    memory = CompactMemory(50, (4, 84, 84), frame_stack=True, compression="zlib")
    played(memory, 3)
    text = repr(memory)
    assert text.startswith("<CompactMemory: 3 of 50 sets of 3 transitions, 0.")
    assert text.endswith("MB; observations uint8(4, 84, 84), similarity 0, compression 'zlib'>")


# Random operations against a plain list.


class CompactMachine(RuleBasedStateMachine):
    """The memory beside a list of (id, transition, size), with saves and loads in between."""

    @initialize(
        capacity=st.integers(1, 6), similarity=st.sampled_from([0.0, 1.0]), dtype=st.sampled_from([np.uint8, np.float32]),
        compression=st.sampled_from(["none", "zlib"]), frame_stack=st.booleans(),
    )  # fmt: skip
    def start(self, capacity: int, similarity: float, dtype: type, compression: str, frame_stack: bool) -> None:
        self.memory = CompactMemory(
            capacity, (2, 2), similarity=similarity, dtype=dtype, compression=compression, frame_stack=frame_stack
        )
        self.scale = 255 if dtype is np.uint8 else 1
        self.sets: list[list[Any]] = []  # [id, vector of the first transition, size, terminated]
        self.next_id = 0

    @rule(values=st.lists(st.integers(0, 2), min_size=8, max_size=8), action=st.integers(0, 2), terminated=st.booleans())
    def add(self, values: list[int], action: int, terminated: bool) -> None:
        vector = np.array([*values, self.scale * action], np.int64)
        s, s_next = np.array(values).reshape(2, 2, 2).astype(self.memory.dtype)
        limit = (self.memory.similarity * self.scale) ** 2
        distances = [(int(np.square(vector - known[1]).sum()), known[0]) for known in self.sets]
        near = [pair for pair in distances if pair[0] <= limit]
        set_id = min(near)[1] if near else self.next_id
        assert self.memory.add(s, action, 0.0, s_next, terminated) == set_id
        if near:
            known = next(known for known in self.sets if known[0] == set_id)
            known[2:] = [known[2] + 1, terminated]
        else:
            self.sets = [*self.sets, [set_id, vector, 1, terminated]][-self.memory.capacity :]
            self.next_id += 1

    @precondition(lambda self: self.sets)
    @rule(n=st.integers(1, 4))
    def sample(self, n: int) -> None:
        drawn = self.memory.sample(n)
        for row, set_id in enumerate(drawn.set_ids.tolist()):
            _, vector, _, terminated = next(known for known in self.sets if known[0] == set_id)
            values = [*drawn.observations[row].ravel(), *drawn.next_observations[row].ravel()]
            assert [*map(int, values), self.scale * int(drawn.actions[row])] == vector.tolist()
            assert drawn.terminated[row] == terminated

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(os, "fsync"):  # it takes most of the time
            self.memory.save(folder)
            loaded = CompactMemory.load(folder)
        assert loaded._rng.bit_generator.state == self.memory._rng.bit_generator.state
        self.memory = loaded

    @invariant()
    def the_memory_holds_what_the_list_holds(self) -> None:
        check(self.memory)
        assert self.memory.set_ids.tolist() == [known[0] for known in self.sets]
        assert self.memory.set_sizes.tolist() == [known[2] for known in self.sets]
        distinct = {tuple(half) for _, vector, _, _ in self.sets for half in vector[:-1].reshape(-1, self._frame_size())}
        assert len(self.memory._store) == len(distinct)

    def _frame_size(self) -> int:
        return 2 if self.memory.frame_stack else 4


TestCompactMachine = CompactMachine.TestCase
TestCompactMachine.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


# Files.


@pytest.mark.parametrize("similarity", [0.0, 0.012])
def test_a_memory_read_back_goes_on_as_if_it_had_never_stopped(similarity: float, tmp_path: Path) -> None:
    memory = CompactMemory(60, (3,), similarity=similarity, seed=5)
    played(memory, 150)
    memory.sample(13)
    memory.save(tmp_path / "new" / "folder")
    loaded = CompactMemory.load(tmp_path / "new" / "folder")
    assert loaded.nbytes == memory.nbytes or similarity  # the l2 index computes its tables again
    for seed in (1, 2):
        assert played(loaded, 100, seed=seed) == played(memory, 100, seed=seed)
        assert columns(loaded.sample(40)) == columns(memory.sample(40))
        check(loaded)
    assert (loaded.set_sizes == memory.set_sizes).all()
    assert (loaded.similarity, loaded.capacity, loaded.observation_shape) == (similarity, 60, (3,))


def test_a_memory_read_back_knows_rewards_that_float32_rounds(tmp_path: Path) -> None:
    memory = CompactMemory(5, (1,))
    memory.add(pixels(1), 0, 0.1, pixels(2), False)
    memory.save(tmp_path)
    for one in (memory, CompactMemory.load(tmp_path)):
        assert one.add(pixels(1), 0, 0.1, pixels(2), False) == 0


def test_an_empty_memory_reads_back_empty(tmp_path: Path) -> None:
    CompactMemory(5, (2, 2), frame_stack=True).save(tmp_path)
    loaded = CompactMemory.load(tmp_path)
    assert len(loaded) == 0
    played(loaded, 10)
    check(loaded)


def test_a_save_replaces_the_one_before_and_leaves_nothing_else(tmp_path: Path) -> None:
    memory = CompactMemory(20, (3,))
    for seed in range(3):
        played(memory, 10, seed=seed)
        memory.save(tmp_path)
        (tmp_path / ".unfinished-frames").write_bytes(b"of a process that was killed")
    memory.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 8
    assert columns(CompactMemory.load(tmp_path).sample(9)) == columns(memory.sample(9))


def test_any_numpy_reads_the_files(tmp_path: Path) -> None:
    memory = CompactMemory(20, (3,))
    played(memory, 10)
    memory.save(tmp_path)
    arrays = {path.name.split("-")[0]: np.load(path, allow_pickle=False) for path in tmp_path.glob("*.npy")}
    assert arrays["frames"].shape[1:] == (3,)
    assert (arrays["set_sizes"] == memory.set_sizes).all()


def test_a_memory_can_be_saved_over_the_files_it_was_loaded_from(tmp_path: Path) -> None:
    memory = CompactMemory(20, (3,))
    played(memory, 10)
    memory.save(tmp_path)
    loaded = CompactMemory.load(tmp_path)
    loaded.save(tmp_path)
    played(loaded, 10, seed=1)
    loaded.save(tmp_path)
    assert columns(CompactMemory.load(tmp_path).sample(9)) == columns(loaded.sample(9))


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        CompactMemory(5, (2,)).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("step", [1, 2, 13, 14, 15, 16, 17, 18, 19])
def test_a_failure_at_any_step_leaves_the_save_before(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails at the step-th synchronisation or renaming; the load afterwards gives the old memory or the new one."""
    memory = CompactMemory(30, (3,))
    played(memory, 10)
    memory.save(tmp_path)
    old = columns(CompactMemory.load(tmp_path).sample(9))
    played(memory, 10, seed=1)
    calls = [0]

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] == step:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        return call

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    has_failed = False
    try:
        memory.save(tmp_path)
    except ResourceError:
        has_failed = True
    monkeypatch.undo()
    found = columns(CompactMemory.load(tmp_path).sample(9))
    assert found in (old, columns(memory.sample(9)))
    assert has_failed == (step <= 18)  # 7 arrays and the manifest, twice each, and the folder twice
    assert (found == old) == (step <= 17)
    memory.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 8


def test_a_process_killed_while_saving_leaves_a_memory_that_loads(tmp_path: Path) -> None:
    program = (
        "import os, sys, numpy as np\nfrom comper.memory import CompactMemory\n"
        "memory, real, calls = CompactMemory(30, (3,)), os.replace, [0]\n"
        "memory.add(np.zeros(3, np.uint8), 0, 0.0, np.ones(3, np.uint8), False)\n"
        "memory.save(sys.argv[1])\n"
        "memory.add(np.ones(3, np.uint8), 0, 0.0, np.ones(3, np.uint8), False)\n"
        "def replace(*a):\n"
        "    calls[0] += 1\n"
        "    os.kill(os.getpid(), 9) if calls[0] == int(sys.argv[2]) else real(*a)\n"
        "os.replace = replace\n"
        "memory.save(sys.argv[1])\n"
    )
    for call in (1, 7, 8):
        folder = tmp_path / str(call)
        environment = {"PYTHONPATH": ":".join(sys.path)}
        result = subprocess.run([sys.executable, "-c", program, str(folder), str(call)], env=environment)
        assert result.returncode == -9
        assert len(CompactMemory.load(folder)) == 1


# Damage.


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    memory = CompactMemory(20, (3,), dtype=np.float32)
    played(memory, 30)
    memory.save(tmp_path)
    return tmp_path


def test_every_changed_byte_is_noticed(saved: Path) -> None:
    rng = np.random.default_rng(0)
    for path in sorted(saved.iterdir()):
        content = path.read_bytes()
        for place in rng.integers(len(content), size=12).tolist():
            changed = bytearray(content)
            changed[place] ^= 1 << int(rng.integers(8))
            if path.name == array_folder.MANIFEST_FILE and content[place : place + 1].isspace():
                continue  # other white space, perhaps: the same manifest
            path.write_bytes(changed)
            with pytest.raises(DamagedFileError, match=r"\.$"):
                CompactMemory.load(saved)
        for shorter in (content[:-1], b"", content + b"\0"):
            path.write_bytes(shorter)
            with pytest.raises(DamagedFileError):
                CompactMemory.load(saved)
        path.unlink()
        with pytest.raises(DamagedFileError, match="missing"):
            CompactMemory.load(saved)
        path.write_bytes(content)
    CompactMemory.load(saved)


@pytest.mark.parametrize("content", [b"[]", b'"x"', b"{}", b"[" * 100_000, b"\xff", b" " * 2_000_000, b'{"sha256": 1}'])
def test_a_foreign_manifest_is_refused(content: bytes, saved: Path) -> None:
    (saved / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"manifest"):
        CompactMemory.load(saved)


def test_a_folder_without_a_memory_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DamagedFileError, match=r"manifest\.json is missing"):
            CompactMemory.load(folder)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and seal it again, as someone who wants to deceive would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    change(manifest)
    path.write_text(json.dumps(manifest | {"sha256": array_folder._seal(manifest)}))


MANIFESTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another format": lambda m: m.update(format="other"),
    "no format": lambda m: m.pop("format"),
    "no settings": lambda m: m.pop("settings"),
    "settings of another kind": lambda m: m.update(settings=[1]),
    "an unknown setting": lambda m: m["settings"].update(colour=1),
    "a capacity of text": lambda m: m["settings"].update(capacity="20"),
    "another capacity": lambda m: m["settings"].update(capacity=7),
    "a capacity beyond any memory": lambda m: m["settings"].update(capacity=10**17),
    "another shape": lambda m: m["settings"].update(observation_shape=[4]),
    "another dtype": lambda m: m["settings"].update(dtype="<f8"),
    "a dtype of objects": lambda m: m["settings"].update(dtype="|O"),
    "fewer sets than rows": lambda m: m.update(next_set_id=3),
    "a number of sets below zero": lambda m: m.update(next_set_id=-1),
    "a number of sets beyond 64 bits": lambda m: m.update(next_set_id=2**70),
    "a number of sets of text": lambda m: m.update(next_set_id="3"),
    "no generator": lambda m: m.pop("generator"),
    "another generator": lambda m: m["generator"].update(bit_generator="MT19937"),
    "a generator of text": lambda m: m["generator"].update(state="x"),
    "a file elsewhere": lambda m: m["files"].update({"../actions": m["files"]["actions"]}),
    "no list of files": lambda m: m.update(files=[]),
    "a missing array": lambda m: m["files"].pop("rewards"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_deceives_is_refused(name: str, saved: Path) -> None:
    rewritten(saved, MANIFESTS[name])
    with pytest.raises(DamagedFileError, match=r"\.$"):
        CompactMemory.load(saved)


def replaced(folder: Path, name: str, content: bytes) -> None:
    """Put other content in the place of an array and give it the right digest."""
    sha256 = hashlib.sha256(content).hexdigest()
    (folder / f"{name}-{sha256}.npy").write_bytes(content)
    rewritten(folder, lambda manifest: manifest["files"].update({name: {"sha256": sha256}}))


def npy(array: npt.NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


ARRAYS: dict[str, tuple[str, Callable[[npt.NDArray[Any]], bytes]]] = {
    "states beyond the frames": ("states", lambda a: npy(a + 10**6)),
    "states below zero": ("next_states", lambda a: npy(a - 10**6)),
    "states of another dtype": ("states", lambda a: npy(a.astype(np.int32))),
    "actions beyond 32 bits": ("actions", lambda a: npy(a + 2**40)),
    "rewards that are no numbers": ("rewards", lambda a: npy(a * np.float32("nan"))),
    "frames that are no numbers": ("frames", lambda a: npy(a + np.float32("inf"))),
    "sets without a transition": ("set_sizes", lambda a: npy(a * 0)),
    "fewer rows": ("terminated", lambda a: npy(a[1:])),
    "objects": ("terminated", lambda a: npy(np.array([{}, None], object))),
    "Fortran order": ("frames", lambda a: npy(np.asfortranarray(a))),
    "a header of more rows": ("rewards", lambda a: npy(a).replace(str(a.shape).encode(), b"(9999999999999,)")),
    "no header": ("rewards", lambda a: b"rewards"),
    "half a header": ("rewards", lambda a: npy(a)[:40]),
    "text in the header": ("rewards", lambda a: npy(a).replace(b"'descr'", b"'d(((r'")),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_deceives_is_refused(name: str, saved: Path) -> None:
    array, change = ARRAYS[name]
    content = np.load(next(saved.glob(f"{array}-*.npy")), allow_pickle=False)
    with np.errstate(all="ignore"):
        replaced(saved, array, change(content))
    with pytest.raises(DamagedFileError, match=r"\.$"):
        CompactMemory.load(saved)


def test_the_memory_room_imports_nothing_heavy() -> None:
    program = "import sys, comper.memory; print({'torch', 'faiss', 'scipy', 'cv2', 'ale_py'} & set(sys.modules))"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
