"""Random streams of a trial: one for each use, all from its seed, none shared. No global generator is used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Streams(NamedTuple):
    """Named generators of one trial (A11). A new one goes to the end, or the others would become others."""

    weights: np.random.Generator
    exploration: np.random.Generator
    sampling: np.random.Generator
    environment: np.random.Generator


def streams(seed: int) -> Streams:
    """The streams of a seed."""
    return Streams(*(np.random.default_rng(child) for child in _children(seed)[: len(Streams._fields)]))


def environment_seed(seed: int) -> np.random.SeedSequence:
    """What the environment's stream is made from, to be sent to where the environment lives."""
    return _children(seed)[Streams._fields.index("environment")]


def evaluation_seed(seed: int) -> np.random.SeedSequence:
    """The same for an evaluation, whose episodes are others than those of training."""
    return _children(seed)[len(Streams._fields)]


def _children(seed: int) -> list[np.random.SeedSequence]:
    return np.random.SeedSequence(seed).spawn(len(Streams._fields) + 1)


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator as plain integers and strings."""
    return dict(rng.bit_generator.state)


def set_generator_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    """Continue from a saved state."""
    rng.bit_generator.state = state
