"""Every table of a report: the two of the paper beside floors and references, and the statistics the field expects today."""

from __future__ import annotations

import math

from comper.protocol import FEW_EPISODE_GAMES
from comper.report import reference, statistics
from comper.report.reading import Trial
from comper.report.summary import FLOOR_NORMALISED, HUMAN_NORMALISED, NORMALISATIONS, STATISTICS, Summary
from comper.report.tables import Cell, Column, Table, cut_cell, mark_best, number_cell, text_cell

MEAN_AND_SD = ("mean", "sd")
THIRDS = ("first", "second", "third")
BEST_RULE = (
    "Bold: the highest mean of its row among the columns with 100,000 frames, compared as shown; "
    "where several tie, all are bold. ▾: at or below the floor of its game."
)


def game_title(game: str) -> str:
    """`battle_zone` as a reader writes it, with the paper's asterisk where only 3 episodes are scored."""
    return game.replace("_", " ").title() + ("*" if game in FEW_EPISODE_GAMES else "")


def build_tables(summary: Summary) -> list[Table]:
    """All tables of a report, in the order of the page."""
    return [
        last_episodes_table(summary),
        thirds_table(summary),
        per_game_table(summary),
        aggregate_table(summary),
        improvement_table(summary),
        floors_table(summary),
        trials_table(summary),
    ]


def last_episodes_table(summary: Summary) -> Table:
    """Table 1 of the paper."""
    columns = _score_columns(summary)
    rows = [mark_best(_last_episodes_row(summary, game), _candidates(summary)) for game in summary.games]
    sentence = (
        "Mean over trials of each trial's mean over its last 10 episodes (3 for games marked *), with the population standard "
        f"deviation over the trials; figures are cut after two decimals, as the paper's are. {BEST_RULE}"
    )
    return Table(
        "last_episodes", "Scores of the last training episodes", sentence, [Column("game", is_text=True), *columns], rows
    )


def thirds_table(summary: Summary) -> Table:
    """Table 2 of the paper, a row for each third of each game."""
    columns = [Column("game", is_text=True), Column("end of", is_text=True), *_score_columns(summary)]
    candidates = [index + 1 for index in _candidates(summary)]
    rows = [mark_best(_third_row(summary, game, third), candidates) for game in summary.games for third in range(3)]
    sentence = (
        "Mean over trials of each trial's mean over the last 5 episodes (3 for games marked *) of each third of its episodes, "
        "with the sample standard deviation over the trials; thirds are as equal as can be, the first ones the longer; "
        f"figures are cut. {BEST_RULE} DQN at 10 million frames and BBF stand beside the last third."
    )
    return Table("thirds", "Scores at the end of each third", sentence, columns, rows)


def per_game_table(summary: Summary) -> Table:
    """Each agent on each game with its bootstrap interval."""
    titles = ["trials", "mean", "95 % low", "95 % high", "floor", "above floor", FLOOR_NORMALISED, HUMAN_NORMALISED]
    columns = [Column("game", is_text=True), Column("agent", is_text=True), *map(Column, titles)]
    rows = [
        _per_game_row(summary, agent, game)
        for game in summary.games
        for agent in summary.agents
        if (agent, game) in summary.cells
    ]
    sentence = (
        f"Mean final score with its 95 % percentile bootstrap interval over trials ({statistics.REPLICATES:,} replicates, "
        f"seed {summary.seed}); one trial alone has none. {_normalisation_sentence()}"
    )
    return Table("per_game", "Each game with its interval", sentence, columns, rows)


