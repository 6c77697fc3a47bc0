"""PlayCanvas SOG: WebP planes and a meta.json, in a folder or a zip.

Version 2. Layout: developer.playcanvas.com/user-manual/gaussian-splatting/formats/sog and
playcanvas/splat-transform. Pixel i of every plane, counted row by row, belongs to Gaussian i. means_l
and means_u: low and high byte of 16 bits between the bounds of sign(x) ln(|x| + 1). quats: the three
smaller components, alpha 252 + index of the largest. scales, sh0: codebook entries, sh0's alpha the
opacity. shN_labels: 16 bits that name an entry of shN_centroids, in which 64 entries lie beside each
other.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    Fields,
    Format,
    Progress,
    Start,
    check_scene,
    clipped,
    open_zip,
    quats_from_smallest_three,
    read_exact,
    remaining,
)
from splatview_viewer.formats.pictures import open_picture

if TYPE_CHECKING:
    from collections.abc import Callable

    Load = Callable[[str, int], bytes]
    """Returns the content of a file by name, of at most so many bytes. Raises FileError."""

FILES = {"means": 2, "quats": 1, "scales": 1, "sh0": 1, "shN": 2}
"""The fields of meta.json that name files, and how many."""
META_LIMIT = 4 << 20
PLANE_LIMIT = 1 << 30
UNPACK_SPARE, UNPACK_RATIO = 1 << 16, 4
"""Bytes that a file in a zip may unpack to: so many, or this multiple of the zip. WebP is packed already."""
PIXELS_BESIDES = 1 << 22
"""Pixels that a plane may have whatever the count: more than four times the largest palette."""


def read_sog(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a SOG: a zip, a folder with meta.json, or the path of that meta.json."""
    meta = path / "meta.json" if path.is_dir() else path
    with open(meta, "rb") as f:
        packed = f.read(2) == b"PK"
    if not packed:
        return _read(partial(_from_folder, meta), progress)
    with open_zip(path) as archive:
        root = next(
            (
                i.filename[: -len("meta.json")]
                for i in archive.infolist()
                if i.filename.rpartition("/")[2] == "meta.json"
            ),
            "",
        )

        most = max(UNPACK_SPARE, UNPACK_RATIO * path.stat().st_size)

        def load(name: str, limit: int) -> bytes:
            limit = min(limit, most)
            with archive.open(root + name) as member:
                data = member.read(limit + 1)
            if len(data) > limit:
                raise FileError(
                    f"SOG: {clipped(name)!r} unpacks to more than {limit:,} bytes"
                )
            return data

        return _read(load, progress)


def _from_folder(meta: Path, name: str, limit: int) -> bytes:
    path = meta if name == "meta.json" else meta.parent / name
    if name != Path(name).name or name in ("", ".", ".."):
        raise FileError(
            f"SOG: {clipped(name)!r} is not the plain name of a file beside meta.json"
        )
    try:
        with open_regular(path) as f:
            size = remaining(f)
            if size > limit:
                raise FileError(f"SOG: {name!r} is larger than {limit:,} bytes")
            return read_exact(f, size, repr(name))
    except (OSError, ValueError) as e:
        raise FileError(
            f"SOG: {name!r} cannot be read: {getattr(e, 'strerror', None) or e}"
        ) from None


@dataclass
class _Planes:
    """The pictures named in a meta.json, decoded when asked for."""

    meta: dict[str, Any]
    count: int
    files: dict[tuple[str, int], tuple[str, bytes]]
    """Name and content of the files of each field."""
    progress: Progress
    done: int = 0

    def pixels(self, field: str, index: int = 0) -> np.ndarray:
        """(count, 4) uint8: RGBA of each Gaussian."""
        flat = self.picture(field, index).reshape(-1, 4)
        if len(flat) < self.count:
            raise FileError(
                f"SOG: the plane of {field!r} has {len(flat):,} pixels for "
                f"{self.count:,} Gaussians"
            )
        return flat[: self.count]

    def picture(self, field: str, index: int) -> np.ndarray:
        """(H, W, 4) uint8. A picture far larger than the count needs is refused before it is decoded."""
        name, data = self.files[field, index]
        most = (
            PIXELS_BESIDES
            if (field, index) == ("shN", 0)
            else max(4 * self.count, PIXELS_BESIDES)
        )
        with open_picture(
            io.BytesIO(data), f"{name!r}, for {self.count:,} Gaussians,", most
        ) as image:
            pixels = np.array(image.convert("RGBA"))
        self.done += 1
        self.progress("decoding planes", self.done / len(self.files))
        return pixels

    def numbers(self, field: str, key: str, length: int) -> np.ndarray:
        """A list of numbers of meta.json."""
        a = np.array(self.meta[field][key], np.float32)
        if a.shape != (length,):
            raise FileError(
                f"SOG: {field}.{key} has shape {a.shape}; {length} numbers are needed"
            )
        return a


