"""The storage for TorchRL against its own LazyTensorStorage: the same TensorDicts, draw for draw, in less memory."""

from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, TensorDict, tensorclass
from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler, SamplerWithoutReplacement, SliceSampler
from torchrl.data.replay_buffers.writers import TensorDictMaxValueWriter

from comper.errors import DamagedFileError, UsageError
from comper.integrations.torchrl import CompactSampler, CompactStorage
from comper.memory import array_folder
from comper.memory.observation_array import ObservationArray


def played(count: int, *, seed: int = 0, levels: int = 256, key: str = "pixels", one_hot: bool = False) -> TensorDict:
    """A batch of consecutive transitions as a collector gives them: stacks of four frames, flags, rewards."""
    generator = torch.Generator().manual_seed(seed)
    frames = torch.randint(0, levels, (count + 4, 36, 36), dtype=torch.uint8, generator=generator)
    actions = torch.randint(0, 3, (count,), generator=generator)
    done = (torch.arange(count) % 7 == 6)[:, None]
    return TensorDict(
        {
            key: torch.stack([frames[t : t + 4] for t in range(count)]),
            "action": torch.nn.functional.one_hot(actions, 3) if one_hot else actions,
            "done": torch.zeros(count, 1, dtype=torch.bool),
            "next": {
                key: torch.stack([frames[t + 1 : t + 5] for t in range(count)]),
                "reward": torch.rand(count, 1, generator=generator).round(),
                "done": done,
                "terminated": done.clone(),
            },
            "collector": {"traj_ids": torch.arange(count) // 7},
            "log_prob": torch.rand(count, generator=generator).to(torch.bfloat16),
            "vector": torch.rand(count, 3, dtype=torch.float64, generator=generator),
        },
        batch_size=[count],
    )


def assert_same(one: Any, other: Any) -> None:
    """Two TensorDicts are equal: keys, kinds of number, shapes and content."""
    keys = [set(map(str, each.keys(include_nested=True, leaves_only=True))) for each in (one, other)]
    assert keys[0] == keys[1]
    assert one.batch_size == other.batch_size
    for key in one.keys(include_nested=True, leaves_only=True):
        assert (one[key].dtype, one[key].shape) == (other[key].dtype, other[key].shape)
        assert torch.equal(one[key], other[key]), key


def both(**settings: Any) -> tuple[Any, Any]:
    """A buffer of TorchRL with its own storage, and one with ours."""
    buffers = []
    for storage in (LazyTensorStorage(50), CompactStorage(50, **settings)):
        generator = torch.Generator().manual_seed(3)
        buffers.append(TensorDictReplayBuffer(storage=storage, batch_size=20, generator=generator))
    return buffers[0], buffers[1]


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_the_samples_are_those_of_the_own_storage_draw_for_draw(compression: Any) -> None:
    own, compact = both(compression=compression)
    for start in range(0, 120, 30):  # until the first transitions are overwritten
        data = played(30, seed=start)
        assert torch.equal(own.extend(data.clone()), compact.extend(data.clone()))
        own.add(data[0].clone())
        compact.add(data[0].clone())
        assert len(own) == len(compact)
        for _ in range(3):
            assert_same(own.sample(), compact.sample())
    assert_same(own[:], compact[:])
    assert_same(own[3], compact[3])
    assert_same(own[torch.tensor([4, 2, 4])], compact[torch.tensor([4, 2, 4])])


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_frames_are_stored_once(compression: Any) -> None:
    storage = CompactStorage(200, compression=compression)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=8)
    buffer.extend(played(200, levels=2))
    pixels = storage._columns["pixels",]
    assert isinstance(pixels, ObservationArray)
    pixels.pool.clear()
    assert len(pixels.pool.frames) == 204
    assert storage.nbytes < (200 * (36 * 36 + 150) if compression is None else 200 * 800)  # 10,368 for pixels alone
    assert "200 of 200 rows" in repr(storage)


def test_a_plain_replay_buffer_works_too() -> None:
    buffer = ReplayBuffer(storage=CompactStorage(50), batch_size=10)
    data = played(30)
    buffer.extend(data)
    assert_same(buffer[:], data)
    buffer.extend([data[0], data[1]])
    assert_same(buffer[30], data[0])


