"""What ALE is given to restore has the form that ALE itself writes: no length, count or bank is believed unseen."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest

from comper.environments.atari import AtariEnvironment
from comper.environments.emulator_state import _banks, _fixed_parts, _parts, has_form_of
from comper.errors import DamagedFileError
from tests.faults import lab

CARTRIDGES = {
    "freeway": "Cartridge2K",
    "space_invaders": "Cartridge4K",
    "asterix": "CartridgeF8",
    "elevator_action": "CartridgeF8SC",
    "road_runner": "CartridgeF6",
    "klax": "CartridgeF6SC",
    "montezuma_revenge": "CartridgeE0",
    "pitfall2": "CartridgeDPC",
    "robotank": "CartridgeFE",
}
"""A game of each kind of cartridge that ale-py 0.12.1 has; each writes its state in another form."""
BANKS = {"F8": (1, 2), "F8SC": (1, 2), "F6": (1, 4), "F6SC": (1, 4), "E0": (4, 8), "DPC": (1, 2)}
"""Cartridge -> how many numbers of banks its state holds, and how many banks it has."""
MODE, DIFFICULTY = 16, 20
LENGTH_OF_ALL, LENGTH_OF_CHECKSUM, LENGTH_OF_SYSTEM, LENGTH_OF_GENERATOR = 24, 28, 64, 78
HUGE = (1_700_000_000).to_bytes(4, "little")


def make(game: str) -> AtariEnvironment:
    return AtariEnvironment(game, rng=np.random.default_rng(0))


def states_of(env: AtariEnvironment, count: int) -> list[bytes]:
    """States of random play."""
    states, rng = [], np.random.default_rng(1)
    env.reset()
    for _ in range(count):
        for action in rng.integers(18, size=20):
            step = env.step(int(action))
            if step.terminated or step.truncated:
                env.reset()
        states.append(env.state_dict()["emulator"])
    return states


def changed(state: bytes, at: int, content: bytes) -> bytes:
    return state[:at] + content + state[at + len(content) :]


def count_places(state: bytes) -> list[int]:
    """Where a state holds counts."""
    devices = _parts(state)[1]
    return [state.index(devices) + part.start for part in _fixed_parts(devices) if part.stop - part.start == 4]


@pytest.fixture(scope="module")
def freeway() -> AtariEnvironment:
    return make("freeway")


@pytest.mark.parametrize("game", CARTRIDGES)
def test_states_of_every_kind_of_cartridge_are_taken(game: str) -> None:
    env = make(game)
    own = env.state_dict()["emulator"]
    states = states_of(env, 5)
    assert CARTRIDGES[game].encode() in own
    assert len(set(states)) == 5
    assert all(has_form_of(state, own) and has_form_of(own, state) for state in states)


@pytest.mark.parametrize("game", CARTRIDGES)
def test_counts_that_ale_would_follow_past_the_end_of_its_arrays_are_refused(game: str) -> None:
    own = make(game).state_dict()["emulator"]
    places = count_places(own)
    counts = [int.from_bytes(own[place : place + 4], "little") for place in places]
    expected = {"CartridgeF8SC": [128, 128], "CartridgeF6SC": [128, 128], "CartridgeE0": [128, 4]}
    assert counts == {**expected, "CartridgeDPC": [128, 8, 8, 8, 8, 3]}.get(CARTRIDGES[game], [128])
    for place, count in zip(places, counts, strict=True):
        assert not has_form_of(changed(own, place, (count + 1).to_bytes(4, "little")), own)


@pytest.mark.parametrize("game", CARTRIDGES)
def test_banks_that_the_cartridge_lacks_are_refused(game: str) -> None:
    own = make(game).state_dict()["emulator"]
    devices = _parts(own)[1]
    places = [(own.index(devices) + at, count) for at, count in _banks(devices)]
    number, expected = BANKS.get(CARTRIDGES[game].removeprefix("Cartridge"), (0, 0))
    assert [count for _, count in places] == [expected] * number
    for at, count in places:
        assert has_form_of(changed(own, at, (count - 1).to_bytes(4, "little")), own)
        assert not has_form_of(changed(own, at, count.to_bytes(4, "little")), own)


@pytest.mark.parametrize("at", [MODE, DIFFICULTY, -8, -4])
def test_settings_that_no_play_changes_are_refused_where_they_differ(freeway: AtariEnvironment, at: int) -> None:
    own = freeway.state_dict()["emulator"]
    at %= len(own)
    assert not has_form_of(changed(own, at, (7).to_bytes(4, "little")), own)


def test_a_state_that_is_refused_changes_nothing(freeway: AtariEnvironment) -> None:
    freeway.reset()
    before = freeway.state_dict()
    forged = changed(before["emulator"], count_places(before["emulator"])[0], (5_000).to_bytes(4, "little"))
    with pytest.raises(DamagedFileError, match="emulator state of freeway cannot be read"):
        freeway.load_state_dict({**before, "emulator": forged})
    assert freeway.state_dict()["emulator"] == before["emulator"]


@pytest.mark.parametrize("content", [None, 7, "text", [], np.zeros(14_417, np.uint8), b"", b"\0" * 14_417, b"\1" * 14_417])
def test_what_is_no_state_at_all_is_refused(freeway: AtariEnvironment, content: Any) -> None:
    freeway.reset()
    with pytest.raises(DamagedFileError, match="emulator state of freeway cannot be read"):
        freeway.load_state_dict({**freeway.state_dict(), "emulator": content})


@pytest.mark.parametrize("at", [LENGTH_OF_ALL, LENGTH_OF_CHECKSUM, LENGTH_OF_SYSTEM, LENGTH_OF_GENERATOR])
@pytest.mark.parametrize("length", [HUGE, b"\xff" * 4, b"\0" * 4])
def test_a_text_of_another_length_is_refused(freeway: AtariEnvironment, at: int, length: bytes) -> None:
    own = freeway.state_dict()["emulator"]
    assert not has_form_of(changed(own, at, length), own)


@pytest.mark.parametrize("length", [HUGE, b"\xff" * 4, b"\0" * 4])
def test_a_last_text_of_another_length_is_refused(freeway: AtariEnvironment, length: bytes) -> None:
    own = freeway.state_dict()["emulator"]
    at = own.index(_parts(own)[1]) + len(_parts(own)[1])
    assert not has_form_of(changed(own, at, length), own)


def test_every_name_with_its_length_is_compared(freeway: AtariEnvironment) -> None:
    own = freeway.state_dict()["emulator"]
    names = [b"System", b"M6502Low", b"M6532", b"TIA", b"TIASound", b"Cartridge2K"]
    for name in names:
        at = own.index(len(name).to_bytes(4, "little") + name)
        assert not has_form_of(changed(own, at, HUGE), own), name
        assert not has_form_of(changed(own, at + 4, b"X"), own), name


def test_numbers_that_happen_to_read_like_the_beginning_of_a_name_may_change(freeway: AtariEnvironment) -> None:
    own = freeway.state_dict()["emulator"]
    number = count_places(own)[0] + 4  # the first of the game's memory
    spelled = changed(own, number, (8).to_bytes(4, "little") + b"TIA\0" + bytes(4))
    assert has_form_of(own, spelled)
    assert has_form_of(spelled, own)


def test_a_state_cut_or_lengthened_anywhere_is_refused(freeway: AtariEnvironment) -> None:
    own = freeway.state_dict()["emulator"]
    spread = np.frombuffer(own, np.uint8).astype(np.int64).tobytes()
    assert not any(has_form_of(state, own) for state in (spread, own + own, own + b"0", own[4:]))
    assert not any(has_form_of(own[:length], own) for length in range(0, len(own), 7))
    assert not any(has_form_of(own[:at] + bytes(4) + own[at:], own) for at in range(0, len(own), 7))


def test_numbers_too_many_are_refused_where_all_lengths_fit(freeway: AtariEnvironment) -> None:
    own = freeway.state_dict()["emulator"]
    devices = _parts(own)[1]
    at = own.index(devices) + len(devices)
    longer = own[:at] + bytes(4) + own[at:]
    length = len(longer) - LENGTH_OF_CHECKSUM - 8
    assert len(_parts(changed(longer, LENGTH_OF_ALL, length.to_bytes(4, "little")))[1]) == len(devices) + 4
    assert not has_form_of(changed(longer, LENGTH_OF_ALL, length.to_bytes(4, "little")), own)


def test_an_emulator_that_writes_in_an_unknown_form_is_left_to_itself(freeway: AtariEnvironment) -> None:
    assert has_form_of(b"any", b"a form of another version")


@pytest.mark.parametrize("at", [LENGTH_OF_ALL, LENGTH_OF_CHECKSUM, LENGTH_OF_GENERATOR])
def test_a_forged_length_takes_no_memory(freeway: AtariEnvironment, at: int) -> None:
    freeway.reset()
    state = freeway.state_dict()
    forged = {**state, "emulator": changed(state["emulator"], at, HUGE)}

    def load() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(DamagedFileError):
            freeway.load_state_dict(forged)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes

    assert lab.run(load) == 0
