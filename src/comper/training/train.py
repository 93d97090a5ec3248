"""Trains agents: environments x seeds become one population of trials, driven in lockstep, a run folder each."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.agents.agent import AgentSpec
from comper.agents.registry import DEFAULT_AGENT
from comper.environments.environment import EnvironmentInfo, EnvironmentSpec
from comper.environments.families import find_environment, needed_extras
from comper.environments.floors import all_floors, floor_for
from comper.errors import UsageError, printable
from comper.importing import require_extras
from comper.output import print_line
from comper.protocol import PAPER_GAMES
from comper.runs.folder import run_path
from comper.runs.manifest import Manifest
from comper.runs.recorder import check_can_begin, create_all
from comper.training import preflight
from comper.training.conditions import conditions
from comper.training.options import NetworkMaker, RunOptions, RunSettings, resolve_settings
from comper.training.population import Member, make_stepper, run_population

if TYPE_CHECKING:
    import torch

MAX_TRIALS = 100_000
EnvironmentName = str | Callable[[], Any]


@dataclass(frozen=True)
class StartingPoint:
    """Weights of another run, and where they are from."""

    weights: dict[str, Any]
    about: dict[str, Any]


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
    network: str | NetworkMaker = "auto",
    floors: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> list[Path]:
    """Train an agent in one or more environments and return the run folders, one per trial.

    An environment is a name (`freeway`, `gym:CartPole-v1`, `minatar:breakout`, `minigrid:DoorKey-6x6-v0`) or a function that
    makes one. Trials are the seeds `seed`, `seed` + 1, ... of every environment. Any setting of the agent or the environment
    (see `comper describe`) may be given by name. `network` is a function `(state_shape, num_actions) -> torch.nn.Module`, or
    its name `my_module:make_network`. `workers` processes run the environments; 0 runs them in this one, None chooses. A
    checkpoint is written every `checkpoint_period_steps` agent steps; 0: never, None: every 5,000 steps or two minutes.
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
    measured = all_floors(None if floors is None else Path(floors))
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress, measured)
    return train_population(specs, resolved, seed=seed, trials=trials, out=Path(out), options=options)


def find_environments(names: Sequence[EnvironmentName]) -> list[EnvironmentSpec]:
    """Environments by name, each once; `paper` stands for the paper's eight games."""
    expanded: list[EnvironmentName] = []
    for name in names:
        expanded += PAPER_GAMES if name == "paper" else [name]
    if not expanded:
        raise UsageError("Name at least one environment.")
    found: dict[str, tuple[EnvironmentName, EnvironmentSpec]] = {}
    for given in expanded:
        spec = find_environment(given)
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
    pairs: Sequence[tuple[EnvironmentSpec, int]],
    settings: RunSettings,
    *,
    out: Path,
    options: RunOptions,
    starting_points: Sequence[StartingPoint | None] | None = None,
) -> list[Path]:
    """Run (environment, seed) pairs to their end. Everything that can be refused is refused before the first frame."""
    paths = [run_path(out, agent=settings.agent_name, game=environment.name, seed=s) for environment, s in pairs]
    for path in paths:
        check_can_begin(path, settings.to_toml())
    device = options.torch_device()
    points = starting_points or [None] * len(pairs)
    # One environment is asked before all are made: thousands of trials that do not fit take no memory.
    first = pairs[0][0].info(settings.environment)
    settings.check(first)
    needs = preflight.check(settings, first, trials=len(pairs), out=out, with_checkpoints=options.with_checkpoints)
    preflight.allow_open_files(len(pairs), options.num_workers(len(pairs)))
    with ExitStack() as stack:
        environments = stack.enter_context(make_stepper(pairs, settings, options))
        population = [f"{environment.name}/seed-{s}" for environment, s in pairs]
        manifests = [
            new_manifest(
                settings,
                environment.name,
                s,
                info=_with_floor(info, settings, options),
                device=device,
                population=population,
                point=point,
            )
            for (environment, s), info, point in zip(pairs, environments.infos, points, strict=True)
        ]
        records = create_all(paths, settings.to_toml(), manifests)
        for record in records:
            stack.callback(record.close)
        members = [
            Member(environment.name, s, record, weights=point.weights if point else None)
            for (environment, s), record, point in zip(pairs, records, points, strict=True)
        ]
        if options.show_progress:
            print_line(printable(introduction(settings, environments.infos, str(device))))
            print_line(f"needs {needs}")
        run_population(members, settings, environments, device, options=options)
    return paths


def _with_floor(info: EnvironmentInfo, settings: RunSettings, options: RunOptions) -> EnvironmentInfo:
    """What an environment says about itself, with a floor that the user has measured for it."""
    if info.floor is not None or options.floors is None:
        return info
    frames = settings.environment.frames_per_observation * settings.config.observations_per_step
    floor = floor_for(options.floors, info.name, frames, vars(settings.environment))
    return replace(info, floor=None if floor is None else floor.value)


def new_manifest(
    settings: RunSettings,
    environment: str,
    seed: int,
    *,
    info: EnvironmentInfo,
    device: torch.device,
    population: list[str],
    point: StartingPoint | None = None,
) -> Manifest:
    """What a run is, before its first frame."""
    return Manifest(
        agent=settings.agent_name,
        game=environment,
        seed=seed,
        population=population,
        changed=settings.changed(),
        learns=settings.agent.agent.learns,
        num_scored_episodes=info.num_scored_episodes,
        floor=info.floor,
        network=settings.own_network,
        trusted_code=settings.outside_code,
        started_from=point.about if point else None,
        **conditions(info, device),
    )


def introduction(settings: RunSettings, infos: Sequence[EnvironmentInfo], device: str) -> str:
    """What is trained on what, in one line, and the settings that differ from the agent's own."""
    task, names, unresumable = settings.task(infos[0]), [info.name for info in infos], [info.resume for info in infos]
    networks = settings.agent.agent.networks(settings.config, task)
    shown = ", ".join(dict.fromkeys(names))
    lines = [f"{settings.agent_name} on {shown}: {len(names)} {'trial' if len(names) == 1 else 'trials'}, {device}"]
    lines += [f"network: {text}" for f in networks.values() if (text := getattr(f, "description", ""))]
    if settings.own_network:
        lines.append(f"network: {settings.own_network}")
    decay = getattr(settings.config, "epsilon_decay_frames", 0)
    if decay > 2 * settings.config.frames:
        lines.append(f"exploration falls over {decay:,} frames, so most actions stay random; see --epsilon-decay-frames")
    if changed := settings.changed():
        lines.append("changed: " + ", ".join(f"{name} = {value}" for name, (value, _) in changed.items()))
    lines += [f"no checkpoints, because a run could not be resumed: {text}" for text in dict.fromkeys(unresumable) if text]
    return "\n".join(lines)
