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
from functools import cache
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
    check_json,
    check_memory,
    check_ratio,
    check_scene,
    clipped,
    open_zip,
    quats_from_smallest_three,
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
UNPACK_SPARE, UNPACK_RATIO = 1 << 20, 4
"""Bytes that a plane in a zip may unpack to: so many, or this multiple of the zip. WebP is packed already."""
POSITIONS_SPARE = 1 << 20
"""Bytes of positions that any plane may hold, see `_Planes.check`."""
PIXELS_BESIDES = 1 << 22
"""Pixels that a plane may have whatever the count: more than four times the largest palette."""


def read_sog(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a SOG: a zip, a folder with meta.json, or the path of that meta.json."""
    meta = path / "meta.json" if path.is_dir() else path
    with open(meta, "rb") as f:
        packed = f.read(2) == b"PK"
    if not packed:
        return _read(lambda name, limit: _from_folder(meta if name == "meta.json" else meta.parent / name, name, limit),
                     None, progress)
    with open_zip(path) as archive:
        root = next((i.filename[:-len("meta.json")] for i in archive.infolist()
                     if i.filename.rpartition("/")[2] == "meta.json"), "")
        length = path.stat().st_size
        most = max(UNPACK_SPARE, UNPACK_RATIO * length)

        def load(name: str, limit: int) -> bytes:
            with archive.open(root + name) as member:
                data = member.read(min(limit, most) + 1)
            if len(data) > min(limit, most):
                raise FileError(f"SOG: {clipped(name)!r} unpacks to more than {min(limit, most):,} bytes")
            return data

        return _read(load, length, progress)


def _from_folder(path: Path, name: str, limit: int) -> bytes:
    if name != Path(name).name or name in ("", ".", ".."):
        raise FileError(f"SOG: {clipped(name)!r} is not the plain name of a file beside meta.json")
    try:
        with open_regular(path) as f:
            held = os.fstat(f.fileno()).st_size
            if held > limit:
                raise FileError(f"SOG: {name!r} is larger than {limit:,} bytes")
            check_memory(held, f"{held:,} bytes of {name!r}")
            return f.read(held)
    except (OSError, ValueError) as e:
        raise FileError(f"SOG: {name!r} cannot be read: {getattr(e, 'strerror', None) or e}") from None


class _Planes:
    """The pictures named in a meta.json, decoded when asked for."""

    def __init__(self, load: Load, meta: dict[str, Any], count: int, progress: Progress):
        self.load, self.meta, self.count, self.progress, self.done = load, meta, count, progress, 0

    def check(self, packed: int | None) -> None:
        """Check the count before anything is decoded: against the positions, the files' size, the free memory.

        The low bytes of positions are noise, which no encoder makes small: 3 bytes for each Gaussian of a trained
        scene. One byte for 16 Gaussians leaves room for points on a grid, and 2^18 Gaussians are taken at any size.
        """
        check_ratio(4 * self.count, len(self.file("means", 0)[1]), f"the positions of {self.count:,} Gaussians",
                    spare=POSITIONS_SPARE)
        packed = packed or sum(len(self.file(field, i)[1]) for field in FILES for i in range(FILES[field])
                               if field in self.meta)
        bands = self.meta["shN"].get("bands") if "shN" in self.meta else 0
        coefficients = SH_REST[bands] if bands in (0, 1, 2, 3) else 15  # the most where the file does not have it
        check_scene(self.count, coefficients, packed, growth=2.1)

    def file(self, field: str, index: int) -> tuple[str, bytes]:
        """Return the name and the content of one of a field's files."""
        name = self.meta[field]["files"][index]
        if not isinstance(name, str):
            raise FileError(f"SOG: a file of {field!r} is {name!r:.40}, not a name")
        return name, self.load(name, PLANE_LIMIT)

    def pixels(self, field: str, index: int = 0) -> np.ndarray:
        """(count, 4) uint8: RGBA of each Gaussian."""
        flat = self.picture(field, index).reshape(-1, 4)
        if len(flat) < self.count:
            raise FileError(f"SOG: the plane of {field!r} has {len(flat):,} pixels for "
                            f"{self.count:,} Gaussians")
        return flat[:self.count]

    def picture(self, field: str, index: int) -> np.ndarray:
        """(H, W, 4) uint8. A picture far larger than the count needs is refused before it is decoded."""
        name, data = self.file(field, index)
        most = PIXELS_BESIDES if (field, index) == ("shN", 0) else max(4 * self.count, PIXELS_BESIDES)
        with open_picture(io.BytesIO(data), f"{name!r}, for {self.count:,} Gaussians,", most) as image:
            pixels = np.array(image.convert("RGBA"))
        self.done += 1
        self.progress("decoding planes", min(self.done / (7 if "shN" in self.meta else 5), 1.0))
        return pixels

    def numbers(self, field: str, key: str, length: int) -> np.ndarray:
        """A list of numbers of meta.json."""
        a = np.array(self.meta[field][key], np.float32)
        if a.shape != (length,):
            raise FileError(f"SOG: {field}.{key} has shape {a.shape}; {length} numbers are needed")
        return a


def _read(load: Load, packed: int | None, progress: Progress) -> Fields:
    """Read a SOG. `packed`: the bytes of its zip; None for files in a folder."""
    text = load("meta.json", META_LIMIT)
    check_json(len(text), "the numbers of meta.json")
    meta = json.loads(text)
    if not isinstance(meta, dict) or not isinstance(meta.get("means"), dict):
        raise FileError("SOG: meta.json has no 'means'; it is not that of a SOG")
    if meta.get("version") != 2:
        raise FileError(f"SOG: meta.json has version {meta.get('version')!r:.40}; version 2 is read: convert the scene "
                        "with splat-transform")
    count = meta.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise FileError(f"SOG: a count of {count!r:.40}; expected a whole number from 0 on")
    planes = _Planes(cache(load), meta, count, progress)
    planes.check(packed)
    low, high = (planes.numbers("means", key, 3) for key in ("mins", "maxs"))
    sixteen = planes.pixels("means", 0)[:, :3] | (planes.pixels("means", 1)[:, :3].astype(np.uint16) << 8)
    logs = low + sixteen / np.float32(65535) * (high - low)
    means = np.sign(logs) * np.expm1(np.abs(logs))
    quats = planes.pixels("quats")
    rest = (quats[:, :3] / np.float32(255) - np.float32(0.5)) * np.float32(2 ** 0.5)
    scales, rgba = planes.pixels("scales")[:, :3], planes.pixels("sh0")
    higher = np.zeros((planes.count, 0, 3), np.float32)
    if "shN" in planes.meta:  # each Gaussian's label looks up a row of the palette
        centroids = planes.picture("shN", 0)
        width, bands = centroids.shape[1], planes.meta["shN"].get("bands")
        k = width // 64
        if width % 64 or k not in (3, 8, 15):
            raise FileError(f"SOG: shN_centroids is {width} pixels wide; legal are 192, 512 and 960")
        if bands not in (None, SH_REST.index(k)):
            raise FileError(f"SOG: shN has {bands!r} bands but its centroids are {width} pixels wide")
        palette = planes.numbers("shN", "codebook", 256)[centroids.reshape(-1, k, 4)[:, :, :3]]
        labels = planes.pixels("shN", 1)
        labels = labels[:, 0] | (labels[:, 1].astype(np.uint16) << 8)
        if planes.count and int(labels.max()) >= len(palette):
            raise FileError(f"SOG: a label of {int(labels.max())} in a palette of {len(palette)} entries")
        higher = palette[labels].astype(np.float32, copy=False)
    fields = Fields(means=means, quats=quats_from_smallest_three(quats[:, 3].astype(np.int16) - 252, rest),
                    scales=planes.numbers("scales", "codebook", 256)[scales], opacities=LOGIT_OF_BYTE[rgba[:, 3]],
                    sh0=planes.numbers("sh0", "codebook", 256)[rgba[:, :3]], shN=higher)
    fields.quats[quats[:, 3] < 252] = (1, 0, 0, 0)
    return fields.checked(mode=planes.meta.get("model", planes.meta.get("antialias")))


def _is_sog(start: Start) -> bool:
    if start.path.is_dir():
        return (start.path / "meta.json").is_file()
    return "meta.json" in start.zip_names or os.path.basename(start.name) == "meta.json" or (
        start.head.lstrip()[:1] == b"{" and start.suffix == ".json")


SOG = Format("sog", (".sog", ".zip", "meta.json"), "PlayCanvas SOG: a zip, or a folder with meta.json", _is_sog,
             read_sog)
