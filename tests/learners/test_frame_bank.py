"""The frame bank gives the pixels that the stores hold, on a device with copies of them or without."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from comper.learners.frame_bank import FrameBank
from comper.memory.frames import FrameStore
from comper.networks import stacking

CPU = torch.device("cpu")


@pytest.fixture(params=[True, False], ids=["with copies", "without"])
def computes_together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """This machine's CPU as it is, or computing as a GPU would."""
    monkeypatch.setattr(stacking, "computes_together", lambda device: request.param)
    return bool(request.param)


@pytest.mark.usefixtures("computes_together")
def test_frames_follow_growth_release_and_reuse() -> None:
    store = FrameStore((3,), initial_capacity=16)
    bank = FrameBank([store], CPU)
    rng = np.random.default_rng(0)
    held: list[int] = []
    for step in range(3_000):
        colours = 4 if step % 2 else 256
        held.append(store.intern(rng.integers(0, colours, 3, dtype=np.uint8)))
        if rng.random() < 0.4:
            store.release([held.pop(int(rng.integers(len(held))))])
        if step % 7 == 0 and held:
            ids = rng.choice(held, size=(1, 4))
            assert (bank.gather(ids, [0]).numpy() == store.gather(ids)).all()


@pytest.mark.usefixtures("computes_together")
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.float32])
def test_each_row_is_read_from_its_own_trials_store(dtype: type) -> None:
    stores = [FrameStore((2, 2), dtype) for _ in range(3)]
    for trial, store in enumerate(stores):
        for value in range(4):
            store.intern(np.array([[trial, value], [value > 1, 0]], np.uint8).astype(dtype))
    bank = FrameBank(stores, CPU)
    ids = np.array([[[1, 0], [2, 1]], [[0, 0], [1, 2]]])
    found = bank.gather(ids, [2, 0])
    assert found.shape == (2, 2, 2, 2, 2)
    assert found.numpy().dtype == dtype
    for row, trial in enumerate([2, 0]):
        assert (found[row].numpy() == stores[trial].gather(ids[row])).all()
    read = bank.reader(ids, [2, 0])
    assert torch.equal(read(slice(1, 2)), found[:, 1:2])
