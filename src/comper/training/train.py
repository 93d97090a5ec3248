"""Trains agents: games x seeds become one population of trials, driven in lockstep, a run folder each."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.errors import UsageError
from comper.protocol import ACTION_NAMES, PRESETS, AnyConfig, ComperConfig, ConstantConfig, DQNConfig, ProtocolConfig
from comper.runs.folder import run_path
from comper.settings import to_toml, with_settings

if TYPE_CHECKING:
    import torch

    from comper.agents.interface import Agent, TrialSetup
    from comper.environments.stepper import Stepper
    from comper.training.resume import StartingPoint


@dataclass(frozen=True)
class RunOptions:
    """How runs are run: what changes their cost, not their results."""

    device: str = "auto"
    workers: int | None = None
    """Processes for the emulators; 0: none, None: by trials and cores."""
    checkpoint_period_steps: int | None = None
    """0: never, None: every 5,000 steps or two minutes."""
    show_progress: bool = True

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 0:
            raise UsageError(f"workers = {self.workers}: must be 0 or more.")
        if self.checkpoint_period_steps is not None and self.checkpoint_period_steps < 0:
            raise UsageError(f"checkpoint_period_steps = {self.checkpoint_period_steps}: must be 0 (never) or more.")

    @property
    def with_checkpoints(self) -> bool:
        return self.checkpoint_period_steps != 0

    def num_workers(self, num_trials: int) -> int:
        """Emulator processes: worth their hand-off only where several trials and several cores meet."""
        if self.workers is not None:
            return self.workers
        cores = os.cpu_count() or 1
        return min(num_trials, cores - 1) if num_trials > 1 and cores > 2 else 0


DEFAULT_OPTIONS = RunOptions()


def train(
    games: str | Sequence[str],
    agent: str = "comper-single",
    *,
    seed: int = 0,
    trials: int = 1,
    out: str | os.PathLike[str] = "runs",
    device: str = "auto",
    workers: int | None = None,
    checkpoint_period_steps: int | None = None,
    show_progress: bool = True,
    **settings: Any,
) -> list[Path]:
    """Train an agent on one or more games and return the run folders, one a trial.

    Trials are the seeds `seed`, `seed` + 1, ... of every game. Any hyper-parameter of the agent (see `comper describe`)
    may be given by name. `workers` processes run the emulators; 0 runs them in this one, None chooses. A checkpoint is
    written every `checkpoint_period_steps` agent steps; 0: never, None: every 5,000 steps or two minutes.

    >>> train("freeway", "comper-single", frames=20_000, out="my-runs")
    """
    config = with_settings(preset_config(agent), settings, where="train()")
    names = resolve_games([games] if isinstance(games, str) else games)
    options = RunOptions(device, workers, checkpoint_period_steps, show_progress)
    return train_population(names, agent, config, seed=seed, trials=trials, out=Path(out), options=options)


def preset_config(agent: str) -> AnyConfig:
    """The paper's settings for an agent."""
    if agent not in PRESETS:
        raise UsageError(f"Unknown agent {agent!r}. Agents: {', '.join(PRESETS)}.")
    return PRESETS[agent].config


def resolve_games(names: Sequence[str]) -> list[str]:
    """Canonical names of games; `paper` stands for the paper's eight."""
    from comper.environments.games import resolve_game
    from comper.protocol import PAPER_GAMES

    expanded = [game for name in names for game in (PAPER_GAMES if name == "paper" else [resolve_game(name)])]
    return list(dict.fromkeys(expanded))


def train_population(
    games: Sequence[str],
    agent_name: str,
    config: AnyConfig,
    *,
    seed: int,
    trials: int,
    out: Path,
    options: RunOptions = DEFAULT_OPTIONS,
) -> list[Path]:
    """Train one agent on games x seeds. Everything that can be refused is refused before the first frame."""
    if trials < 1 or seed < 0:
        raise UsageError(f"trials = {trials}, seed = {seed}: there must be at least 1 trial, and a seed is 0 or more.")
    pairs = [(game, s) for game in games for s in range(seed, seed + trials)]
    return train_pairs(pairs, agent_name, config, out=out, options=options)


def train_pairs(
    pairs: Sequence[tuple[str, int]],
    agent_name: str,
    config: AnyConfig,
    *,
    out: Path,
    options: RunOptions = DEFAULT_OPTIONS,
    starting_points: Sequence[StartingPoint] | None = None,
) -> list[Path]:
    """Train one agent on (game, seed) pairs, each from weights of its own choice where starting points are given."""
    from comper.runs.manifest import Manifest
    from comper.runs.recorder import Recorder, check_can_begin
    from comper.training import preflight
    from comper.training.conditions import conditions
    from comper.training.population import Member, run_population

    paths = [run_path(out, agent=agent_name, game=game, seed=s) for game, s in pairs]
    config_text = to_toml(config)
    for path in paths:
        check_can_begin(path, config_text)
    torch_device = choose_device(options.device)
    needs = preflight.check(config, trials=len(pairs), out=out, with_checkpoints=options.with_checkpoints)
    if options.show_progress:
        print(f"needs {needs}", file=sys.stderr)
    population = [f"{game}/seed-{s}" for game, s in pairs]
    with ExitStack() as stack:
        environments = stack.enter_context(make_stepper(pairs, config, options.num_workers(len(pairs))))
        members = []
        for number, ((game, s), path) in enumerate(zip(pairs, paths, strict=True)):
            point = starting_points[number] if starting_points else None
            manifest = Manifest(
                agent=agent_name,
                game=game,
                seed=s,
                **conditions(game, torch_device),
                population=population,
                started_from=point.about if point else None,
            )
            record = Recorder.create(path, config_text, manifest)
            stack.callback(record.close)
            members.append(Member(game, s, record, weights=point.weights if point else None))
        run_population(members, config, make_agent, environments, torch_device, options=options)
    return paths


def choose_device(name: str) -> torch.device:
    """The device to learn on: `auto` is a GPU where there is one."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"Unknown device {name!r}. Devices: auto, cpu, cuda.")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: PyTorch sees no CUDA GPU on this machine. Use --device cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def make_agent(config: AnyConfig, setups: Sequence[TrialSetup], *, num_actions: int, device: torch.device) -> Agent:
    """The agent that a configuration describes, for one trial per set-up."""
    if isinstance(config, ComperConfig):
        from comper.agents.comper import ComperAgent

        return ComperAgent(config, setups, num_actions=num_actions, device=device)
    if isinstance(config, DQNConfig):
        from comper.agents.dqn import DQNAgent

        return DQNAgent(config, setups, num_actions=num_actions, device=device)
    from comper.agents.floors import ConstantAgent, RandomAgent

    if isinstance(config, ConstantConfig):
        return ConstantAgent(setups, num_actions=num_actions, action=ACTION_NAMES.index(config.action))
    return RandomAgent(setups, num_actions=num_actions)


def make_stepper(pairs: Sequence[tuple[str, int]], config: ProtocolConfig, num_workers: int) -> Stepper:
    """The emulators of (game, seed) pairs, in this process or in workers."""
    from comper.environments.atari import AtariFactory
    from comper.environments.stepper import ProcessStepper, SerialStepper
    from comper.training.randomness import environment_seed

    factories = [AtariFactory(game, environment_seed(seed), config) for game, seed in pairs]
    if num_workers:
        return ProcessStepper(factories, num_workers=num_workers)
    return SerialStepper([factory() for factory in factories])
