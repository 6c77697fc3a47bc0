"""Scenes as pictures: planes of attributes beside a meta.json, in a folder or a zip.

What their formats share.

Pixel i of every plane, counted row by row, belongs to Gaussian i.
"""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.common import (
    Progress,
    check_json,
    clipped,
    open_zip,
    read_exact,
    remaining,
)
from splatview_viewer.formats.pictures import open_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Load = Callable[[str, int], bytes]
    """Returns the content of a file by name, of at most this many bytes. Raises
    FileError."""

META = "meta.json"
META_LIMIT = 4 << 20
PLANE_LIMIT = 1 << 30
UNPACK_SPARE = 1 << 16
UNPACK_RATIO = 4
"""Bytes that a file in a zip may unpack to: this many, or this multiple of the zip.
Pictures are packed already."""
MIN_PIXEL_LIMIT = 1 << 22
"""Pixels that a plane may have whatever the count: more than four times the largest
palette."""
_TOP_OF_MEANS = 65535
"""The largest number of the 16 bits of a position."""
_LEAST_SPACINGS = 16
"""Steps of float32 that a step of those 16 bits has at least."""


class PlaneFile(NamedTuple):
    """A file of a scene, loaded."""

    name: str
    data: bytes


PlaneFiles = dict[tuple[str, int], PlaneFile]
"""Files by their field, and their index among the files of that field."""


@contextmanager
def open_files(path: Path) -> Iterator[Load]:
    """Open a zip, a folder with meta.json, or that meta.json; yield a loader of files."""
    if path.is_dir():
        meta = path / META
    else:
        meta = path
    with open(meta, "rb") as f:
        is_zip = f.read(2) == b"PK"
    if not is_zip:
        yield partial(_load_beside, meta)
        return
    with open_zip(path) as archive:
        names = [n for n in archive.namelist() if n.rpartition("/")[2] == META]
        root = ""
        if names:
            root = names[0].removesuffix(META)
        max_bytes = max(UNPACK_SPARE, UNPACK_RATIO * path.stat().st_size)

        def load(name: str, limit: int) -> bytes:
            limit = min(limit, max_bytes)
            try:
                with archive.open(root + name) as member:
                    data = member.read(limit + 1)
            except KeyError:
                raise FileError(f"{clipped(name)!r} is missing in the zip") from None
            if len(data) > limit:
                raise FileError(
                    f"{clipped(name)!r} unpacks to more than {limit:,} bytes"
                )
            return data

        yield load


def _load_beside(meta: Path, name: str, limit: int) -> bytes:
    """Load a file of the folder that `meta` lies in. Raises FileError."""
    if name == META:
        path = meta
    else:
        path = meta.parent / name
    if name != Path(name).name or name in ("", ".", ".."):
        raise FileError(
            f"{clipped(name)!r} is not the plain name of a file beside meta.json"
        )
    try:
        with open_regular(path) as f:
            size = remaining(f)
            if size > limit:
                raise FileError(f"{name!r} is larger than {limit:,} bytes")
            return read_exact(f, size, repr(name))
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise FileError(f"{name!r} cannot be read: {reason}") from None


def load_meta(load: Load) -> dict[str, Any]:
    """Load the meta.json. Raises FileError for one that describes no planes."""
    text = load(META, META_LIMIT)
    check_json(len(text), "the values of meta.json")
    meta = json.loads(text)
    if not isinstance(meta, dict) or not isinstance(meta.get("means"), dict):
        raise FileError(
            "meta.json has no 'means'; it is neither that of a SOG nor of gsplat's PNG "
            "compression"
        )
    return meta


def check_count(count: Any) -> int:
    """Check a count of Gaussians of a meta.json. Raises FileError for what is none."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise FileError(f"a count of {count!r:.40}; expected a whole number from 0 on")
    return count


@dataclass
class Planes:
    """The pictures beside a meta.json, decoded when asked for."""

    meta: dict[str, Any]
    count: int
    files: PlaneFiles
    progress: Progress
    decoded_count: int = 0
    """Files that are decoded already."""

    @property
    def packed(self) -> int:
        """Bytes of all files."""
        return sum(len(file.data) for file in self.files.values())

    def pixels(self, field: str, index: int = 0) -> np.ndarray:
        """Return RGBA of each Gaussian, (count, 4) uint8."""
        flat = self.picture(field, index).reshape(-1, 4)
        if len(flat) < self.count:
            raise FileError(
                f"the plane of {field!r} has {len(flat):,} pixels for {self.count:,} "
                "Gaussians"
            )
        return flat[: self.count]

    def picture(self, field: str, index: int, *, is_palette: bool = False) -> Any:
        """Return a whole picture, (H, W, 4) uint8.

        A picture far larger than the count needs is refused before it is decoded.
        """
        file = self.files[field, index]
        max_pixels = MIN_PIXEL_LIMIT
        if not is_palette:
            max_pixels = max(4 * self.count, MIN_PIXEL_LIMIT)
        subject = f"{file.name!r}, for {self.count:,} Gaussians,"
        with open_picture(io.BytesIO(file.data), subject, max_pixels) as image:
            pixels = np.array(image.convert("RGBA"))
        self.count_decoded()
        return pixels

    def count_decoded(self) -> None:
        """Report that one more file is decoded."""
        self.decoded_count += 1
        self.progress("decoding planes", self.decoded_count / len(self.files))

    def read_numbers(
        self, field: str, key: str, length: int | None, dtype: type = np.float32
    ) -> np.ndarray:
        """Return a list of numbers of meta.json; a single number for a length of None."""
        values = np.array(self.meta[field][key], dtype)
        shape = () if length is None else (length,)
        if values.shape != shape:
            raise FileError(
                f"{field}.{key} has shape {values.shape}; {length or 1} numbers are "
                "needed"
            )
        return values

    def dequantize(self, field: str, pixels: np.ndarray, top: int) -> np.ndarray:
        """Return pixels (N, C) of 0 to `top` as float32 between the bounds of a field.

        meta.json has bounds for each channel.
        """
        channels = pixels.shape[1]
        low = self.read_numbers(field, "mins", channels)
        high = self.read_numbers(field, "maxs", channels)
        return low + pixels / np.float32(top) * (high - low)

    def means(self) -> np.ndarray:
        """Return the positions, (count, 3) float32, or float64 where that is too coarse.

        Two planes hold low and high bytes of 16 bits between the bounds of sign(x)
        ln(|x| + 1).
        """
        low = self.read_numbers("means", "mins", 3, np.float64)
        high = self.read_numbers("means", "maxs", 3, np.float64)
        steps = (high - low) / _TOP_OF_MEANS
        spacing = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32))
        # Far from the origin all lies between bounds that are nearly the same.
        is_far = (steps > 0) & (steps < _LEAST_SPACINGS * spacing)
        dtype = np.float64 if is_far.any() else np.float32
        low_bytes = self.pixels("means", 0)[:, :3]
        high_bytes = self.pixels("means", 1)[:, :3].astype(np.uint16)
        fixed = low_bytes | (high_bytes << 8)
        logs = low.astype(dtype) + fixed * steps.astype(dtype)
        return np.sign(logs) * np.expm1(np.abs(logs))
