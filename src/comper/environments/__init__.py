"""Environments: Atari games by the paper's protocol, any Gymnasium environment with discrete actions, many at once.

Importing this package imports neither an emulator nor Gymnasium; making an environment does.
"""

from comper.environments.atari import AtariEnvironment
from comper.environments.games import available_games, resolve_game
from comper.environments.interface import Environment, Step

__all__ = ["AtariEnvironment", "Environment", "Step", "available_games", "resolve_game"]
