"""What an agent is: a configuration, a class, and a name for both. `examples/my_agent.py` is one from outside.

T trials advance in lockstep. A trial is known by its number, 0 to T-1, and every array has one row for each of the trials
named in the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from comper.errors import UsageError
from comper.memory.frames import FrameStore
from comper.memory.transitions import Transition
from comper.protocol import AgentConfig

if TYPE_CHECKING:  # torch takes a second to import, and naming agents must not
    import torch

    from comper.networks.cnn import OutputLayer

NetworkFactory = Callable[[], "torch.nn.Module"]


@dataclass(frozen=True)
class Task:
    """What an agent must know of its environment, and the network that the user wants for it, if any."""

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    observation_kind: str
    """pixels or vector."""
    action_names: tuple[str, ...]
    make_network: Callable[[tuple[int, ...], int], torch.nn.Module] | None = None
    """(shape of a state, number of actions) -> module that maps a batch of states to Q-values (B, actions)."""

    @property
    def num_actions(self) -> int:
        return len(self.action_names)

    @property
    def has_channels_first(self) -> bool:
        """Whether observations are pictures (channels, height, width)."""
        from comper.networks.cnn import ObservationSpec

        spec = ObservationSpec(self.observation_shape, kind=self.observation_kind)
        return spec.is_image and spec.channel_axis == 0

    def state_bytes(self, history_length: int, *, residual_width: int = 0) -> int:
        """Bytes that one state takes on its way through the Q-network and back; 0 for a user's own, of which it is unknown."""
        return 0 if self.make_network is not None else _state_bytes(self, history_length, residual_width)

    def q_network(
        self,
        history_length: int,
        *,
        first_bias: bool = True,
        output: OutputLayer | None = None,
        residual_width: int = 0,
        layer_norm: bool = False,
    ) -> NetworkFactory:
        """The user's own network, or one that fits the observations; with a `residual_width` IMPALA's, so wide."""
        from comper.networks.cnn import ObservationSpec, make_q_network
        from comper.networks.residual import make_residual_network
        from comper.networks.stacking import Linear

        if self.make_network is not None:
            return partial(self.make_network, (history_length, *self.observation_shape), self.num_actions)
        observation = ObservationSpec(self.observation_shape, history_length, kind=self.observation_kind)
        if residual_width:
            return make_residual_network(
                residual_width, observation, self.num_actions, output=output or Linear, layer_norm=layer_norm
            )
        return make_q_network(observation, self.num_actions, first_bias=first_bias, output=output or Linear)


@cache
def _state_bytes(task: Task, history_length: int, residual_width: int) -> int:
    import torch

    from comper.networks.inspection import sample_bytes

    shape, dtype = (history_length, *task.observation_shape), torch.from_numpy(np.empty(0, task.observation_dtype)).dtype
    network = task.q_network(history_length, residual_width=residual_width)
    return sample_bytes(network, lambda n: [torch.zeros((n, *shape), dtype=dtype)])


@dataclass(frozen=True)
class TrialSetup:
    """What one trial brings along: its frames and its own random streams."""

    frames: FrameStore
    weights: np.random.Generator
    exploration: np.random.Generator
    sampling: np.random.Generator


class Part(Protocol):
    """A memory or a network of an agent: what is saved in a checkpoint, trial by trial.

    A network also has `weights(trial)` and `load_weights(trial, weights)`, and its state has them under `weights`. A
    memory of frames may have `held(trial)`: the frames and actions it refers to, with which a state read back is checked.
    """

    def state_dict(self, trial: int) -> dict[str, Any]: ...

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None: ...


class MemoryEstimate(NamedTuple):
    """The most that one trial can come to hold, known before its first frame."""

    num_transitions: int = 0
    """Transitions remembered at once; the frames of no others are kept."""
    table_bytes: int = 0
    """Of the memories, besides the frames."""
    network_bytes: int = 0
    """Of all weights with their optimisers' averages."""
    batch_bytes: int = 0
    """Of the largest batch on its way through the networks."""


