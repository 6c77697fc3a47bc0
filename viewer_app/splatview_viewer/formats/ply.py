"""The .ply of 3D Gaussian splatting, as inria's code and gsplat's exporters write it.

One record per Gaussian: x y z [nx ny nz] f_dc_0..2 f_rest_* opacity scale_0..2
rot_0..3, scales as logarithms and opacities as logits. f_rest is channel-major (all of
R, then G, then B). Properties may come in any order and type; what is not needed is
skipped. The layout is that of `GaussianModel.save_ply` in
graphdeco-inria/gaussian-splatting. Besides it: a colour as red green blue (nerfstudio)
or r g b, integers or 0 to 1, one scale for all axes, two scales (2D Gaussian
splatting), mip-splatting's filter_3D, and names that begin with scalar_ (CloudCompare).
Files are written in inria's order of properties, so that other programs read them as
well.

SuperSplat's compressed .ply: chunks of 256 Gaussians, each quantised within the bounds
of its chunk. Layout as in playcanvas/splat-transform, `decompress-ply.ts`: positions
and log scales 11+10+11 bits between the chunk's minima and maxima, rotations as the
index of the largest component and three times 10 bits, colour and alpha 8 bits each,
and an optional element `sh` with one byte per higher coefficient (channel-major, -4 to
4).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview_ipc.kinds.gaussians import FILTER_NAMES
from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    SH_PROPERTIES,
    Fields,
    Format,
    Progress,
    Start,
    check_scene,
    clipped,
    open_plain,
    quats_from_smallest_three,
    silent,
)
from splatview_viewer.formats.mip_filter import apply_filter
from splatview_viewer.formats.ply_elements import (
    PlyHeader,
    read_blocks,
    read_header,
    read_records,
)
from splatview_viewer.scene.scene import sh0_of_rgb

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from splatview_viewer.scene.scene import GaussianScene

COLORS = ("f_dc_0", "f_dc_1", "f_dc_2"), ("red", "green", "blue"), ("r", "g", "b")
"""The names of the colour, in the order in which they are looked for."""
ROTATION = ("rot_0", "rot_1", "rot_2", "rot_3")

_ROWS = 1 << 16
"""Gaussians that are written in one piece."""
_LEAST_SCALE = 1e-37
_NEAREST_OPACITY = 2.0**-24
"""Arguments of logarithms and logits in the place of 0 and 1, so that they are finite.
"""

CHUNK = 256
PACKED = ("packed_position", "packed_rotation", "packed_scale", "packed_color")
_CHUNK_POSITION, _CHUNK_SCALE, _CHUNK_COLOR = (
    tuple(f"{m}_{a}" for m in ("min", "max") for a in axes)
    for axes in ("xyz", ("scale_x", "scale_y", "scale_z"), "rgb")
)
_byte = np.arange(256, dtype=np.float32)
_SH_OF_BYTE = (
    (np.where(_byte == 0, 0, np.where(_byte == 255, 1, (_byte + 0.5) / 256)) - 0.5) * 8
).astype(np.float32)


# -- one number for each property ------------------------------------------------------


def _read_plain(
    f: BinaryIO, header: PlyHeader, packed: int, progress: Progress
) -> Fields:
    vertex = header.elements["vertex"]
    names = [*vertex.types]
    colors = next((c for c in COLORS if set(c) <= vertex.types.keys()), COLORS[0])
    scales = [p for p in names if p.startswith("scale_")]
    if sorted(scales) not in (["scale_0"], ["scale_0", "scale_1"]):  # 2DGS has two
        scales = ["scale_0", "scale_1", "scale_2"]
    missing = [
        p
        for p in (*"xyz", *colors, "opacity", *scales, *ROTATION)
        if p not in vertex.types
    ]
    if missing:
        raise FileError(
            f"PLY: no Gaussians in it: {', '.join(missing)} missing; vertex has "
            f"{', '.join(map(clipped, names[:20])) or 'no properties'}{' ...' if len(names) > 20 else ''}"
        )
    rest = [p for p in names if p.startswith("f_rest_")]
    if len(rest) not in SH_PROPERTIES or set(rest) != {
        f"f_rest_{i}" for i in range(len(rest))
    }:
        raise FileError(
            f"PLY: {len(rest)} properties f_rest_*; legal are "
            f"{', '.join(map(str, SH_PROPERTIES))}, "
            "numbered from 0"
        )
    n = vertex.count
    k = len(rest) // 3
    blocks = read_blocks(f, header, "vertex", progress)
    check_scene(n, k, packed, growth=1.5)
    fields = Fields(
        *(
            np.empty((n, *s), np.float32)
            for s in ((3,), (4,), (len(scales),), (), (3,), (k, 3))
        )
    )
    fields.means = fields.means.astype(
        np.float64 if any(vertex.types[c][1:] == "f8" for c in "xyz") else np.float32
    )
    columns = {
        "opacity": fields.opacities,
        **{f"f_rest_{i}": fields.shN[:, i % k, i // k] for i in range(3 * k)},
    }
    for these, to in (
        ("xyz", fields.means),
        (ROTATION, fields.quats),
        (scales, fields.scales),
        (colors, fields.sh0),
    ):
        columns |= {name: to[:, i] for i, name in enumerate(these)}
    filter_sizes = np.empty(n, np.float32)
    filters = [name for name in FILTER_NAMES if name in vertex.types]
    columns |= dict.fromkeys(filters[:1], filter_sizes)
    start = 0
    for block in blocks:
        end = start + len(block)
        for name, column in columns.items():
            column[start:end] = block[name]
        progress("reading Gaussians", end / n)
        start = end
    progress("reading Gaussians", 1.0)
    if filters:
        fields.scales, fields.opacities = apply_filter(
            fields.scales, fields.opacities, filter_sizes
        )
    if colors is not COLORS[0]:
        white = [
            1
            if vertex.types[c][1] == "f"
            else 65535
            if vertex.types[c][1:] == "u2"
            else 255
            for c in colors
        ]
        fields.sh0 = sh0_of_rgb(fields.sh0 / np.array(white, np.float32))
    return fields


# -- SuperSplat's compressed form ------------------------------------------------------


def _read_compressed(
    f: BinaryIO, header: PlyHeader, packed: int, progress: Progress
) -> Fields:
    vertex = header.elements["vertex"]
    chunk = header.elements.get("chunk")
    sh = header.elements.get("sh")
    n = vertex.count
    if chunk is None or chunk.count * CHUNK < n:
        raise FileError(
            f"compressed PLY: {0 if chunk is None else chunk.count:,} chunks of "
            f"{CHUNK} cannot hold {n:,} "
            "Gaussians"
        )
    colored = (
        "min_r" in chunk.types
    )  # files before SuperSplat 0.23 leave the colour bounds out: 0 to 1
    chunk.need(_CHUNK_POSITION + _CHUNK_SCALE + (_CHUNK_COLOR if colored else ()), "f4")
    vertex.need(PACKED, "u4")
    coefficients = len(sh.types) if sh else 0
    if sh is not None:
        if sh.count != n or coefficients not in SH_PROPERTIES:
            raise FileError(
                f"compressed PLY: element 'sh' has {sh.count:,} times {coefficients} "
                f"properties; {n:,} times {', '.join(map(str, SH_PROPERTIES[1:]))} is "
                "needed"
            )
        sh.need(tuple(f"f_rest_{i}" for i in range(coefficients)), "u1")
    check_scene(n, coefficients // 3, packed)
    chunks = read_records(f, header, "chunk")
    records = read_records(f, header, "vertex")
    progress("unpacking Gaussians", 0.3)
    of = np.arange(n) // CHUNK
    position, rotation, scale, color = (
        records[name].astype(np.uint32, copy=False) for name in PACKED
    )
    rgb = _fractions(color, 24, 16, 8, bits=8)
    fields = Fields(
        means=_between(chunks, _CHUNK_POSITION, of, _fractions_11_10_11(position)),
        quats=quats_from_smallest_three(
            rotation >> 30,
            (_fractions(rotation, 20, 10, 0, bits=10) - np.float32(0.5))
            * np.float32(2**0.5),
        ),
        scales=_between(chunks, _CHUNK_SCALE, of, _fractions_11_10_11(scale)),
        opacities=LOGIT_OF_BYTE[color & 255],
        sh0=sh0_of_rgb(_between(chunks, _CHUNK_COLOR, of, rgb) if colored else rgb),
        shN=np.zeros((n, 0, 3), np.float32),
    )
    progress("unpacking Gaussians", 0.7)
    if sh is not None and coefficients:
        order = [[*sh.types].index(f"f_rest_{i}") for i in range(coefficients)]
        rest = read_records(f, header, "sh").view(np.uint8)
        rest = rest.reshape(n, coefficients)[:, order]
        fields.shN = _SH_OF_BYTE[
            rest.reshape(n, 3, coefficients // 3).transpose(0, 2, 1)
        ]
    progress("unpacking Gaussians", 1.0)
    return fields


def _fractions(v: np.ndarray, *shifts: int, bits: int) -> np.ndarray:
    """Return three fields of words as (N, 3) float32 in [0, 1]."""
    most = (1 << bits) - 1
    return np.stack([(v >> shift) & most for shift in shifts], axis=1).astype(
        np.float32
    ) / np.float32(most)


def _fractions_11_10_11(v: np.ndarray) -> np.ndarray:
    out = _fractions(v, 21, 11, 0, bits=11)
    out[:, 1] = ((v >> 11) & 1023) / np.float32(1023)
    return out


def _between(
    chunks: np.ndarray, names: tuple[str, ...], of: np.ndarray, t: np.ndarray
) -> np.ndarray:
    """Return values (N, 3) at the fractions `t` between the bounds of their chunks."""
    bounds = np.stack([chunks[name] for name in names], axis=1).astype(np.float32)
    low = bounds[of, :3]
    high = bounds[of, 3:]
    with np.errstate(
        invalid="ignore"
    ):  # a bound may be infinite: the logarithm of a scale of 0
        return np.where(t < 1, low * (1 - t), 0) + np.where(t > 0, high * t, 0)


# -- reading a file --------------------------------------------------------------------


def read_ply(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a PLY, compressed or not, in gzip or not."""
    with open_plain(path, progress) as (f, packed):
        header = read_header(f)
        vertex = header.elements.get("vertex")
        if vertex is None:
            raise FileError(
                "PLY: no element 'vertex'; the file has "
                f"{', '.join(map(clipped, [*header.elements][:20])) or 'no elements'}"
            )
        is_compressed = PACKED[0] in vertex.types
        read_vertices = _read_compressed if is_compressed else _read_plain
        fields = read_vertices(f, header, packed, progress)
    # Brush writes `SplatRenderMode: mip`, Postshot `antialiased 1`.
    mode = _last_comment(header.comments, "splatrendermode", "antialiased")
    mode = re.sub(r"\s", "", mode)
    return fields.checked(mode=mode, up=_vertical_axis(header.comments))