@pytest.mark.parametrize("sampler", ["random", "without replacement", "prioritized", "slices"])
def test_samplers_of_torchrl_work(sampler: str) -> None:
    samplers = {
        "random": RandomSampler,
        "without replacement": SamplerWithoutReplacement,
        "prioritized": lambda: PrioritizedSampler(50, alpha=0.7, beta=0.5),
        "slices": lambda: SliceSampler(slice_len=5, traj_key=("collector", "traj_ids"), strict_length=False),
    }
    try:
        made = samplers[sampler]()
    except RuntimeError as error:
        pytest.skip(f"TorchRL's compiled part does not load with this torch: {error}")
    buffer = TensorDictReplayBuffer(storage=CompactStorage(50), sampler=made, batch_size=20)
    data = played(42)
    buffer.extend(data)
    sample = buffer.sample()
    if sampler == "prioritized":
        sample["td_error"] = torch.ones(len(sample))
        buffer.update_tensordict_priority(sample)
    for i, row in enumerate(sample["index"].flatten().tolist()):
        assert torch.equal(sample["next", "pixels"][i], data["next", "pixels"][row])


def test_a_writer_that_overwrites_in_any_order_works() -> None:
    writer = TensorDictMaxValueWriter(rank_key=("next", "reward"))
    buffer = TensorDictReplayBuffer(storage=CompactStorage(10), sampler=CompactSampler(), writer=writer, batch_size=5)
    for seed in range(20):
        data = played(5, seed=seed, levels=1)
        data["next", "reward"] = torch.rand(5, 1)
        buffer.extend(data)
        rows = buffer.sample()["index"].flatten()
        assert buffer.storage.contains(rows).all()
    assert buffer.storage.sets.sizes.sum() == 10


def test_a_row_can_be_overwritten_and_everything_forgotten() -> None:
    buffer = TensorDictReplayBuffer(storage=CompactStorage(50), batch_size=10)
    data = played(30)
    buffer.extend(data)
    buffer.storage[4] = data.clone()[7].set("index", torch.tensor(4))
    assert torch.equal(buffer[4]["pixels"], data["pixels"][7])
    assert 29 in buffer.storage
    assert 30 not in buffer.storage
    buffer.empty()
    assert len(buffer) == 0
    buffer.extend(played(5, key="other"))
    assert len(buffer) == 5


# Sets.


def test_each_set_is_equally_likely_with_the_sampler_of_sets() -> None:
    data = played(2)
    rows = torch.tensor([0] * 9 + [1])
    shares = {}
    for name, sampler in {"visits": RandomSampler(), "sets": CompactSampler()}.items():
        generator = torch.Generator().manual_seed(0)
        buffer = TensorDictReplayBuffer(storage=CompactStorage(50), sampler=sampler, batch_size=4000, generator=generator)
        buffer.extend(data[rows].clone())
        shares[name] = float((buffer.sample()["pixels"] == data["pixels"][1]).all((1, 2, 3)).float().mean())
    assert shares["visits"] == pytest.approx(0.1, abs=0.02)
    assert shares["sets"] == pytest.approx(0.5, abs=0.03)
    assert buffer.storage.sets.sizes.tolist() == [9, 1]


@pytest.mark.parametrize("one_hot", [False, True])
def test_similar_transitions_are_stored_as_the_first_of_them(one_hot: bool) -> None:
    data = played(1, one_hot=one_hot)
    near, far, other = data.clone(), data.clone(), data.clone()
    near["pixels"][0, 0, 0, 0] ^= 1  # 1/255 away
    far["pixels"][0, 0, :2] ^= 128
    other["action"] = torch.tensor([[0, 1, 0]]) if one_hot else (data["action"] + 1) % 3
    storage = CompactStorage(9, similarity=0.5)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=3)
    for each in (data, near, far, other):
        each["vector"] += 1
        buffer.extend(each)
    assert torch.equal(buffer[1]["pixels"], data["pixels"][0])
    assert not torch.equal(buffer[2]["pixels"], data["pixels"][0])
    is_same = bool((other["action"] == data["action"]).all())
    assert sorted(storage.sets.sizes.tolist()) == ([1, 3] if is_same else [1, 1, 2])
    assert torch.equal(buffer[1]["vector"], near["vector"][0])  # what is no part of a transition is its own


# Saving.


