"""Keep transitions of a MiniGrid task in TorchRL's replay buffer, with a storage that keeps equal frames once.

pip install ".[torchrl,minigrid]"   # in a checkout
python examples/torchrl_buffer.py          # 10,000 steps
python examples/torchrl_buffer.py 1000     # a short one
"""

import argparse

import gymnasium
import minigrid  # noqa: F401 - registers its environments
import torch
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

from comper.integrations.torchrl import CompactSampler, CompactStorage

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("steps", nargs="?", type=int, default=10_000, help="steps of the environment (default: %(default)s)")
steps = parser.parse_args().steps
env = gymnasium.make("MiniGrid-Empty-5x5-v0")

buffer = TensorDictReplayBuffer(storage=CompactStorage(100_000), batch_size=32)
by_set = TensorDictReplayBuffer(storage=buffer.storage, sampler=CompactSampler(), batch_size=32)

observation, _ = env.reset(seed=0)
for _ in range(steps):
    action = env.action_space.sample()
    following, reward, terminated, truncated, _ = env.step(action)
    after = {"pixels": torch.from_numpy(following["image"]), "reward": torch.tensor([float(reward)])}
    after["terminated"] = torch.tensor([terminated])
    buffer.add(TensorDict({"pixels": torch.from_numpy(observation["image"]), "action": torch.tensor(action), "next": after}))
    observation = env.reset()[0] if terminated or truncated else following

print(buffer.storage)
print(len(buffer.storage.sets), "different transitions")
print("mean reward of 1,000 samples")
print("  every transition equally likely:   ", round(buffer.sample(1000)["next", "reward"].mean().item(), 4))
print("  every different one equally likely:", round(by_set.sample(1000)["next", "reward"].mean().item(), 4))
buffer.dumps("minigrid_buffer")
