"""The weights that a run has left: final ones, or those of its newest whole checkpoint."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from comper.errors import ComperError, DamagedFileError, UsageError
from comper.runs import checkpoints
from comper.runs.files import digest, read_file
from comper.runs.folder import WEIGHTS_FILE
from comper.runs.manifest import Manifest
from comper.runs.states import unpack, unpack_weights


def saved_weights(run: Path, manifest: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights (network -> parameter -> values), and where they are from."""
    return _final_weights(run, manifest) if manifest.is_finished else _checkpointed_weights(run)


def _final_weights(run: Path, manifest: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    expected = manifest.files.get(WEIGHTS_FILE)
    if expected is None:
        raise UsageError(f"{run}: this agent has no weights: none of its parts has weights(trial).")
    content = read_file(run / WEIGHTS_FILE, max_bytes=int(expected["bytes"]))
    if digest(content) != expected:
        raise DamagedFileError(f"{run / WEIGHTS_FILE}: not the file its manifest describes.")
    return unpack_weights(content), {"run": str(run), "step": manifest.steps, **expected}


def _checkpointed_weights(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    skipped: list[str] = []
    for place in checkpoints.paths(run):
        try:
            checkpoint = checkpoints.open_checkpoint(place)
            files = checkpoint.read()
        except ComperError as error:
            skipped.append(str(error))
            continue
        state = unpack(files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE]).get("agent", {})
        # `agents.agent.Part`: the state of a network has its weights under this name.
        weights = {name: part["weights"] for name, part in state.items() if isinstance(part, dict) and "weights" in part}
        if not weights:
            raise UsageError(f"{run}: this agent has no weights: none of its parts has weights(trial).")
        about = checkpoint.about["files"][checkpoints.TENSORS_FILE]
        return weights, {"run": str(run), "step": checkpoint.step, **about}
    hint = f"`comper resume {shlex.quote(str(run))}` goes on with the run."
    raise DamagedFileError(" ".join([f"{run}: no whole checkpoint to take weights from.", *skipped, hint]))
