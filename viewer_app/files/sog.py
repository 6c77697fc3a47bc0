"""PlayCanvas SOG: WebP planes and a meta.json, in a folder or a zip.

Version 2 (codebooks) and its forerunner without a version number (linear between minima and maxima).
Layout: developer.playcanvas.com/user-manual/gaussian-splatting/formats/sog and
playcanvas/splat-transform. Pixel i of every plane, counted row by row, belongs to Gaussian i. means_l
and means_u: low and high byte of 16 bits between the bounds of sign(x) ln(|x| + 1). quats: the three
smaller components, alpha 252 + index of the largest. scales, sh0: codebook entries, sh0's alpha the
opacity. shN_labels: 16 bits that name an entry of shN_centroids, in which 64 entries lie beside each
other.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files.common import (
    LOGIT_OF_BYTE,
    SH_COEFFICIENTS,
    Fields,
    Progress,
    check_ratio,
    open_zip,
    quats_from_smallest_three,
)
from splatview.viewer_app.regular import open_regular

if TYPE_CHECKING:
    import zipfile

    from splatview.viewer_app.scene import GaussianScene

META_LIMIT = 4 << 20
PLANE_LIMIT = 1 << 30
COUNT_LIMIT = 1 << 26
"""Gaussians that a file may hold; WebP's largest picture, 16383 squared, has four times as many pixels."""
PIXELS_BESIDES = 1 << 22
"""Pixels that a plane may have whatever the count: more than four times the largest palette."""

Load = Callable[[str, int], bytes]


def read_sog(path: Path, progress: Progress) -> GaussianScene:
    """The Gaussians of a SOG: a zip, a folder with meta.json, or the path of that meta.json."""
    if path.is_dir():
        return _read(_folder_loader(path), progress)
    with open(path, "rb") as f:
        if f.read(2) != b"PK":
            return _read(_folder_loader(path.parent, path.name), progress)
    with open_zip(path) as archive:
        return _read(_zip_loader(archive), progress)


def _folder_loader(folder: Path, meta: str = "meta.json") -> Load:
    def load(name: str, limit: int) -> bytes:
        if name != Path(name).name or name in ("", ".", ".."):
            raise FileError(f"SOG: {name!r} is not the plain name of a file beside meta.json")
        try:
            with open_regular(folder / (meta if name == "meta.json" else name)) as f:
                data = f.read(limit + 1)
        except (OSError, ValueError) as e:
            raise FileError(f"SOG: {name!r} cannot be read: {getattr(e, 'strerror', None) or e}") from None
        if len(data) > limit:
            raise FileError(f"SOG: {name!r} is larger than {limit:,} bytes")
        return data
    return load


def _zip_loader(archive: zipfile.ZipFile) -> Load:
    root = next((i.filename[:-len("meta.json")] for i in archive.infolist()
                 if i.filename.rpartition("/")[2] == "meta.json"), "")

    def load(name: str, limit: int) -> bytes:
        try:
            with archive.open(root + name) as member:
                data = member.read(limit + 1)
        except KeyError:
            raise FileError(f"SOG: the zip has no {name!r}; it has "
                            f"{', '.join(archive.namelist()[:12]) or 'nothing'}") from None
        except Exception as e:  # zipfile lets zlib.error, EOFError, RuntimeError and more through
            raise FileError(f"SOG: {name!r} in the zip is damaged: {e}") from None
        if len(data) > limit:
            raise FileError(f"SOG: {name!r} unpacks to more than {limit:,} bytes")
        return data
    return load


def _read(load: Load, progress: Progress) -> GaussianScene:
    try:
        meta = json.loads(load("meta.json", META_LIMIT))
        if not isinstance(meta, dict) or not isinstance(meta.get("means"), dict):
            raise FileError("SOG: meta.json has no 'means'; it is not that of a SOG")
        version = meta.get("version")
        if version not in (None, 1, 2):
            raise FileError(f"SOG: meta.json has version {version!r}; legal are 1 and 2")
        count = meta["means"]["shape"][0] if "count" not in meta else meta["count"]
        if not isinstance(count, int) or not 0 <= count <= COUNT_LIMIT:
            raise FileError(f"SOG: a count of {count!r}; legal are 0 to {COUNT_LIMIT:,}")
        return _decode(_Planes(load, meta, count, progress), version == 2)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, RecursionError) as e:
        raise FileError(f"SOG: meta.json is damaged or incomplete ({type(e).__name__}: {e})") from None


