"""A population of trials put together and run: from the beginning, from checkpoints, or from another run's weights."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from comper.agents.agent import Agent, TrialSetup
from comper.environments.environment import EnvironmentSpec
from comper.environments.stepper import ProcessStepper, SerialStepper, Stepper
from comper.errors import ResourceError, UsageError, WorkerDiedError, explaining_memory_errors
from comper.memory.compressed import make_frame_store
from comper.memory.frame_archive import FrameArchive
from comper.memory.frames import ObservationHistory
from comper.runs.checkpoints import Checkpoint
from comper.runs.recorder import Recorder
from comper.training.checkpointing import Checkpointer, SavedTrial
from comper.training.display import Audience, Terminal
from comper.training.hook_calls import HookCaller
from comper.training.loop import Loop, Observer, Trial
from comper.training.options import RunOptions, RunSettings, outside_modules
from comper.training.preflight import max_frames
from comper.training.randomness import environment_seed, streams
from comper.training.weights import take_over

if TYPE_CHECKING:
    import torch

MAX_RESERVED_FRAMES = 200_000
"""A store with room for more would have to grow first; untouched memory costs nothing, but not every system agrees."""


@dataclass
class Member:
    """One trial of a population: what it is, where it is recorded, and what it starts from."""

    environment: str
    seed: int
    record: Recorder | None
    """None: it had finished before; on a GPU it still has its row among the networks."""
    files: dict[str, bytes] | None = None
    """Of the checkpoint to continue from."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """Those known to be whole, oldest first."""
    weights: dict[str, Any] | None = None
    """Of another run, to start learning from."""


def make_stepper(pairs: Sequence[tuple[EnvironmentSpec, int]], settings: RunSettings, options: RunOptions) -> Stepper:
    """The environments of (environment, seed) pairs, in this process or in workers."""
    factories = [
        spec.factory(
            settings.environment, seed=environment_seed(seed), observations_per_step=settings.config.observations_per_step
        )
        for spec, seed in pairs
    ]
    num_workers = options.num_workers(len(pairs))
    if num_workers and all(spec.is_picklable for spec, _ in pairs):
        return ProcessStepper(factories, num_workers=num_workers)
    return SerialStepper([factory() for factory in factories])


def run_population(
    members: Sequence[Member],
    settings: RunSettings,
    environments: Stepper,
    device: torch.device,
    *,
    options: RunOptions,
    step: int = 0,
    audience: Audience | None = None,
) -> None:
    """Run every member to its end; without another audience, the terminal shows it."""
    audience = audience or Terminal(options.show_progress)
    config = settings.config
    if any(info.resume for info in environments.infos):  # what cannot be continued exactly is not saved
        options = replace(options, checkpoint_period_steps=0)
    with ExitStack() as stack:
        modules = outside_modules(settings, (info.name for info in environments.infos))
        flags = "".join(f" --trust {module}" for module in modules)
        stack.enter_context(_saying_how_to_continue(members, flags))
        for member in members:
            if member.record:
                stack.callback(member.record.close)
        request = stack.enter_context(audience.requests())
        setups = [_setup(member.seed, settings, environments) for member in members]
        agent = settings.agent.agent(config, settings.task(environments.info), setups, device=device)
        _check_parts(agent)
        saved = [
            _saved_trial(number, member, member.record, setup, settings)
            for number, (member, setup) in enumerate(zip(members, setups, strict=True))
            if member.record
        ]
        period = options.checkpoint_period_steps
        checkpointer = Checkpointer(
            agent,
            environments,
            saved,
            frames=config.frames,
            request=request,
            period_steps=period,
            step=step,
            resume_flags=flags,
        )
        for trial in saved:
            _restore(trial, members[trial.trial.number], agent, checkpointer)
        for trial in saved:  # not before: what cannot be taken over leaves the logs as they are
            trial.record.go_on()
        stack.enter_context(_summary_at_the_end(checkpointer, audience))
        progress = stack.enter_context(audience.watching(config.frames, agent.metric_labels))
        observers: list[Observer] = [progress, checkpointer]
        if options.hooks:
            caller = HookCaller(options.hooks, saved, checkpointer, step=step, settings=settings.to_dict())
            stack.callback(caller.close)
            observers.insert(1, caller)  # before the checkpointer: what a checkpoint holds has been told
        stack.enter_context(_everything_here_to_stay())
        Loop(config, agent, environments, [trial.trial for trial in saved], t=step).run(observers)


@contextmanager
def _everything_here_to_stay() -> Iterator[None]:
    """Let the garbage collector pass over what exists already, torch's million objects above all: 3 % of a small run."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _saying_how_to_continue(members: Sequence[Member], flags: str) -> Iterator[None]:
    """Turn a want of memory into a sentence, and add the command that goes on from the last checkpoint."""
    paths = shlex.join(str(member.record.path) for member in members if member.record)
    hint = f"What was saved before is untouched: continue with `comper resume {paths}{flags}`."
    with explaining_memory_errors(f"Take fewer --trials, or smaller batches or memories. {hint}"):
        try:
            yield
        except WorkerDiedError as error:
            raise ResourceError(f"{error} {hint}") from None


def _check_parts(agent: Agent) -> None:
    for name, part in agent.parts.items():
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise UsageError(f"The agent's part {name!r} cannot be saved: it needs state_dict and load_state_dict.")


def _setup(seed: int, settings: RunSettings, environments: Stepper) -> TrialSetup:
    info = environments.info
    capacity = min(MAX_RESERVED_FRAMES, max_frames(settings, info))
    compression = settings.config.frame_compression
    frames = make_frame_store(compression, info.observation_shape, info.observation_dtype, initial_capacity=capacity)
    weights, exploration, sampling, _ = streams(seed)
    return TrialSetup(frames, weights=weights, exploration=exploration, sampling=sampling)


def _saved_trial(number: int, member: Member, record: Recorder, setup: TrialSetup, settings: RunSettings) -> SavedTrial:
    history = ObservationHistory(setup.frames, settings.config.history_length)
    trial = Trial(number, member.environment, member.seed, history, record)
    return SavedTrial(trial, setup, record, FrameArchive(setup.frames), list(member.checkpoints))


def _restore(saved: SavedTrial, member: Member, agent: Agent, checkpointer: Checkpointer) -> None:
    if member.files is not None:
        checkpointer.load(saved, member.files)
        member.files = None  # tens of megabytes that are in place now
    if member.weights is not None:
        take_over(agent, saved.trial.number, member.weights)


@contextmanager
def _summary_at_the_end(checkpointer: Checkpointer, audience: Audience) -> Iterator[None]:
    try:
        yield
    finally:
        audience.say(checkpointer.summary())
