"""What a report knows about the columns of metrics.jsonl: labels and units, and which of them the paper draws.

Agents name their columns as they like. A column that is not listed here is drawn all the same, under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass

COUNTERS = ("steps", "total_frames", "episodes", "autofire")
"""How far a run was when a line was written, and whose the button was; they are not worth a figure."""


@dataclass(frozen=True)
class ColumnInfo:
    """How a column is shown."""

    label: str
    """With its unit."""
    scale: float = 1.0
    """What its numbers are multiplied by."""


KNOWN_COLUMNS = {
    "epsilon": ColumnInfo("exploration rate ε"),
    "cnn_loss": ColumnInfo("loss of the CNN"),
    "qlstm_loss": ColumnInfo("loss of the QLSTM"),
    "td_error": ColumnInfo("temporal-difference error"),
    "mean_q": ColumnInfo("mean Q-value"),
    "replay_size": ColumnInfo("transitions in the replay memory"),
    "tm_sets": ColumnInfo("sets in TM"),
    "tm_peak_sets": ColumnInfo("sets in TM, at most"),
    "rtm_sets": ColumnInfo("sets in RTM"),
    "known_sets": ColumnInfo("sets ever met"),
    "similar_hits": ColumnInfo("transitions that joined a set"),
    "mean_set_size": ColumnInfo("members per set"),
    "max_set_size": ColumnInfo("members of the largest set"),
    "nodes": ColumnInfo("states met"),
    "edges": ColumnInfo("sets of similar transitions"),
    "visits": ColumnInfo("transitions met"),
    "travelled_steps": ColumnInfo("steps that values travelled"),
    "refresh_passes": ColumnInfo("sweeps over the graph"),
    "refresh_residual": ColumnInfo("change in the last sweep"),
    "bytes_held": ColumnInfo("memory held, MB", 1e-6),
    "steps_per_second": ColumnInfo("agent steps per second"),
}


def column_info(name: str) -> ColumnInfo:
    """How a column is shown; one nobody knows goes by its own name."""
    return KNOWN_COLUMNS.get(name) or ColumnInfo(name.replace("_", " "))


@dataclass(frozen=True)
class ColumnFigure:
    """A figure of the paper about columns of the log: a panel or row for each entry of `columns`.

    An entry may name several columns: the first that a log has is drawn.
    """

    name: str
    title: str
    sentence: str
    columns: tuple[tuple[str, ...], ...]


OVER_TRAINING = (
    ColumnFigure(
        "set_sizes",
        "Sizes of similar-transition sets through training",
        "Mean number of transitions in a set of similar ones, over all trials; the band spans the trials.",
        (("mean_set_size",),),
    ),
    ColumnFigure(
        "travelled_steps",
        "How far values travelled",
        "Observed steps that the value of a state rests on before the network's word, discounted as the values are; mean over "
        "all states that were left, and over the trials; the band spans the trials.",
        (("travelled_steps",),),
    ),
)
"""Drawn over frames, a panel for each game."""

OVER_EPISODES = (
    ColumnFigure(
        "set_sizes_over_episodes",
        "Set sizes over episodes, all games",
        "Mean size of the similar-transition sets at the end of each episode that all trials of the game reached.",
        (("mean_set_size",),),
    ),
)
"""Drawn over episodes, a panel for each agent."""

AT_THE_END = (
    ColumnFigure(
        "occurrences",
        "Occurrences of similarity",
        "How often a transition met a similar one during a trial: the bar is the mean, each stroke a trial.",
        (("similar_hits",),),
    ),
)
"""The last value of each trial, as bars."""

SIZES = (
    ColumnFigure(
        "memory_sizes",
        "Sizes of TM and RTM through training",
        "Similar-transition sets held by the transition memory (TM, above) and the reduced one (RTM, below), mean of trials. "
        "TM is shown at its largest between two lines of the log; logs without that figure (tm_peak_sets) show it as it was "
        "when the line was written, which with the paper's settings is just after it was emptied.",
        (("tm_peak_sets", "tm_sets"), ("rtm_sets",)),
    ),
    ColumnFigure(
        "graph_sizes",
        "The graph through training",
        "States met (nodes, above), sets of similar transitions between them (edges), all transitions met (visits, below), "
        "mean of trials. The more visits there are for each set, the more recurs, and the more the graph knows.",
        (("nodes",), ("edges",), ("visits",)),
    ),
)
"""Drawn over frames, a row for each entry and a column for each agent."""
