"""`comper memory`: a picture of what a run remembered at a checkpoint, and of how its Q-values changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import AgentSpec
from comper.errors import UsageError, explaining_os_errors
from comper.progress import show_progress as shown_progress
from comper.runs.files import write_atomically
from comper.runs.reader import read_run
from comper.training.evaluation import Policy, open_policy
from comper.training.options import NetworkMaker, OwnCode
from comper.training.weights import HOW_TO_KEEP_CHECKPOINTS, whole_checkpoints
from comper.viewing.canvas import BLUE, LINE, MUTED, ORANGE, Canvas, import_pillow, number, text_width
from comper.viewing.saved_memory import WHY_NONE, SavedMemory, newest_checkpoint, read_memory
from comper.viewing.screens import picture_of

WIDTH, HEAD, CARD = 1160, 214, (540, 208)
TILE = 168
NUM_SETS, MAX_SETS = 12, 200


@dataclass(frozen=True)
class QCurve:
    """Q(s, a) of one set by the network of each checkpoint and by the final one."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


def draw_memory(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] = "memory.png",
    *,
    num_sets: int = NUM_SETS,
    checkpoint: int | None = None,
    device: str = "auto",
    agent: AgentSpec | None = None,
    environment: Callable[[], Any] | None = None,
    network: NetworkMaker | None = None,
    trust: Sequence[str] = (),
    show_progress: bool = True,
) -> Path:
    """Draw the most visited sets of similar transitions that a run remembered at a checkpoint; return the PNG's path.

    Of each set s and s' are shown, how often it was visited, its reward, and Q(s, a) by the networks of all checkpoints. The
    other arguments are those of `load`.
    """
    path = Path(out)
    if path.suffix.lower() != ".png":
        raise UsageError(f"--out {path}: a picture of a memory ends in .png.")
    if not 1 <= num_sets <= MAX_SETS:
        raise UsageError(f"num_sets = {num_sets}: must be 1 to {MAX_SETS}.")
    import_pillow()
    own = OwnCode(agent, environment, network, tuple(trust))
    with shown_progress("Networks", wanted=show_progress) as progress:
        policy, _ = open_policy(Path(run), own, device=device)
        memory = _memory(Path(run), policy, checkpoint)
        shown = most_visited(memory, num_sets)
        steps = [saved.step for saved in whole_checkpoints(Path(run))]
        policies = [policy]
        for done, step in enumerate(steps if policy.has_q_values and policy.step is not None else ()):
            policies.append(open_policy(Path(run), own, checkpoint=step, device=device)[0])
            progress.update(done + 1, len(steps))
    curves = [q_curve(memory, policies, int(row)) for row in shown]
    canvas = _drawn(policy, memory, shown, curves, sizes(memory, bytes_held(Path(run), memory.step)))
    with explaining_os_errors(path, is_typed=True):
        write_atomically(path, canvas.png())
    return path


def _memory(run: Path, policy: Policy, step: int | None) -> SavedMemory:
    if policy.step is None:
        raise UsageError(f"{run}: {WHY_NONE} The agent {policy.settings.agent_name} learns nothing.")
    checkpoint = newest_checkpoint(run, step)
    if checkpoint is None:
        raise UsageError(f"{run}: a memory is in the checkpoints of its run. {HOW_TO_KEEP_CHECKPOINTS}")
    memory = read_memory(checkpoint, policy.info)
    if memory is None or not len(memory.remembered):
        raise UsageError(f"{run}: {WHY_NONE if memory is None else 'nothing is remembered yet at this step.'}")
    return memory


def most_visited(memory: SavedMemory, num_sets: int) -> NDArray[np.int64]:
    """The most visited sets, of equally visited ones the newest; of a replay memory the newest transitions."""
    remembered = memory.remembered
    visits = np.zeros(len(remembered), np.int64) if remembered.visits is None else remembered.visits
    return np.lexsort((-remembered.ids, -visits))[:num_sets]


def q_curve(memory: SavedMemory, policies: Sequence[Policy], row: int) -> QCurve | None:
    """How Q(s, a) of a remembered transition changed while the networks learned; None: there are no Q-values."""
    action, points = int(memory.remembered.transitions.a[row]), {}
    for policy in policies:
        if policy.has_q_values and policy.step is not None:
            policy.reset()
            points[policy.step] = float(policy.q_values(memory.state(row))[action])
    return QCurve(tuple(sorted(points)), tuple(points[step] for step in sorted(points))) if points else None


def sizes(memory: SavedMemory, num_bytes: float | None) -> list[tuple[str, str]]:
    """What the memory holds, in numbers."""
    remembered, visits = memory.remembered, memory.remembered.visits
    rows = [("transitions" if visits is None else "sets", f"{len(remembered):,}"), ("frames", f"{len(memory.frames):,}")]
    num_met = len(remembered) if visits is None else int(visits.sum())
    if visits is not None:
        rows.insert(1, ("visits per set", f"{visits.mean():.2f} in the mean, at most {visits.max():,}"))
        rows.insert(1, ("similar hits", f"{remembered.similar_hits:,}"))
    if num_bytes is not None:
        rows.append(("size", f"{num_bytes / 1e6:,.1f} MB, {num_bytes / num_met:,.0f} bytes per transition met"))
    return rows


