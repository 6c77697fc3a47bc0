"""Pictures from files, by Pillow or as .npy arrays; their writing; output folders."""

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
    """Read a picture as (H, W, C) uint8, C from 1 to 4, with EXIF orientation applied.

    16-bit grey becomes (H, W, 1) uint16, a TIFF of floating point (H, W, 1) float32.
    """
    from PIL import ImageOps

    with open_regular(path) as file, open_picture(file) as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):
            return np.clip(np.asarray(image), 0, 65535).astype(np.uint16)[:, :, None]
        if image.mode == "F":
            return np.array(image, np.float32)[:, :, None]
        if image.mode not in ("L", "LA", "RGB", "RGBA"):
            image = image.convert(_plain_mode(image))
        pixels = np.array(image)
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        return pixels


def _plain_mode(image: Image.Image) -> str:
    """Return the mode that a picture of a palette or of another mode is converted to."""
    if "A" in image.mode or "transparency" in image.info:
        return "RGBA"
    if image.mode == "1":
        return "L"
    return "RGB"


@contextmanager
def open_picture(
    file: BinaryIO, subject: str = "the picture", max_pixels: int = MAX_PIXELS
) -> Iterator[Image.Image]:
    """Open a picture whose pixels fit the free memory; nothing is decoded yet.

    Args:
        file: open and seekable.
        subject: names it in errors.
        max_pixels: pixels that it may have.

    Raises:
        FileError: damaged, too large, of another format; also for faults of decoding
            within the `with`.
    """

    def check_size(width: int, height: int) -> None:
        needed = 4 * width * height * PIXEL_GROWTH
        check_memory(needed, f"{width}x{height} pixels of {subject}")

    with pictures.open_picture(
        file, subject, check_size, error=FileError, max_pixels=max_pixels
    ) as image:
        yield image


def read_npy(path: Path, progress: Progress) -> np.ndarray:
    """Read a picture (H, W, C) of uint8, uint16 or floating point (0 to 1).

    The array in the file may be (H, W), (H, W, C) or (C, H, W).
    """
    # Mapping checks the shape against the size of the file and allocates nothing. But
    # if a program saves the file again meanwhile, touching a mapping that shrank would
    # kill this process: it is read below.
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    shape = array.shape
    dtype = array.dtype
    is_float = dtype.kind == "f"
    if not is_float and not (dtype.kind == "u" and dtype.itemsize <= 2):
        raise FileError(
            f".npy: the array holds {dtype}; a picture is uint8, uint16 or floating "
            "point"
        )
    check_memory(3 * max(array.nbytes, 4 * array.size), f"an array of shape {shape}")
    array = np.load(path, allow_pickle=False)
    if array.ndim == 2:
        array = array[:, :, None]
    has_channels_last = array.ndim == 3 and array.shape[2] in CHANNELS
    if array.ndim == 3 and not has_channels_last and array.shape[0] in CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in CHANNELS or 0 in array.shape:
        raise FileError(
            f".npy: the array has shape {shape}; a picture is (H, W), (H, W, 1 to 4) "
            "or (1 to 4, H, W)"
        )
    native = np.dtype(np.float32) if is_float else dtype.newbyteorder("=")
    return np.array(array, native, order="C")


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


def _is_npy(start: Start) -> bool:
    return start.head.startswith(b"\x93NUMPY")


NPY = Format(
    "npy",
    (".npy",),
    "an array (H, W), (H, W, C) or (C, H, W)",
    _is_npy,
    read_npy,
)


# -- output ----------------------------------------------------------------------------


def save_picture(pixels: np.ndarray, path: Path, numbered: bool = False) -> Path:
    """Write a picture at once; readers of an older one never see half of it.

    Args:
        pixels: (H, W, 3) uint8, or (H, W, 4) with alpha.
        path: the path of the file; its suffix names the format, PNG if it is unknown.
        numbered: as for `output_file`.

    Returns:
        The path of the file.

    Raises:
        FileError: it cannot be written.
    """
    try:
        # The first import opens files, of which there may be no more: an OSError.
        from PIL import Image

        with output_file(path, numbered=numbered) as out:
            image = Image.fromarray(np.ascontiguousarray(pixels))
            image.save(
                out.file,
                PICTURES.get(path.suffix.lower(), "PNG"),
                compress_level=4,
                quality=95,
                subsampling=0,
            )
        return out.path
    except ValueError as e:
        # A WebP of more than 16383 pixels along a side.
        raise FileError(str(OutputError(path, str(e)))) from e
    except OSError as e:
        raise FileError(str(e)) from e


def check_writable(
    path: Path, check: Callable[..., None] = check_output, *args: object
) -> None:
    """Raise FileError unless a file can be written at `path`.

    For use before long work. `check` is called with `path` and `args`.
    """
    try:
        check(path, *args)
    except OSError as e:
        raise FileError(str(e)) from e


def output_path(name: str, suffix: str = ".png", folder: Path | None = None) -> Path:
    """Return the path of a new file that is named after a stream or a file.

    Args:
        folder: by default the current one.
    """
    try:
        folder = folder or Path.cwd()
    except OSError:
        # The working folder was removed, which writing will report.
        folder = Path()
    return folder / f"{safe_name(name)}{suffix}"


def safe_name(text: str, default: str = "splatview") -> str:
    """Return `text` as the stem of a file name, of at most 200 bytes.

    It consists of letters and digits, with "-_. " between them; `default` if none are
    left. Streams and runs are named by other processes: a name never leads to another
    folder or begins an option.
    """
    legal = "".join(c if c.isalnum() or c in "-_. " else "-" for c in text)
    short = legal.encode()[:200].decode(errors="ignore")
    return short.strip(" .").lstrip("-. ") or default


def make_output_folder(path: str | os.PathLike[str], *, private: bool = False) -> None:
    """Make a folder for output, and missing ones above it.

    Args:
        path: the path of the folder.
        private: new folders are for their owner alone (0700), and the folder must be
            the user's own or root's; without it, only where any user could have made
            the folder before.

    Raises:
        OutputError: it cannot be made or written, or is another user's.
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
