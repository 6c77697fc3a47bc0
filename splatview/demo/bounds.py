"""Bounds on the files of a data set: what is read and decoded has to fit the free memory, and to be a file."""

from __future__ import annotations

import os
import stat
import zipfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from splatview.demo.errors import DemoError
from splatview_ipc.system.free_memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from PIL import Image

SHARE = 0.8
"""The part of the free memory that a data set may take."""
PICTURES = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM")
"""Formats of pictures, as Pillow names them. It knows others, some of which start programs."""
MOST_PIXELS = 1 << 28
MOST_ENTRIES, MOST_DIRECTORY = 1000, 1 << 20
"""Entries of an .npz, and bytes of its directory."""
NPZ_SPARE, NPZ_RATIO = 64 << 20, 256
"""Bytes that any array may have, and bytes per packed byte of a larger one. Pictures with a black background shrink
by 100."""


def check_memory(need: int, what: str) -> None:
    """Raise DemoError if `need` bytes are more than the memory that is free."""
    free = available_bytes()
    if free is not None and need > SHARE * free:
        raise DemoError(f"{what} need {need / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free: take fewer or "
                        "smaller pictures and points, or end other programs")


@contextmanager
def open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file, but no pipe and no device: a data set may name any path. Raises OSError, ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        yield file


def read_bytes(path: Path, growth: int = 2) -> bytes:
    """Return a file's content.

    Args:
        growth: memory that parsing it takes, as a multiple of its size.

    Raises:
        DemoError: larger than the free memory allows.
        OSError, ValueError: it cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_memory(size * growth, f"{path}: its {size:,} bytes")
        return file.read(size)


@contextmanager
def open_picture(path: Path) -> Iterator[Image.Image]:
    """Open a picture whose pixels fit the free memory. Raises DemoError for all that is wrong with it."""
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings(), open_regular(path) as file:
            warnings.simplefilter("ignore")  # Pillow warns of large pictures; see the limit below
            with Image.open(file, formats=PICTURES) as opened:
                width, height = opened.size
                if width * height > MOST_PIXELS:
                    raise DemoError(f"{path}: {width}x{height} pixels; at most {MOST_PIXELS:,} are read")
                check_memory(16 * width * height, f"{path}: its {width}x{height} pixels")
                yield opened
    except DemoError:
        raise
    except Exception as e:  # Pillow's plugins raise SyntaxError, struct.error and more for damaged files
        raise DemoError(f"{path}: cannot be read as a picture ({e!s:.200})") from None


class _Directory:
    """A file that zipfile cannot read in large pieces: it reads a directory as one, and makes an object per entry."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bounded = True
        self.seek, self.tell, self.close, self.seekable = file.seek, file.tell, file.close, file.seekable

    def read(self, size: int = -1) -> bytes:
        if self.bounded and size > MOST_DIRECTORY:
            raise ValueError(f"a directory of {size:,} bytes; at most {MOST_DIRECTORY:,} are read")
        return self._file.read(size)


def read_npz(path: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the arrays of these names that an .npz has.

    numpy takes the memory for the shape that an array claims before it reads, so the shapes are looked at first.

    Raises:
        ValueError: an array claims more than its entry holds; also whatever zipfile and numpy raise for damaged files.
        DemoError: the arrays need more than the free memory.
    """
    arrays: dict[str, np.ndarray] = {}
    with open_regular(path) as file:
        length = os.fstat(file.fileno()).st_size
        directory = _Directory(file)
        with zipfile.ZipFile(directory) as archive:  # type: ignore[arg-type]
            directory.bounded = False
            entries = {i.filename: i for i in archive.infolist()}
            if len(entries) > MOST_ENTRIES:
                raise ValueError(f"{len(entries):,} entries; at most {MOST_ENTRIES:,} are read")
            found = {key: entries[f"{key}.npy"] for key in keys if f"{key}.npy" in entries}
            sizes = [_array_bytes(archive, entry, key, length) for key, entry in found.items()]
            check_memory(2 * sum(sizes), f"{path}: its arrays")
            for key, entry in found.items():
                with archive.open(entry) as member:
                    arrays[key] = np.lib.format.read_array(member, allow_pickle=False)
    return arrays


def _array_bytes(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, key: str, length: int) -> int:
    """Return the bytes of an array by its header, checked against its entry and the file."""
    formats: dict[tuple[int, int], Any] = {(1, 0): np.lib.format.read_array_header_1_0,
                                           (2, 0): np.lib.format.read_array_header_2_0}
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        if version not in formats:
            raise ValueError(f"{key} has format version {version}; 1.0 and 2.0 are read")
        shape, _, dtype = formats[version](member)
    size = dtype.itemsize
    for side in shape:
        size *= side
    packed = min(entry.compress_size, length)
    if size < 0 or size > entry.file_size or size > max(NPZ_SPARE, NPZ_RATIO * packed):
        raise ValueError(f"{key} of shape {shape!s:.80} takes {size:.3e} bytes, its entry holds {entry.file_size:,}, "
                         f"packed {packed:,}")
    return size
