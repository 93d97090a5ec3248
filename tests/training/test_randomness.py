"""Random streams: one for each use, from the seed alone, saved and continued."""

from __future__ import annotations

import itertools

import numpy as np

from comper.training.randomness import Streams, environment_seed, generator_state, set_generator_state, streams


def drawn(rng: np.random.Generator) -> list[int]:
    return [int(number) for number in rng.integers(1 << 60, size=8)]


def test_the_seed_alone_decides_every_stream() -> None:
    first, again, other = ([drawn(rng) for rng in streams(seed)] for seed in (5, 5, 6))
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_no_two_streams_are_the_same_within_a_seed_or_between_neighbours() -> None:
    series = [drawn(rng) for seed in range(4) for rng in streams(seed)]
    assert all(a != b for a, b in itertools.combinations(series, 2))


def test_the_environments_stream_can_be_made_elsewhere() -> None:
    assert drawn(np.random.default_rng(environment_seed(9))) == drawn(streams(9).environment)


def test_streams_are_those_of_recorded_runs() -> None:
    """The order of the streams and NumPy's generators, which NumPy promises to keep: recorded runs rest on them."""
    assert Streams._fields == ("weights", "exploration", "sampling", "environment")
    children = np.random.SeedSequence(7).spawn(4)
    expected = [np.random.Generator(np.random.PCG64(child)).integers(1 << 60, size=8).tolist() for child in children]
    assert [drawn(rng) for rng in streams(7)] == expected


def test_a_saved_stream_continues_where_it_was() -> None:
    rng = streams(1).sampling
    drawn(rng)
    rng.integers(2, dtype=np.uint32)  # half of a 64-bit number is left over and belongs to the state
    state = generator_state(rng)
    expected = [rng.integers(1 << 30, dtype=np.uint32) for _ in range(3)] + drawn(rng)
    other = streams(2).exploration
    set_generator_state(other, state)
    assert [other.integers(1 << 30, dtype=np.uint32) for _ in range(3)] + drawn(other) == expected
