"""Pictures: PNG, JPEG and WebP through Pillow, and .npy arrays of an image's shape."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files.common import read_exact

if TYPE_CHECKING:
    from pathlib import Path

PIXEL_LIMIT = 1 << 27
"""Pixels a picture may have; a small file can claim any number."""
CHANNELS = (1, 2, 3, 4)


def read_picture(path: Path) -> np.ndarray:
    """(H, W, C) uint8, or uint16 from a 16-bit grey PNG, C from 1 to 4. EXIF orientation is applied."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large pictures; see the limit below
            with Image.open(path, formats=["PNG", "JPEG", "WEBP"]) as image:
                if image.size[0] * image.size[1] > PIXEL_LIMIT:
                    raise FileError(f"the picture has {image.size[0]}x{image.size[1]} pixels; at most "
                                    f"{PIXEL_LIMIT:,} are read")
                pixels = _pixels(ImageOps.exif_transpose(image))
    except FileError:
        raise
    except Exception as e:  # Pillow's plugins raise SyntaxError, struct.error, ValueError, OSError and more
        raise FileError(f"damaged or unreadable picture: {e}") from None
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _pixels(image) -> np.ndarray:
    if image.mode.startswith("I"):
        return np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("RGBA" if "A" in image.mode or "transparency" in image.info else
                              "L" if image.mode == "1" else "RGB")
    return np.array(image)


def read_npy(path: Path) -> np.ndarray:
    """(H, W, C) of uint8, uint16 or floating point (0 to 1), from an array (H, W), (H, W, C) or (C, H, W)."""
    try:
        # Mapped: so numpy holds the shape against the size of the file and allocates nothing. But not read through
        # the mapping: if a program saves the file anew meanwhile, touching a mapping that shrank would kill us.
        a = np.load(path, mmap_mode="r", allow_pickle=False)
        shape, dtype = a.shape, a.dtype
        if not (dtype.kind == "f" or (dtype.kind == "u" and dtype.itemsize <= 2)):
            raise FileError(f".npy: the array holds {dtype}; a picture is uint8, uint16 or floating point")
        with open(path, "rb") as f:
            f.seek(a.offset)
            data = read_exact(f, a.nbytes, "the array")
        a = np.frombuffer(data, dtype).reshape(shape, order="C" if a.flags.c_contiguous else "F")
        if a.ndim == 2:
            a = a[:, :, None]
        elif a.ndim == 3 and a.shape[2] not in CHANNELS and a.shape[0] in CHANNELS:
            a = a.transpose(1, 2, 0)
        if a.ndim != 3 or a.shape[2] not in CHANNELS or 0 in a.shape:
            raise FileError(f".npy: the array has shape {shape}; a picture is (H, W), (H, W, 1 to 4) or "
                            "(1 to 4, H, W)")
        return np.array(a, np.float32 if dtype.kind == "f" else dtype.newbyteorder("="), order="C")
    except FileError:
        raise
    except Exception as e:  # numpy parses the header as a Python literal: SyntaxError, tokenize errors, ...
        raise FileError(f".npy: damaged or unreadable: {e}") from None
