"""COMPER: Compact Experience Replay (arXiv 2111.06907).

    from comper import train
    folders = train("freeway", "comper-single", frames=20_000)

Names are imported when they are first used, so that the memory is usable without torch and without an emulator.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "train": "comper.training.train",
    "resume": "comper.training.resume",
    "ComperConfig": "comper.protocol",
    "DQNConfig": "comper.protocol",
    "RandomConfig": "comper.protocol",
    "ConstantConfig": "comper.protocol",
    "PRESETS": "comper.protocol",
    "FrameStore": "comper.memory.frames",
    "Transition": "comper.memory.transitions",
    "TransitionMemory": "comper.memory.transition_memory",
    "ReducedTransitionMemory": "comper.memory.reduced",
    "ReplayMemory": "comper.memory.replay",
    "make_index": "comper.memory.indexes",
    "AtariEnvironment": "comper.environments.atari",
    "find_environment": "comper.environments.registry",
    "ComperAgent": "comper.agents.comper",
    "DQNAgent": "comper.agents.dqn",
    "RandomAgent": "comper.agents.floors",
    "ConstantAgent": "comper.agents.floors",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'comper' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
