"""Make the README's pictures of those that `make pictures` took.

    make pictures SCENE=scene
    python tools/readme_pictures.py build/pictures

They are written into `.github/pictures` as WebP, about 100 kB each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

TARGET = Path(__file__).parents[1] / ".github" / "pictures"
WIDTH = 1200
QUALITY = 84
_GAP = 24
"""Pixels between two pictures beside each other."""
_BACKGROUND = (14, 15, 17)
SINGLE = {
    "window": "1-look-dark",
    "panes": "3-compare",
    "memory": "4-memory",
    "overlay": "image-overlay",
}
"""Each of the README's pictures, and the one that it is made of."""
PAGES = ("2-look-light", "6b-phone-photograph")
"""The pictures beside each other in "browser": a page on a desktop, and on a phone."""


def join_pictures(left: Image.Image, right: Image.Image) -> Image.Image:
    """Return two pictures of one height beside each other."""
    height = right.height
    left = left.resize((round(left.width * height / left.height), height))
    both = Image.new("RGB", (left.width + _GAP + right.width, height), _BACKGROUND)
    both.paste(left, (0, 0))
    both.paste(right, (left.width + _GAP, 0))
    return both


def write(picture: Image.Image, name: str) -> None:
    """Write one of the README's pictures."""
    height = round(picture.height * WIDTH / picture.width)
    small = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
    file = TARGET / f"{name}.webp"
    small.save(file, quality=QUALITY, method=6)
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Make all of the README's pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `make pictures` wrote")
    folder = parser.parse_args().folder
    for name, source_name in SINGLE.items():
        write(Image.open(folder / f"{source_name}.png").convert("RGB"), name)
    pages = [Image.open(folder / f"{name}.png").convert("RGB") for name in PAGES]
    write(join_pictures(*pages), "browser")


if __name__ == "__main__":
    main()
