"""The games that ale-py ships, by name: `space_invaders`, and the other spellings people use for it."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import re
from functools import cache
from pathlib import Path
from typing import Any

from comper.errors import OutsideCodeError, UsageError, import_library

# What Gymnasium's ids put around a name: `ALE/Pong-v5`, `PongNoFrameskip-v4`.
_ID_PREFIX = re.compile(r"^ALE/")
_ID_SUFFIX = re.compile(r"(NoFrameskip|Deterministic)?-v\d+$")


def import_ale() -> Any:
    """Import ale_py, silenced, or say how to install it."""
    ale_py = import_library("ale_py", "Atari games need ale-py", extra="atari", kind=OutsideCodeError)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


@cache
def available_games() -> tuple[str, ...]:
    """Names of all games that can be played here, sorted."""
    return tuple(sorted(name for name in _shipped_names() if _is_playable(name)))


def find_game(name: str) -> str | None:
    """The one name of a game, from any usual spelling of it; None where no game is called that."""
    game = _names_by_letters().get(_letters_of(name))
    return game if game is not None and _is_playable(game) else None


def resolve_game(name: str) -> str:
    """The one name of a game, from any usual spelling of it; a wrong one is answered with the nearest."""
    game = find_game(name)
    if game is None:
        raise UsageError(f"No game is called {name!r}. {_suggestion(_letters_of(name))}")
    return game


def rom_path(game: str) -> Path:
    """The file of a game's ROM."""
    roms = _roms()
    with contextlib.redirect_stdout(io.StringIO()):  # it announces ALE_ROMS_DIR on standard output
        try:
            return Path(roms.get_rom_path(game))
        except OSError as error:
            raise UsageError(f"The ROM of {game} cannot be used: {error}") from error


def rom_checksum(game: str) -> str:
    """MD5 of a game's ROM, by which ALE itself knows it."""
    return hashlib.md5(rom_path(game).read_bytes(), usedforsecurity=False).hexdigest()


def _roms() -> Any:
    import_ale()
    from ale_py import roms

    return roms


def _shipped_names() -> list[str]:
    names: list[str] = _roms().get_all_rom_ids()
    return names


def _is_playable(name: str) -> bool:
    # Loading a ROM that ALE does not support ends the process, so this is asked first.
    return import_ale().ALEInterface.isSupportedROM(rom_path(name)) is not None


def _letters_of(name: str) -> str:
    return letters(_ID_SUFFIX.sub("", _ID_PREFIX.sub("", name.strip())))


def letters(name: str) -> str:
    """What two spellings of a name have in common: small letters and digits."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _names_by_letters() -> dict[str, str]:
    return {letters(name): name for name in _shipped_names()}


def _suggestion(spelled: str) -> str:
    playable = {letters(name): name for name in available_games()}
    nearest = difflib.get_close_matches(spelled, playable, n=3, cutoff=0.6)
    if not nearest:
        return f"There are {len(playable)}, for example {', '.join(sorted(playable.values())[:3])}."
    return f"Did you mean {' or '.join(playable[match] for match in nearest)}?"
