"""The one judge of whether a run is whole, for `comper verify`, `comper resume` and `comper report`; it changes nothing."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from comper.errors import DamagedFileError, printable
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.files import check_digest, digest, read_file, read_json_object
from comper.runs.folder import (
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    EPISODES_FILE,
    LEFT_OUT_FILE,
    MANIFEST_FILE,
    METRICS_FILE,
    WEIGHTS_FILE,
    find_runs,
)
from comper.runs.logs import Array, Episodes, check_log_starts, read_episodes, read_metrics
from comper.runs.manifest import FORMAT, Manifest

MAX_CONFIG_BYTES = 1 << 16
MAX_NOTE_BYTES = 1 << 12

Found = TypeVar("Found")


@dataclass
class Verdict:
    """What is damaged in a run, and what could be read of it."""

    path: Path
    num_checks: int = 0
    damaged: dict[str, str] = field(default_factory=dict)
    """File or checkpoint -> a sentence that says what is wrong with it."""
    manifest: Manifest | None = None
    """As it was written or, where that is damaged, the copy in the newest usable checkpoint."""
    config: dict[str, Any] | None = None
    episodes: Episodes | None = None
    metrics: dict[str, Array] | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """Whole ones whose logs are whole too, oldest first."""
    are_weights_left_out: bool = False
    """Whether the run was archived without its weights, on purpose."""
    missing: list[str] = field(default_factory=list)
    """Trials that were started together with this one and are not there."""

    def check(self, name: str, read: Callable[[], Found]) -> Found | None:
        """What reading a part returns; what it complains about is kept."""
        self.num_checks += 1
        try:
            return read()
        except DamagedFileError as error:
            self.damaged[name] = str(error)
            return None

    @property
    def usable(self) -> str:
        """What the run is still good for, in a sentence."""
        manifest = self.manifest
        resume = f"`comper resume {shlex.quote(str(self.path))}`"
        if manifest is None:
            return "Neither a manifest nor a checkpoint is usable: begin the run again."
        if manifest.is_finished:
            weights = " Its weights are not kept here." if self.are_weights_left_out else ""
            again = "Finished; the same seed and settings give the same files again."
            return again if self.damaged else f"Finished.{weights}"
        if manifest.source is not None:
            return "Imported from a log that ends before its budget of frames."
        if manifest.format != FORMAT:
            return f"Unfinished, and made by comper 0.1 (run format {manifest.format}): only that version can continue it."
        if self.config is None:
            return f"Unfinished: put {CONFIG_FILE} back, or begin the run again."
        if not self.checkpoints:
            return f"Unfinished, no usable checkpoint: {resume} starts again, to the same results."
        return f"Unfinished: {resume} continues from step {self.checkpoints[-1].step:,}."

    def __str__(self) -> str:
        lines = [f"{self.path}: whole ({self.num_checks} checks). {self.usable}"]
        if self.damaged:
            lines = [f"{self.path}: {len(self.damaged)} damaged.", *self.damaged.values(), self.usable]
        if self.missing:
            named = ", ".join(self.missing[:5]) + (f" and {len(self.missing) - 5} more" if self.missing[5:] else "")
            lines += [f"Started together with {named}, of which there is no folder."]
        return printable("\n  ".join(lines))


def verify(folder: Path) -> Iterator[Verdict]:
    """The verdict on every run in a folder and below it."""
    return (verify_run(path) for path in find_runs([folder]))


def verify_run(path: Path, *, with_states: bool = True) -> Verdict:
    """Check a run; without its states (weights and checkpoints), only what scores and curves rest on."""
    verdict = Verdict(path)
    manifest = verdict.manifest = verdict.check(MANIFEST_FILE, lambda: Manifest.read(path))
    if with_states:
        verdict.checkpoints = _usable_checkpoints(verdict)
    if manifest is None and verdict.checkpoints:
        manifest = verdict.manifest = _restored_manifest(verdict, verdict.checkpoints[-1])
    verdict.config = verdict.check(CONFIG_FILE, lambda: _read_config(path / CONFIG_FILE, manifest))
    verdict.episodes = verdict.check(EPISODES_FILE, lambda: _read_log(path, EPISODES_FILE, manifest, read_episodes))
    verdict.metrics = verdict.check(METRICS_FILE, lambda: _read_log(path, METRICS_FILE, manifest, read_metrics))
    if manifest is not None and manifest.is_finished:
        if with_states and WEIGHTS_FILE in manifest.files:
            verdict.are_weights_left_out = bool(verdict.check(WEIGHTS_FILE, lambda: _check_weights(path, manifest)))
        verdict.check(MANIFEST_FILE, lambda: _check_totals(verdict, manifest))
    if manifest is not None:
        verdict.missing = [name for name, place in manifest.siblings(path).items() if not os.path.lexists(place)]
    return verdict


def _usable_checkpoints(verdict: Verdict) -> list[Checkpoint]:
    places = verdict.check(CHECKPOINTS_FOLDER, lambda: checkpoints.paths(verdict.path)) or []
    found = []
    for place in reversed(places):
        name = f"{CHECKPOINTS_FOLDER}/{place.name}"
        checkpoint = verdict.check(name, lambda place=place: _read_checkpoint(verdict, place))  # type: ignore[misc]
        if checkpoint is not None:
            found.append(checkpoint)
        elif not os.path.lexists(place):
            del verdict.damaged[name]  # the run is going on, and has deleted it meanwhile
    return found


def _read_checkpoint(verdict: Verdict, place: Path) -> Checkpoint:
    checkpoint = checkpoints.open_checkpoint(place)
    if verdict.manifest is not None and checkpoint.format != verdict.manifest.format:
        raise DamagedFileError(f"{place}: of format {checkpoint.format}, its run is of {verdict.manifest.format}.")
    checkpoint.check()
    if verdict.manifest is None or not verdict.manifest.is_finished:
        check_log_starts(verdict.path, checkpoint.logs)
    return checkpoint


def _restored_manifest(verdict: Verdict, checkpoint: Checkpoint) -> Manifest | None:
    where = f"{checkpoint.path / checkpoints.ABOUT_FILE}, run"
    manifest = verdict.check(where, lambda: Manifest.from_json(checkpoint.about["run"], where=where))
    if manifest is not None:
        verdict.damaged[MANIFEST_FILE] += f" The copy in {checkpoint.path.name} is used."
    return manifest


def _read_config(path: Path, manifest: Manifest | None) -> dict[str, Any]:
    content = read_file(path, max_bytes=MAX_CONFIG_BYTES)
    if manifest is not None and manifest.config_sha256 not in (None, digest(content)["sha256"]):
        raise DamagedFileError(f"{path}: not the configuration the run was started with. Put it back, or begin a new run.")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{path}: not TOML ({error}).") from None


def _read_log(folder: Path, name: str, manifest: Manifest | None, read: Callable[[Path], Found]) -> Found:
    if manifest is not None and manifest.is_finished:
        if name not in manifest.files:
            raise DamagedFileError(f"{folder / MANIFEST_FILE}: a finished run, but no digest of {name}.")
        check_digest(folder / name, manifest.files[name])
    return read(folder / name)


def _check_weights(path: Path, manifest: Manifest) -> bool:
    """Whether the weights are not there because an archive leaves them out, and says so with their very digest."""
    expected = manifest.files[WEIGHTS_FILE]
    if os.path.lexists(path / LEFT_OUT_FILE) and not os.path.lexists(path / WEIGHTS_FILE):
        if read_json_object(path / LEFT_OUT_FILE, max_bytes=MAX_NOTE_BYTES) == {WEIGHTS_FILE: expected}:
            return True
        raise DamagedFileError(f"{path / LEFT_OUT_FILE}: not about the weights of this run.")
    check_digest(path / WEIGHTS_FILE, expected)
    return False


def _check_totals(verdict: Verdict, manifest: Manifest) -> None:
    """Compare a finished manifest with its log, and with the budget of frames."""
    episodes = verdict.episodes
    if episodes is None:
        return
    path, num_episodes = verdict.path / MANIFEST_FILE, episodes.scores.size
    if not num_episodes:
        raise DamagedFileError(f"{verdict.path / EPISODES_FILE}: a finished run without an episode.")
    counted = {"episodes": num_episodes, "total_frames": int(episodes.frames[-1]), "steps": int(episodes.steps[-1])}
    for key, value in counted.items():
        if getattr(manifest, key) != value:
            raise DamagedFileError(f"{path}: {key} is {getattr(manifest, key)!r}, its log has {value}.")
    budget = (verdict.config or {}).get("frames")
    # A published log may end within an episode that is not scored.
    if isinstance(budget, int) and counted["total_frames"] < budget and manifest.source is None:
        raise DamagedFileError(f"{path}: finished after {counted['total_frames']:,} frames, before its budget of {budget:,}.")
