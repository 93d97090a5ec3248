"""Environments by name: Atari games with the paper's protocol, Gymnasium, MinAtar, MiniGrid, and your own; many at once.

Importing this package imports neither an emulator nor Gymnasium; finding or making an environment does.
"""

from comper.environments.atari import AtariEnvironment, AtariSettings
from comper.environments.environment import Environment, EnvironmentFactory, EnvironmentInfo, EnvironmentSpec, Step
from comper.environments.families import FAMILIES, find_environment
from comper.environments.games import available_games, resolve_game
from comper.environments.stepper import ProcessStepper, SerialStepper, Stepper

__all__ = [
    "FAMILIES",
    "AtariEnvironment",
    "AtariSettings",
    "Environment",
    "EnvironmentFactory",
    "EnvironmentInfo",
    "EnvironmentSpec",
    "ProcessStepper",
    "SerialStepper",
    "Step",
    "Stepper",
    "available_games",
    "find_environment",
    "resolve_game",
]
