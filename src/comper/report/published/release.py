"""The logs published with the paper become run folders: streamed, tolerant of a torn last line, strict about all else.

One `progress.json` per trial, JSON lines with NaN: a line every 100 iterations and one at the end of each episode (`EndEp`).
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from comper import __version__
from comper.errors import DamagedFileError, UsageError
from comper.report.findings import ERROR, NOTE, Finding
from comper.report.published.printed import RELEASED
from comper.runs.files import digest, file_digest, log_digest, reading
from comper.runs.folder import CONFIG_FILE, EPISODES_FILE, LOG_FILES, METRICS_FILE, EpisodeRecord, run_path
from comper.runs.manifest import FINISHED, RUNNING, Manifest

LOG_NAME = "progress.json"
BUDGET_FRAMES = 100_000
FRAME_SKIP = 5
"""Of the published runs (Table 3); with four observations per decision, 20 frames per iteration."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_TRIAL = re.compile(r"-(\d{1,9})$")
_METRICS = {"epsilon": "Eps", "tm_sets": "TMCount", "rtm_sets": "RTMCount", "td_error": "TDE"}


@dataclass
class ImportResult:
    """What became of each log."""

    folders: list[Path] = field(default_factory=list)
    """Run folders written now, or found as an earlier import of the same logs left them."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """3 where a log could not be imported."""
        return DamagedFileError.exit_code if any(finding.severity == ERROR for finding in self.findings) else 0


def import_release(source: Path, *, agent: str, out: Path, frames: int = BUDGET_FRAMES) -> ImportResult:
    """Write a run folder below `out` for every published log below `source`."""
    if not _NAME.fullmatch(agent):
        raise UsageError(f"--agent {agent!r}: use letters, digits and . _ + - only, at most 64.")
    if not source.is_dir():
        raise UsageError(f"{source}: no such folder.")
    logs = sorted(source.rglob(LOG_NAME))
    if not logs:
        raise UsageError(f"{source}: no {LOG_NAME} in it or below it.")
    result = ImportResult()
    trials: dict[tuple[str, int], Path] = {}
    for log in logs:
        try:
            game, seed = _trial_of(log)
            if (game, seed) in trials:
                raise UsageError(
                    f"{trials[game, seed]} and {log} both claim {game}, trial {seed}: import one of their folders at a time."
                )
            trials[game, seed] = log
        except DamagedFileError as error:
            result.findings.append(Finding(ERROR, "damaged", f"Not imported: {error}", str(log)))
    for (game, seed), log in trials.items():
        _import_one(log, run_path(out, agent=agent, game=game, seed=seed), frames=frames, result=result)
    return result


def _import_one(log: Path, folder: Path, *, frames: int, result: ImportResult) -> None:
    if folder.exists():
        _check_same_import(folder, log)
        result.folders.append(folder)
        return
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        remarks = _convert(log, temporary, agent=folder.parent.parent.name, frames=frames)
        os.replace(temporary, folder)
        result.folders.append(folder)
        result.findings += [Finding(NOTE, "remark", remark, str(log)) for remark in remarks]
    except DamagedFileError as error:
        result.findings.append(Finding(ERROR, "damaged", f"Not imported: {error}", str(log)))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_same_import(folder: Path, log: Path) -> None:
    try:
        earlier = Manifest.read(folder).source_sha256
    except DamagedFileError:
        earlier = None
    if earlier != _sha256(log):
        raise UsageError(f"{folder}: already holds another run; choose another --out or --agent.")


def _trial_of(log: Path) -> tuple[str, int]:
    """Game and trial number of a log: its first line's Rom, its folder's ending."""
    ending = _TRIAL.search(log.parent.name)
    if ending is None:
        raise DamagedFileError(f"{log}: its folder's name does not end with a trial number, as in v5-asterix-3.")
    with reading(log) as file:
        record = _parse(file.readline(), f"{log}, line 1")
    game = record.get("Rom")
    if not isinstance(game, str) or not _NAME.fullmatch(game):
        raise DamagedFileError(f"{log}, line 1: Rom is {game!r}, expected the name of a game.")
    return game, int(ending.group(1))


@dataclass
class _Progress:
    """Where a log stands, so that every line can be checked against the one before."""

    rom: str | None = None
    lines: int = 0
    iteration: int = -1
    total_frames: int = 0
    episode_frames: int = 0
    episodes: int = 0
    finished_rewards: float = 0.0
    reward_sums: float = 0.0
    is_between_episodes: bool = True
    episode_start: tuple[int, int] = (0, 0)
    """Frames and iterations at the end of the episode before."""
    first_time: datetime | None = None
    last_time: datetime | None = None
    remarks: list[str] = field(default_factory=list)


def _convert(log: Path, folder: Path, *, agent: str, frames: int) -> list[str]:
    progress = _Progress()
    with open(folder / EPISODES_FILE, "w") as episodes, open(folder / METRICS_FILE, "w") as metrics:
        for where, record in _records(log, progress):
            _check(record, progress, where)
            _write_record(record, progress, episodes, metrics)
    if progress.episodes == 0:
        raise DamagedFileError(f"{log}: no finished episode in it.")
    if not progress.is_between_episodes:
        progress.remarks.append("The log ends within an episode, which is left out.")
    observation = "single" if progress.total_frames < 2 * FRAME_SKIP * progress.iteration else "stacked"
    config = f'frames = {frames}\nframe_skip = {FRAME_SKIP}\nobservation = "{observation}"\n'
    (folder / CONFIG_FILE).write_text(config)
    is_finished = progress.episode_start[0] >= frames
    _manifest(log, folder, progress, agent=agent, is_finished=is_finished, config=config).write(folder)
    return progress.remarks


def _records(log: Path, progress: _Progress) -> Iterator[tuple[str, dict[str, Any]]]:
    with reading(log) as file:
        for number, line in enumerate(file, start=1):
            where = f"{log}, line {number}"
            try:
                record = _parse(line, where)
            except DamagedFileError:
                if line.endswith(b"\n"):
                    raise
                progress.remarks.append(f"Line {number}, the last, is torn and left out.")
                return
            yield where, record


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{where}: not a line of JSON ({error}).") from None
    if not isinstance(record, dict):
        raise DamagedFileError(f"{where}: expected a JSON object.")
    return record


def _check(record: dict[str, Any], progress: _Progress, where: str) -> None:
    """Demand that a line follows from the one before; what the published logs themselves break becomes a remark."""
    progress.rom = progress.rom or record.get("Rom")
    same = {"Count": progress.lines, "Rom": progress.rom, "Episodes": progress.episodes}
    for key, expected in same.items():
        if record.get(key) != expected:
            raise DamagedFileError(
                f"{where}: {key} is {record.get(key)!r}, expected {expected!r}: a line is missing or changed."
            )
    if not isinstance(record.get("EndEp"), bool):
        raise DamagedFileError(f"{where}: EndEp is {record.get('EndEp')!r}, expected true or false.")
    for key, last in {"Itr": progress.iteration, "TotalFramesNumber": progress.total_frames}.items():
        if _count(record, key, where) <= last:
            raise DamagedFileError(f"{where}: {key} is {record[key]} after {last}.")
    score, rewards = _number(record, "CurrEpRewardSum", where), _number(record, "EpRewardsSum", where)
    if not math.isclose(progress.finished_rewards + score, rewards, rel_tol=1e-9, abs_tol=1e-6):
        raise DamagedFileError(
            f"{where}: EpRewardsSum is {rewards:g}, the scores so far make {progress.finished_rewards + score:g}."
        )
    _remark_on_frames(record, progress, where)
    progress.first_time = progress.first_time or _time(record, where)
    progress.last_time = _time(record, where)


def _remark_on_frames(record: dict[str, Any], progress: _Progress, where: str) -> None:
    line, in_episode = progress.lines + 1, _count(record, "EpFramesNumber", where)
    more_in_all = record["TotalFramesNumber"] - progress.total_frames
    more_in_episode = in_episode - (0 if progress.is_between_episodes else progress.episode_frames)
    if more_in_all < more_in_episode:
        progress.remarks.append(f"Line {line}: {more_in_all} frames more in all, but {more_in_episode} more in the episode.")
    if not record["EndEp"]:
        return
    expected = (progress.reward_sums + record["EpRewardsSum"]) / (progress.episodes + 1)
    average = record.get("AvgEpReturn")
    if not isinstance(average, int | float) or not math.isclose(average, expected, rel_tol=1e-9, abs_tol=1e-9):
        progress.remarks.append(
            f"Line {line}: AvgEpReturn is {average}, by the rule of all other lines it would be {expected:.6g}."
        )


def _write_record(record: dict[str, Any], progress: _Progress, episodes: IO[str], metrics: IO[str]) -> None:
    progress.lines += 1
    progress.iteration, progress.total_frames = record["Itr"], record["TotalFramesNumber"]
    progress.episode_frames = record["EpFramesNumber"]
    progress.is_between_episodes = record["EndEp"]
    if not record["EndEp"]:
        counters = {"steps": record["Itr"], "total_frames": record["TotalFramesNumber"], "episodes": progress.episodes}
        metrics.write(json.dumps(counters | {name: _metric(record.get(key)) for name, key in _METRICS.items()}) + "\n")
        return
    frames, steps = progress.episode_start
    progress.episodes += 1
    progress.finished_rewards += record["CurrEpRewardSum"]
    progress.reward_sums += record["EpRewardsSum"]
    episode = EpisodeRecord(
        episode=progress.episodes,
        score=record["CurrEpRewardSum"],
        frames=record["TotalFramesNumber"] - frames,
        steps=record["Itr"] - steps,
        total_frames=record["TotalFramesNumber"],
        truncated=False,
    )
    progress.episode_start = (record["TotalFramesNumber"], record["Itr"])
    episodes.write(json.dumps(vars(episode)) + "\n")


def _manifest(log: Path, folder: Path, progress: _Progress, *, agent: str, is_finished: bool, config: str) -> Manifest:
    assert progress.first_time is not None
    assert progress.last_time is not None
    game, seed = _trial_of(log)
    total_frames, steps = progress.episode_start
    manifest = Manifest(
        agent=agent, game=game, seed=seed, status=FINISHED if is_finished else RUNNING, source=RELEASED,
        source_file=f"{log.parent.name}/{log.name}", source_sha256=_sha256(log), remarks=progress.remarks,
        versions={"comper": __version__}, created=progress.first_time.isoformat(),
        config_sha256=digest(config.encode())["sha256"],
    )  # fmt: skip
    if not is_finished:
        return manifest
    return replace(
        manifest, finished=progress.last_time.isoformat(), steps=steps, total_frames=total_frames, episodes=progress.episodes,
        wall_seconds=(progress.last_time - progress.first_time).total_seconds(),
        files={name: log_digest(folder / name) for name in LOG_FILES},
    )  # fmt: skip


def _sha256(path: Path) -> str:
    return str(file_digest(path)["sha256"])


def _count(record: dict[str, Any], key: str, where: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise DamagedFileError(f"{where}: {key} is {str(value)[:40]}, expected a whole number.")
    return value


def _number(record: dict[str, Any], key: str, where: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise DamagedFileError(f"{where}: {key} is {str(value)[:40]}, expected a number.")
    return float(value)


def _metric(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return value if is_number else None


def _time(record: dict[str, Any], where: str) -> datetime:
    try:
        return datetime.strptime(str(record.get("Time")), "%d-%m-%Y %H:%M:%S")
    except ValueError:
        raise DamagedFileError(
            f"{where}: Time is {str(record.get('Time'))[:40]!r}, expected day-month-year hour:minute:second."
        ) from None
