"""Frames as a film: MP4 (VP9, by OpenCV) or GIF (by Pillow). A film is there when it is whole, or not at all."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.errors import ResourceError, UsageError, explaining_os_errors, import_library
from comper.runs.files import write_new_file
from comper.viewing.canvas import import_pillow

Frames = Iterable[NDArray[np.uint8]]


def check_film(path: Path) -> None:
    """Refuse a film of an unknown kind, in a folder that is not there, or of which the library is missing."""
    if path.suffix.lower() not in WRITERS:
        raise UsageError(f"--out {path}: a film ends in {' or '.join(WRITERS)}.")
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(f"--out {path}: {'is a folder' if path.is_dir() else 'its folder is not there'}.")
    import_pillow()
    if path.suffix.lower() == ".mp4":
        if not _is_utf8(path.absolute()):
            raise UsageError(f"--out {path}: OpenCV needs a name in UTF-8. Choose another, or write a GIF.")
        _import_opencv()


def _is_utf8(path: Path) -> bool:
    try:
        return bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def write_film(path: Path, frames: Frames, *, fps: float) -> None:
    """Write all frames, which are (rows, columns, 3) and of one size."""
    unfinished = path.with_name(f".unfinished-{os.getpid()}-{path.name}")
    try:
        with explaining_os_errors(path, is_typed=True):
            unfinished.unlink(missing_ok=True)  # what is there may be a link: the writers would follow it
            write_new_file(unfinished, b"")
            WRITERS[path.suffix.lower()](unfinished, iter(frames), fps)
            os.replace(unfinished, path)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _import_opencv() -> Any:
    return import_library("cv2", "An MP4 needs OpenCV", extra="watch", end=" (or write a GIF).")


def _write_mp4(path: Path, frames: Iterator[NDArray[np.uint8]], fps: float) -> None:
    cv2 = _import_opencv()
    first = next(frames)
    rows, columns = first.shape[:2]
    # H.264 is not among the codecs OpenCV may bring along; VP9 plays in every browser, and keeps text sharp.
    film = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"vp09"), fps, (columns, rows))
    if not film.isOpened():
        raise ResourceError(f"OpenCV cannot write {path.name} here: the folder or its VP9 codec is missing. Write a GIF.")
    num_frames = 0
    try:
        for frame in itertools.chain([first], frames):
            film.write(np.ascontiguousarray(frame[:, :, ::-1]))
            num_frames += 1
    finally:
        film.release()
    _require_whole(cv2.VideoCapture(str(path)), num_frames, cv2.CAP_PROP_FRAME_COUNT)


def _require_whole(film: Any, num_frames: int, count: int) -> None:
    """Look at what was written: OpenCV says nothing of a full disk."""
    try:
        if not film.isOpened() or int(film.get(count)) != num_frames:
            raise ResourceError("The film was cut short as it was written: is the disk full, or the size of files limited?")
    finally:
        film.release()


def _write_gif(path: Path, frames: Iterator[NDArray[np.uint8]], fps: float) -> None:
    pillow = import_pillow()
    images = (pillow.fromarray(frame).quantize(128, method=pillow.Quantize.FASTOCTREE, dither=0) for frame in frames)
    first = next(images)
    first.save(path, format="GIF", save_all=True, append_images=images, duration=round(1_000 / fps), loop=0)


WRITERS: dict[str, Callable[[Path, Iterator[NDArray[np.uint8]], float], None]] = {".mp4": _write_mp4, ".gif": _write_gif}
