"""One way to read and one way to write the files of a run folder.

Reading opens ordinary files only: no link is followed, no pipe waited for, no more memory taken than announced. Writing
replaces a file as a whole or not at all, and never writes through a link. Digests protect from accidents, not from forgers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from comper.errors import DamagedFileError, UsageError, explained_os_error

SEAL = "sha256"
"""The key under which a JSON object keeps the digest of its other keys."""

MAX_LINE_BYTES = 1 << 20
MAX_LEVELS = 64
"""Of a JSON object: far more than any here has, and fewer than Python can write."""
_CHUNK_BYTES = 1 << 20
_NOT_THE_FILES_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SAFE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path, flags: int) -> int:
    """Open an ordinary file and return its descriptor; a link, a pipe, a device or a folder is refused."""
    if os.path.islink(path):  # a better sentence than that of O_NOFOLLOW, which Windows does not have
        raise DamagedFileError(f"{path}: a link, not an ordinary file.")
    descriptor = os.open(path, flags | _SAFE_FLAGS, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFileError(f"{path}: not an ordinary file.")
    return descriptor


@contextlib.contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open an ordinary file for reading; what the system objects to becomes a DamagedFileError."""
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            yield file
    except OSError as error:
        if error.errno in _NOT_THE_FILES_FAULT:
            raise explained_os_error(error, f"{path}: cannot be read") from None
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror}).") from None


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """The content of an ordinary file of limited size."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise DamagedFileError(f"{path}: {size:,} bytes, expected at most {max_bytes:,}.")
        return file.read(size)


def read_json_object(path: Path, *, max_bytes: int) -> dict[str, Any]:
    """The JSON object in a file of limited size."""
    try:
        content = json.loads(read_file(path, max_bytes=max_bytes))
        _require_flat(content)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path}: not JSON ({error}).") from None
    if not isinstance(content, dict):
        raise DamagedFileError(f"{path}: expected a JSON object.")
    return content


def _require_flat(content: Any) -> None:
    level = [content]
    for _ in range(MAX_LEVELS):
        found = (value.values() if isinstance(value, dict) else value for value in level if isinstance(value, dict | list))
        if not (level := [part for parts in found for part in parts]):
            return
    raise ValueError(f"more than {MAX_LEVELS} levels deep")


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a log; a last line without its newline was never finished and is dropped."""
    with reading(path) as file:
        for number in count(1):
            line = file.readline(MAX_LINE_BYTES)
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE_BYTES:
                    raise DamagedFileError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes.")
                return
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DamagedFileError(f"{path}, line {number}: not a line of JSON ({error}).") from None
            if not isinstance(record, dict):
                raise DamagedFileError(f"{path}, line {number}: expected a JSON object.")
            yield number, record


# Digests


def digest(content: bytes) -> dict[str, Any]:
    """Size and SHA-256 of a file's content."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def file_digest(path: Path, *, num_bytes: int | None = None) -> dict[str, Any]:
    """Size and SHA-256 of a file, or of its first bytes, without holding it in memory."""
    return _digest(path, num_bytes)


def log_digest(path: Path) -> dict[str, Any]:
    """Lines, bytes and SHA-256 of a log, as a finished manifest keeps them under `files`."""
    return _digest(path, None, with_lines=True)


def is_digest(entry: Any) -> bool:
    """Whether a parsed value has the form of a digest."""
    if not (isinstance(entry, dict) and {"bytes", "sha256"} <= set(entry) <= {"bytes", "sha256", "lines"}):
        return False
    numbers = [value for key, value in entry.items() if key != "sha256"]
    return isinstance(entry["sha256"], str) and all(type(number) is int and number >= 0 for number in numbers)


def check_digest(path: Path, expected: Mapping[str, Any]) -> None:
    """Refuse a file that is not the one described; one of another size is not read at all."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
    actual = {"bytes": size} if size != expected["bytes"] else _digest(path, None, with_lines="lines" in expected)
    if any(actual.get(key) != value for key, value in expected.items()):
        raise DamagedFileError(
            f"{path}: not the file that was written down: {_described(actual)}; expected {_described(expected)}."
        )


def _described(entry: Mapping[str, Any]) -> str:
    lines = f"{entry['lines']:,} lines, " if "lines" in entry else ""
    return f"{lines}{entry['bytes']:,} bytes" + (f", SHA-256 {entry['sha256'][:12]}…" if "sha256" in entry else "")


def _digest(path: Path, num_bytes: int | None, *, with_lines: bool = False) -> dict[str, Any]:
    sha256, size, lines = hashlib.sha256(), 0, 0
    with reading(path) as file:
        limit = os.fstat(file.fileno()).st_size if num_bytes is None else num_bytes
        while size < limit and (chunk := file.read(min(_CHUNK_BYTES, limit - size))):
            sha256.update(chunk)
            size += len(chunk)
            lines += chunk.count(b"\n") if with_lines else 0  # which takes half as long as the digest
    return ({"lines": lines} if with_lines else {}) | {"bytes": size, "sha256": sha256.hexdigest()}


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a digest of itself, so that no change goes unnoticed."""
    return {**content, SEAL: _seal(content)}


def is_sealed(content: Mapping[str, Any]) -> bool:
    """Whether the digest is there and right."""
    return SEAL in content and content[SEAL] == _seal(content)


def _seal(content: Mapping[str, Any]) -> str:
    plain = {key: value for key, value in content.items() if key != SEAL}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


# Writing


def write_new_file(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet, and bring it to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o666)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything, in as many calls as it takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def require_no_links(out: Path, places: Iterable[Path]) -> None:
    """Refuse folders inside `out` that lead elsewhere; `out` itself may be a link, for the user has named it."""
    for place in places:
        for folder in (place, *place.parents):
            if folder == out:
                break
            if folder.is_symlink():
                raise UsageError(f"{folder}: a link, which would be written through. Remove it, or choose another --out.")


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a crash, meets the old content or the new, never half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)  # left by a process that was killed; of a link, only the link itself is removed
    try:
        write_new_file(temporary, content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a folder's list of names to disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot, and need not
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
