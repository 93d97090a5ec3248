"""Compiled loops: where they come from, who may not touch them, and what happens without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comper import native
from comper.native import Loops

needs_compiler = pytest.mark.skipif(native.compiled() is None, reason=native.loops().status)
Load = Callable[[], Loops]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Load the loops anew, with a cache folder of this test's own."""
    home = tmp_path / "cache"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    # A folder for tests may lie under one that others may write to (without a sticky bit): only the cache itself counts here.
    strict = native._require_private
    monkeypatch.setattr(native, "_require_private", lambda place: strict(place) if place.is_relative_to(home) else None)

    def anew() -> Loops:
        native.loops.cache_clear()
        return native.loops()

    yield anew
    native.loops.cache_clear()


def script(path: Path, text: str) -> str:
    """A compiler of our own making."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


@needs_compiler
def test_the_loops_are_compiled_once_into_a_private_folder(load: Load, tmp_path: Path) -> None:
    first = load()
    assert first.compiled is not None
    assert first.status.startswith("compiled with")
    (file,) = (tmp_path / "cache" / "comper").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    compiled = file.stat().st_mtime_ns
    assert load().compiled is not None
    assert file.stat().st_mtime_ns == compiled


@pytest.mark.parametrize("compiler", ["", "there-is-no-such-compiler"])
def test_without_a_compiler_there_are_no_loops(compiler: str, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    assert load() == Loops(None, "not compiled: there is no C compiler")


def test_a_compiler_that_fails_is_named_with_its_first_error(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = script(tmp_path / "cc", "echo 'warning: old' >&2; echo 'native.c:1: error: no' >&2; exit 1")
    monkeypatch.setenv("CC", compiler)
    assert load() == Loops(None, f"not compiled: {compiler} fails (native.c:1: error: no)")
    assert list((tmp_path / "cache" / "comper").iterdir()) == []


def test_a_compiler_that_hangs_is_given_up(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", "exec sleep 20"))
    monkeypatch.setattr(native, "COMPILER_SECONDS", 0.2)
    assert load().compiled is None


@needs_compiler
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_that_others_may_write_to_is_refused(mode: int, load: Load, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "comper"
    folder.mkdir()
    folder.chmod(mode)
    assert load() == Loops(None, f"not compiled: others may write to {folder}")


@needs_compiler
def test_a_file_that_others_may_write_to_is_refused(load: Load, tmp_path: Path) -> None:
    load()
    (file,) = (tmp_path / "cache" / "comper").iterdir()
    file.chmod(0o666)
    assert load() == Loops(None, f"not compiled: others may write to {file}")


@needs_compiler
def test_a_link_to_another_place_is_refused(load: Load, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder = tmp_path / "cache" / "comper"
    folder.symlink_to(tmp_path / "elsewhere")
    assert load() == Loops(None, f"not compiled: others may write to {folder}")


def test_what_another_user_owns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if tmp_path.stat().st_uid == 0:
        os.chown(tmp_path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(native.NoLoopsError, match="others may write"):
        native._require_private(tmp_path)


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def zeroed(content: bytes) -> bytes:
    return half(content) + bytes(len(content) - len(content) // 2)


@needs_compiler
@pytest.mark.parametrize("damage", [half, zeroed, lambda content: b"", lambda content: content + b"more"])
def test_a_damaged_file_is_compiled_anew_and_never_loaded(
    damage: Callable[[bytes], bytes], load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = compiled_file(load, tmp_path)
    whole = file.read_bytes()
    file.unlink()  # another file: the first one is mapped into this process
    file.write_bytes(damage(whole))
    file.chmod(0o600)
    contents: list[bytes] = []
    opened = native._opened

    def noted(path: Path) -> object:
        contents.append(path.read_bytes())
        return opened(path)

    monkeypatch.setattr(native, "_opened", noted)
    assert load().compiled is not None
    assert contents == [whole]  # a damaged one would end this process


def compiled_file(load: Load, tmp_path: Path) -> Path:
    load()
    (file,) = (tmp_path / "cache" / "comper").iterdir()
    return file


@needs_compiler
def test_a_pipe_in_the_place_of_the_file_is_refused_and_not_waited_for(load: Load, tmp_path: Path) -> None:
    file = compiled_file(load, tmp_path)
    file.unlink()
    os.mkfifo(file, 0o600)
    assert load() == Loops(None, f"not compiled: {file} is not an ordinary file")


@needs_compiler
def test_a_sticky_bit_does_not_make_a_file_private(load: Load, tmp_path: Path) -> None:
    file = compiled_file(load, tmp_path)
    file.chmod(0o1666)
    assert load() == Loops(None, f"not compiled: others may write to {file}")


@needs_compiler
def test_a_library_without_the_loops_is_not_used(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "other.c"
    source.write_text("int other(void) { return 1; }")
    monkeypatch.setattr(native, "SOURCE", source)
    loops = load()
    assert loops.compiled is None
    assert loops.status.endswith("makes cannot be loaded")


@needs_compiler
def test_nothing_is_made_in_a_folder_that_others_may_write_to(load: Load, tmp_path: Path) -> None:
    home = tmp_path / "cache"
    home.chmod(0o777)
    assert load() == Loops(None, f"not compiled: others may write to {home}")
    assert list(home.iterdir()) == []


@needs_compiler
def test_a_link_that_others_may_replace_is_not_followed(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, private = tmp_path / "cache" / "shared", tmp_path / "cache" / "private"
    shared.mkdir()
    shared.chmod(0o777)
    private.mkdir(mode=0o700)
    (shared / "link").symlink_to(private)
    (tmp_path / "cache" / "first").symlink_to(shared / "link")
    for given in (shared / "link", tmp_path / "cache" / "first"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(given))
        assert load() == Loops(None, f"not compiled: others may write to {shared}")
    assert list(private.iterdir()) == []


@needs_compiler
def test_processes_that_begin_at_once_all_get_the_loops(tmp_path: Path) -> None:
    home = tmp_path / "cache"
    home.mkdir(mode=0o700)
    own_folder = "native._private_folder = lambda folder: (folder.mkdir(exist_ok=True), folder)[1]"
    code = f"from comper import native; {own_folder}; print(native.loops().status)"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(3)]
    answers = [process.communicate()[0] for process in started]
    assert all(answer.startswith("compiled with") for answer in answers), answers
    assert len(list((home / "comper").iterdir())) == 1


def test_another_source_compiler_or_flag_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilers = [script(tmp_path / name, name) for name in ("one", "second")]
    prints = [native._fingerprint(compiler) for compiler in compilers]
    monkeypatch.setattr(native, "FLAGS", ("-O1",))
    prints.append(native._fingerprint(compilers[0]))
    monkeypatch.setattr(native, "_processor", lambda: "another")
    prints.append(native._fingerprint(compilers[0]))
    assert len(set(prints)) == len(prints)
