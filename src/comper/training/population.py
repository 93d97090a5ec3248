"""A population of trials put together and run: from the beginning, from checkpoints, or from another run's weights."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

import torch

from comper.agents.interface import Agent, TrialSetup
from comper.environments.stepper import Stepper
from comper.memory.compressed import make_frame_store
from comper.memory.frame_archive import FrameArchive
from comper.memory.history import ObservationHistory
from comper.protocol import AnyConfig
from comper.runs.checkpoints import Checkpoint
from comper.runs.recorder import Recorder
from comper.runs.states import Nested, replace_weights
from comper.training.keeper import Keeper, Saved
from comper.training.loop import Loop, Trial
from comper.training.preflight import max_frames
from comper.training.progress import progress
from comper.training.randomness import streams
from comper.training.signals import stop_requests
from comper.training.train import RunOptions

MAX_RESERVED_FRAMES = 200_000
"""A store with room for more would have to grow first; untouched memory costs nothing, but not every system agrees."""


@dataclass
class Member:
    """One trial of a population: what it is, where it is recorded, and what it starts from."""

    game: str
    seed: int
    record: Recorder | None
    """None: it had finished before; on a GPU it still has its row among the networks."""
    files: dict[str, bytes] | None = None
    """Of the checkpoint to continue from."""
    good: list[Checkpoint] = field(default_factory=list)
    """The checkpoints known to be whole, oldest first."""
    weights: Nested | None = None
    """Of another run, to start learning from."""


def run_population(
    members: Sequence[Member],
    config: AnyConfig,
    make_agent: Callable[..., Agent],
    environments: Stepper,
    device: torch.device,
    *,
    options: RunOptions,
    step: int = 0,
) -> None:
    """Run every member to its end."""
    with ExitStack() as stack:
        records = [member.record for member in members if member.record]
        for record in records:
            stack.callback(record.close)
        request = stack.enter_context(stop_requests())
        setups = [_setup(member.seed, config, environments) for member in members]
        agent = make_agent(config, setups, num_actions=environments.signature.num_actions, device=device)
        kept = [
            _saved(number, member, member.record, setup, config)
            for number, (member, setup) in enumerate(zip(members, setups, strict=True))
            if member.record
        ]
        period, show_progress = options.checkpoint_period_steps, options.show_progress
        keeper = Keeper(agent, environments, kept, frames=config.frames, request=request, period_steps=period, step=step)
        for saved in kept:
            _restore(saved, members[saved.trial.number], agent, keeper)
        trials = [saved.trial for saved in kept]
        stack.enter_context(_told_at_the_end(keeper) if show_progress else nullcontext())
        watcher = stack.enter_context(progress(trials, config.frames) if show_progress else nullcontext())
        Loop(config, agent, environments, trials, t=step).run(watcher, keeper)


def _setup(seed: int, config: AnyConfig, environments: Stepper) -> TrialSetup:
    signature = environments.signature
    capacity = min(MAX_RESERVED_FRAMES, max_frames(config))
    frames = make_frame_store(
        config.frame_compression, signature.frame_shape, signature.frame_dtype, initial_capacity=capacity
    )
    weights, exploration, sampling, _ = streams(seed)
    return TrialSetup(frames, weights=weights, exploration=exploration, sampling=sampling)


def _saved(number: int, member: Member, record: Recorder, setup: TrialSetup, config: AnyConfig) -> Saved:
    history = ObservationHistory(setup.frames, config.history_length)
    trial = Trial(number, member.game, member.seed, history, record)
    return Saved(trial, setup, record, FrameArchive(setup.frames), list(member.good))


def _restore(saved: Saved, member: Member, agent: Agent, keeper: Keeper) -> None:
    if member.files is not None:
        keeper.load(saved, member.files)
        member.files = None  # tens of megabytes that are in place now
    if member.weights is not None:
        state = agent.state_dict(saved.trial.number)
        replace_weights(state, member.weights)
        agent.load_state_dict(saved.trial.number, state)


@contextmanager
def _told_at_the_end(keeper: Keeper) -> Iterator[None]:
    try:
        yield
    finally:
        print(keeper.summary(), file=sys.stderr)
