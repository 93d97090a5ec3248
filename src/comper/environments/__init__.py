"""Environments: Atari games by the paper's protocol, any Gymnasium environment with discrete actions, many at once.

Importing this package imports neither an emulator nor Gymnasium; making an environment does.
"""

from comper.environments.atari import AtariEnvironment, AtariFactory
from comper.environments.games import available_games, resolve_game
from comper.environments.gymnasium_adapter import GymnasiumEnvironment, GymnasiumFactory
from comper.environments.interface import Environment, Step
from comper.environments.stepper import ProcessStepper, SerialStepper, Stepper

__all__ = [
    "AtariEnvironment",
    "AtariFactory",
    "Environment",
    "GymnasiumEnvironment",
    "GymnasiumFactory",
    "ProcessStepper",
    "SerialStepper",
    "Step",
    "Stepper",
    "available_games",
    "resolve_game",
]
