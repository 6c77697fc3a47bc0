"""Picture files: found by the names of data sets, opened within bounds, laid out."""

from __future__ import annotations

import os
import re
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from PIL import Image

PICTURE_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM")
"""Formats that Pillow may open, by its names.

It knows others, some of which start programs.
"""
MAX_PIXELS = 1 << 27
"""Maximum number of pixels of a picture: a small file can claim any number."""
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
PPM_MAGIC = re.compile(rb"P[1-6]\s")
_MAX_PPM_HEADER = 1 << 16
"""Bytes within which the size of a PPM must come."""
_JPEG_MAGIC = b"\xff\xd8"
_EXIF = b"Exif\0\0"
"""Start of a piece of EXIF, of which a JPEG has one; each has up to 64 KB."""
_MAX_EXIF_PIECES = 100
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
"""Suffixes of photographs in data sets, in the order in which they are tried."""
_ORIENTATION = 274
"""EXIF's tag of the rotation or mirroring with which a picture is to be displayed."""


def find_picture(path: Path) -> Path | None:
    """Return the file that a data set means by a name; None if there is none.

    A name is taken as it is if there is such a file. Otherwise a backslash separates
    folders, as on Windows; the suffix may be in letters of the other case (IMG.JPG for
    IMG.jpg), be left out (Blender's sets), or be that of another format (a copy of
    smaller pictures).
    """
    for candidate in _candidates(path):
        # `isfile` is quiet about names that no file can have, as with a zero character.
        if os.path.isfile(candidate):
            return candidate
    return None


def _candidates(path: Path) -> Iterator[Path]:
    """Yield the files that a name may mean, the likeliest first."""
    paths = [path]
    with_slashes = str(path).replace("\\", "/")
    if with_slashes != str(path):
        paths.append(Path(with_slashes))
    yield from paths
    for candidate in paths:
        suffix = candidate.suffix.lower()
        stem = candidate.name
        suffixes = PICTURE_SUFFIXES
        if suffix in PICTURE_SUFFIXES:
            stem = candidate.name.removesuffix(candidate.suffix)
            suffixes = (suffix, *PICTURE_SUFFIXES)
        if not stem:
            continue
        for other_suffix in dict.fromkeys(suffixes):
            yield candidate.with_name(stem + other_suffix)
            yield candidate.with_name(stem + other_suffix.upper())


def stored_size(image: Image.Image) -> tuple[int, int]:
    """Return the width and height of a picture as `as_stored` returns it.

    The picture was opened, and is not decoded yet.
    """
    width, height = image.size
    is_turned = image.format == "TIFF" and image.getexif().get(_ORIENTATION, 1) > 4
    return (height, width) if is_turned else (width, height)


def as_stored(image: Image.Image) -> Image.Image:
    """Return a picture with its pixels as they lie in the file.

    COLMAP and trainers count them so. Pillow leaves EXIF's orientation alone, except in
    a TIFF, which it turns as it decodes.
    """
    from PIL import Image

    # Of other formats Pillow keeps the tag, and the pixels as they are.
    if image.format != "TIFF":
        return image
    orientation = image.getexif().get(_ORIENTATION)
    inverse = {
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
    if orientation not in inverse or not was_turned:
        return image
    return image.transpose(inverse[orientation])


def as_colors(image: Image.Image) -> Image.Image:
    """Return a picture as RGB, or as RGBA if it has transparency; 8 bits a number.

    Transparency is an alpha channel or a transparent colour.
    """
    import numpy as np
    from PIL import Image

    if image.mode.startswith("I"):
        grey = np.clip(np.asarray(image), 0, 65535) >> 8
        image = Image.fromarray(grey.astype(np.uint8))
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")


@contextmanager
def open_picture(
    file: BinaryIO,
    name: str,
    check_size: Callable[[int, int], None],
    *,
    error: type[Exception],
    max_pixels: int = MAX_PIXELS,
) -> Iterator[Image.Image]:
    """Open a picture of any of PICTURE_FORMATS within bounds; nothing is decoded yet.

    Args:
        file: open and seekable.
        name: names the picture in errors.
        check_size: called with width and height before anything is allocated, to
            compare them with the free memory; what it raises passes.
        error: class of the errors.
        max_pixels: maximum number of pixels.

    Raises:
        error: the picture is damaged, too large or of another format; also for what
            decoding raises within the `with`.
    """
    from PIL import Image

    _check_ppm(file, name, error)
    _check_jpeg(file, name, error)
    # Pillow warns of large pictures, which have their own limit here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with _decoding_errors(file, name, error, max_pixels):
            image = Image.open(file, formats=PICTURE_FORMATS)
        with image:
            width, height = image.size
            if width * height > max_pixels:
                raise error(
                    f"{name} has {width}x{height} pixels; at most {max_pixels:,} are read"
                )
            check_size(width, height)
            with _decoding_errors(file, name, error, max_pixels):
                yield image


@contextmanager
def _decoding_errors(
    file: BinaryIO, name: str, error: type[Exception], max_pixels: int
) -> Iterator[None]:
    """Raise `error` for what Pillow raises of a picture."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except (error, MemoryError):
        raise
    except Image.DecompressionBombError:
        raise error(
            f"{name} has too many pixels; at most {max_pixels:,} are read"
        ) from None
    except UnidentifiedImageError:
        # Its own text is the address of the open file.
        file.seek(0)
        problem = "is damaged"
        if file.read(4) in TIFF_MAGIC:
            problem += (
                ", or a TIFF that Pillow does not read (floating point with several "
                "channels or of 64 bits): save it with 8 or 16 bits, or as .npy"
            )
        raise error(f"{name} {problem}") from None
    except Exception as e:
        # Pillow's plugins raise SyntaxError, struct.error, ValueError, OSError and
        # more.
        raise error(f"{name} is damaged or unreadable: {e}") from None


def _check_ppm(file: BinaryIO, name: str, error: type[Exception]) -> None:
    """Raise `error` for a PPM whose comments are longer than any real one.

    Pillow reads them byte by byte.
    """
    head = file.read(_MAX_PPM_HEADER)
    file.seek(0)
    if not PPM_MAGIC.match(head) or len(head) < _MAX_PPM_HEADER:
        return
    fields = re.sub(rb"#[^\r\n]*", b"", head[2:]).split(maxsplit=3)
    # Those of black and white name no brightest value.
    has_brightest = head[1:2] not in b"14"
    if len(fields) < 2 + has_brightest:
        raise error(
            f"{name} is damaged: a PPM without a size in its first "
            f"{_MAX_PPM_HEADER:,} bytes"
        )


def _check_jpeg(file: BinaryIO, name: str, error: type[Exception]) -> None:
    """Raise `error` for a JPEG of more pieces of EXIF than any real one.

    Pillow joins them one by one, which takes the square of their number.
    """
    pieces = 0
    if file.read(2) == _JPEG_MAGIC:
        tail = b""
        while block := file.read(1 << 20):
            pieces += (tail + block).count(_EXIF)
            # It holds no complete mark, but maybe the start of one.
            tail = block[1 - len(_EXIF) :]
    file.seek(0)
    if pieces > _MAX_EXIF_PIECES:
        raise error(f"{name} is damaged: more than {_MAX_EXIF_PIECES:,} pieces of EXIF")