@pytest.mark.parametrize("settings", [{}, {"compression": "zlib"}, {"similarity": 1.0}])
@pytest.mark.parametrize("count", [0, 20, 90])
@pytest.mark.parametrize("way", ["dumps", "state_dict", "copy"])
def test_a_buffer_read_back_goes_on_as_if_it_had_never_stopped(
    way: str, count: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    def made() -> Any:
        storage, sampler = CompactStorage(50, **settings), CompactSampler()
        generator = torch.Generator().manual_seed(3)
        return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=20, generator=generator)

    buffer, other = made(), made()
    for start in range(0, count, 10):
        buffer.extend(played(10, seed=start))
        buffer.sample()
    if way == "dumps":
        buffer.dumps(tmp_path / "saved")
        other.loads(tmp_path / "saved")
    elif way == "state_dict":
        content = io.BytesIO()
        torch.save(buffer.state_dict(), content)
        other.load_state_dict(torch.load(io.BytesIO(content.getvalue()), weights_only=True))
    else:
        other._storage, other._writer._cursor = copy.deepcopy(buffer._storage), buffer._writer._cursor
        other._writer.register_storage(other._storage)
    if way != "dumps":
        other._rng.set_state(buffer._rng.get_state())
    assert (len(other), repr(other.storage)) == (len(buffer), repr(buffer.storage))
    for each in (buffer, other):
        each.extend(played(10, seed=77))
    assert_same(buffer[:], other[:])
    assert_same(buffer.sample(), other.sample())


def test_a_saved_storage_is_read_in_another_process(tmp_path: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=CompactStorage(50), batch_size=20)
    buffer.extend(played(30))
    buffer.dumps(tmp_path / "saved")
    script = f"""
from torchrl.data import TensorDictReplayBuffer
from comper.integrations.torchrl import CompactStorage
buffer = TensorDictReplayBuffer(storage=CompactStorage(50), batch_size=20)
buffer.loads({str(tmp_path / "saved")!r})
print(len(buffer), int(buffer[:]["next", "pixels"].sum()))
"""
    environment = os.environ | {"PYTHONHASHSEED": "123"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.split() == ["30", str(int(buffer[:]["next", "pixels"].sum()))]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    storage = CompactStorage(50)
    storage.set(range(30), played(30))
    assert len(storage.sets) == 30
    storage.dumps(tmp_path / "saved")
    return tmp_path / "saved"


def test_every_file_that_was_changed_is_noticed_and_nothing_is_read(saved: Path) -> None:
    storage = CompactStorage(50)
    for path in sorted(saved.iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DamagedFileError):
            storage.loads(saved)
        assert len(storage) == 0
        path.write_bytes(content)
    storage.loads(saved)
    assert len(storage) == 30


LIES: dict[str, Any] = {
    "format": lambda about: about | {"format": "another"},
    "size": lambda about: about | {"max_size": 60},
    "columns": lambda about: about | {"columns": about["columns"][1:]},
    "kind of number": lambda about: about | {"columns": [[key, "torch.load", shape] for key, _, shape in about["columns"]]},
    "shape": lambda about: about | {"columns": [[key, dtype, [2]] for key, dtype, _ in about["columns"]]},
    "no name": lambda about: about | {"columns": [[[], dtype, shape] for _, dtype, shape in about["columns"]]},
    "number for a name": lambda about: about | {"columns": [[[n], *rest] for n, (_, *rest) in enumerate(about["columns"])]},
    "nothing": lambda about: {},
}


@pytest.mark.parametrize("name", LIES)
def test_a_manifest_that_deceives_is_refused(name: str, saved: Path) -> None:
    manifest = json.loads((saved / "manifest.json").read_text())
    files = manifest.pop("files")
    del manifest["sha256"]
    lie = LIES[name](manifest) | {"files": files}
    (saved / "manifest.json").write_text(json.dumps(lie | {"sha256": array_folder._seal(lie)}))
    storage = CompactStorage(50)
    with pytest.raises(DamagedFileError):
        storage.loads(saved)
    assert len(storage) == 0


ARRAYS: dict[str, Any] = {
    "rows": lambda a: a[::-1].copy(),
    "column_a": lambda a: a + 1000,
    "column_b": lambda a: a[:3],
    "frames_a": lambda a: a[:, :2],
    "latest": lambda a: a + 25,
    "members": lambda a: np.zeros_like(a),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_deceives_is_refused(name: str, saved: Path, tmp_path: Path) -> None:
    about, arrays = array_folder.read(saved)
    lies = {key: np.array(array) for key, array in arrays.items()}
    lies[name] = ARRAYS[name](lies[name])
    columns = array_folder.stored(lies)
    array_folder.write(tmp_path / "lies", about, columns)
    with pytest.raises(DamagedFileError):
        CompactStorage(50).loads(tmp_path / "lies")


# Bad input.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_size": 0}, "max_size = 0: must be an integer of 1 or more"),
        ({"max_size": None}, "max_size = None"),
        ({"compression": "zip"}, "must be None or"),
        ({"similarity": -1}, "must be a number, 0 or more"),
        ({"similarity": "near"}, "must be a number"),
    ],
)
def test_wrong_settings_get_a_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CompactStorage(**({"max_size": 10} | wrong))


