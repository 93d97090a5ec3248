"""Random streams: one for each use, all from the trial's seed, none shared."""

from __future__ import annotations

import numpy as np

from comper.training.randomness import environment_seed, generator_state, set_generator_state, streams


def first_draws(seed: int) -> list[int]:
    return [int(stream.integers(2**62)) for stream in streams(seed)]


def test_every_use_has_a_stream_of_its_own_and_every_seed_its_own_streams() -> None:
    draws = [*first_draws(0), *first_draws(1)]
    assert len(set(draws)) == len(draws) == 8
    assert first_draws(0) == draws[:4]


def test_the_environment_is_made_from_its_own_stream() -> None:
    sent = np.random.default_rng(environment_seed(3))
    assert sent.integers(2**62, size=3).tolist() == streams(3).environment.integers(2**62, size=3).tolist()


def test_a_generator_goes_on_from_its_saved_state() -> None:
    stream, other = streams(0).sampling, streams(1).sampling
    stream.random(3)
    set_generator_state(other, generator_state(stream))
    assert other.random(5).tolist() == stream.random(5).tolist()
