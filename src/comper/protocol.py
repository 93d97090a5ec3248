"""The paper's numbers, named, with their source (arXiv 2111.06907), and the presets made of them.

A `source` names the paper's table, section or algorithm; where the paper is silent it names the entry of
`docs/deviations.md` that says what was chosen and why (A# = the paper is silent, D# = this project differs).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

NUM_ACTIONS = 18
"""The full ALE action set, for every game. Table 3."""

ACTION_NAMES = (
    "NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE", "RIGHTFIRE",
    "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE",
)  # fmt: skip
"""ALE's own names, in ALE's own order."""

MAX_COUNT = 10**12
"""More than any machine could count to in a run: a larger number is a slip."""

TRIALS = 5
"""Trials of each agent on each game. Table 3."""

PAPER_GAMES = (
    "freeway", "asteroids", "battle_zone", "video_pinball", "seaquest", "asterix", "beam_rider", "space_invaders",
)  # fmt: skip
"""The eight games, in the order of the paper's Tables 1 and 2."""

FEW_EPISODE_GAMES = frozenset({"freeway", "battle_zone", "video_pinball", "beam_rider"})
"""Games marked * in Tables 1 and 2: scored on their last 3 episodes, because they have few."""


def num_scored_episodes(game: str) -> int:
    """How many of a trial's last episodes Table 1 averages: 10, or 3 for the games with few episodes."""
    return 3 if game in FEW_EPISODE_GAMES else 10


def setting(default: Any, source: str, help: str, choices: tuple[str, ...] = ()) -> Any:
    """A hyper-parameter: its value in the preset, its source in the paper, and what it is, with its unit."""
    return field(default=default, metadata={"source": source, "help": help, "choices": choices})


def _fields_where(config: ProtocolConfig, condition: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(config) if condition(f)]


def _must_be_positive(f: dataclasses.Field[Any]) -> bool:
    return f.type == "int" or f.name in {"step_size", "qlstm_step_size"}


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} = {value!r}: must be {rule}.")


@dataclass(frozen=True, kw_only=True)
class ProtocolConfig:
    """What every agent shares: the frame budget and the game as the agent meets it."""

    frames: int = setting(100_000, "Table 3", "emulator frames to learn from; the episode running then is played out")
    frame_skip: int = setting(5, "Table 3", "frames an action lasts before the next observation")
    sticky_probability: float = setting(
        0.25, "Table 3", "chance, per frame, that the emulator repeats the last executed action"
    )
    episode_cap_frames: int = setting(18_000, "A10", "frames after which an episode is cut off: a truncation, not a game over")
    pooling: str = setting(
        "average",
        "Table 7",
        "how the last two frames become one: ALE's colour averaging, or the maximum",
        ("average", "max", "none"),
    )
    observation: str = setting(
        "single",
        "Table 7",
        "single: one frame; stacked: the action is held for four observations, which are the state; rolling: the last four",
        ("single", "stacked", "rolling"),
    )
    screen_size: int = setting(84, "Table 9, A18", "height and width of an observation after the area resize, pixels")
    frame_compression: str = setting(
        "none", "D4", "how frames are kept in memory; zlib: a tenth of the bytes, the same results", ("none", "zlib")
    )
    log_period_steps: int = setting(100, "Section 5.1", "agent steps between two lines of metrics.jsonl")

    @property
    def history_length(self) -> int:
        """Frames in one state. Table 7: 1 (single frame) or 4 (stacked frames)."""
        return 1 if self.observation == "single" else 4

    @property
    def observations_per_step(self) -> int:
        """Observations the emulator makes while one action is held (A8)."""
        return 4 if self.observation == "stacked" else 1

    def __post_init__(self) -> None:
        for name in _fields_where(self, _must_be_positive):
            _require(getattr(self, name) > 0, name, getattr(self, name), "greater than 0")
        for name in _fields_where(self, lambda f: f.type == "int"):
            _require(getattr(self, name) <= MAX_COUNT, name, "a huge number", f"at most {MAX_COUNT:,}")
        for name in _fields_where(self, lambda f: f.type == "float"):
            _require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "0 or more, and finite")
        for f in dataclasses.fields(self):
            choices = f.metadata["choices"]
            _require(
                not choices or getattr(self, f.name) in choices, f.name, getattr(self, f.name), f"one of {', '.join(choices)}"
            )
        _require(self.sticky_probability < 1, "sticky_probability", self.sticky_probability, "less than 1")
        _require(self.screen_size >= 36, "screen_size", self.screen_size, "36 or more, or the convolutions do not fit")


@dataclass(frozen=True, kw_only=True)
class LearnerConfig(ProtocolConfig):
    """What the two learning agents share: exploration, and the CNN with its optimiser."""

    discount: float = setting(0.99, "Table 4", "γ, the discount factor")
    epsilon_start: float = setting(1.0, "Table 4", "initial exploration rate")
    epsilon_end: float = setting(0.001, "Table 4", "final exploration rate")
    epsilon_decay_frames: int = setting(90_000, "Table 4", "frames over which ε falls linearly")
    replay_start_steps: int = setting(100, "Table 7, A12", "agent steps of random policy before the first update")
    batch_size: int = setting(32, "Table 7", "K, transitions replayed for one CNN update")
    train_period_steps: int = setting(4, "Table 7", "TF, agent steps between CNN updates")
    reward_clip: float = setting(1.0, "A4c", "rewards are learned from within ± this (scores stay raw); 0: not clipped")
    loss: str = setting("squared", "Equation 3, A4b", "the CNN's loss on the temporal-difference error", ("squared", "huber"))
    step_size: float = setting(0.00025, "Table 5", "α, step size of the CNN's RMSProp")
    gradient_momentum: float = setting(0.95, "Table 5, A13", "decay of the CNN's mean gradient")
    squared_gradient_momentum: float = setting(0.95, "Table 5", "decay of the CNN's mean squared gradient")
    min_squared_gradient: float = setting(0.01, "Table 5", "constant added under the root of the CNN's RMSProp")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("discount", "epsilon_start", "epsilon_end", "gradient_momentum", "squared_gradient_momentum"):
            _require(getattr(self, name) <= 1, name, getattr(self, name), "at most 1")

    def epsilon(self, *, frames: int, steps: int) -> float:
        """ε after so many frames: 1 while the memory is first filled, then linear. Table 4, A12."""
        if steps < self.replay_start_steps:
            return 1.0
        progress = min(1.0, frames / self.epsilon_decay_frames)
        return self.epsilon_start + progress * (self.epsilon_end - self.epsilon_start)