@tensorclass
class Step:
    """A tensorclass, which TorchRL also takes."""

    pixels: torch.Tensor
    action: torch.Tensor


def test_tensorclasses_are_stored_as_tensordicts() -> None:
    storage = CompactStorage(10)
    step = Step(torch.zeros(3, 4, 36, 36, dtype=torch.uint8), torch.arange(3), batch_size=[3])  # type: ignore[call-arg]
    storage.set(range(3), step)
    assert storage.get(1)["action"] == 1


def wrong_data() -> dict[str, tuple[Any, str]]:
    data = played(3)
    return {
        "a tensor": (torch.zeros(3), "Tensor: a CompactStorage holds TensorDicts"),
        "another key": (data.clone().set("new", torch.zeros(3)), "new: the TensorDicts of a storage all have the same keys"),
        "a missing key": (data.clone().exclude("action"), "action: the TensorDicts"),
        "a changed shape": (data.clone().set("pixels", torch.zeros(3, 4, 9, 9, dtype=torch.uint8)), "pixels is torch.uint8"),
        "a foreign kind of number": (data.clone().set("action", torch.zeros(3)), "action is torch.float32"),
        "text": (data.clone().set("text", NonTensorData("words", batch_size=[3])), "holds tensors alone"),
        "too few": (data[:2], "2 TensorDicts for 3 rows"),
    }


@pytest.mark.parametrize("name", wrong_data())
def test_wrong_data_gets_a_sentence_and_changes_nothing(name: str) -> None:
    storage = CompactStorage(10)
    storage.set(range(5), played(5))
    before = storage.get(slice(None))
    wrong, message = wrong_data()[name]
    with pytest.raises(UsageError, match=message):
        storage.set(range(3), wrong)
    assert_same(before, storage.get(slice(None)))


def test_wrong_rows_get_a_sentence() -> None:
    storage = CompactStorage(10)
    storage.set(range(3), played(3))
    for rows, message in (([3], "not all of them were written"), (torch.tensor([0.5]), "must be integers")):
        with pytest.raises(UsageError, match=message):
            storage.get(rows)
    with pytest.raises(UsageError, match="the storage has 10"):
        storage.set(range(9, 12), played(3))


def test_a_distance_that_does_not_exist_gets_a_sentence() -> None:
    data = played(3)
    for wrong, message in (
        (data.exclude("action"), "needs one observation"),
        (data.clone().set("action", torch.rand(3, 2)), "needs discrete actions"),
        (data.clone().set_at_(("next", "reward"), torch.nan, 1), "next.reward must be finite"),
    ):
        with pytest.raises(UsageError, match=message):
            CompactStorage(10, similarity=0.5).set(range(3), wrong)


def test_the_sampler_of_sets_needs_the_storage_of_sets() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), sampler=CompactSampler(), batch_size=2)
    buffer.extend(played(3))
    with pytest.raises(UsageError, match="not from a LazyTensorStorage"):
        buffer.sample()
    empty = TensorDictReplayBuffer(storage=CompactStorage(10), sampler=CompactSampler(), batch_size=2)
    with pytest.raises(Exception, match=r"empty|sample"):
        empty.sample()


def test_a_missing_library_is_named_with_its_extra() -> None:
    script = "import sys; sys.modules['tensordict'] = None; import comper.integrations.torchrl"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert 'pip install "comper[torchrl]"' in result.stderr.splitlines()[-1]
