"""`comper`: values travel over the graph of similar transitions, and the Q-network is fitted to them. D7.

COMPER's sets of similar transitions are the edges of a graph of the environment, as far as it was met. In place of a QLSTM
that predicts the following Q-value, values travel over the whole graph every few hundred steps. The targets of the updates
between are data: an update is one pass forward and one back, without a target network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comper.agents.agent import Agent, AgentSpec, MemoryEstimate, NetworkFactory, Part, Task, TrialSetup
from comper.errors import UsageError
from comper.memory.graph import BYTES_PER_EDGE, Replay, TransitionGraph, TransitionGraphs, TriedActions
from comper.memory.lending import feature_type, needed_bytes, num_features
from comper.memory.propagation import ValueRule, trust_after
from comper.memory.transitions import ReplayMemories, Transition
from comper.protocol import AgentConfig
from comper.settings import setting

if TYPE_CHECKING:
    import torch

    from comper.learners.pictures import Views
    from comper.learners.value_regression import Following
    from comper.networks.cnn import OutputLayer

ASKED_AT_A_TIME = 256
"""Stacked networks answer about a multiple of so many states, so that their calls have one shape."""
NUMBERS_OF_A_CLASS = 8
"""Numbers that an update holds at once, at most, for each class of each histogram."""
MOST_PARTS = 8
"""Outputs of a joystick beside its actions': three for up and down, three for left and right, two for fire."""
FEWEST_CLASSES = 11
"""With fewer, the mean of a target's histogram is far from the target near the ends of the range."""


