"""`comper watch`: plays with a run's weights, without learning, and films it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import AgentSpec
from comper.environments.environment import Environment, EnvironmentInfo
from comper.errors import StoppedError, UsageError
from comper.progress import Progress
from comper.progress import show_progress as shown_progress
from comper.training.evaluation import Policy, open_policy
from comper.training.options import NetworkMaker, OwnCode
from comper.training.signals import StopRequest, stop_requests
from comper.training.weights import HOW_TO_KEEP_CHECKPOINTS
from comper.viewing.films import check_film, write_film
from comper.viewing.saved_memory import WHY_NONE, MemorySearch, newest_checkpoint, read_memory
from comper.viewing.scenes import Moment, Scene
from comper.viewing.screens import screen_of

MAX_SECONDS, MAX_FPS = 3_600, 120


def watch(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] = "watch.mp4",
    *,
    episodes: int = 1,
    seconds: float = 30.0,
    fps: float = 12.0,
    epsilon: float = 0.001,
    checkpoint: int | None = None,
    seed: int = 0,
    device: str = "auto",
    agent: AgentSpec | None = None,
    environment: Callable[[], Any] | None = None,
    network: NetworkMaker | None = None,
    trust: Sequence[str] = (),
    show_progress: bool = True,
) -> Path:
    """Film episodes played with a run's weights, without learning, and return the film's path: an MP4 or a GIF.

    The film ends after so many episodes or seconds. An Atari game runs at its own speed with 12 pictures per second. The other
    arguments are those of `evaluate`.
    """
    path = Path(out)
    if episodes < 1 or not 0 < seconds <= MAX_SECONDS or not 1 <= fps <= MAX_FPS:
        rule = f"there must be 1 episode or more, at most {MAX_SECONDS:,} seconds, and 1 to {MAX_FPS} pictures per second"
        raise UsageError(f"episodes = {episodes}, seconds = {seconds:g}, fps = {fps:g}: {rule}.")
    if not 0 <= epsilon <= 1 or seed < 0:
        raise UsageError(f"epsilon = {epsilon}, seed = {seed}: epsilon must be 0 to 1, and seed 0 or more.")
    check_film(path)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # environments that draw with pygame need no window
    own = OwnCode(agent, environment, network, tuple(trust))
    max_frames = max(1, round(seconds * fps))
    # Heard from the first import of pygame on, which would take a signal that nobody hears for itself, and do nothing.
    with stop_requests(("SIGTERM", "SIGHUP")) as request, shown_progress("Pictures", wanted=show_progress) as progress:
        policy, env = _open(Path(run), own, checkpoint=checkpoint, seed=seed, device=device)
        scene = _scene(Path(run), policy, checkpoint, epsilon)
        moments = _bounded(_play(policy, env, episodes=episodes, epsilon=epsilon), max_frames, progress, request)
        write_film(path, map(scene.draw, moments), fps=fps)
    return path


def _open(run: Path, own: OwnCode, **options: Any) -> tuple[Policy, Environment]:
    """The policy, and an environment that shows every observation while an action is held, where it can."""
    try:
        return open_policy(run, own, observations_per_step=1, **options)
    except UsageError:  # an environment of the user's own may have one way only
        return open_policy(run, own, **options)


def _scene(run: Path, policy: Policy, checkpoint: int | None, epsilon: float) -> Scene:
    name, weights = policy.settings.agent_name, "" if policy.step is None else f"weights of step {policy.step:,} · "
    search, why = (None, WHY_NONE) if policy.step is None else _memory_search(run, policy.info, checkpoint)
    subtitle = f"{weights}epsilon {epsilon:g}"
    return Scene(f"{name} on {policy.info.name}", subtitle, policy.info.action_names, search, why)


def _memory_search(run: Path, info: EnvironmentInfo, step: int | None) -> tuple[MemorySearch | None, str]:
    """What finds similar memories, or why there is nothing to find."""
    checkpoint = newest_checkpoint(run, step)
    if checkpoint is None:
        return None, f"The memory is in the checkpoints of a run. {HOW_TO_KEEP_CHECKPOINTS}"
    memory = read_memory(checkpoint, info)
    return (None, WHY_NONE) if memory is None or not len(memory.remembered) else (MemorySearch(memory), "")


def _bounded(moments: Iterator[Moment], most: int, progress: Progress, request: StopRequest) -> Iterator[Moment]:
    done = 0
    for moment in moments:
        if request.name is not None:
            raise StoppedError(f"stopped by {request.name}: no film was written.")
        yield moment
        done += 1
        progress.update(done, most, f"score {moment.score:g}")
        if done == most:
            return
    progress.update(done, done)


def _play(policy: Policy, env: Environment, *, episodes: int, epsilon: float) -> Iterator[Moment]:
    for episode in range(1, episodes + 1):
        policy.reset()
        yield from _play_episode(policy, env, episode, epsilon)


def _play_episode(policy: Policy, env: Environment, episode: int, epsilon: float) -> Iterator[Moment]:
    """Every observation of an episode; an action may be held for several."""
    num_held = policy.settings.config.observations_per_step // env.observations_per_step
    frames, score, step, is_over = env.reset()[None], 0.0, 0, False
    while not is_over:
        action = policy.predict(frames, epsilon=epsilon)
        q = policy.q_values() if policy.has_q_values else None
        is_greedy = q is None or int(np.argmax(q)) == action
        yield Moment(screen_of(env, frames[-1]), frames[-1], q, action, is_greedy, score, step, episode)
        seen: list[NDArray[Any]] = []
        for held in range(num_held):
            outcome = env.step(action)
            seen.append(outcome.frames)
            score, is_over = score + outcome.reward, outcome.is_last
            if is_over:
                break
            if held < num_held - 1:
                now = outcome.frames[-1]
                yield Moment(screen_of(env, now), now, q, action, is_greedy, score, step, episode)
        frames, step = np.concatenate(seen), step + 1
    yield Moment(screen_of(env, frames[-1]), frames[-1], q, action, is_greedy, score, step, episode)
