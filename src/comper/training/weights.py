"""The weights that a run has left: final ones, or those of its newest whole checkpoint."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from comper.agents.agent import Agent
from comper.errors import ComperError, DamagedFileError, UsageError
from comper.runs import checkpoints
from comper.runs.checkpoints import Checkpoint
from comper.runs.files import check_digest, read_file
from comper.runs.folder import WEIGHTS_FILE
from comper.runs.manifest import Manifest
from comper.runs.states import check_same_shapes, unpack, unpack_weights
from comper.training.preflight import require_memory

COPIES_HELD = 3
"""Of a file's bytes at once, while weights are read: the file, its arrays, and those of the agent."""

HOW_TO_KEEP_CHECKPOINTS = (
    "It has none: a short run writes none by itself. Train with --checkpoint-period-steps N to have one every N agent steps;"
    " a finished run keeps those at a third and two thirds of its frames."
)


def saved_weights(run: Path, manifest: Manifest, *, step: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights (network -> parameter -> values), of the checkpoint at a step or the latest, and where they are from."""
    if step is not None:
        checkpoint = checkpoint_at(run, step)
        return _weights_in(run, checkpoint, checkpoint.read())
    return _final_weights(run, manifest) if manifest.is_finished else _checkpointed_weights(run)


def take_over(agent: Agent, trial: int, weights: dict[str, Any]) -> None:
    """Give saved weights to an agent; what it cannot take is damage."""
    check_same_shapes(weights, agent.weights(trial))
    try:
        agent.load_weights(trial, weights)
    except ValueError as error:
        raise DamagedFileError(f"The saved weights cannot be taken over: {error}") from None


@contextlib.contextmanager
def naming(place: Path) -> Iterator[None]:
    """Say where damage is that was found in what had been read already."""
    try:
        yield
    except DamagedFileError as error:
        raise DamagedFileError(f"{place}: {error}") from None


def whole_checkpoints(run: Path) -> list[Checkpoint]:
    """The checkpoints whose descriptions are whole, oldest first, one for each step."""
    found: dict[int, Checkpoint] = {}
    for place in checkpoints.paths(run):  # newest first
        with contextlib.suppress(ComperError):
            checkpoint = checkpoints.open_checkpoint(place)
            found.setdefault(checkpoint.step, checkpoint)
    return [found[step] for step in sorted(found)]


def checkpoint_at(run: Path, step: int) -> Checkpoint:
    """The checkpoint of a step; where there is none, the error names those that are there."""
    found = {checkpoint.step: checkpoint for checkpoint in whole_checkpoints(run)}
    if step not in found:
        hint = f"Its checkpoints: {', '.join(f'{known:,}' for known in found)}." if found else HOW_TO_KEEP_CHECKPOINTS
        raise UsageError(f"{run}: has no checkpoint at step {step:,}. {hint}")
    return found[step]


def _final_weights(run: Path, manifest: Manifest) -> tuple[dict[str, Any], dict[str, Any]]:
    path, expected = run / WEIGHTS_FILE, manifest.files.get(WEIGHTS_FILE)
    if expected is None and os.path.lexists(path):
        raise DamagedFileError(f"{path}: the manifest of this finished run does not describe it.")
    if expected is None:
        raise UsageError(f"{run}: this agent has no weights: none of its parts has weights(trial).")
    size = path.stat().st_size if path.is_file() else 0  # before a digest, which would take hours of a giant
    require_memory(f"{path}: reading it", COPIES_HELD * size, "Take a machine with more memory, or other weights.")
    check_digest(path, expected)  # before it is held in memory
    content = read_file(path, max_bytes=int(expected["bytes"]))
    with naming(path):
        return unpack_weights(content), {"run": str(run), "step": manifest.steps, **expected}


def _checkpointed_weights(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    skipped: list[str] = []
    for place in checkpoints.paths(run):
        try:
            checkpoint = checkpoints.open_checkpoint(place)
            return _weights_in(run, checkpoint, checkpoint.read())
        except DamagedFileError as error:
            skipped.append(str(error))
    hint = f"`comper resume {shlex.quote(str(run))}` goes on with the run."
    raise DamagedFileError(" ".join([f"{run}: no whole checkpoint to take weights from.", *skipped, hint]))


def _weights_in(run: Path, checkpoint: Checkpoint, files: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    with naming(checkpoint.path):
        state = unpack(files[checkpoints.TENSORS_FILE], files[checkpoints.VALUES_FILE]).get("agent", {})
    # `agents.agent.Part`: the state of a network has its weights under this name.
    weights = {name: part["weights"] for name, part in state.items() if isinstance(part, dict) and "weights" in part}
    if not weights:
        raise UsageError(f"{run}: this agent has no weights: none of its parts has weights(trial).")
    return weights, {"run": str(run), "step": checkpoint.step, **checkpoint.about["files"][checkpoints.TENSORS_FILE]}
