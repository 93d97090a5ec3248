"""A folder of arrays: what is written comes back, and what was not written so is refused.

That a failed or killed save leaves the one before is tested with a whole memory, in `test_compact.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comper.errors import DamagedFileError, UsageError
from comper.memory.array_folder import MAX_MANIFEST_BYTES, StoredArray, letters, read, stored, write

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]

ARRAYS: Arrays = {
    "bytes": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "floats": np.array([0.1, -np.inf, np.nan], np.float64),
    "truths": np.array([True, False]),
    "none": np.empty((0, 5), np.float32),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "new" / "folder", {"version": 3, "word": "ε"}, stored(ARRAYS))
    return tmp_path / "new" / "folder"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_description_and_arrays_come_back_as_they_were(folder: Path) -> None:
    about, arrays = read(folder)
    assert about == {"version": 3, "word": "ε"}
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()


def test_an_array_written_in_parts_is_one_file_that_any_numpy_reads(tmp_path: Path) -> None:
    whole = np.arange(30, dtype=np.int64).reshape(10, 3)
    parts = (whole[start : start + 4] for start in range(0, 10, 4))
    write(tmp_path, {}, {"x": StoredArray(whole.dtype, whole.shape, parts)})
    (path,) = tmp_path.glob("*.npy")
    assert np.array_equal(np.load(path, allow_pickle=False), whole)


def test_arrays_stay_on_disk_until_they_are_used_and_cannot_be_changed(folder: Path) -> None:
    _, arrays = read(folder)
    assert isinstance(arrays["bytes"], np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        arrays["bytes"][0, 0] = 1


def test_a_file_is_called_after_its_content(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", {"version": 4}, stored({"bytes": ARRAYS["bytes"], "other": ARRAYS["bytes"] + 1}))
    assert [name for name in names(tmp_path / "other") if name in names(folder)] == [
        next(name for name in names(folder) if name.startswith("bytes-")), "manifest.json",
    ]  # fmt: skip


def test_a_save_removes_what_it_does_not_need_any_more_and_half_written_files(folder: Path) -> None:
    (folder / ".unfinished-bytes").write_bytes(b"half")
    write(folder, {}, stored({"truths": ARRAYS["truths"]}))
    assert [name.split("-")[0] for name in names(folder)] == ["manifest.json", "truths"]
    assert list(read(folder)[1]) == ["truths"]


@pytest.mark.parametrize("name", ["notes.txt", "bytes.npy", "bytes-123.npy", f"Bytes-{'0' * 64}.npy", "manifest.json.x"])
def test_a_folder_with_files_of_others_is_left_alone(name: str, folder: Path) -> None:
    (folder / name).write_bytes(b"mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(UsageError, match=rf"holds other files \({name}\)"):
        write(folder, {}, stored({"x": np.zeros(3)}))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_manifest_that_was_changed_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text(encoding="utf-8")
    for other, says in (
        (text.replace('"version": 3', '"version": 4'), "not as it was written"),
        (text[:-2], "not a manifest"),
        ("[]", "not a manifest"),
        (text + " " * MAX_MANIFEST_BYTES, "too large"),
    ):
        path.write_text(other, encoding="utf-8")
        with pytest.raises(DamagedFileError, match=says):
            read(folder)
    path.write_text(json.dumps(json.loads(text)), encoding="utf-8")  # other white space is the same manifest
    assert read(folder)[0]["version"] == 3
    path.unlink()
    with pytest.raises(DamagedFileError, match=r"manifest\.json is missing"):
        read(folder)


def test_an_array_that_was_changed_or_is_gone_is_refused(folder: Path) -> None:
    (path,) = folder.glob("floats-*.npy")
    content = path.read_bytes()
    for other in (content[:-1], content + b"\0", content[:-1] + bytes([content[-1] ^ 1]), b""):
        path.write_bytes(other)
        with pytest.raises(DamagedFileError, match=r"floats-.*: not as it was written"):
            read(folder)
    path.unlink()
    with pytest.raises(DamagedFileError, match=r"floats-.*: this file is missing"):
        read(folder)


def test_names_are_letters_and_all_different() -> None:
    names = [letters(i) for i in range(2000)]
    assert len(set(names)) == 2000
    assert all(name.isalpha() and name.islower() for name in names)
    assert names[:3] == ["a", "b", "c"]


def test_a_file_of_another_size_is_not_read_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = folder.glob("floats-*.npy")
    os.truncate(path, 1 << 40)  # sparse: it takes no room, and hours to read
    with pytest.raises(DamagedFileError, match=r"floats-.*: not as it was written"):
        read(folder)


@pytest.mark.parametrize("header", [b"(" * 100, b"[" * 5_000, b"{" * 100, b"-" * 9_000 + b"1"])
def test_a_header_of_nonsense_is_refused(header: bytes, tmp_path: Path) -> None:
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / f"x-{sha256}.npy").write_bytes(content)
    manifest = {"files": {"x": {"sha256": sha256}}}  # of an older version: without sizes
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"sha256": seal}))
    with pytest.raises(DamagedFileError, match="not an array"):
        read(tmp_path)