@dataclass(frozen=True, kw_only=True)
class GraphConfig(AgentConfig):
    """The graph, how the network's word enters it, replay, exploration, and the network with its optimiser."""

    taken_out: ClassVar = {"habit_steps": 0}
    discount: float = setting(0.99, "D7", "γ, the discount factor", most=1, synonyms=("gamma",))
    # The graph and its values
    targets: str = setting(
        "graph", "D7", "graph: values over the graph; steps: n-step returns from a plain replay memory", ("graph", "steps")
    )
    memory_sets: int = setting(100_000, "D7", "similar-transition sets remembered", synonyms=("buffer_size",))
    similarity_threshold: float = setting(
        0.0, "D7", "δ, the largest Euclidean distance at which a state joins another", most=1e9, synonyms=("delta",)
    )
    similarity_cells: int = setting(
        0,
        "D7",
        "states join whose pictures are alike when shrunk to so many cells each way; 0: none",
        least=0,
        most=4_096,
        before=0,
    )
    lending_reach: float = setting(
        0.0,
        "D7",
        "states nearer than so many mean steps lend each other their transitions, the less the farther; 0: none",
        most=1e6,
        before=0.0,
    )
    num_lenders: int = setting(5, "D7", "with lending_reach: lenders that a new state finds at most", most=1_000, before=5)
    refresh_period_steps: int = setting(500, "D7", "agent steps between two times that values travel over the graph")
    refresh_passes: int = setting(60, "D7", "sweeps over the graph at a time, at most", most=100_000)
    untried: str = setting(
        "ignored",
        "D7",
        "actions not tried in a state: max, the network's values compete; chosen, the network's best action counts; ignored",
        ("max", "chosen", "ignored"),
    )
    prior_visits: float = setting(0.0, "D7", "visits that the network's value of a tried action counts as", most=1e6)
    trust: float = setting(0.6, "D7", "λ, weight of the graph's value of a state; 1 - λ: of the network's", most=1)
    trust_grows: str = setting(
        "state",
        "D7",
        "λ goes towards 1 with the times that a state was left, or that its best action by the network was tried; or never",
        ("state", "best-action", "never"),
    )
    double: bool = setting(False, "D7", "the network's newest values choose, those before say what the choice is worth")
    asked_states: int = setting(
        2_000, "D7", "states about which the network is asked again before values travel, besides all new ones", least=0
    )
    count_bonus: float = setting(0.0, "D7", "β: an action pays β/√n more after n visits", most=1e6)
    # Replay
    replay: str = setting(
        "set", "D7", "what is replayed: each set alike, by its visits, or half by surprise", ("set", "visit", "surprise")
    )
    all_tried: bool = setting(True, "D7", "fit all actions tried in a replayed state, not one")
    batch_size: int = setting(32, "D7", "states replayed for one update", most=65_536)
    train_period_steps: int = setting(2, "D7", "agent steps between updates", synonyms=("train_freq",))
    updates_at_a_time: int = setting(1, "D7", "updates made each time that the network is trained", most=1_000, before=1)
    replay_start_steps: int = setting(1_000, "D7", "agent steps of random policy before the first update")
    num_steps: int = setting(3, "D7", "with targets = steps: steps of rewards in a target", most=1_000)
    target_period_steps: int = setting(1_000, "D7", "with targets = steps: agent steps between copies to the target network")
    reward_clip: float = setting(1.0, "D7", "rewards are learned from within ± this (scores stay raw); 0: not clipped")
    # Exploration
    epsilon_end: float = setting(0.05, "D7", "final exploration rate", most=1)
    epsilon_decay_frames: int = setting(20_000, "D7", "frames over which ε falls linearly from 1")
    random_actions: str = setting(
        "least-tried",
        "D7",
        "a random action is any of them, or one of those least tried in the state",
        ("any", "least-tried"),
        before="any",
    )
    held_steps: int = setting(1, "D7", "agent steps that a random action is held at most; P(n or more) = 1/n", most=10_000)
    autofire_steps: int = setting(
        0,
        "D7",
        "for so many steps at a time FIRE is as the network says, or pressed at every second step, whichever has paid more; "
        "0: as the network says",
        least=0,
        most=100_000,
        before=0,
    )
    act_with: str = setting(
        "graph",
        "D7",
        "who says what a tried action is worth: the network, the graph, or both, the graph with the weight λ of n tries",
        ("network", "graph", "both"),
    )
    # The network
    network: str = setting("auto", "D3", "the Q-network: auto, or your own my_module:make_network")
    residual_width: int = setting(
        0,
        "D7",
        "0: DQN's network; 1 and more: a residual network for pictures, so many times as wide as IMPALA's",
        least=0,
        most=64,
        before=0,
    )
    layer_norm: bool = setting(
        False, "D7", "with residual_width: features and hidden units of a state have mean 0 and variance 1", before=False
    )
    duelling: bool = setting(True, "D7", "the network's output is a value of the state and an advantage of each action")
    joystick: str = setting(
        "off",
        "D7",
        "advantages of an action's parts, left-right, up-down and fire: off; shared, beside each action's own; alone "
        "(a network of your own has none)",
        ("off", "shared", "alone"),
        before="off",
    )
    value_classes: int = setting(
        0,
        "D7",
        f"0: values learned by Huber's loss; {FEWEST_CLASSES} and more: as histograms of so many classes, by cross-entropy",
        least=0,
        most=1_001,
        before=0,
    )
    value_range: float = setting(
        10.0,
        "D7",
        "with value_classes: the outermost classes are ± this; choose it larger than any value: "
        "rewards of 1 at every step with γ = 0.99 come to 100",
        above=1e-6,
        most=1e6,
        before=10.0,
    )
    ensemble: int = setting(1, "D7", "networks that learn by themselves, and whose mean is the Q-value", most=64, before=1)
    foresight_steps: int = setting(
        0,
        "D7",
        "the network also learns to foresee what it will make of the states that follow, for so many steps; 0: it does not",
        least=0,
        most=64,
        before=0,
    )
    foresight_weight: float = setting(
        2.0,
        "D7",
        "with foresight_steps: what the states that follow count together, if nothing of them is foreseen",
        above=0,
        most=1e6,
        before=2.0,
    )
    shift_pixels: int = setting(0, "D7", "replayed pictures are moved at random by so many pixels at most", least=0, most=64)
    mirror: bool = setting(
        False,
        "D7",
        "half of the replayed pictures are mirrored, with LEFT for RIGHT in their actions; "
        "not for games such as Pong, in which LEFT moves down",
        before=False,
    )
    average_views: bool = setting(
        False,
        "D7",
        "the network's values to act by are means over nine places of the picture, as far as shift_pixels / 2, "
        "and with mirror over its mirror images; with neither there is nothing to average",
        before=False,
    )
    step_size: float = setting(0.00025, "D7", "Adam's step size", above=0, most=1_000, synonyms=("lr", "learning_rate"))
    adam_epsilon: float = setting(1.5e-4, "D7", "constant added to the root in Adam", above=0)

    @property
    def rule(self) -> ValueRule:
        """How the graph and the network are put together."""
        return ValueRule(
            discount=self.discount,
            untried=self.untried,
            prior_visits=self.prior_visits,
            trust=self.trust,
            trust_grows=self.trust_grows,
            bonus=self.count_bonus,
        )


