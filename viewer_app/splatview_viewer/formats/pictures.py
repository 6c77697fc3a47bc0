"""Pictures: PNG, JPEG, WebP, TIFF, BMP and PPM through Pillow, .npy arrays of an
image's shape; writing; output folders.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview_ipc.system import pictures
from splatview_ipc.system.files import (
    PICTURES,
    OutputError,
    check_output,
    check_owner,
    make_private,
    output_error,
    output_file,
    real_path,
)
from splatview_ipc.system.pictures import MAX_PIXELS, PPM_MAGIC, TIFF_MAGIC
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import Format, Progress, Start, check_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from PIL import Image

PIXEL_GROWTH = 3
"""Copies of the decoded pixels: Pillow's, another mode's or another orientation's, and
the array."""
CHANNELS = (1, 2, 3, 4)
BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)
"""Sizes that the second header of a BMP may have: "BM" alone begins many texts."""


def read_picture(path: Path, progress: Progress) -> np.ndarray:
    """Return (H, W, C) uint8, C from 1 to 4; (H, W, 1) uint16 of 16-bit grey, float32
    of a TIFF of floating point. EXIF orientation is applied.
    """
    from PIL import ImageOps

    with open_regular(path) as file, open_picture(file) as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):
            return np.clip(np.asarray(image), 0, 65535).astype(np.uint16)[:, :, None]
        if image.mode == "F":
            return np.array(image, np.float32)[:, :, None]
        if image.mode not in ("L", "LA", "RGB", "RGBA"):
            image = image.convert(
                "RGBA"
                if "A" in image.mode or "transparency" in image.info
                else "L"
                if image.mode == "1"
                else "RGB"
            )
        pixels = np.array(image)
        return pixels if pixels.ndim == 3 else pixels[:, :, None]


@contextmanager
def open_picture(
    file: BinaryIO, what: str = "the picture", most: int = MAX_PIXELS
) -> Iterator[Image.Image]:
    """Open a picture whose pixels fit the free memory; nothing is decoded yet.

    Args:
        file: open and seekable.
        what: names it in errors.
        most: pixels that it may have.

    Raises:
        FileError: damaged, too large, of another format; also for faults of decoding
            within the `with`.
    """

    def check_size(width: int, height: int) -> None:
        check_memory(
            4 * width * height * PIXEL_GROWTH, f"{width}x{height} pixels of {what}"
        )

    with pictures.open_picture(
        file, what, check_size, error=FileError, max_pixels=most
    ) as image:
        yield image


def read_npy(path: Path, progress: Progress) -> np.ndarray:
    """Return (H, W, C) of uint8, uint16 or floating point (0 to 1), from an array (H,
    W), (H, W, C) or (C, H, W).
    """
    # Mapped, numpy holds the shape against the size of the file and allocates nothing.
    # But if a program saves the file anew meanwhile, touching a mapping that shrank
    # would kill us.
    a = np.load(path, mmap_mode="r", allow_pickle=False)
    shape = a.shape
    dtype = a.dtype
    if not (dtype.kind == "f" or (dtype.kind == "u" and dtype.itemsize <= 2)):
        raise FileError(
            f".npy: the array holds {dtype}; a picture is uint8, uint16 or floating "
            "point"
        )
    check_memory(3 * max(a.nbytes, 4 * a.size), f"an array of shape {shape}")
    a = np.load(path, allow_pickle=False)
    if a.ndim == 2:
        a = a[:, :, None]
    elif a.ndim == 3 and a.shape[2] not in CHANNELS and a.shape[0] in CHANNELS:
        a = a.transpose(1, 2, 0)
    if a.ndim != 3 or a.shape[2] not in CHANNELS or 0 in a.shape:
        raise FileError(
            f".npy: the array has shape {shape}; a picture is (H, W), (H, W, 1 to 4) "
            "or (1 to 4, H, W)"
        )
    return np.array(
        a, np.float32 if dtype.kind == "f" else dtype.newbyteorder("="), order="C"
    )


def _is_picture(start: Start) -> bool:
    head = start.head
    if head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", *TIFF_MAGIC)):
        return True
    if head[:2] == b"BM":
        return int.from_bytes(head[14:18], "little") in BMP_HEADERS
    if PPM_MAGIC.match(head):
        return True
    return (head[:4], head[8:12]) == (b"RIFF", b"WEBP")


PICTURE = Format(
    "picture",
    (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"),
    "pictures",
    _is_picture,
    read_picture,
)
NPY = Format(
    "npy",
    (".npy",),
    "an array (H, W), (H, W, C) or (C, H, W)",
    lambda start: start.head.startswith(b"\x93NUMPY"),
    read_npy,
)


# -- output ----------------------------------------------------------------------------


def save_picture(pixels: np.ndarray, path: Path, numbered: bool = False) -> Path:
    """Write (H, W, 3) uint8, or (H, W, 4) with alpha, in the format of the suffix, or
    as a PNG. Readers see the old picture or the new one, never a part.

    `numbered` as for `output_file`. Returns the file's path. Raises FileError when it
    cannot be written.
    """
    try:
        from PIL import (
            Image,
        )  # the first time from files, of which there may be no more

        with output_file(path, numbered=numbered) as out:
            Image.fromarray(np.ascontiguousarray(pixels)).save(
                out.file,
                PICTURES.get(path.suffix.lower(), "PNG"),
                compress_level=4,
                quality=95,
                subsampling=0,
            )
        return out.path
    except ValueError as e:  # a WebP of more than 16383 pixels
        raise FileError(str(OutputError(path, str(e)))) from e
    except OSError as e:
        raise FileError(str(e)) from e


def check_writable(
    path: Path, check: Callable[..., None] = check_output, *args: object
) -> None:
    """Raise FileError unless a file can be written at `path`, as `check` finds: before
    long work.
    """
    try:
        check(path, *args)
    except OSError as e:
        raise FileError(str(e)) from e


def output_path(name: str, suffix: str = ".png", folder: Path | None = None) -> Path:
    """Return the path of a new file in a folder, by default the current one, named
    after a stream or a file.
    """
    try:
        folder = folder or Path.cwd()
    except OSError:  # the working folder was removed, which writing reports
        folder = Path()
    return folder / f"{safe_name(name)}{suffix}"


def safe_name(text: str, default: str = "splatview") -> str:
    """Return `text` as the stem of a file name of at most 200 bytes: letters, digits,
    and "-_. " within.

    Streams and runs are named by other processes: a name never leads to another folder
    or begins an option.
    """
    clean = (
        "".join(c if c.isalnum() or c in "-_. " else "-" for c in text)
        .encode()[:200]
        .decode(errors="ignore")
    )
    return clean.strip(" .").lstrip("-. ") or default


def make_output_folder(path: str | os.PathLike[str], *, private: bool = False) -> None:
    """Make a folder for output, and missing ones above it.

    `private`: new ones are for their owner alone (0700), and the folder is the user's
    own or root's; otherwise that is needed only where any user could have made it
    before.

    Raises OutputError where it cannot be made or written, or is another user's.
    """
    try:
        real = Path(real_path(path, strict=private))
        if private and not real.exists():
            make_private(real)
        real.mkdir(parents=True, exist_ok=True)
        if private or real.parent.stat().st_mode & stat.S_IWOTH:
            check_owner(real)
    except OSError as e:
        raise output_error(path, e) from e
    if not os.access(real, os.W_OK | os.X_OK):
        raise OutputError(
            Path(path), "permission denied; choose a folder that you can write"
        )