class Agent(ABC):
    """What the training loop asks of an agent. Only `act` must be written; an agent that learns writes the others too."""

    parts: Mapping[str, Part] = {}
    """Name -> memory or network; a part with `weights(trial)` is a network."""

    learns: ClassVar[bool] = True
    """Whether it learns, and has weights that are worth saving."""

    metric_labels: ClassVar[Mapping[str, str]] = {}
    """Metrics worth showing while training, and their short names."""

    def __init__(self, config: Any, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):  # noqa: B027
        """Keep what the agent needs of these: its settings, the environment, and each trial's frames and random streams."""

    @abstractmethod
    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Choose an action for each state, given as frame ids (n, history), and its Q-value."""

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:  # noqa: B027 -- may do nothing
        """Remember a transition; `is_last` when its episode ends there, by a game over or by the frame cap."""

    def learn(self, t: int, trials: Sequence[int]) -> None:  # noqa: B027 -- may do nothing
        """Learn, if it is time to, after t agent steps."""

    def epsilon(self, *, frames: int, steps: int) -> float:
        """The exploration rate after so many frames and agent steps of a trial."""
        return 0.0

    def is_finite(self) -> bool:
        """Whether every loss since the last `metrics` was a finite number; asked at every step."""
        return True

    def metrics(self, trial: int) -> dict[str, Any]:
        """What metrics.jsonl records of a trial besides the loop's own counters; losses are means since the last call."""
        return {}

    def q_values(self, states: NDArray[np.int64], trials: Sequence[int]) -> NDArray[np.float32]:
        """Q(s, ·) of states given as frame ids (n, history)."""
        learner: Any = self.parts.get("q_network")
        if learner is None:
            raise UsageError("This agent has no Q-values.")
        values: NDArray[np.float32] = learner.values(states[:, None], trials)[:, 0].cpu().numpy()
        return values

    @property
    def has_q_values(self) -> bool:
        """Whether it can say what it expects of each action."""
        return "q_network" in self.parts or type(self).q_values is not Agent.q_values

    # What is asked before an agent is made and anything is written.

    @classmethod  # noqa: B027 -- may do nothing
    def check(cls, config: Any, task: Task) -> None:
        """Raise UsageError where the configuration does not fit the environment."""

    @classmethod
    def networks(cls, config: Any, task: Task) -> dict[str, NetworkFactory]:
        """The networks by name, for `comper describe` and the memory estimate."""
        return {}

    @classmethod
    def memory_estimate(cls, config: Any, task: Task) -> MemoryEstimate:
        """The most that one trial can come to hold."""
        return MemoryEstimate()

    # Saved and read back: the parts, each by its name.

    def state_dict(self, trial: int) -> dict[str, Any]:
        """Everything that a resumed trial needs, besides its frames and random streams."""
        return {name: part.state_dict(trial) for name, part in self.parts.items()}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote; the trial's frame store must have been read back before."""
        for name, part in self.parts.items():
            part.load_state_dict(trial, state[name])

    def weights(self, trial: int) -> dict[str, Any]:
        """One trial's weights: network -> parameter -> values."""
        return {name: part.weights(trial) for name, part in self.parts.items() if hasattr(part, "weights")}

    def load_weights(self, trial: int, weights: Mapping[str, Any]) -> None:
        """Take over weights that `weights` returned."""
        if set(weights) != set(self.weights(trial)):
            raise ValueError("the saved weights are of another network than this agent has")
        for name, part in self.parts.items():
            if hasattr(part, "load_weights"):
                part.load_weights(trial, weights[name])


@dataclass(frozen=True)
class AgentSpec:
    """An agent as `comper train --agent NAME` knows it: a class with a configuration of its own."""

    name: str
    summary: str
    agent: type[Agent]
    config: AgentConfig
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment that this agent has otherwise, where the environment has them."""
    in_family: Mapping[str, AgentConfig] = field(default_factory=dict)
    """The agent's settings in a family of environments, where they are others, by its extra: `atari`, `minatar`."""
