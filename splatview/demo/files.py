"""Files of a data set, read within bounds: a file may claim any size, and a name may lead to a pipe or a device."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
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

    from splatview.demo.datasets import Gaussians

_SHARE = 0.8
"""The part of the free memory that a data set may take."""
_TYPES = {
    "char": "i1",
    "int8": "i1",
    "uchar": "u1",
    "uint8": "u1",
    "short": "i2",
    "int16": "i2",
    "ushort": "u2",
    "uint16": "u2",
    "int": "i4",
    "int32": "i4",
    "uint": "u4",
    "uint32": "u4",
    "float": "f4",
    "float32": "f4",
    "double": "f8",
    "float64": "f8",
}
_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


def check_memory(need: int, what: str) -> None:
    """Raise DemoError if `need` bytes are more than the memory that is free."""
    free = available_bytes()
    if free is not None and need > _SHARE * free:
        raise DemoError(
            f"{what} need {need / 1e9:,.1f} GB of memory, {free / 1e9:,.1f} GB are free: take fewer or "
            "smaller pictures and points, or end other programs"
        )


@contextmanager
def _open_regular(path: Path) -> Iterator[BinaryIO]:
    """Open a file, but no pipe and no device. Raises ViewError, also for an OSError in the block."""
    try:
        if path.exists() and not path.is_file():
            raise ViewError(f"{path}: not a regular file")
        with path.open("rb") as file:
            yield file
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        raise ViewError(f"{path}: {getattr(e, 'strerror', None) or e}") from None


def read_bytes(path: Path, growth: int) -> bytes:
    """Return a file's content; parsing it takes `growth` times its size. Raises DemoError."""
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
        check_memory(16 * width * height, f"{path}: its {width}x{height} pixels")

    with (
        _open_regular(path) as file,
        pictures.open_picture(
            file, f"{path}: the picture", check_size, error=ViewError
        ) as image,
    ):
        yield image


def read_points(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Points (N, 3) float32 and colours (N, 3) uint8 of a PLY file; grey where it has no colours.

    Layout: http://paulbourke.net/dataformats/ply. Raises DemoError for a file that is missing, damaged or has no
    vertices with x, y, z at its beginning.
    """
    data = read_bytes(path, growth=12)
    head, end, body = data.partition(b"end_header")
    # Windows ends lines by two characters.
    body = body.removeprefix(b"\r")
    if not body.startswith(b"\n"):
        end = b""
    body = body[1:]
    lines = [
        line.split() for line in head[: 1 << 20].decode("ascii", "replace").splitlines()
    ]
    if not end or lines[:1] != [["ply"]]:
        raise DemoError(f"{path}: not a PLY file (no header)")
    fields: list[tuple[str, str]] = []
    order = ""
    count = 0
    elements = []
    try:
        for words in lines[1:]:
            if words[:1] == ["format"]:
                order = _ORDERS[words[1]]
            elif words[:1] == ["element"]:
                elements.append(words[1])
                count = int(words[2]) if words[1] == "vertex" else count
            elif words[:1] == ["property"] and elements == ["vertex"]:
                fields.append((words[2], order + _TYPES[words[1]]))
        if not 0 <= count <= len(body):
            raise ValueError(f"{count} vertices in {len(body):,} bytes")
        if order == "=":
            texts = [line.split() for line in body.decode("ascii").splitlines()[:count]]
            rows = np.array(texts, np.float64).reshape(count, len(fields))
            vertices = {name: rows[:, i] for i, (name, _) in enumerate(fields)}
        else:
            records = np.frombuffer(body, np.dtype(fields), count)
            vertices = {name: records[name] for name, _ in fields}
        points = np.stack([vertices[axis] for axis in "xyz"], 1).astype(np.float32)
    except (KeyError, ValueError, IndexError) as e:
        raise DemoError(
            f"{path}: damaged, or its vertices have no x, y, z ({type(e).__name__}: {e!s:.200})"
        ) from None
    if not {"red", "green", "blue"} <= set(vertices):
        return points, np.full((count, 3), 128, np.uint8)
    colors = np.stack([vertices[c] for c in ("red", "green", "blue")], 1)
    if dict(fields)["red"][-2] == "f":
        # Floating-point colours are fractions.
        colors = np.nan_to_num(colors).clip(0, 1) * 255
    return points, colors.astype(np.uint8)


def write_gaussians(path: Path, gaussians: Gaussians) -> None:
    """Write Gaussians as a trainer holds them (log scales, logit opacities) as gsplat's PLY. Raises DemoError."""
    try:
        write_output(path, export_splats(**gaussians))
    except OSError as e:
        raise DemoError(f"--save: {e}") from None