def _read(load: Load, progress: Progress) -> Fields:
    meta = json.loads(load("meta.json", META_LIMIT))
    if not isinstance(meta, dict) or not isinstance(meta.get("means"), dict):
        raise FileError("SOG: meta.json has no 'means'; it is not that of a SOG")
    if meta.get("version") != 2:
        raise FileError(
            f"SOG: meta.json has version {meta.get('version')!r:.40}; version 2 is read: convert the scene "
            "with splat-transform"
        )
    count = meta.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise FileError(
            f"SOG: a count of {count!r:.40}; expected a whole number from 0 on"
        )
    files = {}
    for field, number in FILES.items():
        for i, name in enumerate(
            meta[field]["files"][:number] if field in meta else ()
        ):
            if not isinstance(name, str):
                raise FileError(f"SOG: a file of {field!r} is {name!r:.40}, not a name")
            files[field, i] = name, load(name, PLANE_LIMIT)
    check_scene(
        count, 15 if "shN" in meta else 0, sum(len(data) for _, data in files.values())
    )
    planes = _Planes(meta, count, files, progress)
    low, high = (planes.numbers("means", key, 3) for key in ("mins", "maxs"))
    sixteen = planes.pixels("means", 0)[:, :3] | (
        planes.pixels("means", 1)[:, :3].astype(np.uint16) << 8
    )
    logs = low + sixteen / np.float32(65535) * (high - low)
    means = np.sign(logs) * np.expm1(np.abs(logs))
    quats = planes.pixels("quats")
    rest = (quats[:, :3] / np.float32(255) - np.float32(0.5)) * np.float32(2**0.5)
    scales, rgba = planes.pixels("scales")[:, :3], planes.pixels("sh0")
    higher = np.zeros((count, 0, 3), np.float32)
    if "shN" in meta:  # each Gaussian's label looks up a row of the palette
        centroids = planes.picture("shN", 0)
        width, bands = centroids.shape[1], meta["shN"].get("bands")
        k = width // 64
        if width % 64 or k not in (3, 8, 15):
            raise FileError(
                f"SOG: shN_centroids is {width} pixels wide; legal are 192, 512 and 960"
            )
        if bands not in (None, SH_REST.index(k)):
            raise FileError(
                f"SOG: shN has {bands!r} bands but its centroids are {width} pixels wide"
            )
        palette = planes.numbers("shN", "codebook", 256)[
            centroids.reshape(-1, k, 4)[:, :, :3]
        ]
        labels = planes.pixels("shN", 1)
        labels = labels[:, 0] | (labels[:, 1].astype(np.uint16) << 8)
        if count and int(labels.max()) >= len(palette):
            raise FileError(
                f"SOG: a label of {int(labels.max())} in a palette of {len(palette)} entries"
            )
        higher = palette[labels].astype(np.float32, copy=False)
    fields = Fields(
        means=means,
        quats=quats_from_smallest_three(quats[:, 3].astype(np.int16) - 252, rest),
        scales=planes.numbers("scales", "codebook", 256)[scales],
        opacities=LOGIT_OF_BYTE[rgba[:, 3]],
        sh0=planes.numbers("sh0", "codebook", 256)[rgba[:, :3]],
        shN=higher,
    )
    fields.quats[quats[:, 3] < 252] = (1, 0, 0, 0)
    return fields.checked(mode=meta.get("model", meta.get("antialias")))


def _is_sog(start: Start) -> bool:
    if start.path.is_dir():
        return (start.path / "meta.json").is_file()
    return (
        "meta.json" in start.zip_names
        or os.path.basename(start.name) == "meta.json"
        or (start.head.lstrip()[:1] == b"{" and start.suffix == ".json")
    )


SOG = Format(
    "sog",
    (".sog", ".zip", "meta.json"),
    "PlayCanvas SOG: a zip, or a folder with meta.json",
    _is_sog,
    read_sog,
)