def bytes_held(run: Path, step: int) -> float | None:
    """Bytes of the memory by the run's own log, at the last line before a step; None: the log does not say."""
    recorded = read_run(run)
    held, steps = recorded.metric("bytes_held"), recorded.metric("steps")
    if held is None or steps is None or not (steps <= step).any():
        return None
    return float(held[np.flatnonzero(steps <= step)[-1]])


# The picture


def _drawn(
    policy: Policy,
    memory: SavedMemory,
    shown: NDArray[np.int64],
    curves: Sequence[QCurve | None],
    facts: Sequence[tuple[str, str]],
) -> Canvas:
    num_rows = -(-len(shown) // 2)
    canvas = Canvas(WIDTH, HEAD + num_rows * CARD[1] + 16)
    canvas.text(32, 44, f"{policy.settings.agent_name} on {policy.info.name}", size=26, width=WIDTH - 64)
    is_compact = memory.remembered.visits is not None
    what = "the most visited sets of similar transitions" if is_compact else "the newest transitions"
    canvas.text(32, 72, f"memory at step {memory.step:,}: {what}", size=15, colour=MUTED)
    for place, (name, value) in enumerate(facts):
        canvas.text(32, 106 + 22 * place, name, size=15, colour=MUTED)
        canvas.text(160, 106 + 22 * place, value, size=15)
    if memory.remembered.visits is not None:
        _draw_histogram(canvas, 700, 92, memory.remembered.visits)
    for place, (row, curve) in enumerate(zip(shown.tolist(), curves, strict=True)):
        x, y = 32 + (place % 2) * (CARD[0] + 16), HEAD + place // 2 * CARD[1]
        _draw_set(canvas, x, y, policy, memory, row, curve)
    return canvas


def _draw_histogram(canvas: Canvas, x: int, y: int, visits: NDArray[np.int64]) -> None:
    """How many sets were visited how often: once, twice, 3 to 4 times, 5 to 8 and so on."""
    canvas.text(x, y, "sets by visits", size=15, colour=MUTED)
    doublings = np.ceil(np.log2(visits)).astype(np.int64)
    counts = np.bincount(doublings)[:5]
    rest = int((doublings >= len(counts)).sum())
    names = ["1", "2", "3-4", "5-8", "9-16"][: len(counts)]
    for place, (name, count) in enumerate([*zip(names, counts.tolist(), strict=True), *([("more", rest)] if rest else [])]):
        top = y + 12 + 16 * place
        canvas.text(x + 44, top + 11, name, size=12, colour=MUTED, anchor="rs")
        length = 240 * count / max(*counts, rest, 1)
        canvas.box(x + 54, top, length, 12, colour=BLUE, radius=2)
        canvas.text(x + 62 + length, top + 11, f"{count:,}", size=12)


def _draw_set(canvas: Canvas, x: int, y: int, policy: Policy, memory: SavedMemory, row: int, curve: QCurve | None) -> None:
    remembered, t = memory.remembered, memory.remembered.transitions
    before, after = (picture_of(frame, largest=memory.largest) for frame in memory.pictures(row))
    canvas.picture(x, y, before, width=TILE, height=TILE)
    canvas.arrow(x + TILE + 3, y + TILE / 2)
    canvas.picture(x + TILE + 22, y, after, width=TILE, height=TILE)
    left, room = x + 2 * TILE + 38, CARD[0] - 2 * TILE - 38
    visits = "" if remembered.visits is None else f"{int(remembered.visits[row]):,}"
    canvas.text(left, y + 22, visits, size=24, colour=ORANGE)
    times = {"": "", "1": "visit"}.get(visits, "visits")
    canvas.text(left + text_width(visits, 24) + 6, y + 22, times, size=14, colour=MUTED)
    canvas.text(left, y + 44, policy.info.action_names[int(t.a[row])], size=14, width=room)
    end = "" if t.continues[row] else ", game over"
    canvas.text(left, y + 64, f"reward {number(float(t.r[row]))}{end}", size=14, width=room)
    if remembered.q is not None:
        kept = " > ".join(number(float(q)) for q in remembered.q[row] if np.isfinite(q))
        canvas.text(left, y + 84, f"Q kept {kept}", size=14, colour=MUTED, width=room)
    if curve is not None:
        _draw_curve(canvas, left, y + 96, room, TILE - 96, curve)


def _draw_curve(canvas: Canvas, x: float, y: float, width: float, height: float, curve: QCurve) -> None:
    """Q(s, a) against the steps of training."""
    low, high = min(curve.values), max(curve.values)
    top, bottom = y + 18, y + height - 16
    canvas.line([(x, bottom + 4), (x + width, bottom + 4)], colour=LINE)
    span, last = max(high - low, 1e-9), max(curve.steps[-1], 1)
    points = [
        (x + 5 + (width - 10) * step / last, bottom - (bottom - top) * ((value - low) / span if high > low else 0.5))
        for step, value in zip(curve.steps, curve.values, strict=True)
    ]
    canvas.line(points, colour=BLUE, width=2)
    for point in points:
        canvas.dot(*point)
    canvas.text(
        x, y + 10, f"Q(s, a) {number(curve.values[0])} to {number(curve.values[-1])}", size=13, colour=MUTED, width=width
    )
    canvas.text(x, y + height, f"step {curve.steps[0]:,}", size=11, colour=MUTED)
    canvas.text(x + width, y + height, f"{curve.steps[-1]:,}", size=11, colour=MUTED, anchor="rs")
