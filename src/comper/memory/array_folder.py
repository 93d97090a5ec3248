"""A folder of NumPy arrays with a manifest: saved completely or not at all, and checked before it is used.

    manifest.json            what is saved, with the SHA-256 of every file and of itself
    rewards-1f0c9a....npy    one array, in a file named after its content; any NumPy reads it

Files get names of their own, and replacing the manifest is the moment at which a new save counts. A process killed at
any moment leaves the save before it or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from comper.errors import DamagedFileError, UsageError, explaining_os_errors
from comper.memory.frames import FrameStore

MANIFEST_FILE = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
UNFINISHED = ".unfinished-"
FRAMES_AT_ONCE = 256
"""In main memory while a store is saved."""
_ARRAY_FILE = re.compile(r"[a-z_]+-[0-9a-f]{64}\.npy")


class StoredArray(NamedTuple):
    """An array to save, in parts, so that a large one need not be in memory at once."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Iterable[NDArray[Any]]

    def whole(self) -> NDArray[Any]:
        """All of it in memory."""
        parts = [*self.parts]
        return np.concatenate(parts) if parts else np.empty(self.shape, self.dtype)


def stored(arrays: Mapping[str, NDArray[Any]]) -> dict[str, StoredArray]:
    """Arrays to save, each in one part."""
    return {name: StoredArray(array.dtype, array.shape, [array]) for name, array in arrays.items()}


def stored_frames(store: FrameStore) -> tuple[NDArray[np.int64], StoredArray]:
    """The ids that a store holds, and their frames, of which few are in memory at once."""
    ids, _ = store.held()
    parts = (store.gather(ids[start : start + FRAMES_AT_ONCE]) for start in range(0, len(ids), FRAMES_AT_ONCE))
    return ids, StoredArray(store.dtype, (len(ids), *store.shape), parts)


def letters(number: int) -> str:
    """Names of columns hold letters alone: a, b, ... z, ba, bb, ... for those that are numbered."""
    rest, last = divmod(number, 26)
    return (letters(rest) if rest else "") + chr(ord("a") + last)


def write(folder: Path, about: Mapping[str, Any], columns: Mapping[str, StoredArray]) -> None:
    """Save the columns and a description (of JSON values), in place of what was saved there before."""
    with explaining_os_errors(folder, hint="What is saved there, the memory before or this one, is whole.", is_typed=True):
        folder.mkdir(parents=True, exist_ok=True)
        foreign = [entry.name for entry in folder.iterdir() if not _is_ours(entry.name)]
        if foreign:
            raise UsageError(f"{folder}: holds other files ({foreign[0]}); choose a new or an empty folder.")
        _write(folder, about, columns)


def _write(folder: Path, about: Mapping[str, Any], columns: Mapping[str, StoredArray]) -> None:
    files = {name: _write_array(folder, name, column) for name, column in columns.items()}
    _sync(folder)  # the arrays are on disk before the manifest that names them
    manifest = {**about, "files": files}
    _write_manifest(folder, manifest | {"sha256": _seal(manifest)})
    _sync(folder)
    needed = {MANIFEST_FILE, *(_file_name(name, entry["sha256"]) for name, entry in files.items())}
    for entry in [entry for entry in folder.iterdir() if entry.name not in needed]:
        entry.unlink()


def read(folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read back the description and the arrays, which stay on disk until they are used."""
    try:
        manifest = _read_manifest(folder / MANIFEST_FILE)
        files = manifest.pop("files")
        return manifest, {
            name: _read_array(folder, _file_name(name, entry["sha256"]), entry.get("bytes")) for name, entry in files.items()
        }
    except (AttributeError, KeyError, TypeError):
        raise DamagedFileError(f"{folder / MANIFEST_FILE}: does not list the saved arrays.") from None
    except OSError as error:
        raise DamagedFileError(f"{folder}: cannot be read ({error.strerror}).") from None


def _is_ours(name: str) -> bool:
    return name == MANIFEST_FILE or name.startswith(UNFINISHED) or bool(_ARRAY_FILE.fullmatch(name))


def _file_name(name: str, sha256: str) -> str:
    return f"{name}-{sha256}.npy"


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


# Writing.


def _write_array(folder: Path, name: str, column: StoredArray) -> dict[str, Any]:
    temporary = folder / f"{UNFINISHED}{name}"
    temporary.unlink(missing_ok=True)  # left by a process that was killed; of a link, only the link itself is removed
    with open(temporary, "xb") as file:
        header = {"descr": npy.dtype_to_descr(column.dtype), "fortran_order": False, "shape": column.shape}
        npy.write_array_header_1_0(file, header)
        for part in column.parts:
            file.write(part.tobytes())
        file.flush()
        os.fsync(file.fileno())
    sha256 = _digest(temporary)
    os.replace(temporary, folder / _file_name(name, sha256))
    return {"sha256": sha256, "bytes": (folder / _file_name(name, sha256)).stat().st_size}


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    temporary = folder / f"{UNFINISHED}{MANIFEST_FILE}"
    temporary.unlink(missing_ok=True)
    with open(temporary, "x", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / MANIFEST_FILE)


def _sync(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Reading.


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DamagedFileError(f"{path.parent}: holds nothing that was saved ({MANIFEST_FILE} is missing).")
    if path.stat().st_size > MAX_MANIFEST_BYTES:
        raise DamagedFileError(f"{path}: too large for a manifest.")
    try:
        manifest = json.loads(path.read_bytes())
        seal = manifest.pop("sha256")
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
        raise DamagedFileError(f"{path}: not a manifest.") from None
    if seal != _seal(manifest):
        raise DamagedFileError(f"{path}: not as it was written.")
    return dict(manifest)


def _read_array(folder: Path, file_name: str, expected_bytes: int | None) -> NDArray[Any]:
    """An array whose file has the digest in its name. A header cannot make NumPy read more than the file holds.

    A file of another size than the manifest states (older ones do not) is not read at all.
    """
    path = folder / file_name
    if not _ARRAY_FILE.fullmatch(file_name) or not path.is_file():
        raise DamagedFileError(f"{path}: this file is missing.")
    if expected_bytes not in (None, path.stat().st_size) or _digest(path) not in file_name:
        raise DamagedFileError(f"{path}: not as it was written.")
    try:
        with open(path, "rb") as file:
            npy.read_magic(file)
            shape, is_fortran, dtype = npy.read_array_header_1_0(file)
            offset = file.tell()
        num_bytes = dtype.itemsize * int(np.prod(shape, dtype=object))
        if is_fortran or dtype.hasobject or num_bytes != path.stat().st_size - offset:
            raise ValueError("its header does not describe its content")
        return np.memmap(path, dtype, "r", offset, shape) if num_bytes else np.empty(shape, dtype)
    except (ValueError, TypeError, OverflowError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
        raise DamagedFileError(f"{path}: not an array ({error}).") from None
