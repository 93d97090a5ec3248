"""The logs published with the paper become run folders: streamed, tolerant of a torn last line, strict about all else.

One `progress.json` per trial, JSON lines with NaN: a line every 100 iterations and one at the end of each episode (`EndEp`).
A score is what stands in the line that ends its episode. What else is odd in the published logs is remarked upon: a log
begun twice, a sum that begins again within an episode, an empty line, a log that ends within an episode.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import IO, Any

from comper import __version__
from comper.errors import DamagedFileError, UsageError, explaining_os_errors, printable
from comper.report.findings import ERROR, NOTE, Finding
from comper.report.published.printed import RELEASED
from comper.runs.files import MAX_LINE_BYTES, digest, file_digest, log_digest, reading
from comper.runs.folder import CONFIG_FILE, EPISODES_FILE, LOG_FILES, METRICS_FILE, EpisodeRecord, run_path
from comper.runs.manifest import FINISHED, RUNNING, Manifest

LOG_NAME = "progress.json"
BUDGET_FRAMES = 100_000
FRAME_SKIP = 5
"""Of the published runs (Table 3); with four observations per decision, 20 frames per iteration."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_NUMBER = re.compile(r"(?<!\d)([0-9]{1,9})$")
_MAX_REMARKS = 20
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
    for (game, seed), log in _trials(logs, source, result).items():
        trial = _Trial(log, agent, game, seed)
        folder = run_path(out, agent=agent, game=game, seed=seed)
        with explaining_os_errors(folder, is_typed=True):
            _import_one(trial, folder, frames=frames, result=result)
    return result


@dataclass(frozen=True)
class _Trial:
    """A log, and what it becomes."""

    log: Path
    agent: str
    game: str
    seed: int


def _trials(logs: Sequence[Path], source: Path, result: ImportResult) -> dict[tuple[str, int], Path]:
    """The logs by game and trial number; those whose folders have no number get the first that is free."""
    trials: dict[tuple[str, int], Path] = {}
    without_number: list[tuple[str, Path]] = []
    for log in logs:
        try:
            game, seed = _game_of(log), _number_of(log, source)
        except DamagedFileError as error:
            result.findings.append(Finding(ERROR, "damaged", f"Not imported: {error}", str(log)))
            continue
        if seed is None:
            without_number.append((game, log))
        elif (game, seed) in trials:
            raise UsageError(
                f"{trials[game, seed]} and {log} both claim {game}, trial {seed}: import one of their folders at a time."
            )
        else:
            trials[game, seed] = log
    for game, log in without_number:
        seed = next(number for number in count(1) if (game, number) not in trials)
        trials[game, seed] = log
        text = f"Its folder's name does not end with a trial number; it is taken as trial {seed} of {game}."
        result.findings.append(Finding(NOTE, "remark", text, str(log)))
    return trials


def _import_one(trial: _Trial, folder: Path, *, frames: int, result: ImportResult) -> None:
    if os.path.lexists(folder):
        _check_same_import(folder, trial.log)
        result.folders.append(folder)
        return
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        remarks = _convert(trial, temporary, frames=frames)
        os.replace(temporary, folder)
        result.folders.append(folder)
        result.findings += [Finding(NOTE, "remark", remark, str(trial.log)) for remark in remarks]
    except DamagedFileError as error:
        result.findings.append(Finding(ERROR, "damaged", f"Not imported: {error}", str(trial.log)))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_same_import(folder: Path, log: Path) -> None:
    try:
        earlier = Manifest.read(folder).source_sha256
    except DamagedFileError:
        earlier = None
    if earlier != _sha256(log):
        raise UsageError(f"{folder}: already holds another run; choose another --out or --agent.")


def _game_of(log: Path) -> str:
    """The game of a log: its first line's Rom."""
    with reading(log) as file:
        record = _parse(file.readline(MAX_LINE_BYTES), f"{log}, line 1")
    game = record.get("Rom")
    if not isinstance(game, str) or not _NAME.fullmatch(game):
        raise DamagedFileError(f"{log}, line 1: Rom is {str(game)[:40]!r}, expected the name of a game.")
    return game


def _number_of(log: Path, source: Path) -> int | None:
    """The trial number of a log: that at the end of its folder's name, or of the nearest folder above that has one."""
    names = log.relative_to(source).parts[-2::-1] or (source.resolve().name,)
    return next((int(ending[1]) for name in names if (ending := _NUMBER.search(name))), None)


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
    score: float = 0.0
    rewards: float = 0.0
    odd_sums: list[int] = field(default_factory=list)
    """Lines in which the sum of an episode's rewards did not begin with the episode."""
    remarks: list[str] = field(default_factory=list)
    num_remarks: int = 0
    is_between_episodes: bool = True
    episode_start: tuple[int, int] = (0, 0)
    """Frames and iterations at the end of the episode before."""
    first_time: datetime | None = None
    last_time: datetime | None = None

    def remark(self, text: str) -> None:
        """Note down what is odd; a log that is odd throughout does not fill a manifest."""
        self.num_remarks += 1
        if self.num_remarks <= _MAX_REMARKS:
            self.remarks.append(printable(text))

    def begins_again(self, record: dict[str, Any], where: str) -> bool:
        """Whether a line is the first of a later attempt: everything before it belongs to another run."""
        is_first = record.get("Count") == 0 and record.get("Episodes") == 0 and self.lines > 0
        return is_first and self.last_time is not None and _time(record, where) > self.last_time


