"""Train Stable-Baselines3's DQN on Pong with a replay buffer that takes about 1 % of the memory of its own.

pip install ".[sb3,atari]"   # in a checkout
python examples/sb3_dqn.py            # 100,000 steps
python examples/sb3_dqn.py 1000       # a short one
"""

import argparse

import ale_py
import gymnasium
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

from comper.integrations.sb3 import CompactReplayBuffer

gymnasium.register_envs(ale_py)
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("steps", nargs="?", type=int, default=100_000, help="steps of the environment (default: %(default)s)")
steps = parser.parse_args().steps
env = VecFrameStack(make_atari_env("PongNoFrameskip-v4", seed=0), n_stack=4)

model = DQN(
    "CnnPolicy",
    env,
    buffer_size=100_000,
    learning_starts=min(10_000, steps // 2),
    seed=0,
    verbose=1,  # a table every few episodes
    replay_buffer_class=CompactReplayBuffer,
    replay_buffer_kwargs={"compression": "zlib"},
)
model.learn(steps)
print(model.replay_buffer)

model.replay_buffer.save("pong_buffer")  # a folder of arrays; model.save_replay_buffer(...) makes a pickle
model.replay_buffer = CompactReplayBuffer.load("pong_buffer", device=model.device)
model.learn(steps // 10, reset_num_timesteps=False)
