"""Read and write files of a data set within bounds.

A file may claim any size, and a name may lead to a pipe or a device.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from gsplat import export_splats

from splatview.demo import DemoError
from splatview.demo.pictures import ViewError
from splatview_ipc.system import pictures
from splatview_ipc.system.files import write_output
from splatview_ipc.system.free_memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from PIL import Image

    from splatview.demo.views import Gaussians

_SHARE = 0.8
"""The share of the free memory that a data set may take."""
_BYTES_PER_PIXEL = 16
"""Memory for each pixel of a picture while it is decoded and made smaller."""


def check_memory(size: int, subject: str) -> None:
    """Raise DemoError if `size` bytes are more than the memory that is free."""
    free = available_bytes()
    if free is not None and size > _SHARE * free:
        raise DemoError(
            f"{subject} need {size / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are "
            "free: take fewer or smaller pictures and points, or end other programs"
        )


@contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file, but no pipe and no device.

    Raises ViewError, also for an OSError in the block.
    """
    try:
        if path.exists() and not path.is_file():
            raise ViewError(f"{path}: not a regular file")
        with path.open("rb") as file:
            yield file
    except (OSError, ValueError) as error:
        # A ValueError stands for a NUL in the name.
        reason = getattr(error, "strerror", None) or error
        raise ViewError(f"{path}: {reason}") from None


def read_bytes(path: Path, growth: int) -> bytes:
    """Return a file's content. Raises DemoError.

    Args:
        growth: memory that parsing takes, as a multiple of the file's size.
    """
    with _open_regular(path) as file:
        size = path.stat().st_size
        check_memory(size * growth, f"{path}: its {size:,} bytes")
        return file.read(size)


@contextmanager
def open_picture(path: Path) -> Iterator[Image.Image]:
    """Open a picture within the bounds of `splatview_ipc.system.pictures.open_picture`.

    Raises:
        ViewError: the file cannot be read, also while it is decoded in the `with`.
        DemoError: its pixels do not fit the free memory.
    """

    def check_size(width: int, height: int) -> None:
        size = _BYTES_PER_PIXEL * width * height
        check_memory(size, f"{path}: its {width}x{height} pixels")

    with (
        _open_regular(path) as file,
        pictures.open_picture(
            file, f"{path}: the picture", check_size, error=ViewError
        ) as image,
    ):
        yield image


def write_gaussians(path: Path, gaussians: Gaussians) -> None:
    """Write Gaussians as a trainer holds them into gsplat's PLY. Raises DemoError.

    A trainer holds log scales and logit opacities.
    """
    try:
        write_output(path, export_splats(**gaussians))
    except OSError as error:
        raise DemoError(f"--save: {error}") from None
