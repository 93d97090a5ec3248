"""The form of the bytes that ALE writes of its state, checked before ALE is given any.

ALE believes what they say: a forged length makes it ask for up to 2 GB, a forged count makes it write past the end of an
array, a bank that a cartridge lacks ends the process, a mode that a game lacks ends its next reset. So lengths, counts, names,
mode and difficulty must be as in a state that the same emulator wrote itself, and banks must be there. What else stands in a
state is not judged: numbers that a game may come to.

A number has 4 bytes, the lowest first; a text is its length and its bytes. A state (ale-py 0.12) is

    4 numbers    paddles and frames
    2 numbers    mode and difficulty
    a text, in which there are
        a text       the ROM's MD5
        a text       "System"
        a number     cycles
        a text       a random generator in decimal digits: of any length
        devices      each a text, its name, and numbers, of which some say how many follow; and the score's numbers
        a text       another random generator
    2 numbers    limits of the paddles
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_NUMBER = 4
_MODE_AT = 4 * _NUMBER
_TEXT_AT = 6 * _NUMBER
_DIGITS = b"0123456789 "
_BEGINNING_OF_NAME = re.compile(rb"M65|TIA|Cartridge")
_NAME = re.compile(rb"M6502\w*|M6532|TIA|TIASound|Cartridge\w+")

_COUNTS = {
    b"M6532": (0,),
    b"CartridgeE0": (0,),
    b"CartridgeF6SC": (1,),
    b"CartridgeF8SC": (1,),
    b"CartridgeDPC": (1, 10, 19, 28, 37),
}
"""Device -> which of the numbers after its name are counts."""

_BANKS = {
    b"CartridgeF6": ((0,), 4),
    b"CartridgeF8": ((0,), 2),
    b"CartridgeF6SC": ((0,), 4),
    b"CartridgeF8SC": ((0,), 2),
    b"CartridgeDPC": ((0,), 2),
    b"CartridgeE0": ((1, 2, 3, 4), 8),
}
"""Device -> which of the numbers after its name are of banks, and how many banks it has."""


def has_form_of(state: bytes, own: bytes) -> bool:
    """Whether all that ALE believes of a state is as in one that the emulator itself wrote."""
    try:
        own_frame, own_devices = _parts(own)
    except ValueError:
        return True  # another ALE, which writes in a form that is not known here
    try:
        frame, devices = _parts(state)
    except ValueError:
        return False
    return (
        frame == own_frame
        and len(devices) == len(own_devices)
        and all(devices[part] == own_devices[part] for part in _fixed_parts(own_devices))
        and all(_number(devices, at) < count for at, count in _banks(own_devices))
    )


def _parts(state: bytes) -> tuple[bytes, bytes]:
    """What no play changes before the first random generator and after the second, and the devices between the two."""
    begin, end = _TEXT_AT + _NUMBER, _end_of_text(state, _TEXT_AT)
    end_of_names = _end_of_text(state, _end_of_text(state, begin))
    devices = _end_of_text(state, end_of_names + _NUMBER)
    end_of_devices = len(state[:end].rstrip(_DIGITS)) - _NUMBER
    if _end_of_text(state, end_of_devices) != end:
        raise ValueError("the lengths of its texts do not fit")
    return state[_MODE_AT:_TEXT_AT] + state[begin:end_of_names] + state[end:], state[devices:end_of_devices]


def _end_of_text(state: bytes, at: int) -> int:
    return at + _NUMBER + _number(state, at)


def _number(content: bytes, at: int) -> int:
    return int.from_bytes(content[at : at + _NUMBER], "little")


def _names(devices: bytes) -> Iterator[tuple[bytes, int]]:
    """The devices' names, and where each ends."""
    for match in _BEGINNING_OF_NAME.finditer(devices, _NUMBER):
        end = match.start() + _number(devices, match.start() - _NUMBER)
        name = devices[match.start() : end]
        if _NAME.fullmatch(name):
            yield name, end


def _fixed_parts(devices: bytes) -> Iterator[slice]:
    """Where names with their lengths are, and counts."""
    for name, end in _names(devices):
        yield slice(end - len(name) - _NUMBER, end)
        for number in _COUNTS.get(name, ()):
            yield slice(end + number * _NUMBER, end + (number + 1) * _NUMBER)


def _banks(devices: bytes) -> Iterator[tuple[int, int]]:
    """Where numbers of banks are, and how many banks there are."""
    for name, end in _names(devices):
        numbers, count = _BANKS.get(name, ((), 0))
        yield from ((end + number * _NUMBER, count) for number in numbers)
