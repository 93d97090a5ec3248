"""Runs before their first frame: everything that can be refused is refused, then their folders are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.environments.environment import EnvironmentInfo, EnvironmentSpec
from comper.runs.folder import run_path
from comper.runs.manifest import Manifest
from comper.runs.recorder import Recorder, check_can_begin, create_all
from comper.training import preflight
from comper.training.conditions import conditions
from comper.training.options import RunOptions, RunSettings

if TYPE_CHECKING:
    import torch

Pair = tuple[EnvironmentSpec, int]
"""A trial: its environment and its seed."""


@dataclass(frozen=True)
class StartingPoint:
    """Weights of another run, and where they are from."""

    weights: dict[str, Any]
    about: dict[str, Any]


@dataclass(frozen=True)
class Beginning:
    """Trials of one agent that have passed every check, and have no folders yet."""

    pairs: Sequence[Pair]
    settings: RunSettings
    out: Path
    device: torch.device
    points: Sequence[StartingPoint | None]
    needs: preflight.Needs

    @property
    def paths(self) -> list[Path]:
        return paths_of(self.pairs, self.settings, self.out)

    def create(self, infos: Sequence[EnvironmentInfo], populations: Sequence[Sequence[str]]) -> list[Recorder]:
        """Make the folders; each run records the population it belongs to."""
        manifests = [
            new_manifest(
                self.settings, spec.name, seed, info=info, device=self.device, population=list(population), point=point
            )
            for (spec, seed), info, population, point in zip(self.pairs, infos, populations, self.points, strict=True)
        ]
        return create_all(self.paths, self.settings.to_toml(), manifests)


def begin(
    pairs: Sequence[Pair], settings: RunSettings, *, out: Path, options: RunOptions, population: Sequence[Pair]
) -> list[Path]:
    """Make the folders of trials that are run elsewhere, or later; each records the whole population."""
    with options.torch_threads(options.torch_device()):
        beginning = check_beginning(pairs, settings, out=out, options=options)
        infos = [spec.info(settings.environment) for spec, _ in pairs]
        for record in beginning.create(infos, [trial_names(population)] * len(pairs)):
            record.close()
    return beginning.paths


def check_beginning(
    pairs: Sequence[Pair],
    settings: RunSettings,
    *,
    out: Path,
    options: RunOptions,
    num_processes: int = 1,
    points: Sequence[StartingPoint | None] | None = None,
) -> Beginning:
    """Refuse what cannot be begun, before anything is written."""
    for path in paths_of(pairs, settings, out):
        check_can_begin(path, settings.to_toml())
    device = options.torch_device()
    # One environment is asked before all are made: thousands of trials that do not fit take no memory.
    first = pairs[0][0].info(settings.environment)
    settings.check(first)
    needs = preflight.check(
        settings,
        first,
        trials=len(pairs),
        at_once=num_at_once(len(pairs), num_processes, device),
        processes=num_processes,
        out=out,
        with_checkpoints=options.with_checkpoints,
    )
    return Beginning(pairs, settings, out, device, points or [None] * len(pairs), needs)


def num_at_once(num_trials: int, num_processes: int, device: torch.device) -> int:
    """How many trials are in memory together: on a CPU each process runs one after another, which is as fast."""
    return num_processes if num_processes > 1 and device.type == "cpu" else num_trials


def paths_of(pairs: Sequence[Pair], settings: RunSettings, out: Path) -> list[Path]:
    """Where trials are kept."""
    return [run_path(out, agent=settings.agent_name, game=spec.name, seed=seed) for spec, seed in pairs]


def trial_names(pairs: Sequence[Pair]) -> list[str]:
    """Trials as a manifest names them."""
    return [f"{spec.name}/seed-{seed}" for spec, seed in pairs]


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
