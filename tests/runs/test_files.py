"""Files are read only when they are ordinary ones, and written as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comper.errors import DamagedFileError
from comper.runs import files


def test_a_planted_link_of_the_temporary_name_is_not_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (tmp_path / f".manifest.json.{os.getpid()}.tmp").symlink_to(outside)
    files.write_atomically(tmp_path / "manifest.json", b"new")
    assert outside.read_bytes() == b"mine"
    assert (tmp_path / "manifest.json").read_bytes() == b"new"
    assert not (tmp_path / "manifest.json").is_symlink()


def test_a_link_in_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (tmp_path / "manifest.json").symlink_to(outside)
    files.write_atomically(tmp_path / "manifest.json", b"new")
    assert outside.read_bytes() == b"mine"


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f".a.{os.getpid()}.tmp").write_bytes(b"half")
    files.write_atomically(tmp_path / "a", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_leaves_the_old_content_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_atomically(tmp_path / "a", b"old")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(tmp_path / "a", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"old")]


def test_a_new_file_never_replaces_another(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FileExistsError):
        files.write_new_file(tmp_path / "a", b"x")


def test_no_more_is_read_than_announced(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_file(tmp_path / "a", max_bytes=5) == b"12345"
    with pytest.raises(DamagedFileError, match="5 bytes, expected at most 4"):
        files.read_file(tmp_path / "a", max_bytes=4)


@pytest.mark.parametrize("kind", ["folder", "link", "missing"])
def test_only_ordinary_files_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(__file__)
    with pytest.raises(DamagedFileError, match=r"a: (not an ordinary|a link|cannot be read)"):
        files.read_file(path, max_bytes=100)


def test_no_descriptor_is_lost_when_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = os.dup(0)
    os.close(before)
    for _ in range(5):
        with pytest.raises(DamagedFileError):
            files.read_file(tmp_path / "a", max_bytes=1)
    after = os.dup(0)
    os.close(after)
    assert after == before


@pytest.mark.parametrize("content", [b"", b"x", b"a\nb\n", os.urandom(3 << 20)])
def test_digests_of_files_and_of_contents_are_the_same(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    assert files.file_digest(tmp_path / "a") == files.digest(content)
    assert files.log_digest(tmp_path / "a") == {**files.digest(content), "lines": content.count(b"\n")}
    assert files.file_digest(tmp_path / "a", num_bytes=2) == files.digest(content[:2])
    files.check_digest(tmp_path / "a", files.digest(content))
    files.check_digest(tmp_path / "a", files.log_digest(tmp_path / "a"))


@pytest.mark.parametrize("key", ["lines", "bytes", "sha256"])
def test_any_part_of_a_digest_that_differs_is_noticed(key: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\nb\n")
    expected = files.log_digest(tmp_path / "a") | {key: "0" * 64 if key == "sha256" else 7}
    with pytest.raises(DamagedFileError, match="not the file that was written down"):
        files.check_digest(tmp_path / "a", expected)


@pytest.mark.parametrize("entry", [None, [], {}, {"bytes": 1}, {"bytes": -1, "sha256": ""}, {"bytes": True, "sha256": ""}])
def test_what_is_no_digest_is_not_taken_for_one(entry: object) -> None:
    assert not files.is_digest(entry)


def test_an_object_that_could_not_be_written_again_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    for levels in (65, 500, 900, 985, 990):  # Python reads 990 levels, and writes fewer: a run would be lost at its end
        path.write_text('{"deep": ' + "[" * levels + "]" * levels + "}")
        with pytest.raises(DamagedFileError, match="not JSON"):
            files.read_json_object(path, max_bytes=10_000)
    path.write_text('{"flat": ' + "[" * 60 + "{}" + "]" * 60 + "}")
    assert files.is_sealed(files.sealed(files.read_json_object(path, max_bytes=1_000)))


def test_a_seal_notices_any_change() -> None:
    content = files.sealed({"a": 1, "b": {"c": [2]}})
    assert files.is_sealed(content)
    assert not files.is_sealed({**content, "a": 2})
    assert not files.is_sealed({"a": 1})


def test_a_line_without_an_end_is_not_held_in_memory(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"{}\n" + b" " * (files.MAX_LINE_BYTES + 1))
    with pytest.raises(DamagedFileError, match="line 2: longer than"):
        list(files.read_json_lines(tmp_path / "log"))
