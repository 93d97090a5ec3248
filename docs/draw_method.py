"""Draw the pictures of docs/method.md from a short run of COMPER in Freeway: real frames, real numbers.

python docs/draw_method.py                              # writes docs/pictures/*.png; a minute on one core
python docs/draw_method.py --steps 300 --out elsewhere  # a shorter run

Episodes are cut off after 250 frames, so that their beginnings, which are alike, come often. All else is the paper's.
"""

from __future__ import annotations

import argparse
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import TrialSetup
from comper.environments.families import find_environment
from comper.memory import FrameStore, ObservationHistory, Transition
from comper.progress import show_progress
from comper.report.figures.drawing import COLOURS, INK, MUTED, panels, style
from comper.training.options import RunOptions, resolve_settings
from comper.training.randomness import environment_seed, streams

PICTURES = Path(__file__).parent / "pictures"
NUM_SETS = 6


@dataclass
class Run:
    """A trial of COMPER, and what was noted down while it ran."""

    agent: Any
    frames: FrameStore
    action_names: tuple[str, ...]
    sizes: dict[str, list[float]] = field(default_factory=dict)
    """Sizes of the memories after every step."""
    targets: dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]] = field(default_factory=dict)
    """At some steps: what the QLSTM predicts for transitions of RTM, and the Q-value that really followed each."""


def play(num_steps: int) -> Run:
    """Run COMPER for so many steps, as the training loop does."""
    spec = find_environment("freeway")
    settings = resolve_settings("comper-single", [spec], {"episode_cap_frames": 250}, where="draw_method")
    environment = spec.factory(settings.environment, seed=environment_seed(0))()
    frames = FrameStore(environment.info.observation_shape)
    setup = TrialSetup(frames, *streams(0)[:3])
    device = RunOptions(device="cpu").torch_device()
    agent: Any = settings.agent.agent(settings.config, settings.task(environment.info), [setup], device=device)
    run, history, num_frames = Run(agent, frames, environment.info.action_names), ObservationHistory(frames, 1), 0
    history.reset(environment.reset())
    with show_progress("Steps played") as progress:
        for t in range(1, num_steps + 1):
            epsilon = agent.epsilon(frames=num_frames, steps=t - 1)
            actions, q = agent.act(np.array([history.state], np.int64), [epsilon], [0])
            step = environment.step(int(actions[0]))
            num_frames += step.num_frames
            s, s_next = history.advance(step.frames)
            is_last = step.terminated or step.truncated
            transition = Transition(s, int(actions[0]), step.reward, s_next, step.terminated)
            agent.store(0, transition, float(q[0]), is_last=is_last)
            agent.learn(t, [0])
            if is_last:
                history.reset(environment.reset())
            note(run, t, num_steps)
            progress.update(t, num_steps)
    return run


