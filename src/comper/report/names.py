"""How a report calls games and environments: titles, the families they are shown in, and names of files."""

from __future__ import annotations

import re

from comper.protocol import FEW_EPISODE_GAMES, PAPER_GAMES

ATARI = "atari"
OTHER = "other"
FAMILIES = {
    ATARI: "Atari games", "minatar": "MinAtar games", "gym": "Gymnasium environments", "minigrid": "MiniGrid tasks",
    OTHER: "Other environments",
}  # fmt: skip
"""The headings under which environments stand, in the order of the page, by what their names begin with."""
ASTERISK = "* few episodes: the last 3 are scored, not the last 10"


def family(game: str) -> str:
    """The family an environment belongs to: Atari games have no prefix, a user's own have one nobody knows."""
    prefix, colon, _ = game.partition(":")
    return ATARI if not colon else prefix if prefix in FAMILIES else OTHER


def game_title(game: str) -> str:
    """`battle_zone` as a reader writes it, with the paper's asterisk where only 3 episodes are scored."""
    if family(game) != ATARI:
        return game
    return game.replace("_", " ").title() + ("*" if game in FEW_EPISODE_GAMES else "")


def in_page_order(games: set[str]) -> list[str]:
    """The paper's games in its order, then other games by name, then other families."""
    order = list(FAMILIES)
    return [game for game in PAPER_GAMES if game in games] + sorted(
        games - set(PAPER_GAMES), key=lambda game: (order.index(family(game)), game)
    )


def file_name(*words: str) -> str:
    """Words as the name of a file, with nothing in it that a file system minds."""
    return re.sub(r"[^A-Za-z0-9._+-]", "-", "_".join(words))


def asterisk_sentence(games: list[str]) -> str:
    """What the asterisk means, where one of the games has it."""
    return f" ({ASTERISK}.)" if FEW_EPISODE_GAMES.intersection(games) else ""