@dataclass(frozen=True, kw_only=True)
class ComperConfig(LearnerConfig):
    """COMPER by Tables 3 to 7."""

    target_period_steps: int = setting(
        100, "Table 7", "UTF, agent steps between trainings of the QLSTM, which then updates RTM"
    )
    sets_per_training: int = setting(1_000, "Table 7", "similar-transition sets taken from TM for one QLSTM training, at most")
    memory_sets: int = setting(100_000, "Table 7, A7", "similar-transition sets remembered; the oldest goes first")
    similarity_threshold: float = setting(0.0, "Table 7, A9", "δ, the largest Euclidean distance between similar transitions")
    index: str = setting(
        "auto",
        "Section 5.1, D1",
        "TMI: exact (δ = 0), l2 (δ > 0, exact distances), faiss (the paper's IndexFlatL2); auto chooses by δ",
        ("auto", "exact", "l2", "faiss"),
    )
    alignment: str = setting(
        "successor",
        "Section 4.4, A1",
        "Q-value the QLSTM learns for a transition: of its successor, of its set's next member (Eq. 5), or max Q(s', ·)",
        ("successor", "set", "max"),
    )
    sequence_length: int = setting(1, "Table 10, A3", "time steps of the QLSTM; above 1 it also reads the set's last Q-values")
    qlstm_epochs: int = setting(1, "A4", "passes over the sets of one QLSTM training")
    qlstm_batch_size: int = setting(16, "Appendix B", "transitions in one QLSTM update")
    qlstm_step_size: float = setting(0.00025, "Table 6", "step size of the QLSTM's RMSProp")
    qlstm_gradient_momentum: float = setting(0.0, "Table 6", "momentum of the QLSTM's RMSProp")
    qlstm_decay: float = setting(0.9, "Table 6", "decay of the QLSTM's mean squared gradient")
    qlstm_epsilon: float = setting(1e-10, "Table 6, A13", "constant added under the root of the QLSTM's RMSProp")

    def __post_init__(self) -> None:
        super().__post_init__()
        delta, index = self.similarity_threshold, self.index
        _require(not (index == "exact" and delta > 0), "similarity_threshold", delta, "0 with index = exact; use l2 or faiss")
        _require(
            self.sets_per_training <= self.memory_sets, "sets_per_training", self.sets_per_training, "at most memory_sets"
        )

    @property
    def index_kind(self) -> str:
        """The index that `auto` stands for."""
        if self.index != "auto":
            return self.index
        return "exact" if self.similarity_threshold == 0 else "l2"


@dataclass(frozen=True, kw_only=True)
class DQNConfig(LearnerConfig):
    """DQN as the paper ran it beside COMPER. Table 8."""

    pooling: str = setting("max", "Table 8, A15", "how the last two frames become one", ("average", "max", "none"))
    observation: str = setting(
        "rolling",
        "Table 8, A8",
        "rolling: the last four observations, a decision every one; see also single and stacked",
        ("single", "stacked", "rolling"),
    )
    replay_start_steps: int = setting(1_000, "Table 8, A12", "agent steps of random policy before the first update")
    loss: str = setting("huber", "A4b", "the CNN's loss on the temporal-difference error", ("squared", "huber"))
    replay_capacity: int = setting(100_000, "Table 8", "transitions in the replay memory; the oldest goes first")
    target_period_steps: int = setting(1_000, "Table 8", "agent steps between copies of Θ to the target network")


@dataclass(frozen=True, kw_only=True)
class RandomConfig(ProtocolConfig):
    """A floor: a uniformly random action at every step."""


@dataclass(frozen=True, kw_only=True)
class ConstantConfig(ProtocolConfig):
    """A floor: one action for ever."""

    action: str = setting("NOOP", "Section 6, notes on floors", "the action taken at every step", ACTION_NAMES)


AnyConfig = ComperConfig | DQNConfig | RandomConfig | ConstantConfig


@dataclass(frozen=True)
class AgentPreset:
    """An agent as `comper train --agent NAME` knows it."""

    name: str
    summary: str
    config: AnyConfig


PRESETS = {
    preset.name: preset
    for preset in (
        AgentPreset("comper-single", "COMPER, one frame as the state (84x84x1), a decision every 5 frames", ComperConfig()),
        AgentPreset(
            "comper-stacked",
            "COMPER, four frames as the state (84x84x4), a decision every 20 frames",
            ComperConfig(observation="stacked"),
        ),
        AgentPreset(
            "dqn", "DQN of Mnih et al. 2015 with the paper's settings, the last four frames as the state", DQNConfig()
        ),
        AgentPreset("random", "floor: a uniformly random action at every step", RandomConfig()),
        AgentPreset("constant", "floor: one action for ever (--action)", ConstantConfig()),
    )
}
