"""Films: every frame arrives, in its order and colours, or no file is left."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from comper.errors import ResourceError, UsageError
from comper.viewing.films import check_film, write_film

COLOURS = [(220, 30, 30), (30, 200, 30), (30, 30, 210), (200, 200, 30)]


def frames() -> Iterator[NDArray[np.uint8]]:
    for colour in COLOURS:
        yield np.full((64, 96, 3), colour, np.uint8)


def read(path: Path) -> list[NDArray[np.uint8]]:
    if path.suffix == ".gif":
        with Image.open(path) as images:
            assert images.info["duration"] == 100
            shown = []
            for number in range(images.n_frames):  # type: ignore[attr-defined]
                images.seek(number)
                shown.append(np.asarray(images.convert("RGB")))
            return shown
    film = cv2.VideoCapture(str(path))
    assert film.get(cv2.CAP_PROP_FPS) == 10
    found = []
    while (answer := film.read())[0]:
        found.append(answer[1][:, :, ::-1])
    return found


@pytest.mark.parametrize("name", ["film.mp4", "film.gif", "FILM.GIF"])
def test_a_film_holds_all_frames(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    check_film(path)
    write_film(path, frames(), fps=10)
    shown = read(path.rename(path.with_suffix(path.suffix.lower())))
    assert len(shown) == len(COLOURS)
    for frame, colour in zip(shown, COLOURS, strict=True):
        assert frame.shape == (64, 96, 3)
        assert np.abs(frame.reshape(-1, 3).mean(axis=0) - colour).max() < 12


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_what_fails_on_the_way_leaves_the_film_before_it_and_nothing_else(name: str, tmp_path: Path) -> None:
    def broken() -> Iterator[NDArray[np.uint8]]:
        yield from frames()
        raise RuntimeError("the game is gone")

    path = tmp_path / name
    path.write_bytes(b"an older film")
    with pytest.raises(RuntimeError, match="the game is gone"):
        write_film(path, broken(), fps=10)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == b"an older film"


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_link_planted_under_the_unfinished_name_is_not_written_through(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / f".unfinished-{os.getpid()}-{name}").symlink_to(tmp_path / "mine")
    write_film(tmp_path / name, frames(), fps=10)
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert {path.name for path in tmp_path.iterdir()} == {"mine", name}


def test_wrong_places_are_refused_before_anything_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"film\.avi: a film ends in \.mp4 or \.gif"):
        check_film(tmp_path / "film.avi")
    with pytest.raises(UsageError, match="its folder is not there"):
        check_film(tmp_path / "none" / "film.mp4")
    (tmp_path / "film.mp4").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        check_film(tmp_path / "film.mp4")
    for name in ("film-\udcff.mp4", "film-\ud800.mp4"):  # OpenCV would end the process
        with pytest.raises(UsageError, match="OpenCV needs a name in UTF-8"):
            check_film(tmp_path / name)
    check_film(tmp_path / "fílm.mp4")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UsageError, match=r'An MP4 needs OpenCV: pip install "comper\[watch\]"'):
        check_film(tmp_path / "other.mp4")
    check_film(tmp_path / "other.gif")


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_film_cut_short_by_a_limit_is_said_and_not_left(name: str, tmp_path: Path) -> None:
    write_film(tmp_path / f"whole-{name}", frames(), fps=10)
    size = (tmp_path / f"whole-{name}").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, before[1]))
    try:
        with pytest.raises(ResourceError):
            write_film(tmp_path / name, frames(), fps=10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == [f"whole-{name}"]
