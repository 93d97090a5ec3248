"""The sides of each comparison: what is set up once and then timed, segment by segment, in a process of its own.

    python benchmarks/sides.py NAME [ARGUMENT]

A side answers every line on its standard input with one line of JSON: the seconds of one segment, by the clock and of the
processors, and what else it has to say. `bench.py` asks the sides of a comparison in turn.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

NUM_THREADS = 2
Answer = dict[str, Any]
Side = Callable[[], Answer]


def timed(work: Callable[[], Any], **more: Any) -> Answer:
    """Seconds of a call, by the clock and of the processors."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor, **more}


# Emulator: a step of five frames, colours averaged, grey, 84 x 84.

EMULATOR_STEPS = 250


def emulator_ours(game: str) -> Side:
    from comper.environments.atari import AtariEnvironment, AtariSettings

    environment = AtariEnvironment(game, AtariSettings(sticky_probability=0.0), rng=np.random.default_rng(0))
    environment.reset()

    def step(action: int, out: Any) -> None:
        taken = environment.step(action)
        out[:] = taken.frames[0]
        if taken.terminated or taken.truncated:
            environment.reset()

    return _emulator_side(step)


def emulator_ale(game: str) -> Side:
    """ALE's own frame skip and colour averaging; no sticky actions on either side."""
    import ale_py
    import cv2

    from comper.environments.games import rom_path

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 0)
    ale.setInt("frame_skip", 5)
    ale.setInt("max_num_frames_per_episode", 18_000)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setBool("color_averaging", True)
    ale.loadROM(rom_path(game))
    ale.reset_game()
    grey = np.empty(ale.getScreenDims(), np.uint8)

    def step(action: int, out: Any) -> None:
        ale.act(action)
        ale.getScreenGrayscale(grey)
        cv2.resize(grey, (84, 84), dst=out, interpolation=cv2.INTER_AREA)
        if ale.game_over():
            ale.reset_game()

    return _emulator_side(step)


def emulator_bare(game: str) -> Side:
    """The floor: the emulator alone, no picture taken from it."""
    from comper.environments.atari import _load_emulator

    ale = _load_emulator(game)

    def step(action: int, out: Any) -> None:
        for _ in range(5):
            ale.act(action)
        if ale.game_over():
            ale.reset_game()

    return _emulator_side(step)


def _emulator_side(step: Callable[[int, Any], None]) -> Side:
    rng = np.random.default_rng(0)
    frames = np.zeros((EMULATOR_STEPS, 84, 84), np.uint8)

    def segment() -> Answer:
        actions = rng.integers(0, 18, EMULATOR_STEPS).tolist()

        def play() -> None:
            for action, out in zip(actions, frames, strict=True):
                step(action, out)

        answer = timed(play, units=EMULATOR_STEPS)
        return {**answer, "pixels": hashlib.sha256(frames.tobytes()).hexdigest()}

    return segment


# Training: agent steps with everything that belongs to them.

TRAINING_STEPS = 200
"""A segment holds two trainings of the QLSTM and 50 updates of the CNN."""
FRAME_SKIP = 4
"""What SB3's Atari wrapper does by default."""


