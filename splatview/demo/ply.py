"""PLY: the points that reconstructions leave, and Gaussians as the inria code writes them.

Layouts: http://paulbourke.net/dataformats/ply and graphdeco-inria/gaussian-splatting, scene/gaussian_model.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview.demo.bounds import read_bytes
from splatview.demo.errors import DemoError
from splatview_ipc.system.files import output_file

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.demo.capture import Gaussians

_GROWTH = 12
"""Memory for each byte of a file: lines of text become words and doubles."""
_MOST_HEADER = 1 << 20
_TYPES = {"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
          "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
          "double": "f8", "float64": "f8"}
_ORDERS = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}


def read_points(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Points (N, 3) float32 and colours (N, 3) uint8 of a PLY file; grey where it has no colours.

    Raises DemoError for a file that is missing, damaged or has no vertices with x, y, z at its beginning.
    """
    if path.exists() and not path.is_file():
        raise DemoError(f"{path}: not a regular file; ply_file_path names the points")
    try:
        data = read_bytes(path, _GROWTH)
    except (OSError, ValueError) as e:
        raise DemoError(f"{path}: {getattr(e, 'strerror', None) or e}; ply_file_path names the points") from None
    head, end, body = data.partition(b"end_header\n")
    lines = [line.split() for line in head.decode("ascii", "replace").splitlines()]
    if not end or len(head) > _MOST_HEADER or lines[:1] != [["ply"]]:
        raise DemoError(f"{path}: not a PLY file (no header)")
    fields: list[tuple[str, str]] = []
    order, count, elements = "", 0, []
    try:
        for words in lines[1:]:
            if words[:1] == ["format"]:
                order = _ORDERS[words[1]]
            elif words[:1] == ["element"]:
                elements.append(words[1])
                count = _count(words[2]) if words[1] == "vertex" else count
            elif words[:1] == ["property"] and elements == ["vertex"]:
                fields.append((words[2], order + _TYPES[words[1]]))
        dtype = np.dtype(fields)
        if order == "=":
            rows = _rows(body.decode("ascii").splitlines()[:count])
            if len(rows) != count:
                raise ValueError(f"{len(rows)} vertices of {count}")
            vertices = {name: rows[:, i] for i, (name, _) in enumerate(fields)}
        else:
            records = np.frombuffer(body, dtype, count)
            vertices = {name: records[name] for name, _ in fields}
        points = np.stack([vertices[axis] for axis in "xyz"], 1).astype(np.float32)
    except (KeyError, ValueError, IndexError, OverflowError) as e:
        raise DemoError(f"{path}: damaged, or its vertices have no x, y, z ({type(e).__name__}: {e!s:.200})") from None
    if all(c in vertices for c in ("red", "green", "blue")):
        colors = np.stack([vertices[c] for c in ("red", "green", "blue")], 1).astype(np.uint8)
    else:
        colors = np.full((len(points), 3), 128, np.uint8)
    return points, colors


def _rows(lines: list[str]) -> np.ndarray:
    """The numbers of a text's lines, blank ones left out. Raises ValueError for anything else."""
    if not any(map(str.strip, lines)):  # of which loadtxt would warn
        return np.zeros((0, 3))
    return np.loadtxt(lines, comments=None, ndmin=2)


def _count(text: str) -> int:
    """A count of vertices. Raises ValueError for all but up to 18 digits: no larger one can be computed with."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"a count of {text:.40}")
    return int(text)


def write_gaussians(path: Path, gaussians: Gaussians) -> None:
    """Gaussians as a trainer holds them (log scales, logit opacities) in the inria layout, SH channel-major.

    Raises DemoError when the file cannot be written.
    """
    g = {name: value.detach().float().cpu().numpy() for name, value in gaussians.items()}
    n = len(g["means"])
    rest = g["shN"].transpose(0, 2, 1).reshape(n, -1)
    columns = [("x", "y", "z"), ("nx", "ny", "nz"), tuple(f"f_dc_{i}" for i in range(3)),
               tuple(f"f_rest_{i}" for i in range(rest.shape[1])), ("opacity",),
               tuple(f"scale_{i}" for i in range(3)), tuple(f"rot_{i}" for i in range(4))]
    names = [name for group in columns for name in group]
    values = [g["means"], np.zeros((n, 3)), g["sh0"][:, 0], rest, g["opacities"][:, None], g["scales"], g["quats"]]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {n}",
              *(f"property float {name}" for name in names), "end_header", ""]
    try:
        with output_file(path) as out:
            out.file.write("\n".join(header).encode("ascii"))
            out.file.write(np.concatenate(values, 1).astype("<f4").tobytes())
    except OSError as e:
        raise DemoError(f"--save: {e}") from None
