"""The floors live in `comper.environments.floors`; this name stays until the report's modules import them from there."""

from comper.environments.floors import FLOORS_FILE, ConstantFloor, Floor, Floors, RandomFloor, load_floors, save_floors

__all__ = ["FLOORS_FILE", "ConstantFloor", "Floor", "Floors", "RandomFloor", "load_floors", "save_floors"]
