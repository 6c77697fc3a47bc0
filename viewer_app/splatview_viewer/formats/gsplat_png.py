"""gsplat's PNG compression: PNG planes, an npz of harmonics and a meta.json.

Layout of `gsplat.compression.PngCompression` (gsplat/compression/png_compression.py).
Scales, quaternions, opacities and sh0 are 8 bits between bounds, one for each channel;
means 16 bits in two planes, between the bounds of sign(x) ln(|x| + 1). shN.npz:
centroids of so many bits between bounds, and the centroid of each Gaussian. The planes
are square; the files carry the names of the fields.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    Fields,
    Progress,
    check_memory,
    check_scene,
)
from splatview_viewer.formats.planes import (
    PLANE_LIMIT,
    PlaneFile,
    Planes,
    check_count,
)

if TYPE_CHECKING:
    from splatview_viewer.formats.planes import Load, PlaneFiles

FILES = {
    "means": ("means_l.png", "means_u.png"),
    "scales": ("scales.png",),
    "quats": ("quats.png",),
    "opacities": ("opacities.png",),
    "sh0": ("sh0.png",),
    "shN": ("shN.npz",),
}
"""The files of each field of a `ParameterDict`; others are not needed for drawing."""
CHANNELS = {"scales": 3, "quats": 4, "opacities": 1, "sh0": 3}
MAX_CENTROIDS = 1 << 16
NPY_HEADER_LIMIT = 1 << 12


def is_meta(meta: dict[str, Any]) -> bool:
    """Return whether a meta.json is that of PNG compression, which names no files."""
    return "files" not in meta["means"]


def read_planes(meta: dict[str, Any], load: Load, progress: Progress) -> Fields:
    """Read the Gaussians that a meta.json and its files describe.

    Raises FileError.
    """
    try:
        return _read(meta, load, progress)
    except FileError as e:
        raise FileError(f"gsplat's PNG compression: {e}") from e.__cause__


def _read(meta: dict[str, Any], load: Load, progress: Progress) -> Fields:
    """Do the work of `read_planes`; errors do not name the format yet."""
    needed = ("means", *CHANNELS)
    missing = [field for field in needed if not isinstance(meta.get(field), dict)]
    if missing:
        raise FileError(
            f"meta.json has no {', '.join(missing)}; it has {', '.join([*meta][:16])}"
        )
    count = check_count(meta["means"]["shape"][0])
    coefficients = _coefficients(meta, count)
    files = _load_planes(load, count, coefficients)
    planes = Planes(meta, count, files, progress)
    check_scene(count, coefficients, planes.packed)
    if not count:
        progress("decoding planes", 1.0)
        sizes = ((0, 3), (0, 4), (0, 3), (0,), (0, 3), (0, coefficients, 3))
        return Fields(*(np.zeros(size, np.float32) for size in sizes)).checked()
    means = planes.means()
    arrays: dict[str, np.ndarray] = {}
    for field, channels in CHANNELS.items():
        pixels = planes.pixels(field)[:, :channels]
        arrays[field] = planes.dequantize(field, pixels, 255)
    return Fields(
        means=means,
        quats=arrays["quats"],
        scales=arrays["scales"],
        opacities=arrays["opacities"][:, 0],
        sh0=arrays["sh0"],
        shN=_read_harmonics(planes, coefficients),
    ).checked()


def _load_planes(load: Load, count: int, coefficients: int) -> PlaneFiles:
    """Load the files of all fields; none of a scene without Gaussians."""
    files: PlaneFiles = {}
    if not count:
        return files
    for field, names in FILES.items():
        if field == "shN" and not coefficients:
            continue
        for i, name in enumerate(names):
            files[field, i] = PlaneFile(name, load(name, PLANE_LIMIT))
    return files


def _coefficients(meta: dict[str, Any], count: int) -> int:
    """Return the coefficients per channel above degree 0 that a meta.json claims."""
    shape = meta.get("shN", {}).get("shape", [count, 0, 3])
    is_shape = isinstance(shape, list) and len(shape) == 3
    if not is_shape or shape[0] != count or shape[1] not in range(25) or shape[2] != 3:
        raise FileError(f"shN has shape {shape!r:.60}; ({count}, 0 to 24, 3) is needed")
    return shape[1]


def _read_harmonics(planes: Planes, coefficients: int) -> np.ndarray:
    """Return the coefficients above degree 0, (count, K-1, 3).

    Each Gaussian's label names its centroid.
    """
    count = planes.count
    if not coefficients:
        return np.zeros((count, 0, 3), np.float32)
    name, data = planes.files["shN", 0]
    size = 3 * coefficients
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            centroids = _array(archive, "centroids.npy", MAX_CENTROIDS * size)
            labels = _array(archive, "labels.npy", 8 * count)
    except FileError:
        raise
    except Exception as e:  # of a damaged zip nearly anything
        raise FileError(f"{name!r} is damaged: {e!s:.200}") from None
    if centroids.ndim != 2 or centroids.shape[1] != size or labels.shape != (count,):
        raise FileError(
            f"{name!r} has centroids of shape {centroids.shape} and labels of shape "
            f"{labels.shape}; (M, {size}) and ({count},) are needed"
        )
    is_inside = labels < len(centroids)
    if not is_inside.all() or labels.min() < 0:
        raise FileError(f"{name!r} has labels beyond its {len(centroids)} centroids")
    bits = planes.meta["shN"].get("quantization", 6)
    if bits not in range(1, 9):
        raise FileError(f"shN has a quantization of {bits!r:.40} bits; expected 1 to 8")
    low = planes.read_numbers("shN", "mins", None)
    high = planes.read_numbers("shN", "maxs", None)
    values = low + centroids / np.float32(2**bits - 1) * (high - low)
    planes.count_decoded()
    return values.astype(np.float32)[labels].reshape(count, coefficients, 3)


def _array(archive: zipfile.ZipFile, name: str, max_bytes: int) -> np.ndarray:
    """Read an array of integers from an npz.

    One of more than `max_bytes` bytes is refused before it is unpacked.
    """
    limit = max_bytes + NPY_HEADER_LIMIT
    info = archive.getinfo(name)
    check_memory(min(info.file_size, limit), f"{name!r}")
    with archive.open(info) as member:
        data = member.read(limit + 1)
    if len(data) > limit:
        raise FileError(f"{name!r} unpacks to more than {limit:,} bytes")
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read_header = np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    size = math.prod(shape) * dtype.itemsize
    left = len(data) - file.tell()
    if dtype.kind not in "iu" or size != left:
        raise FileError(
            f"{name!r} claims {shape} of {dtype} in {left:,} bytes; whole numbers are "
            "needed"
        )
    values = np.frombuffer(data, dtype, offset=file.tell())
    # gsplat saves the centroids as they come out of the clustering.
    if is_fortran:
        return values.reshape(shape[::-1]).T
    return values.reshape(shape)
