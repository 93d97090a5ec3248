"""The two tables of the paper beside floors and published scores, and a plain one for each other family of environments."""

from __future__ import annotations

import math
from collections.abc import Iterator

from comper.report import statistics
from comper.report.facts import FLOOR_DECISION_FRAMES, floor_at
from comper.report.names import ATARI, FAMILIES, file_name, game_title
from comper.report.published import reference
from comper.report.summary import Summary
from comper.report.tables.table import Cell, Column, Table, cut_cell, mark_best, no_number, text_cell

SECTION = "paper"
MEAN_AND_SD = ("mean", "sd")
MARK = "†"
"""Stands beside an agent whose settings are not its preset's."""
BEST_RULE = (
    "Bold: the highest mean of its row among the columns with 100,000 frames and the paper's settings, compared as shown; "
    "where several tie, all are bold, and nothing at or below its floor is. ▾: at or below the floor (the score without "
    "learning) of its game at the column's own decision period; where that was not measured, nothing is marked."
)
PUBLISHED = (
    "The last two columns are scores of others with more experience: DQN after 10 million frames, and BBF, a strong agent "
    "of 2023, after 20,000 agent steps (80,000 frames); see Sources."
)


def last_episodes_table(summary: Summary) -> Iterator[Table]:
    """Table 1 of the paper."""
    if ATARI not in summary.families:
        return
    rows = [mark_best(_last_episodes_row(summary, game), _candidates(summary)) for game in summary.families[ATARI]]
    sentence = (
        "Mean over trials of each trial's mean over its last 10 episodes (3 for games marked *), with the population standard "
        f"deviation over the trials; scores are cut after two decimals, as the paper's are. {BEST_RULE} "
        f"{_floor_sentence(summary)} {PUBLISHED}{changes_sentence(summary, summary.atari_agents)}"
    )
    columns = [Column("game", is_text=True), *_score_columns(summary)]
    yield Table("last_episodes", "Scores of the last training episodes", sentence, columns, rows, SECTION)


def thirds_table(summary: Summary) -> Iterator[Table]:
    """Table 2 of the paper, a row for each third of each game."""
    if ATARI not in summary.families:
        return
    columns = [Column("game", is_text=True), Column("end of", is_text=True), *_score_columns(summary)]
    candidates = [index + 1 for index in _candidates(summary)]
    rows = [mark_best(_third_row(summary, game, third), candidates) for game in summary.families[ATARI] for third in range(3)]
    sentence = (
        "Mean over trials of each trial's mean over the last 5 episodes (3 for games marked *) of each third of its episodes, "
        "with the sample standard deviation over the trials; thirds are as equal as can be, the first ones the longer; "
        f"scores are cut. Bold, ▾ and floors as above. The published scores of others stand beside the last third."
        f"{changes_sentence(summary, summary.atari_agents)}"
    )
    yield Table("thirds", "Scores at the end of each third", sentence, columns, rows, SECTION, is_grouped=True)


def family_tables(summary: Summary) -> Iterator[Table]:
    """The scores in environments other than Atari games, one table per family."""
    for name, games in summary.families.items():
        if name == ATARI:
            continue
        agents = [agent for agent in summary.agents if any((agent, game) in summary.cells for game in games)]
        columns = [Column("environment", is_text=True), *(_agent_column(summary, agent) for agent in agents), Column("floor")]
        rows = [[text_cell(game), *_agent_cells(summary, agents, game), cut_cell(_any_floor(summary, game))] for game in games]
        sentence = (
            "Mean over trials of each trial's mean over its last episodes, with the population standard deviation over the "
            "trials; scores are cut after two decimals. The floor is the score without learning, where it was measured; "
            f"▾: at or below it.{changes_sentence(summary, agents)}"
        )
        yield Table(file_name("scores", name), f"Scores: {FAMILIES[name]}", sentence, columns, rows, f"family-{name}")


def changes_sentence(summary: Summary, agents: list[str], *, with_mark: bool = True) -> str:
    """The settings of each of these agents that differ from its preset's; empty where none do."""
    changed = [f"{agent}: {'; '.join(summary.changes[agent])}" for agent in agents if agent in summary.changes]
    sign = f" {MARK}" if with_mark else ""
    return f"{sign} Not with the settings of its preset. {'. '.join(changed)}." if changed else ""


def mark(summary: Summary, agent: str) -> str:
    """The sign beside an agent whose settings are not its preset's."""
    return "" if summary.has_paper_settings(agent) else MARK


