"""Trains agents: environments x seeds become one population of trials, driven in lockstep, a run folder each."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from comper.agents.agent import AgentSpec
from comper.agents.registry import DEFAULT_AGENT
from comper.environments.environment import EnvironmentInfo, EnvironmentSpec
from comper.environments.families import find_environment, needed_extras
from comper.environments.floors import all_floors, floor_for
from comper.errors import UsageError
from comper.importing import require_extras
from comper.output import print_line
from comper.protocol import PAPER_GAMES
from comper.training import preflight
from comper.training.continuing import ContinueJob, continue_in_processes, done_or_left_out
from comper.training.display import TrialStatus
from comper.training.hooks import AnyHook, checked_hooks
from comper.training.options import (
    NetworkMaker,
    RunOptions,
    RunSettings,
    Trusted,
    can_be_sent,
    outside_modules,
    resolve_settings,
)
from comper.training.population import Member, make_stepper, run_population
from comper.training.start import Beginning, Pair, StartingPoint, check_beginning, introduction, trial_names

MAX_TRIALS = 100_000
EnvironmentName = str | Callable[[], Any]


def train(
    environments: EnvironmentName | Sequence[EnvironmentName],
    agent: str | AgentSpec = DEFAULT_AGENT,
    *,
    seed: int = 0,
    trials: int = 1,
    out: str | os.PathLike[str] = "runs",
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
    processes: int | None = None,
    threads: int | None = None,
    network: str | NetworkMaker = "auto",
    floors: str | os.PathLike[str] | None = None,
    hooks: Sequence[AnyHook] = (),
    **settings: Any,
) -> list[Path]:
    """Train an agent in one or more environments and return the run folders, one per trial.

    An environment is a name (`freeway`, `gym:CartPole-v1`, `minatar:breakout`, `minigrid:DoorKey-6x6-v0`) or a function that
    makes one. Trials are the seeds `seed`, `seed` + 1, ... of every environment. Any setting of the agent or the environment
    (see `comper describe`) may be given by name. `network` is a function `(state_shape, num_actions) -> torch.nn.Module`, or
    its name `my_module:make_network`. `processes` run the trials; None: on a CPU one per core. `threads` of torch compute each
    trial, and its last bits depend on them; None: one on a CPU. `workers` processes run the environments; 0 runs them beside
    their trials, None chooses. An environment, agent, network or hook given as a Python object stays in this process. A
    checkpoint is written every `checkpoint_period_steps` agent steps; 0: never, None: every 5,000 steps or two minutes.
    `hooks` are called while trials run: objects of your own (see `Hook`), `TensorBoard(folder)`, `WeightsAndBiases(project)`.
    `floors` is a file that `comper floors --out FILE` wrote, for environments whose floor does not come with the package.

        train("freeway", "comper-single", frames=20_000, out="my-runs")
    """
    named = [environments] if isinstance(environments, str) or callable(environments) else environments
    if not isinstance(named, Sequence):
        raise UsageError(
            f"{named!r}: give an environment's name, or a function or class that makes it, not the object itself."
        )
    require_extras("train", *needed_extras(named))
    specs = find_environments(named)
    if isinstance(network, str):
        settings |= {} if network == "auto" else {"network": network}
        network_maker = None
    else:
        network_maker = network
    arguments = list(inspect.signature(train).parameters)[:-1]
    resolved = resolve_settings(agent, specs, settings, where="train()", network=network_maker, arguments=arguments)
    options = RunOptions(
        device,
        workers,
        checkpoint_period_steps,
        show_progress,
        processes,
        threads,
        checked_hooks(hooks),
        None if floors is None else all_floors(Path(floors)),
    )
    return train_population(specs, resolved, seed=seed, trials=trials, out=Path(out), options=options)


def find_environments(names: Sequence[EnvironmentName], *, trusted: Trusted = None) -> list[EnvironmentSpec]:
    """Environments by name, each once; `paper` stands for the paper's eight games."""
    expanded: list[EnvironmentName] = []
    for name in names:
        expanded += PAPER_GAMES if name == "paper" else [name]
    if not expanded:
        raise UsageError("Name at least one environment.")
    found: dict[str, tuple[EnvironmentName, EnvironmentSpec]] = {}
    for given in expanded:
        spec = find_environment(given, trusted=trusted)
        before, _ = found.setdefault(spec.name, (given, spec))
        if callable(given) and before is not given:
            raise UsageError(f"Two environments are called {spec.name}: give each a class of its own, or train them apart.")
    return [spec for _, spec in found.values()]


