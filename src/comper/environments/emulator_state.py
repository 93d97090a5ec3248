"""The form of the bytes that ALE writes of its state, checked before ALE is given any.

ALE believes the lengths and counts in them: a forged length makes it ask for up to 2 GB, a forged count makes it write past
the end of an array. So both must be as in a state that the same emulator wrote itself. What else stands in a state is not
judged: numbers that a game may come to.

A number has 4 bytes, the lowest first; a text is its length and its bytes. A state (ale-py 0.12) is

    6 numbers    paddles, frames, mode, difficulty
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
_TEXT_AT = 6 * _NUMBER
_SIZE_AFTER = 2 * _NUMBER
_DIGITS = b"0123456789 "
_NAME = re.compile(rb"M6502\w*|M6532|TIA|TIASound|Cartridge\w+")
_BEGINNING_OF_NAME = re.compile(rb"M65|TIA|Cartridge")

_COUNTS = {
    b"M6532": (0,),
    b"CartridgeE0": (0,),
    b"CartridgeF6SC": (1,),
    b"CartridgeF8SC": (1,),
    b"CartridgeDPC": (1, 10, 19, 28, 37),
}
"""Device -> which of the numbers after its name are counts."""


def has_form_of(state: bytes, own: bytes) -> bool:
    """Whether texts and counts of a state are as in one that the emulator itself wrote, but for its random generators."""
    try:
        own_names, own_devices = _parts(own)
    except ValueError:
        return True  # another ALE, which writes in a form that is not known here
    try:
        names, devices = _parts(state)
    except ValueError:
        return False
    is_as_long = names == own_names and len(devices) == len(own_devices)
    return is_as_long and all(devices[part] == own_devices[part] for part in _fixed_parts(own_devices))


def _parts(state: bytes) -> tuple[bytes, bytes]:
    """The two texts before the first random generator, and what is between it and the second."""
    begin, end = _TEXT_AT + _NUMBER, _end_of_text(state, _TEXT_AT)
    end_of_names = _end_of_text(state, _end_of_text(state, begin))
    devices = _end_of_text(state, end_of_names + _NUMBER)
    end_of_devices = len(state[:end].rstrip(_DIGITS)) - _NUMBER
    is_whole = devices <= end_of_devices and _end_of_text(state, end_of_devices) == end == len(state) - _SIZE_AFTER
    if not is_whole:
        raise ValueError("the lengths of its texts do not fit")
    return state[begin:end_of_names], state[devices:end_of_devices]


def _end_of_text(state: bytes, at: int) -> int:
    end = at + _NUMBER + int.from_bytes(state[at : at + _NUMBER], "little")
    if end > len(state):
        raise ValueError("a text is longer than the state")
    return end


def _fixed_parts(devices: bytes) -> Iterator[slice]:
    """Where the names of devices are, with their lengths, and where the counts are."""
    for match in _BEGINNING_OF_NAME.finditer(devices, _NUMBER):
        begin = match.start() - _NUMBER
        end = begin + _NUMBER + int.from_bytes(devices[begin : match.start()], "little")
        name = devices[match.start() : end]
        if _NAME.fullmatch(name):
            yield slice(begin, end)
            for number in _COUNTS.get(name, ()):
                yield slice(end + number * _NUMBER, end + (number + 1) * _NUMBER)