class HeldExploration:
    """ε-greedy whose random actions are held for a while (Dabney et al. 2021), for T trials."""

    def __init__(self, rngs: Sequence[np.random.Generator], num_actions: int, most_steps: int):
        self._rngs, self._num_actions, self._most_steps = rngs, num_actions, most_steps
        self._held = [(0, 0)] * len(rngs)  # the action, and for how many steps more

    def choose(
        self, trial: int, q: NDArray[np.float32], epsilon: float, tries: Callable[[], NDArray[np.int32]] | None = None
    ) -> int:
        """The action of the highest value, or the one that is held, or with probability ε any, or one of the least tried."""
        action, steps = self._held[trial]
        rng = self._rngs[trial]
        if not steps:
            if rng.random() >= epsilon:
                return int(q.argmax())
            action, steps = self._random_action(rng, tries), 1
            if self._most_steps > 1:
                steps = min(self._most_steps, int(1 / max(rng.random(), 1e-9)))
        self._held[trial] = (action, steps - 1)
        return action

    def _random_action(self, rng: np.random.Generator, tries: Callable[[], NDArray[np.int32]] | None) -> int:
        if tries is None:
            return int(rng.integers(self._num_actions))
        counts = tries()
        return int(rng.choice(np.flatnonzero(counts == counts.min())))

    def let_go(self, trial: int) -> None:
        """Hold nothing any longer."""
        self._held[trial] = (0, 0)

    def state_dict(self, trial: int) -> dict[str, Any]:
        """What is held; the generator is saved beside it."""
        return {"held": list(self._held[trial])}

    def load_state_dict(self, trial: int, state: dict[str, Any]) -> None:
        """Read back what `state_dict` wrote."""
        action, steps = (int(number) for number in state["held"])
        if not (0 <= action < self._num_actions and 0 <= steps < max(1, self._most_steps)):
            raise ValueError(f"an action {action} is held for {steps} steps.")
        self._held[trial] = (action, steps)


