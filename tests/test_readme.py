"""The README's results are those of the logs in results/paper, read by the project's own rules."""

from __future__ import annotations

import csv
import json
import re
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from comper.agents.registry import AGENTS as KNOWN_AGENTS
from comper.environments.floors import load_floors
from comper.protocol import PAPER_GAMES, TRIALS, num_scored_episodes
from comper.report.statistics import final_score, interval, mean_of_games

ROOT = Path(__file__).parents[1]
README, RESEARCH = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/research.md"))
AGENTS = ("comper", "comper-single", "comper-stacked", "dqn", "ddqn")
SETTINGS = {
    "its own settings": ["paper/comper"],
    "ten": ["paper/comper", "graph/eight-games/autofire-seeds-5-to-9"],
    "residual": ["graph/eight-games/autofire-residual"],
    "residual, ten": ["graph/eight-games/autofire-residual", "graph/eight-games/autofire-residual-seeds-5-to-9"],
    "no autofire": ["graph/eight-games/two-updates"],
    "A": ["graph/eight-games/parts-mirrors-views"],
    "B": ["graph/eight-games/parts-mirrors-views-residual"],
    "C": ["graph/eight-games/two-updates-residual"],
}
"""The columns of the table of other settings, and the archives of their runs."""
STUDIED = {
    "comper": "comper",
    "without mirrors": "comper-plain",
    "without its graph": "comper-3-steps",
    **{name: name for name in ("ddqn", "dqn", "comper-single")},
}
"""The columns of the other table, and what `results/graph` calls them."""


