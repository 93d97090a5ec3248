"""`comper verify`: checks every file of a run against what was written down about it; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comper.errors import ComperError, DamagedFileError
from comper.runs import checkpoints
from comper.runs import folder as runfolder
from comper.runs.folder import digest, read_regular_file
from comper.runs.recorder import check_logs

MAX_FILE_BYTES = 1 << 34


@dataclass
class Verdict:
    """What is wrong with a run, and what it is still good for."""

    path: Path
    num_checks: int = 0
    damaged: list[str] = field(default_factory=list)
    usable: str = ""

    def __str__(self) -> str:
        if not self.damaged:
            return f"{self.path}: whole ({self.num_checks} checks). {self.usable}"
        return "\n".join(
            [f"{self.path}: {len(self.damaged)} damaged.", *(f"  {text}" for text in self.damaged), f"  {self.usable}"]
        )


def verify(folder: Path) -> Iterator[Verdict]:
    """The verdict on every run in a folder and below it."""
    for path in runfolder.find_runs([folder]):
        yield verify_run(path)


def verify_run(path: Path) -> Verdict:
    """Check one run."""
    verdict = Verdict(path)
    manifest = _checked(verdict, lambda: runfolder.read_sealed_manifest(path)) or {}
    sealed = manifest.get("config_sha256")
    if sealed is not None:
        _checked(verdict, lambda: _check_digest(path / runfolder.CONFIG_FILE, {"sha256": sealed}))
    places = _checked(verdict, lambda: checkpoints.paths(path)) or []
    whole = [found for place in places if (found := _checked(verdict, lambda p=place: _check_checkpoint(p)))]
    if manifest.get("status") == runfolder.FINISHED:
        _verify_finished(verdict, manifest)
    else:
        _verify_unfinished(verdict, manifest, whole)
    return verdict


def _verify_finished(verdict: Verdict, manifest: dict[str, Any]) -> None:
    files = manifest.get("files")
    names = [*runfolder.LOG_FILES, *([runfolder.WEIGHTS_FILE] if isinstance(files, dict) and len(files) > 2 else [])]
    for name in names:
        expected = files.get(name) if isinstance(files, dict) else None
        _checked(verdict, lambda e=expected, n=name: _check_digest(verdict.path / n, e))
    if verdict.damaged:
        verdict.usable = "The run is finished; run it again with the same seed to get the same files."
    else:
        verdict.usable = "Finished."


def _verify_unfinished(verdict: Verdict, manifest: dict[str, Any], checked: list[Any]) -> None:
    usable = [
        checkpoint for checkpoint in checked if _checked(verdict, lambda c=checkpoint: _check_saved_logs(verdict.path, c))
    ]
    for name in runfolder.LOG_FILES:
        if (verdict.path / name).is_symlink() or (verdict.path / name).exists():
            _checked(verdict, lambda n=name: _check_lines(verdict.path / n))
    if usable:
        verdict.usable = f"Unfinished: `comper resume {verdict.path}` continues from step {usable[0].step:,}."
    elif manifest:
        verdict.usable = f"Unfinished, no usable checkpoint: `comper resume {verdict.path}` starts again, to the same results."
    else:
        verdict.usable = "Neither a manifest nor a checkpoint is usable: begin the run again."


def _checked(verdict: Verdict, check: Any) -> Any:
    """What a check finds; what it complains about goes into the verdict."""
    verdict.num_checks += 1
    try:
        return check()
    except ComperError as error:
        verdict.damaged.append(str(error))
        return None


def _check_digest(path: Path, expected: Any) -> bool:
    if not isinstance(expected, dict):
        raise DamagedFileError(f"{path}: the manifest has no digest of it.")
    actual = digest(read_regular_file(path, max_bytes=MAX_FILE_BYTES))
    if any(actual[key] != expected[key] for key in actual if key in expected) or "sha256" not in expected:
        raise DamagedFileError(f"{path}: {actual['bytes']:,} bytes that are not those its manifest describes.")
    return True


def _check_checkpoint(path: Path) -> checkpoints.Checkpoint:
    checkpoint = checkpoints.open_checkpoint(path)
    checkpoint.read()
    return checkpoint


def _check_saved_logs(path: Path, checkpoint: checkpoints.Checkpoint) -> bool:
    check_logs(path, checkpoint.logs)
    return True


def _check_lines(path: Path) -> bool:
    read_regular_file(path, max_bytes=0, is_longer_allowed=True)  # an ordinary file, or it is not opened
    try:
        for _ in runfolder.read_json_lines(path):
            pass
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read ({error.strerror}).") from None
    return True
