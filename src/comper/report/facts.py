"""What a report takes from a run's own record and from the measured floors."""

from __future__ import annotations

from typing import Any

from comper import protocol
from comper.environments.floors import Floor, Floors, all_floors, floor_for, load_floors
from comper.report.names import ATARI, family
from comper.report.reading import Trial

__all__ = ["Floor", "Floors", "all_floors", "load_floors"]

PAPER_FRAMES = protocol.AgentConfig().frames
FLOOR_DECISION_FRAMES = protocol.FRAME_SKIP
"""Frames between decisions with the paper's frame skip, at which the game's floor is a yardstick for all agents."""
OBSERVATIONS_PER_STEP = {"stacked": 4}
"""Observations made while one action is held, by the setting `observation`; 1 for the others."""


def from_manifest(trial: Trial, key: str) -> Any:
    """A value that newer manifests have, or None."""
    return getattr(trial.manifest, key, trial.manifest.other.get(key))


def num_scored_episodes(trial: Trial) -> int:
    """How many of a trial's last episodes are scored: as its environment said, else by the paper's rule."""
    recorded = from_manifest(trial, "num_scored_episodes")
    is_count = isinstance(recorded, int) and not isinstance(recorded, bool) and recorded > 0
    return recorded if is_count else protocol.num_scored_episodes(trial.game)


def decision_frames(trial: Trial) -> int:
    """Frames between two decisions of the agent: frame skip times the observations made while an action is held."""
    skip = trial.config.get("frame_skip", FLOOR_DECISION_FRAMES if family(trial.game) == ATARI else 1)
    return int(skip) * OBSERVATIONS_PER_STEP.get(str(trial.config.get("observation")), 1)


def floor_at(floors: Floors, game: str, frames: int) -> Floor | None:
    """The floor of a game measured with a decision every so many frames, or None where nobody measured it."""
    return floors.find(game, frames)


def floor_of(trial: Trial, floors: Floors) -> Floor | None:
    """The floor a trial is read against: none where its game was played otherwise than the floors were measured."""
    frames = decision_frames(trial)
    if (floor := floor_for(floors, trial.game, frames, trial.config)) is not None:
        return floor
    floor = floor_at(floors, trial.game, frames)
    if floor is not None and floor.settings is not None:
        return None
    if trial.manifest.format > 1 and trial.manifest.floor is None:
        return None
    return floor


def learns(trial: Trial) -> bool:
    """Whether the agent learns: as its run recorded, else (format 1) whether its log has an exploration rate or a loss."""
    recorded = from_manifest(trial, "learns")
    if isinstance(recorded, bool):
        return recorded
    return not trial.metrics or any(name == "epsilon" or "loss" in name for name in trial.metrics)


def changed_settings(trial: Trial) -> dict[str, tuple[Any, Any]]:
    """The settings that differ from the agent's preset, each with the preset's value.

    Runs of format 1 do not record them: there, only the frame budget is compared, with the paper's.
    """
    recorded = from_manifest(trial, "changed")
    pairs = recorded.items() if isinstance(recorded, dict) else ()
    changed = {str(key): (pair[0], pair[1]) for key, pair in pairs if isinstance(pair, list) and len(pair) == 2}
    frames = trial.config.get("frames")
    if family(trial.game) == ATARI and isinstance(frames, int) and frames != PAPER_FRAMES:
        changed["frames"] = (frames, PAPER_FRAMES)
    return changed