def scores(archived: str) -> Iterator[tuple[str, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    """(game, scores of a trial's episodes) of an archive in results."""
    with tarfile.open(ROOT / "results" / f"{archived}.tar.gz") as archive:
        for member in archive:
            if member.name.endswith("episodes.jsonl"):
                lines = archive.extractfile(member).read().splitlines()  # type: ignore[union-attr]
                yield member.name.split("/")[1], np.array([json.loads(line)["score"] for line in lines])


def finals(*archived: str) -> dict[str, list[float]]:
    """Scores of the trials of each game."""
    trials: dict[str, list[float]] = {}
    for name in archived:
        for game, played in scores(name):
            trials.setdefault(game, []).append(final_score(played, num_scored_episodes(game)))
    return trials


def cells(name: str, document: str = README) -> list[list[str]]:
    lines = document.split(f"<!-- table: {name} -->")[1].split("<!-- end of table -->")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def table() -> dict[str, list[str]]:
    title, _, *rows = cells("results/paper")
    assert tuple(title[1 : 1 + len(AGENTS)]) == AGENTS
    return {row[0].lower().replace(" ", "_"): row[1:] for row in rows}


@pytest.mark.parametrize("column", range(len(AGENTS)), ids=AGENTS)
def test_table_of_the_readme_follows_from_the_logs(column: int) -> None:
    trials = finals(f"paper/{AGENTS[column]}")
    assert set(trials) == set(PAPER_GAMES)
    for game, ends in trials.items():
        assert len(ends) == TRIALS
        mean, sd = (float(text.replace(",", "")) for text in table()[game][column].split(" ± "))
        # The table cuts or rounds to one decimal.
        assert mean == pytest.approx(np.mean(ends), abs=0.1)
        assert sd == pytest.approx(np.std(ends), abs=0.1)


@pytest.mark.parametrize("column", SETTINGS)
def test_table_of_other_settings_follows_from_the_logs(column: str) -> None:
    title, _, *rows = cells("results/graph/eight-games", RESEARCH)
    assert title[2:] == list(SETTINGS)
    trials, floors = finals(*SETTINGS[column]), load_floors()
    shown = {row[0].lower().replace(" ", "_"): row[title.index(column)] for row in rows}
    assert set(shown) == set(PAPER_GAMES)
    for game, text in shown.items():
        assert bool(text) == (game in trials)
        if text:
            ends = np.array(trials[game])
            assert len(ends) == (2 * TRIALS if "ten" in column else TRIALS)
            assert float(text.strip("*").replace(",", "")) == pytest.approx(
                ends.mean(), abs=0.051 if game == "freeway" else 0.51
            )
            low = interval(mean_of_games, [ends], rng=np.random.default_rng(0)).low
            assert text.startswith("**") == (low > floors.value(game, 5))


def test_floors_of_the_readme_are_those_of_the_package() -> None:
    floors = load_floors()
    for game, row in table().items():
        floor, shown = floors.games[game], row[len(AGENTS)].replace(",", "")
        assert float(shown.split()[0]) == pytest.approx(floor.value, abs=0.1)
        assert ("random" in shown) == (floor.random.mean > floor.constant)
        stacked = shown.partition("stacked ")[2]
        assert float(stacked or floor.value) == pytest.approx(floors.value(game, 20), abs=0.1)


def test_table_of_the_study_follows_from_its_results() -> None:
    with (ROOT / "results" / "graph" / "tasks.csv").open(encoding="utf-8", newline="") as file:
        found = {(row["environment"], row["agent"]): row for row in csv.DictReader(file)}
    title, _, *rows = cells("results/graph")
    assert title[1:-1] == list(STUDIED)
    assert len(rows) == 10
    for task, *shown in rows:
        for agent, text in zip(STUDIED.values(), shown, strict=False):
            row, half = found[task, agent], 0.51 * 10 ** -len(text.rpartition(".")[2])
            assert [*map(float, text.split(" ± "))] == pytest.approx([float(row["score"]), float(row["score, sd"])], abs=half)
        assert float(shown[-1]) == pytest.approx(float(found[task, "comper"]["floor"]), abs=0.051)


def test_interquartile_means_of_the_study_follow_from_its_results() -> None:
    found: list[dict[str, dict[str, str]]] = []
    for family in ("", "minatar", "minigrid"):
        with (ROOT / "results" / "graph" / family / "summary.csv").open(encoding="utf-8", newline="") as file:
            found.append({row["agent"]: row for row in csv.DictReader(file)})
    _, _, *rows = cells("results/graph/summary")
    assert len(rows) == 9
    for name, *shown in rows:
        variant, agent = re.search(r"\*([\w-]+)\*", name), re.search(r"`([\w-]+)`", name)
        called = f"comper-{variant[1]}" if variant else agent[1]  # type: ignore[index]
        for summary, text in zip(found, shown, strict=True):
            row = summary[called]
            numbers = [float(number) for number in re.findall(r"-?\d\.\d\d", text)]
            edges = [float(row[f"score, interquartile mean{edge}"]) for edge in ("", ", low", ", high")]
            assert numbers == pytest.approx(edges if len(numbers) == 3 else edges[:1], abs=0.0051)
            assert len(numbers) == 3 or edges[0] == edges[1] == edges[2], "an interval is left out"


def test_every_agent_of_the_readme_exists_or_is_a_users_own() -> None:
    named = re.findall(r"--agent (\S+)", README) + re.findall(r'train\([^)]*?, "([\w-]+)"', README)
    assert {"dqn", "ddqn", "comper-stacked"} <= set(named)
    assert {agent for agent in named if ":" not in agent} <= set(KNOWN_AGENTS)


def test_extras_of_the_readme_are_those_of_the_package() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])
    part = README.split("## Install")[1].split("## ")[0]
    named = set(re.search(r"\[([\w,]+)\]", part)[1].split(",")) | set(re.findall(r"`([a-z][a-z0-9]+)`", part)) - {"make"}  # type: ignore[index]
    assert named <= extras
    assert extras - named <= {"bench", "dev", "docs"}


def test_the_size_of_a_transition_is_that_of_the_benchmark() -> None:
    rows = json.loads((ROOT / "results" / "bench" / "cpu-2-cores.json").read_text(encoding="utf-8"))["rows"]
    [row] = [row for row in rows if row["name"] == "bytes per transition, rolling, zlib"]
    found = re.search(r"takes ([\d,]+) bytes of memory.*?Stable-Baselines3\s+takes ([\d,]+)\.", README, flags=re.DOTALL)
    assert found
    assert [f"{size} B" for size in found.groups()] == [row["ours"], row["theirs"]]


def test_every_document_of_the_readme_exists() -> None:
    for link in re.findall(r"\]\(([\w/.-]+)\)", README):
        assert (ROOT / link).exists(), link
