"""Pictures: PNG, JPEG and WebP through Pillow, and .npy arrays of an image's shape."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.bounds import check_memory, check_ratio
from splatview_viewer.formats.common import Format, Progress, Start, read_exact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from PIL import Image

PIXEL_LIMIT = 1 << 27
"""Pixels a picture may have; a small file can claim any number."""
PIXEL_RATIO = 4096
"""Decoded bytes for each byte of a picture. PNG and JPEG cannot reach it (deflate packs at most 1032:1, JPEG spends a
bit on 64 pixels); WebP packs a picture of one colour into a hundred bytes, whatever its size."""
PIXEL_SPARE = 128 << 20
"""Decoded bytes that any picture may have: one of a single colour may be 7680x4320 large."""
PIXEL_GROWTH = 3
"""Copies of the decoded pixels: Pillow's, another mode's or another orientation's, and the array."""
CHANNELS = (1, 2, 3, 4)


def read_picture(path: Path, progress: Progress) -> np.ndarray:
    """(H, W, C) uint8, or uint16 from a 16-bit grey PNG, C from 1 to 4. EXIF orientation is applied."""
    from PIL import ImageOps

    with open_regular(path) as file, open_picture(file, ("PNG", "JPEG", "WEBP"), os.fstat(file.fileno()).st_size,
                                                  "the picture") as image:
        pixels = _pixels(ImageOps.exif_transpose(image))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


@contextmanager
def open_picture(file: BinaryIO, formats: tuple[str, ...], packed: int | None, what: str,
                 most: int | None = None) -> Iterator[Image.Image]:
    """Open a picture whose pixels fit its file and the free memory; nothing is decoded yet.

    Args:
        file: open and seekable.
        formats: Pillow's names of the formats that are read.
        packed: bytes of the file; None where another bound on the number of pixels follows from the file's size.
        what: names it in errors.
        most: pixels that it may have; None for PIXEL_LIMIT.

    Raises:
        FileError: damaged, too large, of another format; also for faults of decoding within the `with`.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large pictures; see the limit below
            with Image.open(file, formats=formats) as image:
                width, height = image.size
                most = PIXEL_LIMIT if most is None else most
                if width * height > most:
                    raise FileError(f"{what} has {width}x{height} pixels; at most {most:,} are read")
                size = width * height * 4
                if packed is not None:
                    check_ratio(size, packed, f"{width}x{height} pixels of {what}", spare=PIXEL_SPARE,
                                ratio=PIXEL_RATIO)
                check_memory(size * PIXEL_GROWTH, f"{width}x{height} pixels of {what}")
                yield image
    except (FileError, MemoryError):
        raise
    except Exception as e:  # Pillow's plugins raise SyntaxError, struct.error, ValueError, OSError and more
        raise FileError(f"{what} is damaged or unreadable: {e}") from None


def _pixels(image) -> np.ndarray:
    if image.mode.startswith("I"):
        return np.clip(np.asarray(image), 0, 65535).astype(np.uint16)
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("RGBA" if "A" in image.mode or "transparency" in image.info else
                              "L" if image.mode == "1" else "RGB")
    return np.array(image)


def read_npy(path: Path, progress: Progress) -> np.ndarray:
    """(H, W, C) of uint8, uint16 or floating point (0 to 1), from an array (H, W), (H, W, C) or (C, H, W)."""
    try:
        # Mapped: so numpy holds the shape against the size of the file and allocates nothing. But not read through
        # the mapping: if a program saves the file anew meanwhile, touching a mapping that shrank would kill us.
        a = np.load(path, mmap_mode="r", allow_pickle=False)
        shape, dtype = a.shape, a.dtype
        check_memory(3 * max(a.nbytes, 4 * a.size), f"an array of shape {shape}")
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
    except Exception as e:  # numpy parses the header as a Python literal: SyntaxError, MemoryError of its stack, ...
        raise FileError(f".npy: damaged or unreadable: {e}") from None


def _is_picture(start: Start) -> bool:
    head = start.head
    return head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")) or (head[:4], head[8:12]) == (b"RIFF", b"WEBP")


PICTURE = Format("picture", (".png", ".jpg", ".jpeg", ".webp"), "pictures", _is_picture, read_picture)
NPY = Format("npy", (".npy",), "an array (H, W), (H, W, C) or (C, H, W)",
             lambda start: start.head.startswith(b"\x93NUMPY"), read_npy)
