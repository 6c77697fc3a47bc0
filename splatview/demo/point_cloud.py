"""Read the points of a PLY file (http://paulbourke.net/dataformats/ply)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from splatview.demo import DemoError
from splatview.demo.files import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

_GROWTH = 12
"""Memory for each byte of a file."""
_MAX_HEADER = 1 << 20
_GREY = 128
_COLORS = ("red", "green", "blue")
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
_BYTE_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


def read_points(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the points and colours of a PLY file.

    Returns:
        Points (N, 3) float32 and colours (N, 3) uint8, grey where the file has none.

    Raises:
        DemoError: the file is missing, damaged or has no vertices with x, y, z at its
            beginning.
    """
    data = read_bytes(path, growth=_GROWTH)
    head, end, body = data.partition(b"end_header")
    # Windows ends lines by two characters.
    body = body.removeprefix(b"\r")
    text = head[:_MAX_HEADER].decode("ascii", "replace")
    lines = [line.split() for line in text.splitlines()]
    has_header = bool(end) and body.startswith(b"\n") and lines[:1] == [["ply"]]
    if not has_header:
        raise DemoError(f"{path}: not a PLY file (no header)")
    try:
        header = _parse_header(lines[1:])
        columns = _read_columns(header, body[1:])
        points = np.stack([columns[axis] for axis in "xyz"], 1).astype(np.float32)
    except (KeyError, ValueError, IndexError) as error:
        raise DemoError(
            f"{path}: damaged, or its vertices have no x, y, z "
            f"({type(error).__name__}: {error!s:.200})"
        ) from None
    if not columns.keys() >= set(_COLORS):
        return points, np.full((header.count, 3), _GREY, np.uint8)
    colors = np.stack([columns[name] for name in _COLORS], 1)
    has_fractions = dict(header.properties)["red"][-2] == "f"
    if has_fractions:
        colors = np.nan_to_num(colors).clip(0, 1) * 255
    return points, colors.astype(np.uint8)


@dataclass
class _Header:
    """The vertices that a header announces."""

    count: int = 0
    byte_order: str = ""
    """As NumPy's dtypes have it; "=" for text."""
    properties: list[tuple[str, str]] = field(default_factory=list)
    """Names and NumPy's dtypes, in the order of the file."""


def _parse_header(lines: list[list[str]]) -> _Header:
    """Return the vertices that a header announces; `lines`: the fields of each line.

    Raises KeyError, ValueError, IndexError.
    """
    header = _Header()
    elements = []
    for fields in lines:
        keyword = fields[0] if fields else ""
        if keyword == "format":
            header.byte_order = _BYTE_ORDERS[fields[1]]
        elif keyword == "element":
            elements.append(fields[1])
            if fields[1] == "vertex":
                header.count = int(fields[2])
        elif keyword == "property" and elements == ["vertex"]:
            dtype = header.byte_order + _TYPES[fields[1]]
            header.properties.append((fields[2], dtype))
    return header


def _read_columns(header: _Header, body: bytes) -> dict[str, np.ndarray]:
    """Return the values of each property, (N,). Raises ValueError."""
    count = header.count
    if not 0 <= count <= len(body):
        raise ValueError(f"{count} vertices in {len(body):,} bytes")
    if header.byte_order == "=":
        lines = body.decode("ascii").splitlines()[:count]
        values = np.array([line.split() for line in lines], np.float64)
        table = values.reshape(count, len(header.properties))
        return {name: table[:, i] for i, (name, _) in enumerate(header.properties)}
    records = np.frombuffer(body, np.dtype(header.properties), count)
    return {name: records[name] for name, _ in header.properties}