def _last_comment(comments: list[str], *keys: str) -> str:
    """Return what the last comment with one of these words at its beginning says behind
    it, or an empty text.
    """
    for comment in reversed(comments):
        text = " ".join(comment.lower().split())
        for key in keys:
            if text.startswith(key):
                return text.removeprefix(key).lstrip(" :=")
    return ""


def _vertical_axis(comments: list[str]) -> str:
    """Return the direction upward as comments name it.

    nerfstudio writes an axis ("z"), and means the positive one. Brush writes a
    direction ("0 -1 0"), or always "y" where it knows none, and reads "y" and "z" as
    the negative ones: up in a world of COLMAP.
    """
    axis = _last_comment(comments, "vertical axis", "verticalaxis")
    is_of_brush = any("brush" in comment.lower() for comment in comments)
    if is_of_brush and axis in ("y", "z"):
        return f"-{axis}"
    return axis


# -- writing ---------------------------------------------------------------------------


def write_ply(
    scene: GaussianScene,
    path: Path,
    *,
    antialiased: bool = False,
    keep: torch.Tensor | None = None,
    progress: Progress = silent,
) -> tuple[Path, int]:
    """Write an activated scene on the CPU, or a part of it.

    The file appears at once and whole, or not at all.

    Args:
        scene: activated; Gaussians of opacity 0 are left out, since nothing of them is
            to be seen.
        path: where; if that exists, the same with a number behind it, so that nothing
            is lost.
        antialiased: True for a scene that was trained so, noted in a comment that other
            programs know.
        keep: (N,) bool, which Gaussians to write; None: all of them.
        progress: called with how far it is.

    Returns the file's path and how many Gaussians are in it.

    Raises:
        FileError: none is left to be written, or the file cannot be written.
    """
    drawn = scene.opacities > 0
    index = (drawn if keep is None else drawn & keep).nonzero()[:, 0]
    if not len(index):
        raise FileError("PLY: none of the Gaussians is left to be written")
    rest = 3 * scene.shN.shape[1]
    names = [
        "x",
        "y",
        "z",
        "nx",
        "ny",
        "nz",
        *(f"f_dc_{i}" for i in range(3)),
        *(f"f_rest_{i}" for i in range(rest)),
        "opacity",
        *(f"scale_{i}" for i in range(3)),
        *(f"rot_{i}" for i in range(4)),
    ]
    wide = "double" if scene.means.dtype.itemsize == 8 else "float"
    record = np.dtype(
        [
            ("means", "<f8" if wide == "double" else "<f4", 3),
            ("rest", "<f4", len(names) - 3),
        ]
    )
    comments = ["comment SplatRenderMode: mip"] if antialiased else []
    header = "\n".join(
        [
            "ply",
            "format binary_little_endian 1.0",
            *comments,
            f"element vertex {len(index)}",
            *(
                f"property {wide if name in 'xyz' else 'float'} {name}"
                for name in names
            ),
            "end_header",
            "",
        ]
    ).encode()
    try:
        with output_file(path, numbered=True) as out:
            out.file.write(header)
            for start in range(0, len(index), _ROWS):
                part = scene[index[start : start + _ROWS]]
                records = np.zeros(len(part), record)
                records["means"], block = part.means.numpy(), records["rest"]
                block[:, 3:6] = part.sh0.numpy()
                # Channel by channel, while tensors go coefficient by coefficient.
                block[:, 6 : 6 + rest] = part.shN.transpose(1, 2).flatten(1).numpy()
                block[:, 6 + rest] = (
                    part.opacities.double()
                    .clamp(1e-37, 1 - _NEAREST_OPACITY)
                    .logit()
                    .numpy()
                )
                block[:, 7 + rest : 10 + rest] = (
                    part.scales.double().clamp(_LEAST_SCALE).log().numpy()
                )
                block[:, 10 + rest :] = part.quats.numpy()
                out.file.write(records.data)
                progress(
                    "writing Gaussians", min(start + _ROWS, len(index)) / len(index)
                )
    except OSError as e:
        raise FileError(str(e)) from e
    return out.path, len(index)


def _is_ply(start: Start) -> bool:
    head = start.plain_head
    return head[:3] == b"ply" and head[3:4] in (b"\n", b"\r", b" ")


PLY = Format(
    "ply",
    (".ply", ".ply.gz"),
    "3D Gaussian splatting PLY (inria, gsplat), SuperSplat's compressed PLY",
    _is_ply,
    read_ply,
)
