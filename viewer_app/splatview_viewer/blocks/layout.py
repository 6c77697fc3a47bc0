"""The layout of packed scenes: the one place that names bits and bytes.

Shaders read them (`render/gl/shaders/read_blocks.glsl`), and `blocks.unpacking` where
recordings hold them.

The Gaussians of a scene, in the order of the training, are divided into blocks of
`BLOCK`. The last block is filled up with Gaussians of opacity 0, which are not drawn.
So is what stands in the place of one that cannot be drawn (`render.activation`).
A block has three parts, each of which is packed, sent and uploaded by itself. All
numbers are little-endian.

**quick**: `HEADER` float32, then 4 words (uint32) for each Gaussian. A number of b bits
stands for `low + span * bits / (2**b - 1)`, in the ranges of its block:

    word 0   x: 15 bits, y: 15 bits, index of the rotation's largest part: 2 bits
    word 1   z: 15 bits, a bit that is 0, log of the scale along x: 8 bits, along y: 8 bits
    word 2   log of the scale along z: 8 bits, red, green, blue of sh0: 8 bits each
    word 3   rotation: the smallest three parts of the quaternion w, x, y, z in their
             order, 8 bits each from -1/sqrt(2) to 1/sqrt(2), where the largest one is
             positive; opacity: 8 bits, from 0 to 1

**exact**: `HEADER` float32, then 8 words for each Gaussian:

    words 0-2  x, y, z: float32
    word 3     opacity: float16, red of sh0: float16
    word 4     green and blue of sh0: float16 each
    word 5     log of the scale along x and y: float16 each
    word 6     log of the scale along z: float16; the last of the rotation's smallest
               three parts: 15 bits; a bit that is 1 where the Gaussian cannot be drawn
    word 7     the first two of the smallest three parts, which are those of the quick
               form: 15 bits each; index of the largest part: 2 bits

**harmonics**: for each four coefficients beyond degree 0 (the last four are filled up
with 0), 4 words for each Gaussian, a word a coefficient:

    bits 0-8, 9-17, 18-26   red, green, blue: 9 bits, two's complement
    bits 27-31              exponent e: the number is bits * 2**(e - `EXPONENT_BIAS`)

Positions are relative to the origin of the scene, so that float32 holds them where a scene
is far away from 0. The first word of a field lies in its lowest bits.

The header of a block is 6 texels of 4 numbers:

    0   lows of x, y, z; the form: `QUICK` or `EXACT`
    1   spans of x, y, z; 0
    2   lows of the logs of the scales; 0
    3   their spans; 0
    4   lows of red, green, blue; 0
    5   their spans; 0

Where textures hold a scene, a block is a row of the texture of words (2,048 texels of 4
words, of which the quick form takes the first 1,024), a row of the texture of headers
(6 texels), and as many rows of the texture of harmonics as a Gaussian has groups of four
coefficients (1,024 texels of 4 words).
"""

from __future__ import annotations

from typing import Literal

from splatview_viewer.core.arithmetic import ceil_div

BLOCK = 1024
"""Gaussians of a block."""
HEADER = 24
"""Numbers of a block's header."""
QUICK = 1
EXACT = 2
QUICK_WORDS = 4
EXACT_WORDS = 8
EXPONENT_BIAS = 23
MANTISSA_MAX = 255
HARMONIC_MAX = MANTISSA_MAX * 2.0 ** (31 - EXPONENT_BIAS)
"""The largest coefficient beyond degree 0."""
LOG_SCALE_MIN = -30.0
"""The scale of flat Gaussians, whose logarithm is minus infinity."""

BlockPart = Literal["quick", "exact", "harmonics"]


def block_count(gaussians: int) -> int:
    """Return the number of blocks of so many Gaussians."""
    return ceil_div(gaussians, BLOCK)


def harmonics_rows(coefficients: int) -> int:
    """Return the rows of a block in the texture of harmonics.

    Args:
        coefficients: beyond degree 0, for each Gaussian.
    """
    return ceil_div(coefficients, 4)


def part_bytes(block_part: BlockPart, coefficients: int) -> int:
    """Return the bytes of a part of one block.

    Args:
        block_part: one of the three.
        coefficients: beyond degree 0, for each Gaussian.
    """
    if block_part == "harmonics":
        return harmonics_rows(coefficients) * BLOCK * 16
    word_count = QUICK_WORDS if block_part == "quick" else EXACT_WORDS
    return HEADER * 4 + BLOCK * word_count * 4