class GraphAgent(Agent):
    """A graph and a Q-network for each trial; or, for comparison, a replay memory and a target network in its place."""

    metric_labels: ClassVar = {"edges": "edges", "travelled_steps": "travelled"}

    def __init__(self, config: GraphConfig, task: Task, trials: Sequence[TrialSetup], *, device: torch.device):
        from comper.learners.autofire import Autofire
        from comper.learners.frame_bank import FrameBank
        from comper.learners.optimisers import Adam
        from comper.learners.pictures import Pictures
        from comper.learners.value_regression import ValueLearner
        from comper.networks.joystick import mirrored_actions

        self.config = config
        self._num_actions = task.num_actions
        self._sampling = [trial.sampling for trial in trials]
        self.bank = FrameBank([trial.frames for trial in trials], device)
        self.explorer = HeldExploration([trial.exploration for trial in trials], task.num_actions, config.held_steps)
        adam = Adam(step_size=config.step_size, epsilon=config.adam_epsilon)
        network, rngs = self.networks(config, task)["CNN"], [trial.weights for trial in trials]
        loss = "own" if config.value_classes or config.ensemble > 1 else "foresight" if config.foresight_steps else "huber"
        self.q_network = ValueLearner(network, self.bank, rngs, loss=loss, optimiser=adam)
        self.pictures = Pictures(
            self.bank,
            self._sampling,
            shift_pixels=config.shift_pixels,
            mirrored_actions=mirrored_actions(task.action_names) if config.mirror else (),
            channels_first=task.has_channels_first,
        )
        parts: dict[str, Part] = {"q_network": self.q_network, "explorer": self.explorer}
        self.autofire = None
        if config.autofire_steps:
            exploration = [trial.exploration for trial in trials]
            self.autofire = parts["autofire"] = Autofire(exploration, task.action_names, config.autofire_steps)
        if config.targets == "graph":
            self.graphs = TransitionGraphs([_graph(config, task, trial) for trial in trials], self._sampling)
            self.parts = {**parts, "graph": self.graphs}
        else:
            self.target = self.q_network.copy()
            self.memory = ReplayMemories(
                [trial.frames for trial in trials],
                self._sampling,
                capacity=config.memory_sets,
                history_length=config.history_length,
                discount=config.discount,
                num_steps=config.num_steps,
            )
            self.parts = {**parts, "target": self.target, "replay": self.memory}

    def act(
        self, states: NDArray[np.int64], epsilon: Sequence[float], trials: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """ε-greedy by the network's values, or the graph's where it has some; FIRE may be pressed by turns."""
        q = self.q_values(states, trials)
        chosen = [self._choose(*each) for each in zip(trials, states.tolist(), q, epsilon, strict=True)]
        if self.autofire:
            chosen = [self.autofire.pressed(trial, action) for trial, action in zip(trials, chosen, strict=True)]
        return np.array(chosen), q[np.arange(len(chosen)), chosen]

    def q_values(self, states: NDArray[np.int64], trials: Sequence[int]) -> NDArray[np.float32]:
        """The values by which the agent acts; the network is not asked if the graph knows every action of all these states."""
        c = self.config
        if c.targets != "graph" or c.act_with == "network":
            return self._network_values(states, trials)
        known = [self.graphs[i].values_of(s) for i, s in zip(trials, states.tolist(), strict=True)]
        is_asked = c.act_with == "both" or any(found is None or not found.visits.all() for found in known)
        q = self._network_values(states, trials) if is_asked else np.zeros((len(known), self._num_actions), np.float32)
        return np.stack([self._joined(found, row) for found, row in zip(known, q, strict=True)])

    def _network_values(self, states: NDArray[np.int64], trials: Sequence[int]) -> NDArray[np.float32]:
        """The network's values of states (n, history): of each as it is, or the mean over several views of it."""
        c = self.config
        if not (c.average_views and (c.mirror or c.shift_pixels > 1)):
            return super().q_values(states, trials)
        copies, views = self.pictures.around(states)
        q = self.q_network.population(self.pictures.frames(copies, trials, views), trials=trials).cpu().numpy()
        means: NDArray[np.float32] = self.pictures.values(q, views).mean(1)
        return means

    def _choose(self, trial: int, state: list[int], q: NDArray[np.float32], epsilon: float) -> int:
        c = self.config
        if c.targets == "steps":
            return self.explorer.choose(trial, q, epsilon)
        tries = partial(self._tries, trial, state) if c.random_actions == "least-tried" else None
        return self.explorer.choose(trial, q, epsilon, tries)

    def _tries(self, trial: int, state: list[int]) -> NDArray[np.int32]:
        """How often each action was tried in a state: what recurs is explored evenly, what is new at random."""
        return self.graphs[trial].tries(self.graphs[trial].find(state))

    def _joined(self, known: TriedActions | None, q: NDArray[np.float32]) -> NDArray[np.float32]:
        """The graph's values where it has some, the network's elsewhere."""
        if known is None:
            return q
        values, visits, tries = known
        if self.config.act_with == "both":
            values = q + trust_after(np.maximum(visits, 1.0), self.config.trust) * (values - q)
        if tries is None or not (beta := self.config.count_bonus):
            return np.where(visits > 0, values, q).astype(np.float32, copy=False)
        # The values have the bonus of the last refresh; what was tried since then pays less by now.
        bonus = beta / np.sqrt(np.maximum(tries, 1)) - np.where(visits > 0, beta / np.sqrt(np.maximum(visits, 1)), 0.0)
        return (np.where(visits > 0, values, q.max()) + bonus).astype(np.float32)

    def store(self, trial: int, transition: Transition, q: float, *, is_last: bool) -> None:
        """Count the transition in the graph."""
        clipped = transition.clipped(self.config.reward_clip)
        if self.config.targets == "graph":
            self.graphs[trial].add(clipped)
        else:
            self.memory.add(trial, clipped, is_last=is_last)
        if self.autofire:
            self.autofire.note(trial, transition.r, is_over=transition.is_terminal, is_last=is_last)
        if is_last:
            self.explorer.let_go(trial)

    def learn(self, t: int, trials: Sequence[int]) -> None:
        """Every few hundred steps values travel over the graph; every few steps the network is fitted to them."""
        c = self.config
        if t < c.replay_start_steps:
            return
        is_graph = c.targets == "graph"
        if is_graph:
            self._refresh([i for i in trials if t % c.refresh_period_steps == 0 or not self.graphs[i].travel.num_passes])
        if t % c.train_period_steps == 0:
            for _ in range(c.updates_at_a_time):
                (self._fit_to_graph if is_graph else self._fit_to_steps)(trials)
        if not is_graph and t % c.target_period_steps == 0:
            self.target.copy_from(self.q_network.population)

    def _fit_to_graph(self, trials: Sequence[int]) -> None:
        c = self.config
        replay = self.graphs.sample(c.batch_size, trials, all_tried=c.all_tried)
        views = self.pictures.drawn(c.batch_size, trials)
        frames = self.pictures.frames(replay.s, trials, views)
        targets, weights = (self.pictures.values(values, views) for values in (replay.targets, replay.weights))
        following = self._following(replay, views, trials) if c.foresight_steps else None
        q = self.q_network.fit_values(frames, targets, weights, trials, following)
        if views.are_plain:  # Section 4.2 of the paper: what is replayed is stored with its new Q-values
            self.graphs.tell(replay, q.cpu().numpy(), trials)

    def _following(self, replay: Replay, views: Views, trials: Sequence[int]) -> Following:
        """What followed the replayed states, as it is seen from there."""
        from comper.learners.value_regression import Following

        c = self.config
        walk = self.graphs.walk(replay, c.foresight_steps, trials)
        along = self.pictures.drawn_along(views, c.foresight_steps, trials)
        states, actions = (x.reshape(len(trials), -1, *x.shape[3:]) for x in (walk.s, walk.actions))
        one_hot = np.eye(self._num_actions, dtype=np.float32)[self.pictures.actions(actions, along)]
        return Following(
            self.pictures.frames(states, trials, along),
            one_hot.reshape(*walk.actions.shape, -1),
            (c.foresight_weight / c.foresight_steps * walk.is_met).astype(np.float32),
        )

    def _refresh(self, due: Sequence[int]) -> None:
        """Ask the network about states, and let values travel."""
        c = self.config
        is_stacked = self.q_network.population.is_stacked
        for trials in [due] if due and is_stacked else [[i] for i in due]:
            self._ask(trials, multiple=ASKED_AT_A_TIME if is_stacked else 1)
        for trial in due:
            self.graphs[trial].refresh(c.rule, double=c.double, replay=c.replay, max_passes=c.refresh_passes)

    def _ask(self, trials: Sequence[int], *, multiple: int) -> None:
        """Give the graphs the network's values of new states and of those asked about the longest ago.

        Stacked trials are asked together, each about equally many states, repeated where there are fewer.
        """
        asked = [self.graphs[i].unasked(self.config.asked_states) for i in trials]
        if not any(map(len, asked)):
            return
        most = -(-max(map(len, asked)) // multiple) * multiple
        states = np.stack([self.graphs[i].states(np.resize(nodes, most)) for i, nodes in zip(trials, asked, strict=True)])
        q = self.q_network.values(states, trials).cpu().numpy()
        for trial, nodes, values in zip(trials, asked, q, strict=True):
            self.graphs[trial].tell(nodes, values[: len(nodes)])

    def _fit_to_steps(self, trials: Sequence[int]) -> None:
        """The same without the graph: n-step returns from a plain replay memory, and a target network."""
        c = self.config
        batch = self.memory.sample(c.batch_size, trials)
        following = self.q_network.values(batch.s_next, trials, of=self.target)
        chooser = self.q_network.values(batch.s_next, trials) if c.double else following
        q_next = following.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)
        target = self.bank.tensor(batch.r) + self.bank.tensor(batch.discount) * q_next
        views = self.pictures.drawn(c.batch_size, trials)
        seen = replace(batch, a=self.pictures.actions(batch.a, views))
        self.q_network.fit(seen, target, self.pictures.frames(batch.s, trials, views))

    def epsilon(self, *, frames: int, steps: int) -> float:
        """1 while the memory is first filled, then a line."""
        c = self.config
        if steps < c.replay_start_steps:
            return 1.0
        return 1.0 + min(1.0, frames / c.epsilon_decay_frames) * (c.epsilon_end - 1.0)

    def is_finite(self) -> bool:
        """Whether every loss so far was a finite number."""
        return self.q_network.loss.is_finite()

    def metrics(self, trial: int) -> dict[str, Any]:
        """The mean loss since the last call, and the graph: its size, how much recurs, how far values travelled."""
        loss: dict[str, Any] = {"cnn_loss": self.q_network.loss.read(trial)}
        if self.autofire:
            loss["autofire"] = int(self.autofire.is_by_turns(trial))
        if self.config.targets == "steps":
            return {**loss, "replay_size": self.memory.size(trial), "bytes_held": self.memory.nbytes(trial)}
        graph = self.graphs[trial]
        return {
            **loss,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "visits": graph.num_visits,
            "mean_set_size": graph.mean_visits,
            "travelled_steps": graph.travel.num_steps,
            "refresh_passes": graph.travel.num_passes,
            "refresh_residual": graph.travel.residual,
            "bytes_held": graph.nbytes,
        }

    @classmethod
    def check(cls, config: GraphConfig, task: Task) -> None:
        """Refuse what does not fit the environment, and what does not go together."""
        is_picture = task.observation_kind == "pixels" and len(task.observation_shape) >= 2
        if config.shift_pixels and not is_picture:
            raise UsageError("shift_pixels moves pictures, and these observations are none: use --shift-pixels 0.")
        most = min(task.observation_shape[:2]) if is_picture and task.observation_dtype == np.uint8 else 0
        if config.similarity_cells > most:
            raise UsageError(
                f"similarity_cells = {config.similarity_cells}: pictures of {most} pixels have no more cells."
                if most
                else "similarity_cells shrinks pictures of 8 bits, and these observations are none: use --similarity-cells 0."
            )
        if config.residual_width and not (is_picture and len(task.observation_shape) <= 3 and task.make_network is None):
            raise UsageError("residual_width is for pictures and for a network that is not your own: use --residual-width 0.")
        if 0 < config.value_classes < FEWEST_CLASSES:
            raise UsageError(f"value_classes = {config.value_classes}: use --value-classes 0, or {FEWEST_CLASSES} and more.")
        if config.value_classes and task.make_network is not None:
            raise UsageError("value_classes is for a network that is not your own: use --value-classes 0.")
        if config.ensemble > 1 and task.make_network is not None:
            raise UsageError("ensemble is for a network that is not your own: use --ensemble 1.")
        if config.joystick != "off" and not config.duelling and task.make_network is None:
            raise UsageError(
                "joystick, which is on by default in Atari games, is for a duelling network: "
                "use --joystick off with --duelling false."
            )
        if config.mirror and not is_picture:
            raise UsageError("mirror is for pictures, and these observations are none: use --mirror false.")
        if config.joystick != "off" or config.mirror or config.autofire_steps:
            _check_actions(config, task)
        if config.average_views and not is_picture:
            raise UsageError("average_views is for pictures, and these observations are none: use --average-views false.")
        if config.layer_norm and not config.residual_width:
            raise UsageError("layer_norm is for the residual network: use --residual-width 1 with it.")
        if config.foresight_steps:
            _check_foresight(config, task)
        if config.similarity_cells and config.similarity_threshold:
            raise UsageError("States are joined by similarity_cells or by similarity_threshold: leave one of them 0.")
        if config.lending_reach and config.count_bonus:
            raise UsageError("count_bonus counts a state's own visits, and lending_reach others' too: leave one of them 0.")

    @classmethod
    def networks(cls, config: GraphConfig, task: Task) -> dict[str, NetworkFactory]:
        """DQN's network or a residual one, with a duelling output unless it is switched off, of values or histograms."""
        from comper.networks.ensemble import with_members
        from comper.networks.foresight import with_foresight
        from comper.networks.histogram import with_histograms

        c = config
        network = task.q_network(
            c.history_length, output=_output_layer(c, task), residual_width=c.residual_width, layer_norm=c.layer_norm
        )
        if c.value_classes:
            network = with_histograms(network, c.value_classes, c.value_range)
        if c.foresight_steps:
            network = with_foresight(network, task.num_actions)
        return {"CNN": with_members(network, c.ensemble) if c.ensemble > 1 else network}

    @classmethod
    def memory_estimate(cls, config: GraphConfig, task: Task) -> MemoryEstimate:
        """Edges, and about as many nodes; weights with two averages, and a target network's at most."""
        from comper.networks.inspection import num_parameters

        node = 4 * config.history_length + 16 * task.num_actions + 20 + 8 * bool(config.foresight_steps) + 250
        weights = 4 * num_parameters(cls.networks(config, task)["CNN"])
        batch = config.batch_size * task.state_bytes(config.history_length, residual_width=config.residual_width)
        if config.value_classes:  # of each class some numbers, where the network learns and where it is asked
            num_histograms = max(config.batch_size, ASKED_AT_A_TIME) * (task.num_actions + MOST_PARTS)
            batch += 4 * NUMBERS_OF_A_CLASS * config.value_classes * num_histograms
        batch *= config.ensemble * (1 + config.foresight_steps)
        tables = config.memory_sets * (BYTES_PER_EDGE + node)
        if config.lending_reach:
            size = feature_type(task.observation_dtype).itemsize
            features = size * num_features(task.observation_shape, config.history_length)
            held, at_work = needed_bytes(features, config.num_lenders, config.memory_sets)
            tables, batch = tables + held, batch + at_work
        return MemoryEstimate(config.memory_sets, tables, 4 * weights, batch)


def _check_foresight(config: GraphConfig, task: Task) -> None:
    from comper.networks.foresight import can_foresee

    if config.targets == "steps":
        raise UsageError("foresight_steps goes along the graph: use --foresight-steps 0 with --targets steps.")
    if config.value_classes or config.ensemble > 1:
        raise UsageError("foresight_steps goes with neither value_classes nor ensemble: use --foresight-steps 0 with them.")
    make = task.q_network(config.history_length, residual_width=config.residual_width)
    if task.make_network is not None or not can_foresee(make):
        raise UsageError("foresight_steps is for pictures and for a network that is not your own: use --foresight-steps 0.")


def _check_actions(config: GraphConfig, task: Task) -> None:
    from comper.networks.joystick import buttons_of, joystick_shares, mirrored_actions

    if config.joystick != "off" and not joystick_shares(task.action_names, own=False):
        raise UsageError("joystick is for actions such as UP and LEFTFIRE, and these are others: use --joystick off.")
    if config.mirror and not mirrored_actions(task.action_names):
        raise UsageError("mirror is for actions with mirror images, as LEFT has RIGHT: use --mirror false.")
    if config.autofire_steps and not buttons_of(task.action_names)[0]:
        raise UsageError(
            "autofire_steps is for actions such as LEFT and LEFTFIRE, and these are others: use --autofire-steps 0."
        )


def _output_layer(config: GraphConfig, task: Task) -> OutputLayer:
    from comper.networks.cnn import Duelling
    from comper.networks.joystick import Joystick, joystick_shares
    from comper.networks.stacking import Linear

    if config.joystick != "off":
        return partial(Joystick, shares=joystick_shares(task.action_names, own=config.joystick == "shared"))
    return Duelling if config.duelling else Linear


def _graph(config: GraphConfig, task: Task, trial: TrialSetup) -> TransitionGraph:
    return TransitionGraph(
        trial.frames,
        task.num_actions,
        capacity=config.memory_sets,
        history_length=config.history_length,
        threshold=config.similarity_threshold,
        cells=config.similarity_cells,
        lending_reach=config.lending_reach,
        num_lenders=config.num_lenders,
        walks=config.foresight_steps > 0,
    )


IN_ATARI = GraphConfig(
    observation="rolling",
    discount=0.97,
    trust=0.9,
    train_period_steps=1,
    updates_at_a_time=2,
    epsilon_end=0.01,
    epsilon_decay_frames=10_000,
    random_actions="any",
    autofire_steps=100,
    joystick="alone",
    step_size=0.0001,
    shift_pixels=4,
    mirror=True,
    average_views=True,
)
"""Pictures need motion and smaller steps; 20,000 steps two updates each, a lower γ and more trust; and more is made of each
picture and action (experiments 7, 19 and 22). FIRE is pressed by turns where that pays (experiments 28 and 29).
"""
IN_MINATAR = GraphConfig(random_actions="any", mirror=True, average_views=True)
"""Experiments 21 and 33."""
COMPER = AgentSpec(
    "comper",
    "this project's own, the default: values travel over the graph of similar transitions",
    GraphAgent,
    GraphConfig(),
    in_family={"atari": IN_ATARI, "minatar": IN_MINATAR},
)