def _agent_column(summary: Summary, agent: str) -> Column:
    return Column(agent, MEAN_AND_SD, mark=mark(summary, agent))


def _score_columns(summary: Summary) -> list[Column]:
    """The columns that the two tables of the paper share, after the game."""
    published = reference.sources()
    return [
        *(_agent_column(summary, agent) for agent in summary.atari_agents),
        *(Column(title, MEAN_AND_SD) for title in reference.PRINTED_COLUMNS.values()),
        Column("floor: random"),
        Column("floor: constant"),
        *(Column(f"floor: every {period} frames") for period in _other_periods(summary)),
        Column(published["dqn_10m"]["label"]),
        Column(published["bbf_20k"]["label"]),
    ]


def _other_periods(summary: Summary) -> list[int]:
    """The decision periods besides the protocol's at which the floor of any of the games is known."""
    games = summary.families[ATARI]
    periods = {*summary.decision_periods(games), *reference.PRINTED_DECISION_FRAMES.values()} - {FLOOR_DECISION_FRAMES}
    return sorted(p for p in periods if any(floor_at(summary.floors, game, p) for game in games))


def _floor_sentence(summary: Summary) -> str:
    others = "".join(
        f"; with a decision every {period} frames it is given in a column of its own" for period in _other_periods(summary)
    )
    return f"The floors were measured with a decision every {FLOOR_DECISION_FRAMES} frames{others}."


def _candidates(summary: Summary) -> list[int]:
    """The columns, after the game, among which the best is sought: those with the paper's frames and settings."""
    agents = [index for index, agent in enumerate(summary.atari_agents, start=1) if summary.has_paper_settings(agent)]
    return agents + [1 + len(summary.atari_agents) + index for index in range(len(reference.PRINTED_COLUMNS))]


def _last_episodes_row(summary: Summary, game: str) -> list[Cell]:
    printed = [_printed_cell(summary, game, column, reference.table_1(game, column)) for column in reference.PRINTED_COLUMNS]
    ours = _agent_cells(summary, summary.atari_agents, game)
    return [text_cell(game_title(game)), *ours, *printed, *_floor_cells(summary, game), *_published_cells(game)]


def _agent_cells(summary: Summary, agents: list[str], game: str) -> list[Cell]:
    cells = []
    for agent in agents:
        scores = summary.final.get((agent, game))
        if scores is None:
            cells.append(no_number(2))
        else:
            sd = statistics.population_deviation(scores)
            cells.append(cut_cell(scores.mean(), sd, floor=summary.floor(agent, game)))
    return cells


def _third_row(summary: Summary, game: str, third: int) -> list[Cell]:
    cells = [text_cell(game_title(game)), text_cell(statistics.THIRDS[third])]
    for agent in summary.atari_agents:
        scores = summary.thirds.get((agent, game))
        if scores is None:
            cells.append(no_number(2))
        else:
            sd = statistics.sample_deviation(scores[:, third])
            cells.append(cut_cell(scores[:, third].mean(), sd, floor=summary.floor(agent, game)))
    for column in reference.PRINTED_COLUMNS:
        printed = reference.table_2(game, column)
        cells.append(_printed_cell(summary, game, column, printed[third] if printed else None))
    published = _published_cells(game) if third == 2 else [no_number(1), no_number(1)]
    return [*cells, *_floor_cells(summary, game), *published]


def _printed_cell(summary: Summary, game: str, column: str, cell: reference.PrintedCell | None) -> Cell:
    if cell is None:
        return no_number(2)
    floor = floor_at(summary.floors, game, reference.PRINTED_DECISION_FRAMES[column])
    return cut_cell(cell.mean, cell.sd, floor=math.nan if floor is None else floor.value)


def _floor_cells(summary: Summary, game: str) -> list[Cell]:
    floor = floor_at(summary.floors, game, FLOOR_DECISION_FRAMES)
    parts = (math.nan, math.nan) if floor is None else (floor.random.mean, floor.constant)
    others = [floor_at(summary.floors, game, period) for period in _other_periods(summary)]
    return [*map(cut_cell, parts), *(cut_cell(math.nan if other is None else other.value) for other in others)]


def _any_floor(summary: Summary, game: str) -> float:
    floors = [floor for period in summary.decision_periods([game]) if (floor := floor_at(summary.floors, game, period))]
    return floors[0].value if floors else math.nan


def _published_cells(game: str) -> list[Cell]:
    return [cut_cell(reference.score(game, column)) for column in ("dqn_10m", "bbf_20k")]
