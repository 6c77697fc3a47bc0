"""Make the README's pictures of those that `make pictures` took.

    make pictures SCENE=scene
    python tools/readme_pictures.py build/pictures

They are written into `.github/pictures` as WebP, about 100 kB each.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image
from webp_pictures import join_pictures, write_picture

TARGET = Path(__file__).parents[1] / ".github" / "pictures"
WIDTH = 1200
SINGLE = {
    "window": "1-look-dark",
    "panes": "3-compare",
    "memory": "4-memory",
    "overlay": "image-overlay",
}
"""Each of the README's pictures, and the one that it is made of."""
PAGES = ("2-look-light", "6b-phone-photograph")
"""The pictures beside each other in "browser": a page on a desktop, and on a phone."""


def main() -> None:
    """Make all of the README's pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `make pictures` wrote")
    folder = parser.parse_args().folder
    for name, source_name in SINGLE.items():
        picture = Image.open(folder / f"{source_name}.png").convert("RGB")
        write_picture(picture, TARGET, name, WIDTH)
    pages = [Image.open(folder / f"{name}.png").convert("RGB") for name in PAGES]
    write_picture(join_pictures(*pages), TARGET, "browser", WIDTH)


if __name__ == "__main__":
    main()
