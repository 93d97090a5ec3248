"""FrameArchive: every frame comes back, only new ones are compressed, and damaged content is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comper.errors import DamagedFileError
from comper.memory.compressed import make_frame_store
from comper.memory.frame_archive import SLACK, FrameArchive
from comper.memory.frames import FrameStore

State = dict[str, Any]


def filled(num_frames: int, compression: str = "none") -> tuple[FrameStore, FrameArchive]:
    """A store of different frames and its archive."""
    store = make_frame_store(compression, (4,), initial_capacity=4)
    for value in range(num_frames):
        store.intern(np.full(4, value, np.uint8))
    archive = FrameArchive(store)
    archive.take_in()
    return store, archive


def read_back(archive: FrameArchive, compression: str = "none") -> tuple[FrameStore, FrameArchive]:
    store = make_frame_store(compression, (4,), initial_capacity=4)
    copy = FrameArchive(store)
    copy.load_state_dict(archive.state_dict(), archive.content)
    return store, copy


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_frames_come_back_after_many_reuses_of_their_slots(compression: str) -> None:
    rng = np.random.default_rng(0)
    store = make_frame_store(compression, (4,), initial_capacity=4)
    archive = FrameArchive(store)
    held: list[int] = []
    for step in range(3000):
        held.append(store.intern(rng.integers(0, 255, 4).astype(np.uint8)))
        if len(held) > 40:
            store.release([held.pop(int(rng.integers(len(held))))])
        if step % 37 == 0:
            archive.take_in()
            other, copy = read_back(archive, compression)
            assert other.check_valid() == (True, "valid")
            assert np.array_equal(other.gather(held), store.gather(held))
            assert other.nbytes == store.nbytes
            assert [other.references(i) for i in held] == [store.references(i) for i in held]
            if step % 74 == 0:
                store, archive = other, copy  # go on with what was read back
    assert sum(map(len, archive._slots)) <= 2 * len(store) + 1024 + 37


def test_only_new_frames_are_compressed() -> None:
    store, archive = filled(10)
    first = archive.content
    archive.take_in()
    assert archive.content == first  # nothing new, no new part
    store.release([3])
    assert store.intern(np.full(4, 200, np.uint8)) == 3
    archive.take_in()
    assert archive.content.startswith(first)
    assert archive.state_dict()["slots"].tolist() == [*range(10), 3]
    assert archive.state_dict()["frames_of_part"].tolist() == [10, 1]
    assert read_back(archive)[0].gather([3]).tolist() == [[200] * 4]  # what was written last counts


def test_an_archive_of_mostly_forgotten_frames_starts_again() -> None:
    store, archive = filled(1)
    for value in range(SLACK + 10):
        i = store.intern(np.frombuffer(np.int32(1_000 + value).tobytes(), np.uint8))
        archive.take_in()
        store.release([i])
    archive.take_in()
    assert len(archive.state_dict()["slots"]) <= SLACK + 3
    archive.take_in()
    assert read_back(archive)[0].gather([0]).tolist() == [[0] * 4]


def test_an_empty_archive_reads_back_empty() -> None:
    store, archive = filled(0)
    other, copy = read_back(archive)
    assert (len(other), copy.content) == (len(store), b"")


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[State], State]:
    return lambda state: state | {name: change(state[name])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("frames_of_part", lambda a: a + 1), "not as long as it says"),
        (changed("bytes_of_part", lambda a: a - 1), "not as long as it says"),
        (changed("bytes_of_part", lambda a: np.append(a + 5, -5)), "not as long as it says"),
        (changed("slots", lambda a: a[:-1]), "not as long as it says"),
        (changed("ids", lambda a: a[::-1]), "ids that no store gives"),
        (changed("ids", lambda a: a - 1), "ids that no store gives"),
        (changed("ids", lambda a: np.append(a[:-1], 10**9)), "ids that no store gives"),
        (changed("ids", lambda a: np.append(a[:-1], 50)), "lacks some of them"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(change: Callable[[State], State], message: str) -> None:
    _, archive = filled(8)
    store = FrameStore((4,))
    with pytest.raises(DamagedFileError, match=message):
        FrameArchive(store).load_state_dict(change(archive.state_dict()), archive.content)
    assert len(store) == 0


def test_content_that_is_damaged_or_too_large_is_refused() -> None:
    _, archive = filled(8)
    state = archive.state_dict()
    for content, message in [
        (b"\0" * len(archive.content), "cannot be decompressed"),
        (zlib.compress(b"\0" * 10**7, 9), "not as long as it says"),  # a bomb: not decompressed beyond what was announced
        (zlib.compress(b"\0" * 31), "not as long as it says"),
    ]:
        resized = state | {"bytes_of_part": np.array([len(content)])}
        with pytest.raises(DamagedFileError, match=message):
            FrameArchive(FrameStore((4,))).load_state_dict(resized, content)