def aggregate_table(summary: Summary) -> Table:
    """Interquartile mean, mean and optimality gap over the games that all agents share."""
    parts = ("value", "low", "high")
    columns = [Column("agent", is_text=True), Column("scores", is_text=True), Column("games")]
    columns += [Column(name, parts) for name in STATISTICS]
    rows = [
        [text_cell(agent), text_cell(normalisation), text_cell(len(summary.common_games(normalisation)))]
        + [_interval_cell(summary.aggregates[agent, normalisation, name]) for name in STATISTICS]
        for normalisation in NORMALISATIONS
        if summary.common_games(normalisation)
        for agent in summary.agents
    ]
    sentence = (
        "Over the games that every agent here has played, with 95 % stratified bootstrap intervals (trials are resampled "
        f"within each game). {_normalisation_sentence()} "
        "The optimality gap is what is missing to 1 on average: smaller is better."
    )
    return Table("aggregates", "All games together", sentence, columns, rows)


def improvement_table(summary: Summary) -> Table:
    """The probability of improvement for each ordered pair of agents."""
    titles = ["games", "probability", "95 % low", "95 % high"]
    rows = [
        [text_cell(x), text_cell(y), text_cell(len(summary.games_of(x, y))), *_interval_cells(interval)]
        for (x, y), interval in summary.improvements.items()
    ]
    sentence = (
        "The probability that a trial of the first agent scores above a trial of the second on the same game, averaged over "
        "the games both have played; a tie counts half, so 0.5 means no difference."
    )
    columns = [Column("agent", is_text=True), Column("against", is_text=True), *map(Column, titles)]
    return Table("improvement", "Probability of improvement", sentence, columns, rows)


def floors_table(summary: Summary) -> Table:
    """What each game pays without learning, and when that was measured."""
    titles = ["random", "random sd", "episodes", "best constant"]
    columns = [Column("game", is_text=True), *map(Column, titles), Column("action", is_text=True)]
    columns += [Column("floor"), Column("measured")]
    rows = [
        [
            text_cell(game_title(game)), number_cell(floor.random.mean), number_cell(floor.random.sd),
            text_cell(floor.random.episodes),
            number_cell(floor.constant), text_cell(floor.best_constant), number_cell(floor.value), text_cell(floor.measured),
        ]
        for game in summary.games
        if (floor := summary.floors.games.get(game)) is not None
    ]  # fmt: skip
    interim = "Interim figures: " if summary.floors.interim else ""
    meaning = "The floor is the larger of a uniformly random policy and the best constant action."
    return Table("floors", "Floors", f"{meaning} {interim}{summary.floors.about}", columns, rows)


def trials_table(summary: Summary) -> Table:
    """Every trial that was found intact, also the unfinished ones."""
    titles = ["seed", "episodes", "frames", "steps", "score", "minutes"]
    columns = [Column("agent", is_text=True), Column("game", is_text=True), *map(Column, titles)]
    columns += [Column(title, is_text=True) for title in ("status", "device", "commit")]
    trials = sorted([*summary.runs.trials, *summary.runs.running], key=lambda trial: trial.key)
    sentence = "The score is the mean of the last 10 (or 3) episodes; only finished trials enter any other table or figure."
    return Table("trials", "Every trial", sentence, columns, [_trial_row(trial) for trial in trials])


def _score_columns(summary: Summary) -> list[Column]:
    """The columns that the two tables of the paper share, after the game."""
    published = reference.sources()
    return [
        *(Column(agent, MEAN_AND_SD) for agent in summary.agents),
        *(Column(title, MEAN_AND_SD) for title in reference.PRINTED_COLUMNS.values()),
        Column("floor: random"),
        Column("floor: constant"),
        Column(published["dqn_10m"]["label"]),
        Column(published["bbf_20k"]["label"]),
    ]


def _candidates(summary: Summary) -> list[int]:
    """The columns, after the game, among which the best is sought: those that were given the paper's number of frames."""
    agents = [index for index, agent in enumerate(summary.agents, start=1) if summary.has_paper_budget(agent)]
    return agents + [1 + len(summary.agents) + index for index in range(len(reference.PRINTED_COLUMNS))]


