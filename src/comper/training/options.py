"""What a run is given: settings, which decide its results, and options, which change its cost alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comper.agents.agent import AgentSpec, Task
from comper.agents.registry import find_agent
from comper.environments.environment import EnvironmentInfo, EnvironmentSettings, EnvironmentSpec
from comper.environments.families import FAMILIES, extra_of, family_settings, find_environment, outside_module
from comper.environments.floors import Floors
from comper.errors import ComperError, DamagedFileError, OtherVersionError, OutsideCodeError, UsageError
from comper.importing import is_outside_name, load_object
from comper.processes import can_start_processes, usable_cores
from comper.protocol import AgentConfig
from comper.runs.files import digest, read_file
from comper.runs.folder import CONFIG_FILE
from comper.runs.manifest import Manifest
from comper.settings import (
    MAX_TOML_BYTES,
    Settings,
    changed_settings,
    fields_of,
    parse_settings,
    switched_off,
    to_toml,
    with_settings,
)
from comper.training.gpu_sharing import num_gpu_processes
from comper.training.hooks import AnyHook, Hook

if TYPE_CHECKING:
    import torch

NetworkMaker = Callable[[tuple[int, ...], int], "torch.nn.Module"]
Trusted = tuple[str, ...] | None
"""Modules from outside comper that may be imported; None: any, because the user has typed their names."""

AUTO = "auto"
FROM_PYTHON = "python:"
"""Before the name of an object that was handed over from Python and cannot be found again by its name."""

MAX_PROCESSES = 4_096
MAX_THREADS = 64
"""A manifest may be anyone's: what asks for more threads gets those that torch has."""


