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
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from splatview_ipc.kinds.gaussians import FILTER_NAMES
from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    SH_PROPERTIES,
    Fields,
    Format,
    Progress,
    Start,
    check_scene,
    clipped,
    open_plain,
    silent,
)
from splatview_viewer.formats.mip_filter import apply_filter
from splatview_viewer.formats.ply_compressed import PACKED, read_compressed
from splatview_viewer.formats.ply_elements import (
    Element,
    PlyHeader,
    read_blocks,
    read_header,
)
from splatview_viewer.scene.scene import sh0_of_rgb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import torch

    from splatview_viewer.scene.scene import GaussianScene

COLORS = ("f_dc_0", "f_dc_1", "f_dc_2"), ("red", "green", "blue"), ("r", "g", "b")
"""The names of the colour, in the order in which they are looked for."""
ROTATION = ("rot_0", "rot_1", "rot_2", "rot_3")

_ROWS = 1 << 16
"""Gaussians that are written in one piece."""
_MIN_POSITIVE = 1e-37
"""Argument of logarithms and logits in the place of 0, so that they are finite."""
_OPACITY_MARGIN = 2.0**-24
"""Distance to 1 that opacities keep, so that their logits are finite."""


# -- one number for each property ------------------------------------------------------


class _Columns(NamedTuple):
    """The names of the properties that a scene is read from."""

    colors: tuple[str, ...]
    scales: list[str]
    harmonics: list[str]
    """All `f_rest_*`, in the order of the file."""


def _read_plain(
    f: BinaryIO, header: PlyHeader, packed: int, progress: Progress
) -> Fields:
    """Read the Gaussians of a PLY that is not compressed.

    Args:
        f: the file, seekable.
        header: its header.
        packed: bytes of the file as it is stored.
        progress: called with how far it is.

    Raises:
        FileError: properties are missing, or the file is too short.
    """
    vertex = header.elements["vertex"]
    columns = _check_columns(vertex)
    coefficients = len(columns.harmonics) // 3
    blocks = read_blocks(f, header, "vertex", progress)
    check_scene(vertex.count, coefficients, packed, growth=1.5)
    fields = _read_columns(vertex, columns, blocks, progress)
    if columns.colors is not COLORS[0]:
        white = np.array([_white_of(vertex, name) for name in columns.colors])
        fields.sh0 = sh0_of_rgb(fields.sh0 / white.astype(np.float32))
    return fields


def _check_columns(vertex: Element) -> _Columns:
    """Return the properties of `vertex` that a scene is read from.

    Raises FileError where one is missing.
    """
    names = [*vertex.types]
    complete = [colors for colors in COLORS if set(colors) <= vertex.types.keys()]
    complete.append(COLORS[0])
    colors = complete[0]
    scales = [name for name in names if name.startswith("scale_")]
    # One scale for all axes, or the two of 2D Gaussian splatting.
    if sorted(scales) not in (["scale_0"], ["scale_0", "scale_1"]):
        scales = ["scale_0", "scale_1", "scale_2"]
    needed = (*"xyz", *colors, "opacity", *scales, *ROTATION)
    missing = [name for name in needed if name not in vertex.types]
    if missing:
        present = ", ".join(map(clipped, names[:20])) or "no properties"
        if len(names) > 20:
            present += " ..."
        raise FileError(
            f"PLY: no Gaussians in it: {', '.join(missing)} missing; vertex has "
            f"{present}"
        )
    harmonics = [name for name in names if name.startswith("f_rest_")]
    numbered = {f"f_rest_{i}" for i in range(len(harmonics))}
    if len(harmonics) not in SH_PROPERTIES or set(harmonics) != numbered:
        raise FileError(
            f"PLY: {len(harmonics)} properties f_rest_*; expected "
            f"{', '.join(map(str, SH_PROPERTIES))}, numbered from 0"
        )
    return _Columns(colors, scales, harmonics)


