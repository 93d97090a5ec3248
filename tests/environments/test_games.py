"""Names of games."""

from __future__ import annotations

import subprocess
import sys

import pytest

from comper.environments.games import available_games, resolve_game, rom_checksum
from comper.errors import UsageError
from comper.protocol import PAPER_GAMES


def test_all_paper_games_are_available_and_the_list_is_sorted() -> None:
    games = available_games()
    assert set(PAPER_GAMES) <= set(games)
    assert list(games) == sorted(games)
    assert len(games) >= 100


def test_games_that_would_end_the_process_are_not_available() -> None:
    assert "combat" not in available_games()
    with pytest.raises(UsageError, match="No game is called 'combat'"):
        resolve_game("combat")


@pytest.mark.parametrize(
    "spelling",
    [
        "space_invaders",
        "Space Invaders",
        "SpaceInvaders",
        "space-invaders",
        " SPACE_INVADERS ",
        "ALE/SpaceInvaders-v5",
        "SpaceInvadersNoFrameskip-v4",
        "SpaceInvadersDeterministic-v0",
    ],
)
def test_usual_spellings_of_a_game_are_understood(spelling: str) -> None:
    assert resolve_game(spelling) == "space_invaders"


def test_every_available_name_is_its_own_resolution() -> None:
    assert all(resolve_game(name) == name for name in available_games())


def test_misspelt_game_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(UsageError, match=r"No game is called 'frewway'\. Did you mean freeway"):
        resolve_game("frewway")


def test_name_like_no_game_is_answered_with_examples() -> None:
    with pytest.raises(UsageError, match=r"There are \d+, for example adventure"):
        resolve_game("0000")


def test_observations_of_ram_are_not_taken_for_the_game() -> None:
    with pytest.raises(UsageError, match="Did you mean pong"):
        resolve_game("Pong-ram-v4")


def test_checksum_is_the_md5_that_ale_knows_the_rom_by() -> None:
    from ale_py import roms

    assert rom_checksum("freeway") == roms._get_expected_bin_hashes()["freeway.bin"]


def test_missing_ale_is_answered_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UsageError, match=r'pip install "comper\[atari\]"'):
        resolve_game("freeway")


def test_importing_the_room_imports_no_emulator() -> None:
    names = ["ale_py", "cv2", "gymnasium", "torch"]
    code = f"import sys, comper.environments; print([n for n in {names} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
