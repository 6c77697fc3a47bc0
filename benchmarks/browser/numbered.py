"""Pictures of a scene that moves, each with its number in it as black and white blocks. Needs numpy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

BITS = 20
BLOCK = 40
"""Side of a block in pixels of a picture 1920 wide; others in proportion."""
_MARGIN = 16
POOL = 12
"""Different pictures before they come again, with other numbers."""


def moving(base: np.ndarray, size: tuple[int, int], count: int) -> list[np.ndarray]:
    """`count` pictures (height, width, 3) uint8 of a window that circles over `base`; each differs from the next."""
    width, height = size
    room_y, room_x = base.shape[0] - height, base.shape[1] - width
    pictures = []
    for i in range(count):
        angle = 2 * np.pi * i / count
        y, x = int(room_y * (0.5 + 0.5 * np.sin(angle))), int(room_x * (0.5 + 0.5 * np.cos(angle)))
        pictures.append(np.ascontiguousarray(base[y:y + height, x:x + width]))
    return pictures


def extent(width: int) -> tuple[int, int]:
    """(side of a block, margin) in a picture so wide."""
    return max(BLOCK * width // 1920, 4), max(_MARGIN * width // 1920, 2)


def write(picture: np.ndarray, number: int) -> None:
    """Draw the number into (H, W, C) uint8: its bits in a row, and below them their opposites."""
    side, margin = extent(picture.shape[1])
    bits = np.array([number >> k & 1 for k in range(BITS)], np.uint8) * 255
    row = np.repeat(bits, side)[None, :, None]
    picture[margin:margin + side, margin:margin + BITS * side, :3] = row
    picture[margin + side:margin + 2 * side, margin:margin + BITS * side, :3] = 255 - row


def read(picture: np.ndarray) -> int:
    """The number that a picture shows, whatever its size. Raises ValueError when it shows none."""
    scale = picture.shape[1] / 1920
    number = 0
    for k in range(BITS):
        x = round((_MARGIN + (k + 0.5) * BLOCK) * scale)
        above, below = (float(picture[round((_MARGIN + (0.5 + row) * BLOCK) * scale), x].mean()) for row in (0, 1))
        if abs(above - below) < 100:
            raise ValueError(f"no number in the picture: block {k} has {above:.0f} and {below:.0f}")
        number |= int(above > below) << k
    return number


def likeness(seen: np.ndarray, meant: np.ndarray) -> float:
    """PSNR in dB of two (H, W, 3) uint8 pictures; the meant one is reduced when the seen one is smaller."""
    if seen.shape != meant.shape:
        from PIL import Image

        meant = np.asarray(Image.fromarray(meant).resize(seen.shape[1::-1], Image.Resampling.BOX))
    error = float(np.square(seen.astype(np.float32) - meant).mean())
    return 99.0 if error == 0 else 10 * np.log10(255.0**2 / error)


def load(path: str | Path) -> np.ndarray:
    """The base picture, (H, W, 3) uint8."""
    return np.load(path, allow_pickle=False)