def _read_columns(
    vertex: Element,
    columns: _Columns,
    blocks: Iterable[np.ndarray],
    progress: Progress,
) -> Fields:
    """Read the records of `vertex` into the fields of a scene.

    mip-splatting's filter, where the file has one, is applied to scales and opacities.
    """
    count = vertex.count
    fields = _empty_fields(vertex, columns)
    targets = _targets_of(fields, columns)
    filter_sizes = np.empty(count, np.float32)
    filters = [name for name in FILTER_NAMES if name in vertex.types]
    if filters:
        targets[filters[0]] = filter_sizes
    start = 0
    for block in blocks:
        end = start + len(block)
        for name, target in targets.items():
            target[start:end] = block[name]
        progress("reading Gaussians", end / count)
        start = end
    progress("reading Gaussians", 1.0)
    if filters:
        filtered = apply_filter(fields.scales, fields.opacities, filter_sizes)
        fields.scales, fields.opacities = filtered
    return fields


def _empty_fields(vertex: Element, columns: _Columns) -> Fields:
    """Return arrays for the Gaussians of `vertex`.

    Positions are float64 where the file has them so.
    """
    count = vertex.count
    is_wide = any(vertex.types[axis][1:] == "f8" for axis in "xyz")
    dtype = np.dtype(np.float32)
    if is_wide:
        dtype = np.dtype(np.float64)
    return Fields(
        means=np.empty((count, 3), dtype),
        quats=np.empty((count, 4), np.float32),
        scales=np.empty((count, len(columns.scales)), np.float32),
        opacities=np.empty(count, np.float32),
        sh0=np.empty((count, 3), np.float32),
        shN=np.empty((count, len(columns.harmonics) // 3, 3), np.float32),
    )


def _targets_of(fields: Fields, columns: _Columns) -> dict[str, np.ndarray]:
    """Return the array (N,) that each property is read into: views of the fields."""
    targets = {"opacity": fields.opacities}
    groups = (
        ("xyz", fields.means),
        (ROTATION, fields.quats),
        (columns.scales, fields.scales),
        (columns.colors, fields.sh0),
    )
    for names, array in groups:
        for i, name in enumerate(names):
            targets[name] = array[:, i]
    coefficients = len(columns.harmonics) // 3
    for channel in range(3):
        for k in range(coefficients):
            name = f"f_rest_{channel * coefficients + k}"
            targets[name] = fields.shN[:, k, channel]
    return targets


def _white_of(vertex: Element, name: str) -> int:
    """Return the full value of a colour's channel, which depends on its type."""
    kind = vertex.types[name][1:]
    if kind.startswith("f"):
        return 1
    if kind == "u2":
        return 65535
    return 255


# -- reading a file --------------------------------------------------------------------


def read_ply(path: Path, progress: Progress) -> Fields:
    """Read the Gaussians of a PLY, compressed or not, in gzip or not."""
    with open_plain(path, progress) as (f, packed):
        header = read_header(f)
        vertex = header.elements.get("vertex")
        if vertex is None:
            present = ", ".join(map(clipped, [*header.elements][:20])) or "no elements"
            raise FileError(f"PLY: no element 'vertex'; the file has {present}")
        is_compressed = PACKED[0] in vertex.types
        if is_compressed:
            fields = read_compressed(f, header, packed, progress)
        else:
            fields = _read_plain(f, header, packed, progress)
    # Brush writes `SplatRenderMode: mip`, Postshot `antialiased 1`.
    mode = _last_comment(header.comments, "splatrendermode", "antialiased")
    mode = re.sub(r"\s", "", mode)
    # Packed ones come from SuperSplat. Plain ones are inria's as a rule, or gsplat's,
    # whose scenes are turned to +z.
    customary_ups = ["-y"] if is_compressed else ["-y", "+z"]
    up = _vertical_axis(header.comments)
    return fields.checked(mode=mode, up=up, customary_ups=customary_ups)


def _last_comment(comments: list[str], *keys: str) -> str:
    """Return the text after a key in the last comment that begins with one of `keys`.

    It is "" without such a comment.
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
    up: tuple[float, float, float] | None = None,
    keep: torch.Tensor | None = None,
    progress: Progress = silent,
    numbered: bool = True,
) -> tuple[Path, int]:
    """Write an activated scene on the CPU, or some of its Gaussians, as a PLY.

    The file appears at once and whole, or not at all.

    Args:
        scene: activated; Gaussians of opacity 0 are left out, since they are invisible.
        path: the file to write.
        antialiased: True for a scene that was trained so, noted in a comment that other
            programs know.
        up: the direction upward, noted in a comment; None if it is not known.
        keep: (N,) bool, which Gaussians to write; None for all of them.
        progress: called with how far it is.
        numbered: replace nothing: if the file exists, a number is appended.

    Returns:
        The path of the file, and how many Gaussians are in it.

    Raises:
        FileError: none is left to be written, or the file cannot be written.
    """
    selected = scene.opacities > 0
    if keep is not None:
        selected = selected & keep
    index = selected.nonzero()[:, 0]
    count = len(index)
    if not count:
        raise FileError("PLY: none of the Gaussians is left to be written")
    header = _header_text(scene, count, antialiased=antialiased, up=up)
    try:
        with output_file(path, numbered=numbered) as out:
            out.file.write(header.encode())
            for start in range(0, count, _ROWS):
                end = min(start + _ROWS, count)
                out.file.write(_pack_records(scene[index[start:end]]).data)
                progress("writing Gaussians", end / count)
    except OSError as e:
        raise FileError(str(e)) from e
    return out.path, count


def _header_text(
    scene: GaussianScene,
    count: int,
    *,
    antialiased: bool,
    up: tuple[float, float, float] | None,
) -> str:
    """Return the header of a PLY with `count` Gaussians, in inria's order."""
    position_type = "double" if scene.means.dtype.itemsize == 8 else "float"
    names = ["nx", "ny", "nz", *COLORS[0]]
    names += [f"f_rest_{i}" for i in range(3 * scene.shN.shape[1])]
    names += ["opacity", "scale_0", "scale_1", "scale_2", *ROTATION]
    lines = ["ply", "format binary_little_endian 1.0"]
    if antialiased:
        lines.append("comment SplatRenderMode: mip")
    if up is not None:
        lines.append("comment Vertical axis: " + " ".join(f"{x:g}" for x in up))
    lines.append(f"element vertex {count}")
    lines += [f"property {position_type} {axis}" for axis in "xyz"]
    lines += [f"property float {name}" for name in names]
    lines += ["end_header", ""]
    return "\n".join(lines)


def _pack_records(scene: GaussianScene) -> np.ndarray:
    """Return the records of an activated scene as a structured array.

    Its fields are the positions, and all other properties as one block.
    """
    harmonics = 3 * scene.shN.shape[1]
    is_wide = scene.means.dtype.itemsize == 8
    # Behind the position: normal, colour, harmonics, opacity, scales, rotation.
    columns = 3 + 3 + harmonics + 1 + 3 + 4
    position_type = "<f8" if is_wide else "<f4"
    record = np.dtype([("means", position_type, 3), ("rest", "<f4", columns)])
    records = np.zeros(len(scene), record)
    records["means"] = scene.means.numpy()
    block = records["rest"]
    block[:, 3:6] = scene.sh0.numpy()
    # Channel by channel, while tensors go coefficient by coefficient.
    block[:, 6 : 6 + harmonics] = scene.shN.transpose(1, 2).flatten(1).numpy()
    opacities = scene.opacities.double().clamp(_MIN_POSITIVE, 1 - _OPACITY_MARGIN)
    block[:, 6 + harmonics] = opacities.logit().numpy()
    scales = scene.scales.double().clamp(_MIN_POSITIVE)
    block[:, 7 + harmonics : 10 + harmonics] = scales.log().numpy()
    block[:, 10 + harmonics :] = scene.quats.numpy()
    return records


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