@dataclass(frozen=True)
class RunOptions:
    """How runs are run: what changes their cost, not their results."""

    device: str = "auto"
    workers: int | None = None
    """Processes for the environments; 0: none, None: by trials and cores."""
    checkpoint_period_steps: int | None = None
    """0: never, None: every 5,000 steps or two minutes."""
    show_progress: bool = True
    processes: int | None = None
    """Processes for the trials; None: on a CPU one per core."""
    threads: int | None = None
    """Of torch, for each trial; None: one on a CPU, torch's own number beside a GPU. The last bits depend on it."""
    hooks: tuple[AnyHook, ...] = ()
    """Called while trials run; see hooks.py."""
    floors: Floors | None = None
    """Floors that the user has measured, with those of the package; None: the package's alone."""

    def __post_init__(self) -> None:
        if self.workers is not None and not 0 <= self.workers <= MAX_PROCESSES:
            raise UsageError(f"workers = {self.workers}: must be 0 or more, at most {MAX_PROCESSES:,}.")
        if self.processes is not None and not 1 <= self.processes <= MAX_PROCESSES:
            raise UsageError(f"processes = {self.processes}: must be 1 or more, at most {MAX_PROCESSES:,}.")
        if self.threads is not None and not 1 <= self.threads <= MAX_THREADS:
            raise UsageError(f"threads = {self.threads}: must be 1 or more, at most {MAX_THREADS}.")
        if self.checkpoint_period_steps is not None and self.checkpoint_period_steps < 0:
            raise UsageError(f"checkpoint_period_steps = {self.checkpoint_period_steps}: must be 0 (never) or more.")

    @property
    def needs_this_process(self) -> bool:
        """Whether a hook is a Python object, which cannot be sent to another process as its maker can."""
        return any(isinstance(hook, Hook) for hook in self.hooks)

    @property
    def with_checkpoints(self) -> bool:
        return self.checkpoint_period_steps != 0

    def num_workers(self, num_trials: int) -> int:
        """Processes for the environments: worth their hand-off only where several trials and several cores meet."""
        if self.workers is not None:
            return self.workers
        cores = usable_cores()
        return min(num_trials, cores - 1) if num_trials > 1 and cores > 2 else 0

    def num_processes(self, num_trials: int, device: torch.device) -> int:
        """Processes for the trials, at most one each."""
        if self.needs_this_process or not can_start_processes():
            return 1
        if device.type == "cpu":
            return min(self.processes or usable_cores(), num_trials)
        return num_gpu_processes(num_trials, wanted=self.processes)

    def shared_by(self, num_processes: int, num_trials: int) -> RunOptions:
        """The options of one of several processes: a quiet one, with its share of the workers."""
        spare = max(0, usable_cores() // num_processes - 1)
        workers = min(num_trials, spare) if self.workers is None else -(-self.workers // num_processes)
        return dataclasses.replace(self, processes=1, workers=workers if num_trials > 1 else 0, show_progress=False)

    @contextmanager
    def torch_threads(self, device: torch.device, recorded: int | None = None) -> Iterator[None]:
        """Compute with the threads of these options, or of a recorded run, for a while."""
        import torch

        before = torch.get_num_threads()
        wanted = recorded or self.threads or (1 if device.type == "cpu" else before)
        if wanted != before and wanted <= MAX_THREADS:
            torch.set_num_threads(wanted)
        try:
            yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)

    def torch_device(self) -> torch.device:
        """The device to learn on: `auto` is a GPU where there is one."""
        import torch

        if self.device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"Unknown device {self.device!r}. Devices: auto, cpu, cuda.")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device cuda: PyTorch sees no CUDA GPU on this machine. Use --device cpu or auto.")
        return torch.device("cuda" if self.device != "cpu" and torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class RunSettings:
    """What decides the results of a run: its agent, and every setting of the agent and of the environment."""

    agent_name: str
    agent: AgentSpec
    config: AgentConfig
    environment: EnvironmentSettings
    network: NetworkMaker | None = None
    """The user's own, where `config.network` names one."""

    @property
    def parts(self) -> tuple[AgentConfig, EnvironmentSettings]:
        return self.config, self.environment

    def to_toml(self) -> str:
        """Every setting, as config.toml keeps it."""
        return to_toml(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Every setting by its name."""
        return {f.name: getattr(part, f.name) for part in self.parts for f in dataclasses.fields(part)}

    def changed(self) -> dict[str, list[Any]]:
        """Settings that differ from the agent's own: name -> [value, default]."""
        return changed_settings(self.parts, default_settings(self.agent, type(self.environment)()))

    def task(self, info: EnvironmentInfo) -> Task:
        """What the agent must know of the environment."""
        return Task(info.observation_shape, info.observation_dtype, info.observation_kind, info.action_names, self.network)

    def check(self, info: EnvironmentInfo) -> None:
        """Refuse what does not fit the environment, before anything is written."""
        self.agent.agent.check(self.config, self.task(info))
        if self.network is not None:
            _check_network(self.network, (self.config.history_length, *info.observation_shape), info.num_actions)

    def check_recorded(self, folder: Path, info: EnvironmentInfo) -> None:
        """Refuse settings of a run that it cannot have been made with."""
        try:
            self.agent.agent.check(self.config, self.task(info))
        except OutsideCodeError:
            raise
        except UsageError as error:
            raise DamagedFileError(f"{folder / CONFIG_FILE}: {error}") from None

    @property
    def own_network(self) -> str | None:
        """The name of the user's own network, if there is one."""
        name: str = getattr(self.config, "network", AUTO)
        return None if name == AUTO else name

    @property
    def outside_code(self) -> list[str]:
        """Names of code from outside comper that the agent needs."""
        return [name for name in (self.agent_name, self.own_network) if name is not None and is_outside_name(name)]


def resolve_settings(
    agent: str | AgentSpec,
    environments: Sequence[EnvironmentSpec],
    values: Mapping[str, Any],
    *,
    where: str,
    network: NetworkMaker | None = None,
    trusted: Trusted = None,
    arguments: Sequence[str] = (),
) -> RunSettings:
    """The agent's settings and the environment's, changed by the given values; everything wrong is refused here."""
    name, spec = named_agent(agent, trusted)
    _refuse_other_families(environments, spec, values, where)
    defaults = default_settings(spec, _common_settings(environments))
    config, environment = with_settings(defaults, values, where=where, arguments=arguments)
    wanted = getattr(config, "network", AUTO)
    if network is not None:
        if not callable(network):
            raise UsageError(f"{where}: network = {network!r}: give a function (state_shape, num_actions) -> torch.nn.Module.")
        if wanted == AUTO and not hasattr(config, "network"):
            raise UsageError(f"{where}: the agent {name} has no network.")
        config = dataclasses.replace(config, network=f"{FROM_PYTHON}{_name_of(network)}")
    elif wanted.startswith(FROM_PYTHON):
        raise UsageError(f"{where}: the network {wanted} was handed over from Python; hand it over again as network=...")
    elif wanted != AUTO:
        network = load_object(_checked_name(wanted, where), what="the network", trusted=trusted)
    return RunSettings(name, spec, config, environment, network)


def _refuse_other_families(
    environments: Sequence[EnvironmentSpec], agent: AgentSpec, values: Mapping[str, Any], where: str
) -> None:
    known = {f.name for part in (agent.config, environments[0].settings) for f in dataclasses.fields(part)}
    for family, settings in family_settings().items():
        for f in dataclasses.fields(settings):
            if f.name in values and f.name not in known:
                raise UsageError(f"{where}: {f.name} is not a setting of {environments[0].name}, but of each {family}.")


def _name_of(network: NetworkMaker) -> str:
    return getattr(network, "__name__", type(network).__name__)  # a partial has no name of its own


def _check_network(make: NetworkMaker, state_shape: tuple[int, ...], num_actions: int) -> None:
    from comper.networks.inspection import check_q_network

    try:
        check_q_network(partial(_made_network, make, state_shape, num_actions), state_shape, num_actions)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except ComperError:
        raise
    except Exception as error:  # the code of others
        raise OutsideCodeError(f"The network fails ({type(error).__name__}: {error}).") from error


def _made_network(make: NetworkMaker, state_shape: tuple[int, ...], num_actions: int) -> Any:
    try:
        return make(state_shape, num_actions)
    except Exception as error:  # the code of others
        reason = f"{type(error).__name__}: {error}"
        raise OutsideCodeError(f"{_name_of(make)}(state_shape, num_actions) fails ({reason}).") from error


def _checked_name(name: str, where: str) -> str:
    if not is_outside_name(name):
        raise UsageError(f"{where}: network = {name!r}: must be auto, or my_module:make_network.")
    return name


def named_agent(agent: str | AgentSpec, trusted: Trusted = None) -> tuple[str, AgentSpec]:
    """An agent with the name under which a run records it."""
    if isinstance(agent, AgentSpec):
        return f"{FROM_PYTHON}{agent.name}", _whole(agent)
    if not isinstance(agent, str):
        raise UsageError(f"The agent is a {type(agent).__name__}: give its name, or an AgentSpec.")
    return agent, _whole(find_agent(agent, trusted=trusted))


def _whole(agent: AgentSpec) -> AgentSpec:
    if lacking := sorted(getattr(agent.agent, "__abstractmethods__", ())):
        raise UsageError(f"The agent {agent.name} lacks {', '.join(lacking)}: its class must have each of them as a method.")
    known = [family.extra for family in FAMILIES.values()]
    for name, config in agent.in_family.items():
        if name not in known:
            raise UsageError(f"The agent {agent.name} has settings in_family {name!r}: write one of {', '.join(known)}.")
        if type(config) is not type(agent.config):
            wanted, given = type(agent.config).__name__, type(config).__name__
            raise UsageError(f"The agent {agent.name} has settings in_family {name!r} of type {given}: give a {wanted}.")
    return agent


def default_settings(spec: AgentSpec, environment: EnvironmentSettings) -> tuple[AgentConfig, EnvironmentSettings]:
    """An agent's own settings in a family of environments, and the environment's with what the agent has otherwise."""
    known = {f.name for f in dataclasses.fields(environment)}
    changes = {name: value for name, value in spec.environment.items() if name in known}
    config = spec.in_family.get(extra_of(environment), spec.config)
    return config, dataclasses.replace(environment, **changes)


def _common_settings(environments: Sequence[EnvironmentSpec]) -> EnvironmentSettings:
    first, *others = environments
    for other in others:
        if type(other.settings) is not type(first.settings):
            raise UsageError(f"{first.name} and {other.name} cannot be trained together: give each a command of its own.")
    return first.settings


def can_be_sent(settings: RunSettings, environments: Sequence[EnvironmentSpec]) -> bool:
    """Whether another process can find everything by its name; what was handed over from Python stays where it is."""
    names = (settings.agent_name, settings.own_network or "")
    return all(spec.is_picklable for spec in environments) and not any(name.startswith(FROM_PYTHON) for name in names)


def outside_modules(settings: RunSettings, environments: Iterable[str]) -> list[str]:
    """The modules from outside comper that a run needs, which `--trust` must name."""
    modules = [name.partition(":")[0] for name in settings.outside_code]
    modules += [module for name in environments if (module := outside_module(name)) is not None]
    return list(dict.fromkeys(modules))


# The settings of a recorded run.


@dataclass(frozen=True)
class OwnCode:
    """The user's own code that a recorded run needs: handed over from Python, or trusted by the name of its module."""

    agent: AgentSpec | None = None
    environment: Callable[[], Any] | None = None
    network: NetworkMaker | None = None
    trusted: tuple[str, ...] = ()


NO_OWN_CODE = OwnCode()


def recorded_environment(manifest: Manifest, own: OwnCode) -> EnvironmentSpec:
    """The environment a run was made in."""
    if not manifest.game.startswith(FROM_PYTHON):
        return find_environment(manifest.game, trusted=own.trusted)
    spec = find_environment(_handed_over(own.environment, "environment", manifest.game))
    if spec.name != manifest.game:
        raise OutsideCodeError(f"The run was made in {manifest.game}, not in {spec.name}.")
    return spec


def recorded_settings(folder: Path, manifest: Manifest, own: OwnCode) -> RunSettings:
    """The settings a run was made with, which must be those it was started with; those added since are as before them."""
    path = folder / CONFIG_FILE
    agent: str | AgentSpec = manifest.agent
    if manifest.agent.startswith(FROM_PYTHON):
        agent = _handed_over(own.agent, "agent", manifest.agent)
        if named_agent(agent)[0] != manifest.agent:
            raise OutsideCodeError(f"{folder}: a run of the agent {manifest.agent}, not of {named_agent(agent)[0]}.")
    content = read_file(path, max_bytes=MAX_TOML_BYTES)
    is_as_written = digest(content)["sha256"] == manifest.config_sha256
    try:
        values = parse_settings(content, where=str(path))
        environment = recorded_environment(manifest, own)
        if is_as_written:
            parts = default_settings(named_agent(agent, own.trusted)[1], environment.settings)
            values |= _settings_since(values, parts, folder, manifest)
        if str(values.get("network")).startswith(FROM_PYTHON):
            _handed_over(own.network, "network", str(values.pop("network")))
        settings = resolve_settings(
            agent,
            [environment],
            values,
            where=str(path),
            network=own.network,
            trusted=own.trusted,
        )
    except (OutsideCodeError, OtherVersionError):
        raise
    except UsageError as error:
        raise DamagedFileError(str(error)) from None
    if not is_as_written:
        raise DamagedFileError(f"{path}: not the configuration the run was started with. Put it back, or begin a new run.")
    return settings


def _settings_since(
    recorded: Mapping[str, Any], parts: Sequence[Settings], folder: Path, manifest: Manifest
) -> dict[str, Any]:
    """Settings that there were not yet when a run was recorded, each with what was done before it."""
    known = {f.name: f.metadata["before"] for _, f in fields_of(parts)}
    since = {name: before for name, before in known.items() if name not in recorded and before is not None}
    lacking = sorted(set(known) - set(recorded) - set(since))
    unknown = sorted(set(recorded) - set(known) - switched_off(parts, recorded))
    if lacking or unknown:
        differences = [f"does not have {', '.join(lacking)}"] * bool(lacking)
        differences += [f"has {', '.join(unknown)}, which nothing here knows"] * bool(unknown)
        made_by = f"comper {manifest.versions.get('comper', '0.2')}" + (f" ({manifest.commit})" if manifest.commit else "")
        raise OtherVersionError(
            f"{folder}: made by another version, {made_by}, with other settings: the run {' and '.join(differences)}."
            " Go on with that version, or begin a new run; `comper report` and `comper verify` still read it."
        )
    return since


def _handed_over(thing: Any, what: str, name: str) -> Any:
    if thing is None:
        raise OutsideCodeError(
            f"The {what} {name} was handed over from Python: hand it over again, from Python, as {what}=..."
        )
    return thing
