"""Photographs in files as data sets name them, and their pixels as trainers count them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL import Image

PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
"""Endings of photographs in data sets, in the order in which they are tried."""
_ORIENTATION = 274
"""EXIF's tag of how a picture is to be turned for people."""


def find_picture(path: Path) -> Path | None:
    """Return the file that a data set means by a name; None where there is none.

    A name is taken as it is if there is such a file. Otherwise a backslash separates folders, as on Windows; the
    ending may be in letters of the other case (IMG.JPG for IMG.jpg), be left out (Blender's sets), or be that of
    another format (a copy of smaller pictures).
    """
    for candidate in _candidates(path):
        # It is quiet about names that no file can have, such as those with a zero character.
        if os.path.isfile(candidate):
            return candidate
    return None


def _candidates(path: Path) -> Iterator[Path]:
    names = [path]
    slashed = str(path).replace("\\", "/")
    if slashed != str(path):
        names.append(Path(slashed))
    yield from names
    for name in names:
        ending = name.suffix.lower()
        has_ending = ending in PICTURE_ENDINGS
        stem = name.name.removesuffix(name.suffix) if has_ending else name.name
        if not stem:
            continue
        own = (ending,) if has_ending else ()
        for other in dict.fromkeys((*own, *PICTURE_ENDINGS)):
            yield name.with_name(stem + other)
            yield name.with_name(stem + other.upper())


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height of a picture that was opened and not decoded yet, as `as_stored` returns it."""
    width, height = image.size
    is_turned = image.format == "TIFF" and image.getexif().get(_ORIENTATION, 1) > 4
    return (height, width) if is_turned else (width, height)


def as_stored(image: Image.Image) -> Image.Image:
    """Return a picture with its pixels as they lie in the file: COLMAP and trainers count them so.

    Pillow leaves EXIF's orientation alone, except in a TIFF, which it turns as it decodes.
    """
    from PIL import Image

    # Of other formats Pillow keeps the tag, and the pixels as they are.
    if image.format != "TIFF":
        return image
    orientation = image.getexif().get(_ORIENTATION)
    # What undoes each of EXIF's orientations.
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image.load()
    was_turned = _ORIENTATION not in image.getexif()
    if orientation not in undo or not was_turned:
        return image
    return image.transpose(undo[orientation])


def as_colors(image: Image.Image) -> Image.Image:
    """Return a picture as RGB, or as RGBA where it has an alpha channel or a transparent colour; 8 bits a number."""
    import numpy as np
    from PIL import Image

    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image), 0, 65535) >> 8
        image = Image.fromarray(grey.astype(np.uint8))
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")