class _Planes:
    """The pictures named in a meta.json, decoded when asked for."""

    def __init__(self, load: Load, meta: dict[str, Any], count: int, progress: Progress):
        self.load, self.meta, self.count, self.progress, self.done = load, meta, count, progress, 0

    def pixels(self, field: str, index: int = 0) -> np.ndarray:
        """(count, 4) uint8: RGBA of each Gaussian."""
        flat = self.picture(field, index).reshape(-1, 4)
        if len(flat) < self.count:
            raise FileError(f"SOG: the plane of {field!r} has {len(flat):,} pixels for "
                            f"{self.count:,} Gaussians")
        return flat[:self.count]

    def picture(self, field: str, index: int) -> np.ndarray:
        """(H, W, 4) uint8. A picture far larger than the count needs is refused before it is decoded."""
        from PIL import Image

        name = self.meta[field]["files"][index]
        if not isinstance(name, str):
            raise FileError(f"SOG: a file of {field!r} is {name!r}, not a name")
        data = self.load(name, PLANE_LIMIT)
        if (field, index) == ("means", 0):  # the low bytes of positions are noise, which no encoder makes small
            check_ratio(4 * self.count, len(data), f"the positions of {self.count:,} Gaussians")
        try:
            with Image.open(io.BytesIO(data), formats=["WEBP", "PNG"]) as image:
                if image.size[0] * image.size[1] > max(4 * self.count, PIXELS_BESIDES):
                    raise FileError(f"SOG: {name!r} is {image.size[0]}x{image.size[1]} pixels for {self.count:,} "
                                    "Gaussians")
                pixels = np.array(image.convert("RGBA"))
        except FileError:
            raise
        except Exception as e:  # Pillow's plugins raise SyntaxError, struct.error, ValueError and more
            raise FileError(f"SOG: {name!r} is not a readable picture: {e}") from None
        self.done += 1
        self.progress("decoding planes", min(self.done / (7 if "shN" in self.meta else 5), 1.0))
        return pixels

    def numbers(self, field: str, key: str, length: int | None) -> np.ndarray:
        """A list of numbers of meta.json."""
        a = np.array(self.meta[field][key], np.float32)
        if length is not None and a.shape != (length,):
            raise FileError(f"SOG: {field}.{key} has shape {a.shape}; {length} numbers are needed")
        return a

    def values(self, field: str, channels: int, codebooks: bool) -> np.ndarray:
        """(count, channels) float32: the first channels of a plane through codebook or bounds."""
        pixels = self.pixels(field)[:, :channels]
        if codebooks:
            return self.numbers(field, "codebook", 256)[pixels]
        low, high = (self.numbers(field, key, None)[:channels] for key in ("mins", "maxs"))
        return (low + pixels / np.float32(255) * (high - low)).astype(np.float32)


def _decode(planes: _Planes, codebooks: bool) -> GaussianScene:
    low, high = (planes.numbers("means", key, 3) for key in ("mins", "maxs"))
    sixteen = planes.pixels("means", 0)[:, :3] | (planes.pixels("means", 1)[:, :3].astype(np.uint16) << 8)
    logs = low + sixteen / np.float32(65535) * (high - low)
    means = np.sign(logs) * np.expm1(np.abs(logs))
    quats = planes.pixels("quats")
    rest = (quats[:, :3] / np.float32(255) - np.float32(0.5)) * np.float32(2 ** 0.5)
    if codebooks:
        sh0, opacities = planes.values("sh0", 3, True), LOGIT_OF_BYTE[planes.pixels("sh0")[:, 3]]
    else:  # the forerunner stores the logit itself, between bounds like the colour
        rgba = planes.values("sh0", 4, False)
        sh0, opacities = rgba[:, :3], rgba[:, 3]
    fields = Fields(means=means, quats=quats_from_smallest_three(quats[:, 3].astype(np.int16) - 252, rest),
                    scales=planes.values("scales", 3, codebooks), opacities=opacities, sh0=sh0,
                    shN=_higher(planes, codebooks))
    fields.quats[quats[:, 3] < 252] = (1, 0, 0, 0)
    return fields.scene(antialiased=bool(planes.meta.get("antialias")))


def _higher(planes: _Planes, codebooks: bool) -> np.ndarray:
    """(count, K-1, 3): each Gaussian's label looks up a row of the palette."""
    if "shN" not in planes.meta:
        return np.zeros((planes.count, 0, 3), np.float32)
    centroids = planes.picture("shN", 0)
    width = centroids.shape[1]
    k = width // 64
    if width % 64 or k not in (3, 8, 15):
        raise FileError(f"SOG: shN_centroids is {width} pixels wide; legal are 192, 512 and 960")
    bands = planes.meta["shN"].get("bands")
    if bands is not None and SH_COEFFICIENTS.get(bands) != k:
        raise FileError(f"SOG: shN has {bands!r} bands but its centroids are {width} pixels wide")
    palette = centroids.reshape(-1, k, 4)[:, :, :3]
    if codebooks:
        palette = planes.numbers("shN", "codebook", 256)[palette]
    else:
        low, high = float(planes.meta["shN"]["mins"]), float(planes.meta["shN"]["maxs"])
        palette = np.float32(low) + palette / np.float32(255) * np.float32(high - low)
    labels = planes.pixels("shN", 1)
    labels = labels[:, 0] | (labels[:, 1].astype(np.uint16) << 8)
    if planes.count and int(labels.max()) >= len(palette):
        raise FileError(f"SOG: a label of {int(labels.max())} in a palette of {len(palette)} entries")
    return palette[labels].astype(np.float32, copy=False)
