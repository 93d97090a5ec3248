"""The emulator's colours: what ALE shows for a palette index, and how its colour averaging mixes two of them.

A21: the luminance is ALE's own, from red, green and blue; nothing is reduced to the paper's "8 different colours".

Everything here was measured on ale-py 0.12.1 from outside, by comparing `getScreen` (indices) with `getScreenRGB` and
`getScreenGrayscale` on all 104 supported ROMs, with random play and random RAM writes until every colour had been seen:

* 94 ROMs use the NTSC palette, the 10 whose screen has 250 rows the PAL one. All 128 colours of both were seen.
* An even index is a colour. Its luminance is round(0.2989 R + 0.587 G + 0.114 B): equal for all 256 colours.
* An odd index (PAL's loss of colour; Air Raid alone shows it in ordinary play) is the grey of the colour before it. Its
  `getScreenGrayscale`, though, is the blue of the colour after it: equal for all 126 odd indices seen.
* `color_averaging` mixes channel by channel, 77 % towards the brighter, rounds down to a multiple of 4 and takes the nearest
  colour (sum of absolute differences, the lowest index of equals). Equal in every pixel of 120 steps of 103 games, wherever
  both indices are even; in the 104th, 3-D Tic-Tac-Toe, ALE goes on mixing in an older screen while the picture stands still
  (82 pixels of 4 million). For an odd index ALE's answer changes from one emulator to the next (17 of 17 pairs), so there is
  no value to match: the rule is applied to its grey.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

POOLINGS = ("average", "max", "none")

# The 128 colours (RGB) of the even indices, one hue per line, the darkest first.
NTSC_COLOURS = """
    000000 4a4a4a 6f6f6f 8e8e8e aaaaaa c0c0c0 d6d6d6 ececec
    484800 69690f 86861d a2a22a bbbb35 d2d240 e8e84a fcfc54
    7c2c00 904811 a26221 b47a30 c3903d d2a44a dfb755 ecc860
    901c00 a33915 b55328 c66c3a d5824a e39759 f0aa67 fcbc74
    940000 a71a1a b83232 c84848 d65c5c e46f6f f08080 fc9090
    840064 97197a a8308f b846a2 c659b3 d46cc3 e07cd2 ec8ce0
    500084 68199a 7d30ad 9246c0 a459d0 b56ce0 c57cee d48cfc
    140090 331aa3 4e32b5 6848c6 7f5cd5 956fe3 a980f0 bc90fc
    000094 181aa7 2d32b8 4248c8 545cd6 656fe4 7580f0 8490fc
    001c88 183b9d 2d57b0 4272c2 548ad2 65a0e1 75b5ef 84c8fc
    003064 185080 2d6d98 4288b0 54a0c5 65b7d9 75cceb 84e0fc
    004030 18624e 2d8169 429e82 54b899 65d1ae 75e7c2 84fcd4
    004400 1a661a 328432 48a048 5cba5c 6fd26f 80e880 90fc90
    143c00 355f18 527e2d 6e9c42 87b754 9ed065 b4e775 c8fc84
    303800 505916 6d762b 88923e a0ab4f b7c25f ccd86e e0ec7c
    482c00 694d14 866a26 a28638 bb9f47 d2b656 e8cc63 fce070
"""
PAL_COLOURS = """
    000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
    000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
    805800 96711a ab8732 be9c48 cfaf5c dfc06f eed180 fce090
    445c00 5e791a 769332 8cac48 a0c25c b3d76f c4ea80 d4fc90
    703400 89511a a06b32 b68448 c99a5c dcaf6f ecc280 fcd490
    006414 1a8035 329852 48b06e 5cc587 6fd99e 80ebb4 90fcc8
    700014 891a35 a03252 b6486e c95c87 dc6f9e ec80b4 fc90c8
    005c5c 1a7676 328e8e 48a4a4 5cb8b8 6fcbcb 80dcdc 90ecec
    70005c 841a74 963289 a8489e b75cb0 c66fc1 d380d1 e090e0
    003c70 195a89 2f75a0 448eb6 57a5c9 68badc 79ceec 88e0fc
    580070 6e1a89 8332a0 9648b6 a75cc9 b76fdc c680ec d490fc
    002070 193f89 2f5aa0 4474b6 578bc9 68a1dc 79b5ec 88c8fc
    340080 4a1a96 5f32ab 7248be 835ccf 936fdf a280ee b090fc
    000088 1a1a9d 3232b0 4848c2 5c5cd2 6f6fe1 8080ef 9090fc
    000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
    000000 2b2b2b 525252 767676 979797 b6b6b6 d2d2d2 ececec
"""

PAL_NUM_ROWS = 250
"""Height of the screens that use the PAL palette."""

BRIGHTER_PERCENT = 77
"""Share of the brighter channel when ALE averages two colours."""

LUMINANCE_WEIGHTS = np.array([0.2989, 0.587, 0.114])


def luminance(rgb: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Grey of RGB colours, as ALE computes it."""
    grey: NDArray[np.uint8] = np.rint(rgb @ LUMINANCE_WEIGHTS).astype(np.uint8)
    return grey


@cache
def palette(num_rows: int) -> NDArray[np.int16]:
    """RGB of each of the 256 indices, for a game whose screen has so many rows."""
    digits = PAL_COLOURS if num_rows == PAL_NUM_ROWS else NTSC_COLOURS
    colours = np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(128, 3).astype(np.int16)
    rgb = np.repeat(colours, 2, axis=0)
    rgb[1::2] = luminance(colours)[:, None]
    return rgb


def screen_luminance(rgb: NDArray[np.int16]) -> NDArray[np.uint8]:
    """What ALE's `getScreenGrayscale` shows for each of the 256 indices."""
    grey = luminance(rgb)
    grey[1:-1:2] = rgb[2::2, 2]
    grey[-1] = 0
    return grey


def averaged_index(rgb: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Index that ALE's colour averaging shows for each pair of indices, (256, 256)."""
    return np.stack([_nearest_even_index(_mix(rgb, colour), rgb) for colour in rgb])


def _mix(rgb: NDArray[np.int16], other: NDArray[np.int16]) -> NDArray[np.int16]:
    brighter, darker = np.maximum(rgb, other), np.minimum(rgb, other)
    return (brighter - darker) * BRIGHTER_PERCENT // 100 + darker


def _nearest_even_index(mixed: NDArray[np.int16], rgb: NDArray[np.int16]) -> NDArray[np.uint8]:
    coarse = mixed & ~3
    distance = np.zeros((len(mixed), len(rgb) // 2), np.int16)
    for channel in range(3):  # twelve times faster than the sum over an axis of three
        distance += np.abs(coarse[:, None, channel] - rgb[None, ::2, channel])
    nearest: NDArray[np.uint8] = (2 * distance.argmin(axis=1)).astype(np.uint8)
    return nearest


@cache
def pooling_table(pooling: str, num_rows: int) -> NDArray[np.uint8]:
    """Grey of a pixel by its index in the previous and in the current screen, (256, 256). Tables 7 and 8."""
    rgb = palette(num_rows)
    grey = screen_luminance(rgb)
    if pooling == "average":
        return grey[averaged_index(rgb)]
    if pooling == "max":
        return np.maximum(grey[:, None], grey[None, :])
    if pooling == "none":
        return np.tile(grey, (256, 1))
    raise ValueError(f"pooling = {pooling!r}: must be one of {', '.join(POOLINGS)}.")