def note(run: Run, t: int, num_steps: int) -> None:
    """Write down the sizes of the memories, and now and then what the QLSTM has learned."""
    tm, rtm = run.agent.tm[0], run.agent.rtm[0]
    sizes = {"TM": len(tm), "RTM": len(rtm), "all sets": tm.num_sets, "joined a set": tm.similar_hits}
    for name, size in sizes.items():
        run.sizes.setdefault(name, []).append(size)
    if t in {num_steps // 6, num_steps // 2, num_steps} and not rtm.is_empty:
        batch = run.agent.rtm.sample(512, [0])
        predicted = run.agent.qlstm.predict(batch).detach().cpu().numpy()[0]
        followed, is_known = tm.successor_q(batch.set_ids[0])
        run.targets[t] = predicted[is_known], followed[is_known]


def largest_sets(run: Run) -> NDArray[np.int64]:
    """The sets with the most members among those in RTM, no two with the same first frame."""
    tm = run.agent.tm[0]
    set_ids = np.unique(run.agent.rtm.sample(4_096, [0]).set_ids[0])
    ordered = set_ids[np.argsort(-tm.set_sizes[set_ids], kind="stable")]
    states = tm.gather(ordered).s[:, 0]
    _, firsts = np.unique(states, return_index=True)
    return ordered[np.sort(firsts)][:NUM_SETS]


# The pictures


def draw_transition(run: Run) -> Any:
    """One transition as the paper writes it, and as it is kept."""
    tm = run.agent.tm[0]
    one = tm.gather(run.agent.rtm.sample(4_096, [0]).set_ids[0].max(keepdims=True))  # the newest
    figure, [[before, middle, after]] = panels(1, 3, cell=(2.1, 2.1), margins=(0.15, 0.15, 0.4, 0.35))
    for axes, ids, title in ((before, one.s, "$s_t$"), (after, one.s_next, "$s_{t+1}$")):
        _show(axes, run.frames.gather(ids[0])[0], f"{title}: frame {int(ids[0, 0])}")
    middle.set_axis_off()
    action = int(one.a[0])
    words = f"$a_t$ = {action}\n({run.action_names[action]})\n\n$r_t$ = {float(one.r[0]):g}"
    middle.text(0.5, 0.55, words, ha="center", va="center", fontsize=13, color=INK)
    frame = run.frames.gather(one.s[0])[0].tobytes()
    text = (
        f"kept as ({int(one.s[0, 0])}, {action}, {float(one.r[0]):g}, {int(one.s_next[0, 0])}): the frames are stored once "
        f"each, {len(frame):,} bytes, or {len(zlib.compress(frame)):,} compressed"
    )
    figure.text(0.5, 0.05, text, ha="center", fontsize=9, color=MUTED)
    return figure


def draw_sets(run: Run) -> Any:
    """Sets of similar transitions: their frames, how often they were met, their latest Q-value."""
    tm, set_ids = run.agent.tm[0], largest_sets(run)
    batch, sizes, q = tm.gather(set_ids), tm.set_sizes[set_ids], tm.q_history(set_ids)[:, -1]
    figure, [above, below] = panels(2, len(set_ids), cell=(1.15, 1.15), margins=(0.35, 0.1, 0.55, 0.35), gap=0.12)
    for number, (top, bottom) in enumerate(zip(above, below, strict=True)):
        _show(top, run.frames.gather(batch.s[number])[0], f"set {set_ids[number]}")
        _show(bottom, run.frames.gather(batch.s_next[number])[0], "")
        action = run.action_names[int(batch.a[number])]
        times = "once" if sizes[number] == 1 else f"{sizes[number]} times"
        bottom.set_xlabel(f"{action}\nmet {times}, Q = {q[number]:.3f}", color=INK, fontsize=7.5)
    above[0].set_ylabel("$s_t$")
    below[0].set_ylabel("$s_{t+1}$")
    return figure


def draw_memories(run: Run) -> Any:
    """How TM fills and is emptied, RTM grows, and transitions join sets that are known already."""
    figure, [[sizes, hits]] = panels(1, 2, cell=(3.4, 1.9), margins=(0.6, 0.15, 0.45, 0.35))
    steps = np.arange(1, len(run.sizes["TM"]) + 1)
    for number, name in enumerate(("TM", "RTM", "all sets")):
        sizes.plot(steps, run.sizes[name], color=COLOURS[number], linewidth=1.1, label=name)
    sizes.legend(loc="upper left")
    sizes.set_title("Sets in the memories")
    hits.plot(steps, run.sizes["joined a set"], color=COLOURS[3])
    hits.set_title("Transitions that joined a known set")
    for axes in (sizes, hits):
        axes.set_xlabel("agent steps")
        axes.set_ylim(bottom=0)
    return figure


def draw_targets(run: Run) -> Any:
    """What the QLSTM predicts against the Q-value that really followed, early and late."""
    figure, [cells] = panels(1, max(1, len(run.targets)), cell=(2.1, 2.1), margins=(0.6, 0.1, 0.5, 0.35))
    for axes, (t, (predicted, followed)) in zip(cells, run.targets.items(), strict=False):
        axes.plot(followed, predicted, "o", color=COLOURS[0], alpha=0.25, markersize=3)
        values = np.concatenate([predicted, followed])
        ends = [values.min(), values.max()]
        axes.plot(ends, ends, color=MUTED, linewidth=0.8)
        axes.set_title(f"after {t:,} steps")
        axes.set_xlabel("Q that followed")
        axes.locator_params(nbins=3)
    cells[0].set_ylabel(r"$R(\tau)$ of the QLSTM")
    return figure


def _show(axes: Any, frame: NDArray[np.uint8], title: str) -> None:
    axes.imshow(frame, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_title(title)


DRAWINGS = {"transition": draw_transition, "sets": draw_sets, "memories": draw_memories, "qlstm": draw_targets}


def main() -> None:
    """Play, then draw everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_500, metavar="N", help="agent steps (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=PICTURES, metavar="DIR", help="where the pictures go")
    args = parser.parse_args()
    run = play(args.steps)
    args.out.mkdir(parents=True, exist_ok=True)
    with style():
        for name, draw in DRAWINGS.items():
            draw(run).savefig(args.out / f"method-{name}.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
