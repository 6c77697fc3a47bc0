"""Write the pictures of README and docs as WebP, small enough for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path

QUALITIES = (88, 84, 80, 72)
"""The first with which a picture is small enough is taken."""
MAX_BYTES = 120_000
MAX_WIDTH = 1260
_GAP = 24
"""Pixels between two pictures beside each other."""
_BACKGROUND = (14, 15, 17)


def join_pictures(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two pictures of one height beside each other."""
    height = right.height
    left = left.resize((round(left.width * height / left.height), height))
    both = Image.new("RGB", (left.width + _GAP + right.width, height), _BACKGROUND)
    both.paste(left, (0, 0))
    both.paste(right, (left.width + _GAP, 0))
    return both


def write_picture(
    picture: Image.Image, folder: Path, name: str, max_width: int = MAX_WIDTH
) -> None:
    """Write a picture as `name`.webp into a folder, not wider than pages show it."""
    width = min(picture.width, max_width)
    height = round(picture.height * width / picture.width)
    small = picture.resize((width, height), Image.Resampling.LANCZOS)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.webp"
    for quality in QUALITIES:
        small.save(file, quality=quality, method=6)
        if file.stat().st_size <= MAX_BYTES:
            break
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB", flush=True)
