"""Bounds on what a file may become in memory: each reader declares what it is about to decode, before it does.

Two limits hold. What is decoded has to fit the file's size (`check_ratio`, `check_scene`): a file of a few hundred
bytes is not a scene of millions of Gaussians. And it has to fit the memory that is free (`check_memory`), which also
holds for files that are large in truth, or only on paper (sparse files).
"""

from __future__ import annotations

from splatview_ipc.system.free_memory import available_bytes
from splatview_viewer.core.errors import FileError

BOMB_BYTES, BOMB_RATIO = 64 << 20, 64
"""Decoded bytes that any file may have, and decoded bytes per byte of a larger one. Measured, with float32 fields:
.ply 1, .splat 1.8, compressed .ply 4, .spz 4 to 10, SOG 3 to 13: noise in positions does not compress, and each
Gaussian has 3 to 12 bytes of it in every format, for at most 236 decoded bytes."""
SHARE = 0.8
"""The part of the free memory that one file may take; the rest is for drawing it."""
ALWAYS = 16 << 20
"""Bytes for which the free memory is not looked up."""
JSON_GROWTH = 40
"""Bytes of Python objects per byte of JSON: `{"":0},` takes 7 bytes and becomes a mapping of 240."""
MOST_DIGITS = 18
"""Digits of a count in a text. Python refuses to print more than 4300, numpy and the kernel to take more than 18."""


def scene_bytes(count: int, coefficients: int) -> int:
    """Return the bytes of `count` Gaussians as float32, with so many coefficients per channel above degree 0."""
    return count * (14 + 3 * coefficients) * 4


def check_scene(count: int, coefficients: int, packed: int, *, growth: float = 2.4) -> None:
    """Check a count of Gaussians against the file's size and the free memory.

    Args:
        count: what the file claims.
        coefficients: per channel above degree 0: 0, 3, 8, 15 or 24.
        packed: bytes of the file, or of all files of the scene.
        growth: the most memory that decoding takes, as a multiple of the finished scene's.

    Raises:
        FileError: more than a file of this size, or this machine, can hold.
    """
    size = scene_bytes(count, coefficients)
    check_ratio(size, packed, f"{count:,} Gaussians")
    check_memory(int(size * growth), f"{count:,} Gaussians")


def check_ratio(unpacked: int, packed: int, what: str, *, spare: int = BOMB_BYTES, ratio: int = BOMB_RATIO) -> None:
    """Check a claim that only a decompression bomb could keep.

    Raises:
        FileError: over `spare` bytes, and more than `ratio` times what the file holds.
    """
    if unpacked > max(spare, ratio * packed):
        raise FileError(f"truncated, or made to exhaust memory: {what} take {unpacked:,} bytes, which {packed:,} "
                        "packed bytes do not hold")


def check_memory(need: int, what: str) -> None:
    """Check bytes that are about to be taken against the free memory (see `ipc.free_memory`).

    Raises:
        FileError: names what is needed, what is free and the next step.
    """
    if need <= ALWAYS:
        return
    free = available_bytes()
    if free is not None and need > SHARE * free:
        raise FileError(f"{what} need {_size(need)} of memory, {_size(free)} are free: end other programs, raise the "
                        "memory limit of this one, or make the file smaller")


def check_json(length: int, what: str) -> None:
    """Check a JSON text of `length` bytes before it is parsed. Raises FileError."""
    check_memory(JSON_GROWTH * length, what)


def whole_number(text: str, what: str) -> int:
    """Return a count that a file has as text.

    Raises:
        FileError: negative, too large for any file, or not decimal digits alone (`1_000`, `1e3`, `+1`, Arabic digits).
    """
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise FileError(f"damaged header: {what} of {clipped(text)}; expected a number of at most {MOST_DIGITS} digits")
    return int(text)


def clipped(text: str, most: int = 40) -> str:
    """Return the beginning of a text from a file, for a message."""
    return text if len(text) <= most else f"{text[:most]}..."


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"
