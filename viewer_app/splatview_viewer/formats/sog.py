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
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
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
    Planes,
    check_count,
    load_meta,
    open_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.formats.planes import Load

FILES = {"means": 2, "quats": 1, "scales": 1, "sh0": 1, "shN": 2}
"""The fields of meta.json that name files, and how many."""
PLANE_SUFFIXES = (".webp", ".png", ".npz")
MOST_PLANES = 64
"""Files beside a meta.json whose change is noticed."""
VERSIONS = (None, 1, 2)
"""Versions that meta.json may name; the forerunner of version 2 names none."""


def read_sog(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a SOG, or of gsplat's PNG compression: of a zip, a
    folder, or its meta.json.
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
    version = meta.get("version")
    if version not in VERSIONS:
        raise FileError(f"meta.json has version {version!r:.40}; legal are 1 and 2")
    has_codebooks = version == 2
    count = check_count(
        meta.get("count") if has_codebooks else meta["means"]["shape"][0]
    )
    files: dict[tuple[str, int], tuple[str, bytes]] = {}
    for field, number in FILES.items():
        names = meta[field]["files"][:number] if field in meta else ()
        for i, name in enumerate(names):
            if not isinstance(name, str):
                raise FileError(f"a file of {field!r} is {name!r:.40}, not a name")
            files[field, i] = name, load(name, PLANE_LIMIT)
    planes = Planes(meta, count, files, progress)
    check_scene(count, 15 if "shN" in meta else 0, planes.packed)
    means = planes.means()
    quats = planes.pixels("quats")
    rest = (quats[:, :3] / np.float32(255) - np.float32(0.5)) * np.float32(2**0.5)
    scales = planes.pixels("scales")[:, :3]
    rgba = planes.pixels("sh0")
    if has_codebooks:
        scales = planes.read_numbers("scales", "codebook", 256)[scales]
        sh0 = planes.read_numbers("sh0", "codebook", 256)[rgba[:, :3]]
        opacities = LOGIT_OF_BYTE[rgba[:, 3]]
    else:
        scales = planes.dequantize("scales", scales, 255)
        colors = planes.dequantize("sh0", rgba, 255)
        sh0 = colors[:, :3]
        opacities = colors[:, 3]
    fields = Fields(
        means=means,
        quats=quats_from_smallest_three(quats[:, 3].astype(np.int16) - 252, rest),
        scales=scales,
        opacities=opacities,
        sh0=sh0,
        shN=_higher(planes, has_codebooks=has_codebooks),
    )
    fields.quats[quats[:, 3] < 252] = (1, 0, 0, 0)
    return fields.checked(mode=meta.get("model", meta.get("antialias")))


def _higher(planes: Planes, *, has_codebooks: bool) -> np.ndarray:
    """Return (count, K-1, 3): each Gaussian's label looks up a row of the palette."""
    if "shN" not in planes.meta:
        return np.zeros((planes.count, 0, 3), np.float32)
    centroids = planes.picture("shN", 0, is_palette=True)
    width = centroids.shape[1]
    bands = planes.meta["shN"].get("bands")
    k = width // 64
    if width % 64 or k not in (3, 8, 15):
        raise FileError(
            f"shN_centroids is {width} pixels wide; legal are 192, 512 and 960"
        )
    if bands not in (None, SH_REST.index(k)):
        raise FileError(
            f"shN has {bands!r} bands but its centroids are {width} pixels wide"
        )
    palette = centroids.reshape(-1, k, 4)[:, :, :3]
    if has_codebooks:
        palette = planes.read_numbers("shN", "codebook", 256)[palette]
    else:
        low = planes.read_numbers("shN", "mins", None)
        high = planes.read_numbers("shN", "maxs", None)
        palette = low + palette / np.float32(255) * (high - low)
    labels = planes.pixels("shN", 1)
    labels = labels[:, 0] | (labels[:, 1].astype(np.uint16) << 8)
    if planes.count and int(labels.max()) >= len(palette):
        raise FileError(
            f"a label of {int(labels.max())} in a palette of {len(palette)} entries"
        )
    return palette[labels].astype(np.float32, copy=False)


def _is_sog(start: Start) -> bool:
    if start.path.is_dir():
        return (start.path / META).is_file()
    return (
        META in start.zip_names
        or os.path.basename(start.name) == META
        or (start.head.lstrip()[:1] == b"{" and start.suffix == ".json")
    )


def find_parts(path: Path) -> list[Path]:
    """Return the zip, or meta.json and the planes beside it."""
    if not path.is_dir() and path.name != META:
        return [path]
    folder = path if path.is_dir() else path.parent
    beside = [p for p in folder.iterdir() if p.suffix in PLANE_SUFFIXES]
    return [folder / META, *sorted(beside)[:MOST_PLANES]]


SOG = Format(
    "sog",
    (".sog", ".zip", META),
    "PlayCanvas SOG, gsplat's PNG compression: a zip, or a folder with meta.json",
    _is_sog,
    read_sog,
    parts=find_parts,
)