def train_population(
    environments: Sequence[EnvironmentSpec],
    settings: RunSettings,
    *,
    seed: int,
    trials: int,
    out: Path,
    options: RunOptions,
) -> list[Path]:
    """Train one agent on environments x seeds."""
    if not 1 <= trials <= MAX_TRIALS or not 0 <= seed < 2**63:
        rule = f"there must be at least 1 trial (at most {MAX_TRIALS:,}), and a seed is 0 or more"
        raise UsageError(f"trials = {trials}, seed = {seed}: {rule}.")
    pairs = [(environment, s) for environment in environments for s in range(seed, seed + trials)]
    return start_runs(pairs, settings, out=out, options=options)


def start_runs(
    pairs: Sequence[Pair],
    settings: RunSettings,
    *,
    out: Path,
    options: RunOptions,
    starting_points: Sequence[StartingPoint | None] | None = None,
) -> list[Path]:
    """Run (environment, seed) pairs to their end. Everything that can be refused is refused before the first frame."""
    device = options.torch_device()
    num_processes = options.num_processes(len(pairs), device) if can_be_sent(settings, [spec for spec, _ in pairs]) else 1
    with options.torch_threads(device):
        beginning = check_beginning(
            pairs, settings, out=out, options=options, num_processes=num_processes, points=starting_points
        )
        if num_processes == 1:
            return _run_here(beginning, options)
        jobs = _create_jobs(beginning, options, num_processes)
    refused = continue_in_processes(jobs, num_processes=num_processes, is_watched=options.show_progress)
    return done_or_left_out([path for path in beginning.paths if path not in refused], refused, "finished")


def _run_here(beginning: Beginning, options: RunOptions) -> list[Path]:
    """Run the trials as one population, in this process."""
    pairs, settings = beginning.pairs, beginning.settings
    preflight.allow_open_files(len(pairs), options.num_workers(len(pairs)))
    with ExitStack() as stack:
        environments = stack.enter_context(make_stepper(pairs, settings, options))
        infos = _with_floors(environments.infos, settings, options)
        records = beginning.create(infos, [trial_names(pairs)] * len(pairs))
        for record in records:
            stack.callback(record.close)
        members = [
            Member(environment.name, s, record, weights=point.weights if point else None)
            for (environment, s), record, point in zip(pairs, records, beginning.points, strict=True)
        ]
        if options.show_progress:
            print_line(introduction(settings, environments.infos, str(beginning.device)))
            print_line(f"needs {beginning.needs}")
        run_population(members, settings, environments, beginning.device, options=options)
    return beginning.paths


def _with_floors(infos: Sequence[EnvironmentInfo], settings: RunSettings, options: RunOptions) -> list[EnvironmentInfo]:
    """What environments say about themselves, with the floors that the user has measured for them."""
    if options.floors is None:
        return list(infos)
    frames = settings.environment.frames_per_observation * settings.config.observations_per_step
    found = [floor_for(options.floors, info.name, frames, vars(settings.environment)) for info in infos]
    return [info if floor is None else replace(info, floor=floor.value) for info, floor in zip(infos, found, strict=True)]


def _create_jobs(beginning: Beginning, options: RunOptions, num_processes: int) -> list[ContinueJob]:
    """Make all folders, so that whatever happens `comper resume` knows of every trial, and share them among processes."""
    pairs, settings = beginning.pairs, beginning.settings
    by_name = {spec.name: spec.info(settings.environment) for spec in dict.fromkeys(spec for spec, _ in pairs)}
    infos = [by_name[spec.name] for spec, _ in pairs]
    for info in by_name.values():
        settings.check(info)
    names, chunks = trial_names(pairs), shares(len(pairs), num_processes, is_cpu=beginning.device.type == "cpu")
    # On a GPU the arithmetic depends on how many advance together: those are the population, here and when it is resumed.
    by_trial = {number: [names[other] for other in chunk] for chunk in chunks for number in chunk}
    populations = [names if beginning.device.type == "cpu" else by_trial[number] for number in range(len(pairs))]
    for record in beginning.create(_with_floors(infos, settings, options), populations):
        record.close()
    if options.show_progress:
        print_line(introduction(settings, infos, f"{beginning.device}, {num_processes} processes"))
        print_line(f"needs {beginning.needs}")
    paths, frames = beginning.paths, settings.config.frames
    return [
        ContinueJob(
            tuple(paths[number] for number in chunk),
            tuple(TrialStatus.waiting(pairs[number][0].name, pairs[number][1], budget=frames) for number in chunk),
            options.shared_by(num_processes, len(chunk)),
            tuple(outside_modules(settings, by_name)),
        )
        for chunk in chunks
    ]


def shares(num_trials: int, num_processes: int, *, is_cpu: bool) -> list[list[int]]:
    """Which trials advance together: alone on a CPU, where that is as fast, needs less memory and wastes no core at the end;
    on a GPU in turn, so that quick games and slow ones are everywhere."""
    num_chunks = num_trials if is_cpu else num_processes
    return [list(range(number, num_trials, num_chunks)) for number in range(num_chunks)]
