"""SuperSplat's compressed .ply: chunks of 256 Gaussians, each quantised within the bounds of its chunk.

Layout as in playcanvas/splat-transform, `decompress-ply.ts`: positions and log scales 11+10+11 bits
between the chunk's minima and maxima, rotations as the index of the largest component and three times 10
bits, colour and alpha 8 bits each, and an optional element `sh` with one byte per higher coefficient
(channel-major, -4 to 4).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.bounds import check_scene, clipped
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    SH_PROPERTIES,
    Fields,
    Progress,
    quats_from_smallest_three,
    read_exact,
)
from splatview_viewer.scene.scene import sh0_of_rgb

if TYPE_CHECKING:
    from splatview_viewer.formats.ply import Element, Header

CHUNK = 256
PACKED = ("packed_position", "packed_rotation", "packed_scale", "packed_color")
_POSITION = tuple(f"{m}_{a}" for m in ("min", "max") for a in "xyz")
_SCALE = tuple(f"{m}_scale_{a}" for m in ("min", "max") for a in "xyz")
_COLOR = tuple(f"{m}_{a}" for m in ("min", "max") for a in "rgb")

_byte = np.arange(256, dtype=np.float32)
_SH_OF_BYTE = (np.where(_byte == 0, 0, np.where(_byte == 255, 1, (_byte + 0.5) / 256)) - 0.5) * 8


def is_compressed(header: Header) -> bool:
    """Whether the header is of this format."""
    vertex = header.element("vertex")
    return vertex is not None and "packed_position" in vertex.types


def read_compressed_ply(f: BinaryIO, header: Header, progress: Progress) -> Fields:
    """The Gaussians of a compressed PLY whose header was read from `f`."""
    if header.format == "ascii":
        raise FileError("compressed PLY: format ascii; only the binary forms exist")
    vertex, chunk, sh = (header.element(name) for name in ("vertex", "chunk", "sh"))
    if vertex is None or chunk is None:
        raise FileError("compressed PLY: the elements 'chunk' and 'vertex' are needed")
    n = vertex.count
    if chunk.count * CHUNK < n:
        raise FileError(f"compressed PLY: {chunk.count:,} chunks of {CHUNK} cannot hold {n:,} Gaussians")
    _need(chunk, _POSITION + _SCALE, "f4")
    _need(vertex, PACKED, "u4")
    colored = "min_r" in chunk.types  # files before SuperSplat 0.23 leave the colour bounds out: 0 to 1
    if colored:
        _need(chunk, _COLOR, "f4")
    k = 0
    if sh is not None:
        if sh.count != n or len(sh.types) not in SH_PROPERTIES:
            raise FileError(f"compressed PLY: element 'sh' has {sh.count:,} times {len(sh.types)} "
                            f"properties; {n:,} times {', '.join(map(str, SH_PROPERTIES[1:]))} is needed")
        _need(sh, tuple(f"f_rest_{i}" for i in range(len(sh.types))), "u1")
        k = len(sh.types) // 3
    check_scene(n, k, os.fstat(f.fileno()).st_size)
    chunks, records = (_records(f, header, e) for e in (chunk, vertex))
    progress("unpacking Gaussians", 0.3)
    of = np.arange(n) // CHUNK
    packed = {name: records[name].astype(np.uint32, copy=False) for name in PACKED}
    fields = Fields(
        means=_between(chunks, _POSITION, of, _unpack_11_10_11(packed["packed_position"])),
        quats=_rotations(packed["packed_rotation"]),
        scales=_between(chunks, _SCALE, of, _unpack_11_10_11(packed["packed_scale"])),
        opacities=LOGIT_OF_BYTE[packed["packed_color"] & 255],
        sh0=_colors(packed["packed_color"], chunks if colored else None, of),
        shN=np.zeros((n, 0, 3), np.float32))
    progress("unpacking Gaussians", 0.7)
    if sh is not None and k:
        bands = _records(f, header, sh)
        order = np.array([sh.names.index(f"f_rest_{i}") for i in range(3 * k)])
        rest = bands.view(np.uint8).reshape(n, 3 * k)[:, order]
        fields.shN = _SH_OF_BYTE.astype(np.float32)[rest.reshape(n, 3, k).transpose(0, 2, 1)]
    progress("unpacking Gaussians", 1.0)
    return fields.checked(mode=header.mode, up=header.said("verticalaxis"))


def _need(element: Element, names: tuple[str, ...], kind: str) -> None:
    for name in names:
        if element.types.get(name, "")[1:] != kind:
            raise FileError(f"compressed PLY: element {element.name!r} has no property {name!r} of type "
                            f"{kind}; it has {', '.join(map(clipped, element.names[:20])) or 'none'}")


def _records(f: BinaryIO, header: Header, element: Element) -> np.ndarray:
    header.seek(f, element.name)
    data = read_exact(f, element.nbytes, f"compressed PLY: element {element.name!r}")
    return np.frombuffer(data, element.dtype)


def _unpack_11_10_11(v: np.ndarray) -> np.ndarray:
    """(N, 3) float32 in [0, 1]."""
    out = np.empty((len(v), 3), np.float32)
    out[:, 0] = (v >> 21) / np.float32(2047)
    out[:, 1] = ((v >> 11) & 1023) / np.float32(1023)
    out[:, 2] = (v & 2047) / np.float32(2047)
    return out


def _between(chunks: np.ndarray, names: tuple[str, ...], of: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Values (N, 3) at the fractions `t` between the bounds of their chunks."""
    bounds = np.stack([chunks[name] for name in names], axis=1).astype(np.float32)
    low, high = bounds[of, :3], bounds[of, 3:]
    with np.errstate(invalid="ignore"):  # a bound may be infinite: the logarithm of a scale of 0
        return np.where(t < 1, low * (1 - t), 0) + np.where(t > 0, high * t, 0)


def _colors(v: np.ndarray, chunks: np.ndarray | None, of: np.ndarray) -> np.ndarray:
    rgb = np.stack([(v >> s) & 255 for s in (24, 16, 8)], axis=1).astype(np.float32) / np.float32(255)
    if chunks is not None:
        rgb = _between(chunks, _COLOR, of, rgb)
    return sh0_of_rgb(rgb)


def _rotations(v: np.ndarray) -> np.ndarray:
    rest = np.stack([(v >> s) & 1023 for s in (20, 10, 0)], axis=1).astype(np.float32) / np.float32(1023)
    return quats_from_smallest_three(v >> 30, (rest - np.float32(0.5)) * np.float32(2 ** 0.5))