def _convert(trial: _Trial, folder: Path, *, frames: int) -> list[str]:
    log, progress = trial.log, _Progress()
    with open(folder / EPISODES_FILE, "w") as episodes, open(folder / METRICS_FILE, "w") as metrics:
        for number, record in _records(log, progress):
            where = f"{log}, line {number}"
            if progress.begins_again(record, where):
                left_out = progress.lines
                progress = _Progress(remarks=progress.remarks, num_remarks=progress.num_remarks)
                progress.remark(f"Line {number}: the log begins a second time; the {left_out} lines before are left out.")
                for file in (episodes, metrics):
                    file.seek(0)
                    file.truncate()
            _check(record, progress, where, number)
            _write_record(record, progress, episodes, metrics)
    if progress.episodes == 0:
        raise DamagedFileError(f"{log}: no finished episode in it.")
    if progress.odd_sums:
        lines = f"{len(progress.odd_sums)} lines, the first of them line {progress.odd_sums[0]}"
        progress.remarks.insert(0, f"In {lines}, the sum of an episode's rewards did not begin with the episode.")
    is_finished = progress.total_frames >= frames
    if not progress.is_between_episodes:
        cut = f"The log ends within an episode, after {progress.total_frames:,} frames"
        left = f"the episode is left out, and the scores end at {progress.episode_start[0]:,} frames."
        progress.remarks.insert(0, f"{cut}; {left}")
    if progress.num_remarks > _MAX_REMARKS:
        progress.remarks.append(f"And {progress.num_remarks - _MAX_REMARKS} more.")
    observation = "single" if progress.total_frames < 2 * FRAME_SKIP * progress.iteration else "stacked"
    config = f'frames = {frames}\nframe_skip = {FRAME_SKIP}\nobservation = "{observation}"\n'
    (folder / CONFIG_FILE).write_text(config)
    _manifest(trial, folder, progress, is_finished=is_finished, config=config).write(folder)
    return progress.remarks


def _records(log: Path, progress: _Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    with reading(log) as file:
        for number in count(1):
            line = file.readline(MAX_LINE_BYTES)
            if not line:
                return
            if not line.strip():
                progress.remark(f"Line {number} is empty.")
                continue
            try:
                record = _parse(line, f"{log}, line {number}")
            except DamagedFileError:
                if line.endswith(b"\n") or len(line) == MAX_LINE_BYTES:
                    raise
                progress.remark(f"Line {number}, the last, is torn and left out.")
                return
            yield number, record


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{where}: not a line of JSON ({error}).") from None
    if not isinstance(record, dict):
        raise DamagedFileError(f"{where}: expected a JSON object.")
    return record


def _check(record: dict[str, Any], progress: _Progress, where: str, number: int) -> None:
    """Demand that a line follows from the one before; what the published logs themselves break becomes a remark."""
    progress.rom = progress.rom or record.get("Rom")
    same = {"Count": progress.lines, "Rom": progress.rom, "Episodes": progress.episodes}
    for key, expected in same.items():
        if record.get(key) != expected:
            raise DamagedFileError(
                f"{where}: {key} is {_shown(record.get(key))}, expected {expected!r}: a line is missing or changed."
            )
    if not isinstance(record.get("EndEp"), bool):
        raise DamagedFileError(f"{where}: EndEp is {_shown(record.get('EndEp'))}, expected true or false.")
    for key, last in {"Itr": progress.iteration, "TotalFramesNumber": progress.total_frames}.items():
        if _count(record, key, where) <= last:
            raise DamagedFileError(f"{where}: {key} is {record[key]} after {last}.")
    score, rewards = _number(record, "CurrEpRewardSum", where), _number(record, "EpRewardsSum", where)
    if not math.isclose(progress.finished_rewards + score, rewards, rel_tol=1e-9, abs_tol=1e-6):
        more = rewards - progress.rewards
        if not any(math.isclose(more, other, rel_tol=1e-9, abs_tol=1e-6) for other in (score - progress.score, score)):
            raise DamagedFileError(
                f"{where}: EpRewardsSum is {rewards:g}, the scores so far make {progress.finished_rewards + score:g}."
            )
        progress.odd_sums.append(number)  # it follows from the line before, but not from the episodes before
    progress.score, progress.rewards = score, rewards
    _remark_on_frames(record, progress, where, number)
    progress.first_time = progress.first_time or _time(record, where)
    progress.last_time = _time(record, where)


def _remark_on_frames(record: dict[str, Any], progress: _Progress, where: str, line: int) -> None:
    in_episode = _count(record, "EpFramesNumber", where)
    more_in_all = record["TotalFramesNumber"] - progress.total_frames
    more_in_episode = in_episode - (0 if progress.is_between_episodes else progress.episode_frames)
    if more_in_all < more_in_episode:
        progress.remark(f"Line {line}: {more_in_all} frames more in all, but {more_in_episode} more in the episode.")
    if not record["EndEp"]:
        return
    expected = (progress.reward_sums + record["EpRewardsSum"]) / (progress.episodes + 1)
    average = record.get("AvgEpReturn")
    if not isinstance(average, int | float) or not math.isclose(average, expected, rel_tol=1e-9, abs_tol=1e-9):
        progress.remark(
            f"Line {line}: AvgEpReturn is {str(average)[:40]}, by the rule of all other lines it would be {expected:.6g}."
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


def _manifest(trial: _Trial, folder: Path, progress: _Progress, *, is_finished: bool, config: str) -> Manifest:
    assert progress.first_time is not None
    assert progress.last_time is not None
    log, (total_frames, steps) = trial.log, progress.episode_start
    manifest = Manifest(
        agent=trial.agent, game=trial.game, seed=trial.seed, status=FINISHED if is_finished else RUNNING, source=RELEASED,
        source_file=printable(f"{log.parent.name}/{log.name}"), source_sha256=_sha256(log), remarks=progress.remarks,
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


def _shown(value: Any) -> str:
    return repr(value)[:40]


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
