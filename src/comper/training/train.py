"""Trains agents: games x seeds become one population of trials, driven in lockstep, a run folder each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.errors import UsageError
from comper.protocol import ACTION_NAMES, PRESETS, AnyConfig, ComperConfig, ConstantConfig, DQNConfig, ProtocolConfig
from comper.runfolder import run_path
from comper.training.recorder import Recorder, check_is_free
from comper.training.toml import with_settings

if TYPE_CHECKING:
    import torch

    from comper.agents.interface import Agent, TrialSetup
    from comper.environments.stepper import Stepper


def train(
    games: str | Sequence[str],
    agent: str = "comper-single",
    *,
    seed: int = 0,
    trials: int = 1,
    out: str | os.PathLike[str] = "runs",
    device: str = "auto",
    workers: int | None = None,
    show_progress: bool = True,
    **settings: Any,
) -> list[Path]:
    """Train an agent on one or more games and return the run folders, one a trial.

    Trials are the seeds `seed`, `seed` + 1, ... of every game. Any hyper-parameter of the agent (see `comper describe`)
    may be given by name. `workers` processes run the emulators; 0 runs them in this one, None chooses.

    >>> train("freeway", "comper-single", frames=20_000, out="my-runs")
    """
    config = with_settings(preset_config(agent), settings, where="train()")
    names = resolve_games([games] if isinstance(games, str) else games)
    return train_population(
        names,
        agent,
        config,
        seed=seed,
        trials=trials,
        out=Path(out),
        device=device,
        workers=workers,
        show_progress=show_progress,
    )


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
    device: str = "auto",
    workers: int | None = None,
    show_progress: bool = True,
) -> list[Path]:
    """Train one agent on games x seeds. Everything that can be refused is refused before the first frame."""
    if trials < 1 or seed < 0:
        raise UsageError(f"trials = {trials}, seed = {seed}: there must be at least 1 trial, and a seed is 0 or more.")
    pairs = [(game, s) for game in games for s in range(seed, seed + trials)]
    paths = [run_path(out, agent=agent_name, game=game, seed=s) for game, s in pairs]
    for path in paths:
        check_is_free(path)
    torch_device = choose_device(device)

    with _stepper(pairs, config, _num_workers(workers, len(pairs))) as environments:
        _run(pairs, paths, agent_name, config, environments, torch_device, show_progress)
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


def _run(
    pairs: Sequence[tuple[str, int]],
    paths: Sequence[Path],
    agent_name: str,
    config: AnyConfig,
    environments: Stepper,
    device: torch.device,
    show_progress: bool,
) -> None:
    from comper.agents.interface import TrialSetup
    from comper.environments.games import rom_checksum
    from comper.memory.frames import FrameStore
    from comper.training.history import ObservationHistory
    from comper.training.loop import Loop, Trial
    from comper.training.progress import progress
    from comper.training.randomness import streams

    signature = environments.signature
    setups, trials = [], []
    for number, ((game, seed), path) in enumerate(zip(pairs, paths, strict=True)):
        frames = FrameStore(signature.frame_shape, signature.frame_dtype, initial_capacity=_expected_frames(config))
        weights, exploration, sampling, _ = streams(seed)
        setups.append(TrialSetup(frames, weights=weights, exploration=exploration, sampling=sampling))
        about = {"agent": agent_name, "game": game, "seed": seed, "device": _device_name(device)}
        record = Recorder(path, config, about | {"rom_md5": rom_checksum(game)})
        trials.append(Trial(number, game, seed, ObservationHistory(frames, config.history_length), record))
    agent = make_agent(config, setups, num_actions=signature.num_actions, device=device)
    loop = Loop(config, agent, environments, trials)
    with progress(trials, config.frames) if show_progress else nullcontext() as watcher:
        loop.run(watcher)


def _stepper(pairs: Sequence[tuple[str, int]], config: ProtocolConfig, num_workers: int) -> Stepper:
    from comper.environments.atari import AtariFactory
    from comper.environments.stepper import ProcessStepper, SerialStepper
    from comper.training.randomness import environment_seed

    factories = [AtariFactory(game, environment_seed(seed), config) for game, seed in pairs]
    if num_workers:
        return ProcessStepper(factories, num_workers=num_workers)
    return SerialStepper([factory() for factory in factories])


def _num_workers(workers: int | None, num_trials: int) -> int:
    """Emulator processes: worth their hand-off only where several trials and several cores meet."""
    if workers is not None:
        if workers < 0:
            raise UsageError(f"workers = {workers}: must be 0 or more.")
        return workers
    cores = os.cpu_count() or 1
    return min(num_trials, cores - 1) if num_trials > 1 and cores > 2 else 0


def _expected_frames(config: ProtocolConfig) -> int:
    """Frames a trial may see at most before its store has to grow; untouched memory costs nothing."""
    return min(200_000, (config.frames + config.episode_cap_frames) // config.frame_skip + 256)


def _device_name(device: torch.device) -> str:
    import torch

    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else "cpu"