def _last_episodes_row(summary: Summary, game: str) -> list[Cell]:
    floor, cells = summary.floors.value(game), [text_cell(game_title(game))]
    for agent in summary.agents:
        scores = summary.final.get((agent, game))
        cells.append(
            _no_number(2) if scores is None else cut_cell(scores.mean(), statistics.population_deviation(scores), floor=floor)
        )
    for column in reference.PRINTED_COLUMNS:
        cells.append(_printed_cell(reference.table_1(game, column), floor))
    return cells + _floor_cells(summary, game) + _published_cells(game)


def _third_row(summary: Summary, game: str, third: int) -> list[Cell]:
    floor, cells = summary.floors.value(game), [text_cell(game_title(game)), text_cell(THIRDS[third])]
    for agent in summary.agents:
        scores = summary.thirds.get((agent, game))
        cells.append(
            _no_number(2)
            if scores is None
            else cut_cell(scores[:, third].mean(), statistics.sample_deviation(scores[:, third]), floor=floor)
        )
    for column in reference.PRINTED_COLUMNS:
        printed = reference.table_2(game, column)
        cells.append(_printed_cell(printed[third] if printed else None, floor))
    return cells + _floor_cells(summary, game) + (_published_cells(game) if third == 2 else [_no_number(1), _no_number(1)])


def _printed_cell(cell: reference.PrintedCell | None, floor: float) -> Cell:
    return _no_number(2) if cell is None else cut_cell(cell.mean, cell.sd, floor=floor)


def _floor_cells(summary: Summary, game: str) -> list[Cell]:
    floor = summary.floors.games.get(game)
    return [_no_number(1), _no_number(1)] if floor is None else [cut_cell(floor.random.mean), cut_cell(floor.constant)]


def _published_cells(game: str) -> list[Cell]:
    return [cut_cell(reference.score(game, column)) for column in ("dqn_10m", "bbf_20k")]


def _per_game_row(summary: Summary, agent: str, game: str) -> list[Cell]:
    interval, floor = summary.mean_intervals[agent, game], summary.floors.value(game)
    above = "" if math.isnan(floor) else _above(interval, floor)
    numbers = [number_cell(value) for value in (interval.value, interval.low, interval.high, floor)]
    scales = [number_cell(float(summary.normalised(agent, game, scale).mean()), decimals=3) for scale in NORMALISATIONS]
    trials = len(summary.cells[agent, game])
    return [text_cell(game_title(game)), text_cell(agent), text_cell(trials), *numbers, text_cell(above), *scales]


def _above(interval: statistics.Interval, floor: float) -> str:
    """Whether a whole interval lies above the floor; one trial alone leaves that open."""
    if interval.low > floor:
        return "yes"
    return "no" if interval.high <= floor else "unclear"


def _trial_row(trial: Trial) -> list[Cell]:
    score = statistics.final_score(trial.scores, trial.game) if trial.scores.size else math.nan
    counts = [text_cell(count) for count in (trial.seed, trial.scores.size, trial.total_frames, trial.total_steps)]
    seconds = math.nan if trial.wall_seconds is None else trial.wall_seconds
    status = trial.manifest.source or trial.manifest.status
    words = [status[:24], (trial.manifest.device or "")[:24], (trial.manifest.commit or "")[:10]]
    numbers = [*counts, number_cell(score), number_cell(seconds / 60, decimals=1)]
    return [text_cell(trial.agent), text_cell(trial.game), *numbers, *map(text_cell, words)]


def _interval_cell(interval: statistics.Interval) -> Cell:
    return number_cell(interval.value, interval.low, interval.high, decimals=3)


def _interval_cells(interval: statistics.Interval) -> list[Cell]:
    return [number_cell(value, decimals=3) for value in (interval.value, interval.low, interval.high)]


def _no_number(parts: int) -> Cell:
    return Cell(("",) * parts)


def _normalisation_sentence() -> str:
    return " ".join(f"{name.capitalize()}: {meaning}." for name, meaning in NORMALISATIONS.items())
