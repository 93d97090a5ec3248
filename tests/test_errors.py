"""Errors of the system and a want of memory become sentences with exit codes, wherever they happen."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from comper.cli import main
from comper.errors import (
    ComperError,
    OutsideCodeError,
    ResourceError,
    UsageError,
    counted,
    explained_os_error,
    explaining_memory_errors,
    explaining_os_errors,
    import_library,
    install_command,
    is_memory_error,
)
from comper.runs.files import write_atomically


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, ResourceError, "No space left on device). Make room"),
        (errno.EDQUOT, ResourceError, "Make room"),
        (errno.EROFS, ResourceError, "Read-only file system"),
        (errno.EACCES, ResourceError, "Get the right to write there"),
        (errno.EMFILE, ResourceError, "ulimit -n"),
        (errno.EIO, ResourceError, "Input/output error"),
        (errno.ENAMETOOLONG, UsageError, "File name too long"),
        (errno.ENOTDIR, UsageError, "Not a directory"),
    ],
)
def test_a_wrong_path_is_wrong_use_and_all_else_a_want_of_room(number: int, kind: type[ComperError], says: str) -> None:
    with pytest.raises(kind) as error, explaining_os_errors("here", is_typed=True):
        raise OSError(number, os.strerror(number), "there")
    assert str(error.value).startswith("here: cannot be written (")
    assert says in str(error.value)


def test_a_path_that_nobody_typed_is_never_wrong_use() -> None:
    assert explained_os_error(OSError(errno.ENOENT, "gone"), "it").exit_code == 4


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_a_want_of_memory_is_known_by_its_type_or_its_words(error: Exception) -> None:
    assert is_memory_error(error)
    with pytest.raises(ResourceError, match="too little memory") as found, explaining_memory_errors("Take less."):
        raise error
    assert found.value.exit_code == 4
    assert "Take less." in str(found.value)


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="a defect"), explaining_memory_errors():
        raise RuntimeError("a defect")


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "Too many open files"), RuntimeError("out of memory")])
def test_the_command_line_ends_with_4_wherever_it_happens(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("comper.environments.games.available_games", fail)
    assert main(["games"]) == 4
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
@pytest.mark.parametrize("place", ["/proc/nowhere", "x" * 300, "file/below"])
def test_places_that_cannot_be_written_to_are_refused_by_every_command(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    log = tmp_path / "logs" / "v5-pong-1"
    log.mkdir(parents=True)
    (log / "progress.json").write_text('{"Rom": "pong"}\n')
    commands = [
        ["train", "pong", "--agent", "random", "--frames", "10", "--out", place],
        ["floors", "gym:CartPole-v1", "--workers", "0", "--out", place],
        ["import-release", "logs", "--agent", "a", "--out", place],
    ]
    for words in commands:
        assert main(words) in (2, 4), words
        lines = capsys.readouterr().err.splitlines()
        assert any(words in lines[-1] for words in ("cannot be written", "File name too long", "of disk")), lines
        assert len(lines) == 1, "refused before anything is done"


def test_one_of_a_thing_is_not_called_many() -> None:
    assert [counted(1, "trial"), counted(1_200, "trial"), counted(0, "trial")] == ["1 trial", "1,200 trials", "0 trials"]
    assert [counted(1, "process", "processes"), counted(2, "process", "processes")] == ["1 process", "2 processes"]


def test_a_library_is_imported_or_a_sentence_says_how_to_install_it() -> None:
    assert import_library("os", "Files need it", extra="watch") is os
    with pytest.raises(UsageError) as caught:
        import_library("no_such_library", "A film needs it", extra="watch", end=" (or none).")
    assert str(caught.value) == f"A film needs it: {install_command('watch')} (or none)."
    with pytest.raises(OutsideCodeError, match="A game needs it"):
        import_library("no_such_library", "A game needs it", extra="atari", kind=OutsideCodeError)


@pytest.mark.skipif(not hasattr(os, "mknod"), reason="needs Unix")
def test_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    from comper.environments.floors import Floors, save_floors

    device = tmp_path / "device"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))  # what /dev/full is; the real one is left alone
    except OSError:
        pytest.skip("only a superuser can make, and replace, a device")
    with pytest.raises(UsageError, match="a device, not a place for a file"):
        save_floors(Floors({}), device)
    with pytest.raises(UsageError, match="a device"), explaining_os_errors(device, is_typed=True):
        write_atomically(device, b"x")
    assert stat.S_ISCHR(device.lstat().st_mode)
