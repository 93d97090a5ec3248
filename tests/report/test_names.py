"""How a report calls games, environments and files."""

from __future__ import annotations

from comper.report.names import family, file_name, game_title, in_page_order


def test_titles() -> None:
    assert game_title("battle_zone") == "Battle Zone*"
    assert game_title("space_invaders") == "Space Invaders"


def test_environments_belong_to_families() -> None:
    names = ("freeway", "gym:CartPole-v1", "minatar:breakout", "minigrid:DoorKey-6x6-v0", "my_module:make_env", "python:MyEnv")
    assert [family(name) for name in names] == ["atari", "gym", "minatar", "minigrid", "other", "other"]
    assert game_title("gym:CartPole-v1") == "gym:CartPole-v1"


def test_the_papers_games_come_first_and_other_families_last() -> None:
    games = {"gym:CartPole-v1", "breakout", "asterix", "freeway", "minatar:breakout"}
    assert in_page_order(games) == ["freeway", "asterix", "breakout", "minatar:breakout", "gym:CartPole-v1"]


def test_files_are_called_by_plain_names() -> None:
    assert file_name("details", "gym:Foo/Bar-v1") == "details_gym-Foo-Bar-v1"
