"""PlayCanvas SOG: WebP planes and a meta.json, in a folder or a zip.

Version 2, and its forerunner without a version number. Layout:
developer.playcanvas.com/user-manual/gaussian-splatting/ formats/sog, and `read-sog.ts`
and `read-sog-v1.ts` of playcanvas/splat-transform. means_l and means_u: low and high
byte of 16 bits between the bounds of sign(x) ln(|x| + 1). quats: the three smaller
components, alpha 252 + index of the largest. scales, sh0: codebook entries, sh0's alpha
the opacity; of version 1 values between bounds, sh0's alpha the logit. shN_labels: 16
bits that name an entry of shN_centroids, in which 64 entries lie beside each other.

A meta.json of gsplat's PNG compression is read by `gsplat_png.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST_COUNTS
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import gsplat_png
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    Fields,
    Format,
    Progress,
    Start,
    check_scene,
    quats_from_smallest_three,
)
from splatview_viewer.formats.planes import (
    META,
    PLANE_LIMIT,
    PlaneFile,
    Planes,
    check_count,
    load_meta,
    open_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.formats.planes import Load, PlaneFiles

FILES = {"means": 2, "quats": 1, "scales": 1, "sh0": 1, "shN": 2}
"""The fields of meta.json that name files, and how many."""
PLANE_SUFFIXES = (".webp", ".png", ".npz")
FIRST_COMPONENT = 252
"""Alpha of a quaternion whose largest component is the first one; smaller ones mean
none."""
MAX_PLANES = 64
"""Files beside a meta.json whose change is noticed."""
VERSIONS = (None, 1, 2)
"""Versions that meta.json may name; the forerunner of version 2 names none."""


def read_sog(path: Path, progress: Progress) -> Fields:
    """Read the Gaussians of a SOG, or of gsplat's PNG compression.

    Args:
        path: a zip, a folder, or its meta.json.
    """
    with open_files(path) as load:
        meta = load_meta(load)
        if gsplat_png.is_meta(meta):
            return gsplat_png.read_planes(meta, load, progress)
        try:
            return _read(meta, load, progress)
        except FileError as e:
            raise FileError(f"SOG: {e}") from e.__cause__


def _read(meta: dict[str, Any], load: Load, progress: Progress) -> Fields:
    """Read the Gaussians that a meta.json of SOG and its files describe.

    Raises FileError.
    """
    version = meta.get("version")
    if version not in VERSIONS:
        raise FileError(f"meta.json has version {version!r:.40}; expected 1 or 2")
    has_codebooks = version == 2
    if has_codebooks:
        count = check_count(meta.get("count"))
    else:
        count = check_count(meta["means"]["shape"][0])
    planes = Planes(meta, count, _load_planes(meta, load), progress)
    coefficients = 0
    if "shN" in meta:
        coefficients = 15
    check_scene(count, coefficients, planes.packed)
    means = planes.means()
    quats = _read_quats(planes)
    scales = _read_scales(planes, has_codebooks=has_codebooks)
    colors = _read_colors(planes, has_codebooks=has_codebooks)
    fields = Fields(
        means=means,
        quats=quats,
        scales=scales,
        opacities=colors.opacities,
        sh0=colors.sh0,
        shN=_read_harmonics(planes, has_codebooks=has_codebooks),
    )
    mode = meta.get("model", meta.get("antialias"))
    return fields.checked(mode=mode, customary_ups=["-y"])


def _load_planes(meta: dict[str, Any], load: Load) -> PlaneFiles:
    """Load the files that a meta.json names."""
    files: PlaneFiles = {}
    for field, file_count in FILES.items():
        if field not in meta:
            continue
        names = meta[field]["files"][:file_count]
        for i, name in enumerate(names):
            if not isinstance(name, str):
                raise FileError(f"a file of {field!r} is {name!r:.40}, not a name")
            files[field, i] = PlaneFile(name, load(name, PLANE_LIMIT))
    return files


def _read_quats(planes: Planes) -> np.ndarray:
    """Return quaternions (N, 4), the identity where the plane has none.

    It holds three components and, as alpha, the index of the largest one.
    """
    pixels = planes.pixels("quats")
    fractions = pixels[:, :3] / np.float32(255) - np.float32(0.5)
    largest = pixels[:, 3].astype(np.int16) - FIRST_COMPONENT
    quats = quats_from_smallest_three(largest, fractions * np.float32(2**0.5))
    quats[pixels[:, 3] < FIRST_COMPONENT] = (1, 0, 0, 0)
    return quats


def _read_scales(planes: Planes, *, has_codebooks: bool) -> np.ndarray:
    """Return log scales (N, 3)."""
    pixels = planes.pixels("scales")[:, :3]
    if has_codebooks:
        return planes.read_numbers("scales", "codebook", 256)[pixels]
    return planes.dequantize("scales", pixels, 255)


class _Colors(NamedTuple):
    """The values of the plane "sh0"."""

    sh0: np.ndarray
    """(N, 3)."""
    opacities: np.ndarray
    """(N,), logits."""


def _read_colors(planes: Planes, *, has_codebooks: bool) -> _Colors:
    """Return the coefficients of degree 0 and the opacities, from one plane."""
    rgba = planes.pixels("sh0")
    if has_codebooks:
        sh0 = planes.read_numbers("sh0", "codebook", 256)[rgba[:, :3]]
        return _Colors(sh0, LOGIT_OF_BYTE[rgba[:, 3]])
    values = planes.dequantize("sh0", rgba, 255)
    return _Colors(values[:, :3], values[:, 3])


def _read_harmonics(planes: Planes, *, has_codebooks: bool) -> np.ndarray:
    """Return the coefficients above degree 0, (N, K-1, 3).

    Each Gaussian's label looks up a row of the palette.
    """
    if "shN" not in planes.meta:
        return np.zeros((planes.count, 0, 3), np.float32)
    palette = _read_palette(planes, has_codebooks=has_codebooks)
    pixels = planes.pixels("shN", 1)
    labels = pixels[:, 0] | (pixels[:, 1].astype(np.uint16) << 8)
    if planes.count and int(labels.max()) >= len(palette):
        raise FileError(
            f"a label of {int(labels.max())} in a palette of {len(palette)} entries"
        )
    return palette[labels].astype(np.float32, copy=False)


def _read_palette(planes: Planes, *, has_codebooks: bool) -> np.ndarray:
    """Return the palette of coefficients (M, K-1, 3) of shN_centroids."""
    centroids = planes.picture("shN", 0, is_palette=True)
    width = centroids.shape[1]
    bands = planes.meta["shN"].get("bands")
    coefficients = width // 64
    if width % 64 or coefficients not in (3, 8, 15):
        raise FileError(
            f"shN_centroids is {width} pixels wide; expected 192, 512 or 960"
        )
    if bands not in (None, SH_REST_COUNTS.index(coefficients)):
        raise FileError(
            f"shN has {bands!r} bands but its centroids are {width} pixels wide"
        )
    palette = centroids.reshape(-1, coefficients, 4)[:, :, :3]
    if has_codebooks:
        return planes.read_numbers("shN", "codebook", 256)[palette]
    low = planes.read_numbers("shN", "mins", None)
    high = planes.read_numbers("shN", "maxs", None)
    return low + palette / np.float32(255) * (high - low)


def _is_sog(start: Start) -> bool:
    if start.path.is_dir():
        return (start.path / META).is_file()
    if META in start.zip_names or os.path.basename(start.name) == META:
        return True
    return start.head.lstrip()[:1] == b"{" and start.suffix == ".json"


def find_parts(path: Path) -> list[Path]:
    """Return the files of a scene: the zip, or meta.json and the planes beside it."""
    if not path.is_dir() and path.name != META:
        return [path]
    if path.is_dir():
        folder = path
    else:
        folder = path.parent
    planes = [p for p in folder.iterdir() if p.suffix in PLANE_SUFFIXES]
    return [folder / META, *sorted(planes)[:MAX_PLANES]]


SOG = Format(
    "sog",
    (".sog", ".zip", META),
    "PlayCanvas SOG, gsplat's PNG compression: a zip, or a folder with meta.json",
    _is_sog,
    read_sog,
    parts=find_parts,
)
