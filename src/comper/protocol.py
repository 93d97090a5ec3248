"""The paper's numbers, named, with their source (arXiv 2111.06907), and the settings that its agents share.

A `source` names the paper's table, section or algorithm; where the paper is silent it names the entry of
`docs/deviations.md` that says what was chosen and why (A# = the paper is silent, D# = this project differs).
"""

from __future__ import annotations

from dataclasses import dataclass

from comper.settings import Settings, setting

NUM_ACTIONS = 18
"""The full ALE action set, for every game. Table 3."""

ACTION_NAMES = (
    "NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE", "RIGHTFIRE",
    "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE",
)  # fmt: skip
"""ALE's own names, in ALE's own order."""

FRAME_SKIP = 5
"""Frames an action lasts before the next observation. Table 3."""

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


@dataclass(frozen=True, kw_only=True)
class AgentConfig(Settings):
    """What every agent's configuration has: the frame budget, what a state is, and how a run is recorded."""

    frames: int = setting(
        100_000,
        "Table 3",
        "frames to learn from; the episode running then is played out",
        synonyms=("total_timesteps", "timesteps"),
    )
    observation: str = setting(
        "single",
        "Table 7",
        "single: one frame; stacked: the action is held for four observations, which are the state; rolling: the last four",
        ("single", "stacked", "rolling"),
    )
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
        """Observations the environment makes while one action is held (A8)."""
        return 4 if self.observation == "stacked" else 1


@dataclass(frozen=True, kw_only=True)
class LearnerConfig(AgentConfig):
    """What the paper's learning agents share: exploration, and the CNN with its optimiser."""

    discount: float = setting(0.99, "Table 4", "γ, the discount factor", most=1, synonyms=("gamma",))
    epsilon_start: float = setting(1.0, "Table 4", "initial exploration rate", most=1)
    epsilon_end: float = setting(0.001, "Table 4", "final exploration rate", most=1)
    epsilon_decay_frames: int = setting(90_000, "Table 4", "frames over which ε falls linearly")
    replay_start_steps: int = setting(
        100, "Table 7, A12", "agent steps of random policy before the first update", synonyms=("learning_starts",)
    )
    batch_size: int = setting(32, "Table 7", "K, transitions replayed for one CNN update", most=65_536)
    train_period_steps: int = setting(
        4, "Table 7", "TF, agent steps between CNN updates", synonyms=("train_frequency", "train_freq")
    )
    reward_clip: float = setting(1.0, "A4c", "rewards are learned from within ± this (scores stay raw); 0: not clipped")
    network: str = setting(
        "auto", "Table 9, D3", "the Q-network: auto fits one to the observations; my_module:make_network is your own"
    )
    loss: str = setting("squared", "Equation 3, A4b", "the CNN's loss on the temporal-difference error", ("squared", "huber"))
    step_size: float = setting(
        0.00025, "Table 5", "α, step size of the CNN's RMSProp", above=0, most=1_000, synonyms=("lr", "learning_rate")
    )
    gradient_momentum: float = setting(0.95, "Table 5, A13", "decay of the CNN's mean gradient", most=1)
    squared_gradient_momentum: float = setting(0.95, "Table 5", "decay of the CNN's mean squared gradient", most=1)
    min_squared_gradient: float = setting(0.01, "Table 5", "constant added under the root of the CNN's RMSProp")