def dqn_sb3(game: str) -> Side:
    import ale_py
    import gymnasium
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    torch.set_num_threads(NUM_THREADS)
    gymnasium.register_envs(ale_py)
    name = "".join(part.capitalize() for part in game.split("_")) + "NoFrameskip-v4"
    env = VecFrameStack(make_atari_env(name, seed=0, env_kwargs={"full_action_space": True}), 4)
    model = DQN(
        "CnnPolicy", env, buffer_size=100_000, learning_starts=100, batch_size=32, train_freq=4, target_update_interval=1_000,
        exploration_initial_eps=0.1, exploration_final_eps=0.1, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(300, log_interval=1_000_000)
    return lambda: timed(
        lambda: model.learn(TRAINING_STEPS, reset_num_timesteps=False, log_interval=1_000_000), units=TRAINING_STEPS
    )


LIKE_SB3: dict[str, Any] = {
    "frame_skip": FRAME_SKIP, "sticky_probability": 0.0, "epsilon_start": 0.1, "epsilon_end": 0.1
}  # fmt: skip


def dqn_ours(game: str) -> Side:
    run = Run(game, "dqn", **LIKE_SB3, replay_start_steps=100)
    run.steps(300)
    return run.segment


def comper_ours(argument: str) -> Side:
    """COMPER with one frame as the state, after so many steps: `game:steps`."""
    game, steps = argument.split(":")
    run = Run(game, "comper-single", **LIKE_SB3)
    run.fill(int(steps) - 100)
    run.steps(100)
    return run.segment


class Record:
    """A run record that forgets everything."""

    def episode(self, record: Any) -> None: ...

    def metrics(self, record: Any) -> None: ...

    def finish(self, totals: Any, weights: Any = None) -> None: ...


class Run:
    """One trial in the project's own training loop."""

    def __init__(self, game: str, agent: str, **settings: Any) -> None:
        import torch

        from comper.agents.agent import TrialSetup
        from comper.environments.families import find_environment
        from comper.memory.compressed import make_frame_store
        from comper.memory.frames import ObservationHistory
        from comper.training.loop import Loop, Trial
        from comper.training.options import RunOptions, resolve_settings
        from comper.training.population import make_stepper
        from comper.training.randomness import streams

        torch.set_num_threads(NUM_THREADS)
        environment = find_environment(game)
        resolved = resolve_settings(agent, [environment], settings, where="benchmark")
        config: Any = resolved.config
        stepper = make_stepper([(environment, 0)], resolved, RunOptions(workers=0))
        weights, exploration, sampling, _ = streams(0)
        frames = make_frame_store(config.frame_compression, (84, 84), initial_capacity=200_000)
        setup = TrialSetup(frames, weights=weights, exploration=exploration, sampling=sampling)
        self.config = config
        task, device = resolved.task(stepper.info), torch.device("cpu")
        self.agent: Any = resolved.agent.agent(config, task, [setup], device=device)
        self.trial = Trial(0, game, 0, ObservationHistory(frames, config.history_length), Record())
        self.loop: Any = Loop(config, self.agent, stepper, [self.trial])
        self.trial.history.reset(stepper.reset(0))

    def steps(self, count: int) -> None:
        """Agent steps as the training loop makes them, log lines included."""
        for _ in range(count):
            self.loop._tick([self.trial])
            self.trial.is_running = True
            if self.loop.t % self.config.log_period_steps == 0:
                self.loop._log([self.trial], steps_per_second=1.0)

    def segment(self) -> Answer:
        return timed(lambda: self.steps(TRAINING_STEPS), units=TRAINING_STEPS, **self.sizes())

    def sizes(self) -> dict[str, int]:
        return {name: v for name, v in self.agent.metrics(0).items() if name in ("tm_sets", "rtm_sets", "replay_size")}

    def fill(self, count: int) -> None:
        """Bring the memories to where they are after so many steps of COMPER, without the networks.

        The game is really played (at random) and TM, TMI, RTM and the frame store do all they do in training: sets leave TM
        every 100 steps and enter RTM, draws of RTM return to TM every 4. Only Q-values and weights are not learned.
        """
        agent, c = self.agent, self.config
        rng = np.random.default_rng(0)
        act, learn = agent.act, agent.learn
        agent.act = lambda states, epsilon, trials: (rng.integers(0, 18, 1), np.zeros(1, np.float32))
        agent.learn = lambda t, trials: self._remember(t, rng)
        self.steps(count)
        agent.act, agent.learn = act, learn
        assert agent.tm[0].num_sets > count // 4, (c, agent.tm[0].num_sets)

    def _remember(self, t: int, rng: np.random.Generator) -> None:
        tm, rtm, c = self.agent.tm[0], self.agent.rtm[0], self.config
        if t < c.replay_start_steps or t % c.train_period_steps:
            return
        if rtm.is_empty or t % c.target_period_steps == 0:
            rtm.absorb(tm.take(c.sets_per_training))
        tm.refresh(rtm.sample(c.batch_size, rng), np.zeros(c.batch_size, np.float32))


# QLSTM: one training call on 1,000 sets, an epoch in batches of 16.

NUM_SETS = 1_000


def qlstm_ours(game: str) -> Side:
    from comper.learners.learner import TrainingSet

    run = Run(game, "comper-single")
    run.fill(1_600)
    tm, rng = run.agent.tm[0], np.random.default_rng(0)
    sets = np.arange(NUM_SETS)
    training_set = TrainingSet(tm.gather(sets), tm.q_history(sets), rng.uniform(0, 1, NUM_SETS).astype(np.float32))
    run.agent.qlstm.fit([training_set], [0])
    return lambda: timed(lambda: run.agent.qlstm.fit([training_set], [0]), units=1)


def qlstm_torch(game: str) -> Side:
    """Plain nn.LSTM layers and torch's RMSprop; the inputs are floats already."""
    import torch
    from torch import nn

    torch.set_num_threads(NUM_THREADS)
    x = torch.rand(NUM_SETS, 1, 2 * 84 * 84 + 2)
    y = torch.rand(NUM_SETS)
    sizes = (x.shape[-1], 64, 32, 32)
    layers = nn.ModuleList(nn.LSTM(a, b, batch_first=True) for a, b in itertools.pairwise(sizes))
    head = nn.Sequential(nn.Linear(32, 18), nn.ReLU(), nn.Linear(18, 1))
    optimiser = torch.optim.RMSprop([*layers.parameters(), *head.parameters()], lr=0.00025, alpha=0.9, eps=1e-10)

    def fit() -> None:
        for start in range(0, NUM_SETS, 16):
            h = x[start : start + 16]
            for layer in layers:
                h = layer(h)[0]
            loss = (head(h[:, -1]).squeeze(-1) - y[start : start + 16]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    fit()
    return lambda: timed(fit, units=1)


# Frames of a game, for the rows about memory.


def record(argument: str) -> None:
    """Play at random and write the observations to a file: `game:count:path`."""
    from comper.environments.atari import AtariEnvironment

    game, count, path = argument.split(":")
    environment = AtariEnvironment(game, rng=np.random.default_rng(1))
    rng, frames = np.random.default_rng(0), [environment.reset()]
    while len(frames) < int(count):
        step = environment.step(int(rng.integers(18)))
        frames.append(step.frames[0])
        if step.terminated or step.truncated:
            frames.append(environment.reset())
    np.save(path, np.stack(frames[: int(count)]))
    print(json.dumps({"frames": int(count)}))


SIDES: dict[str, Callable[[str], Side]] = {
    function.__name__: function
    for function in (
        emulator_ours, emulator_ale, emulator_bare, dqn_ours, dqn_sb3, comper_ours, qlstm_ours, qlstm_torch,
    )
}  # fmt: skip


def main() -> None:
    """Set the side up, say so, and answer every line with a segment."""
    if sys.argv[1] == "record":
        return record(sys.argv[2])
    segment = SIDES[sys.argv[1]](sys.argv[2])
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(segment()), flush=True)


if __name__ == "__main__":
    main()
