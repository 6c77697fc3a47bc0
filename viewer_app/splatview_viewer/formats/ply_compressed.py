"""SuperSplat's compressed .ply.

It has chunks of 256 Gaussians, each quantised within the bounds of its chunk. Layout as
in playcanvas/splat-transform, `decompress-ply.ts`: positions and log scales 11+10+11
bits between the chunk's minima and maxima, rotations as the index of the largest
component and three times 10 bits, colour and alpha 8 bits each, and an optional element
`sh` with one byte per higher coefficient (channel-major, -4 to 4).
"""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    SH_PROPERTIES,
    Fields,
    Progress,
    check_scene,
    quats_from_smallest_three,
)
from splatview_viewer.formats.ply_elements import PlyHeader, read_records
from splatview_viewer.scene.scene import sh0_of_rgb

CHUNK = 256
"""Gaussians of a chunk in a compressed PLY."""
PACKED = ("packed_position", "packed_rotation", "packed_scale", "packed_color")
_CHUNK_POSITION = ("min_x", "min_y", "min_z", "max_x", "max_y", "max_z")
_CHUNK_SCALE = (
    "min_scale_x",
    "min_scale_y",
    "min_scale_z",
    "max_scale_x",
    "max_scale_y",
    "max_scale_z",
)
_CHUNK_COLOR = ("min_r", "min_g", "min_b", "max_r", "max_g", "max_b")


def _make_sh_table() -> np.ndarray:
    """Return the coefficient, -4 to 4, of each byte of the element `sh`."""
    fractions = (np.arange(256, dtype=np.float32) + 0.5) / 256
    fractions[0] = 0
    fractions[255] = 1
    return ((fractions - 0.5) * 8).astype(np.float32)


_SH_OF_BYTE = _make_sh_table()


class _PackedElements(NamedTuple):
    """The checked elements of a compressed PLY."""

    gaussian_count: int
    coefficients: int
    """Properties of the element `sh`, three for each coefficient above degree 0."""
    has_color_bounds: bool


def _check_packed(header: PlyHeader) -> _PackedElements:
    """Check the elements of a compressed PLY.

    Raises FileError where one is missing or does not fit the others.
    """
    vertex = header.elements["vertex"]
    chunk = header.elements.get("chunk")
    sh = header.elements.get("sh")
    count = vertex.count
    chunk_count = 0 if chunk is None else chunk.count
    if chunk is None or chunk_count * CHUNK < count:
        raise FileError(
            f"compressed PLY: {chunk_count:,} chunks of {CHUNK} cannot hold "
            f"{count:,} Gaussians"
        )
    # Files before SuperSplat 0.23 leave the bounds of colours out: they are 0 and 1.
    has_color_bounds = "min_r" in chunk.types
    chunk.need(_CHUNK_POSITION + _CHUNK_SCALE, "f4")
    if has_color_bounds:
        chunk.need(_CHUNK_COLOR, "f4")
    vertex.need(PACKED, "u4")
    coefficients = len(sh.types) if sh else 0
    if sh is not None:
        if sh.count != count or coefficients not in SH_PROPERTIES:
            raise FileError(
                f"compressed PLY: element 'sh' has {sh.count:,} times {coefficients} "
                f"properties; {count:,} times "
                f"{', '.join(map(str, SH_PROPERTIES[1:]))} is needed"
            )
        sh.need(tuple(f"f_rest_{i}" for i in range(coefficients)), "u1")
    return _PackedElements(count, coefficients, has_color_bounds)


def read_compressed(
    f: BinaryIO, header: PlyHeader, packed: int, progress: Progress
) -> Fields:
    """Read the Gaussians of SuperSplat's compressed PLY. Arguments as `_read_plain` of ply.py."""
    elements = _check_packed(header)
    count = elements.gaussian_count
    check_scene(count, elements.coefficients // 3, packed)
    chunks = read_records(f, header, "chunk")
    records = read_records(f, header, "vertex")
    progress("unpacking Gaussians", 0.3)
    chunk_index = np.arange(count) // CHUNK
    position, rotation, scale, color = (
        records[name].astype(np.uint32, copy=False) for name in PACKED
    )
    positions = _fractions_11_10_11(position)
    scales = _fractions_11_10_11(scale)
    rgb = _fractions(color, 24, 16, 8, bits=8)
    if elements.has_color_bounds:
        rgb = _interpolate(chunks, _CHUNK_COLOR, chunk_index, rgb)
    # Components that are not the largest lie within +-sqrt(1/2).
    components = _fractions(rotation, 20, 10, 0, bits=10) - np.float32(0.5)
    components *= np.float32(2**0.5)
    fields = Fields(
        means=_interpolate(chunks, _CHUNK_POSITION, chunk_index, positions),
        quats=quats_from_smallest_three(rotation >> 30, components),
        scales=_interpolate(chunks, _CHUNK_SCALE, chunk_index, scales),
        opacities=LOGIT_OF_BYTE[color & 255],
        sh0=sh0_of_rgb(rgb),
        shN=np.zeros((count, 0, 3), np.float32),
    )
    progress("unpacking Gaussians", 0.7)
    if elements.coefficients:
        fields.shN = _read_packed_harmonics(f, header, elements)
    progress("unpacking Gaussians", 1.0)
    return fields


def _read_packed_harmonics(
    f: BinaryIO, header: PlyHeader, elements: _PackedElements
) -> np.ndarray:
    """Read the element `sh` as (N, K-1, 3) float32."""
    coefficients = elements.coefficients
    names = [*header.elements["sh"].types]
    order = [names.index(f"f_rest_{i}") for i in range(coefficients)]
    values = read_records(f, header, "sh").view(np.uint8)
    values = values.reshape(elements.gaussian_count, coefficients)[:, order]
    by_channel = values.reshape(elements.gaussian_count, 3, coefficients // 3)
    return _SH_OF_BYTE[by_channel.transpose(0, 2, 1)]


def _fractions(packed: np.ndarray, *shifts: int, bits: int) -> np.ndarray:
    """Return bit fields of `packed` (N,) as (N, len(shifts)) float32 in [0, 1].

    Each has `bits` bits from a shift on.
    """
    mask = (1 << bits) - 1
    values = np.stack([(packed >> shift) & mask for shift in shifts], axis=1)
    return values.astype(np.float32) / np.float32(mask)


def _fractions_11_10_11(packed: np.ndarray) -> np.ndarray:
    """Return fields of 11, 10 and 11 bits of (N,) as (N, 3) float32 in [0, 1]."""
    fractions = _fractions(packed, 21, 11, 0, bits=11)
    fractions[:, 1] = ((packed >> 11) & 1023) / np.float32(1023)
    return fractions


def _interpolate(
    chunks: np.ndarray,
    names: tuple[str, ...],
    chunk_index: np.ndarray,
    fractions: np.ndarray,
) -> np.ndarray:
    """Return values (N, 3) at fractions (N, 3) between the bounds of their chunks.

    Args:
        chunks: the records of all chunks.
        names: the properties of the three minima, then of the three maxima.
        chunk_index: (N,), the chunk of each value.
        fractions: (N, 3) in [0, 1].
    """
    bounds = np.stack([chunks[name] for name in names], axis=1).astype(np.float32)
    low = bounds[chunk_index, :3]
    high = bounds[chunk_index, 3:]
    # A bound may be infinite: the logarithm of a scale of 0.
    with np.errstate(invalid="ignore"):
        from_low = np.where(fractions < 1, low * (1 - fractions), 0)
        return from_low + np.where(fractions > 0, high * fractions, 0)
