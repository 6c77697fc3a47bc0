"""Cut the pictures of docs/viewer.md and the guides out of those of `make pictures`.

    make pictures SCENE=scene
    python tools/page_pictures.py build/pictures

They are written into `docs/pictures` as WebP. Places are those of a screen of 1600x1000
points; a part that has moved is cut anew once its line here is mended.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from webp_pictures import join_pictures, write_picture

TARGET = Path(__file__).parents[1] / "docs" / "pictures"


class Cut(NamedTuple):
    """A part of one of the pictures of `make pictures`."""

    source: str
    box: tuple[int, int, int, int] | None = None
    """Left, upper, right, lower; None: all of it."""


CUTS = {
    "top_bar_left": Cut("1-look-dark", (0, 0, 890, 44)),
    "top_bar_right": Cut("1-look-dark", (1036, 0, 1600, 44)),
    "list": Cut("7b-menu", (0, 44, 620, 510)),
    "curves_small": Cut("1-look-dark", (0, 282, 340, 404)),
    "look": Cut("1-look-dark", (0, 405, 340, 956)),
    "data": Cut("9-data", (0, 405, 340, 956)),
    "controls": Cut("controls", (0, 405, 340, 956)),
    "compare": Cut("3-compare"),
    "compare_tab": Cut("3-compare", (0, 405, 340, 956)),
    "film": Cut("5-film"),
    "footer": Cut("1-look-dark", (0, 956, 340, 1000)),
    "viewport": Cut("1-look-dark", (340, 44, 1600, 510)),
    "time": Cut("1-look-dark", (340, 912, 1600, 1000)),
    "palette": Cut("7a-palette", (480, 96, 1120, 272)),
    "selecting": Cut("9-data", (660, 360, 1270, 910)),
    "drawn_here": Cut("8d-page-draws"),
    "curves": Cut("3-compare", (970, 480, 1600, 912)),
}
PHONE = ("6a-phone", "6b-phone-photograph")
"""Beside each other in "phone"."""


def main() -> None:
    """Write the pictures whose sources are there, and name the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `make pictures` wrote")
    folder = parser.parse_args().folder
    for name, cut in CUTS.items():
        source = folder / f"{cut.source}.png"
        if not source.is_file():
            print(f"{name} is left out: there is no {source}")
            continue
        picture = Image.open(source).convert("RGB")
        if cut.box is not None:
            picture = picture.crop(cut.box)
        write_picture(picture, TARGET, name)
    sources = [folder / f"{name}.png" for name in PHONE]
    if all(source.is_file() for source in sources):
        left, right = (Image.open(source).convert("RGB") for source in sources)
        write_picture(join_pictures(left, right), TARGET, "phone")


if __name__ == "__main__":
    main()
