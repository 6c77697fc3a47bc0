"""Writes PlayCanvas SOG, version 2: lossless WebP planes and a meta.json in a zip.

`formats/sog.py` says how it is laid out, and reads it.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.control.limits import VERSION
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import silent
from splatview_viewer.formats.palettes import (
    make_codebook,
    make_palette,
    nearest_codes,
)
from splatview_viewer.formats.planes import META
from splatview_viewer.formats.sog import FIRST_COMPONENT

if TYPE_CHECKING:
    from typing import BinaryIO

    import torch

    from splatview_viewer.formats.common import Progress
    from splatview_viewer.formats.palettes import RowPalette
    from splatview_viewer.scene.scene import GaussianScene

_TOP = 65535
"""The largest number of 16 bits."""
_MAX_DEGREE = 3
_SCALE_MIN = 1e-9
"""Standard deviation of a flat Gaussian, in world units."""
_MOST_PIXELS = 16383
"""Pixels of a side of a WebP."""
_SIDE_STEP = 4
"""Sides are multiples of this, as in splat-transform's files."""
_PALETTE_COLUMNS = 64
"""Entries of the palette that lie beside each other."""
_EFFORT = 2
"""Pillow's `method`: more takes ten times as long, and these planes get no smaller."""
_DIGITS = 7
"""Digits of a codebook's numbers."""


def write_planes(
    file: BinaryIO,
    scene: GaussianScene,
    *,
    antialiased: bool = False,
    gpu: torch.device | None = None,
    progress: Progress = silent,
) -> None:
    """Write a scene as a zip of planes, in an order in which neighbours are near.

    Args:
        file: the file.
        scene: activated, on the CPU, at least one Gaussian.
        antialiased: as it was trained.
        gpu: makes the palette of harmonics; None: the CPU does.
        progress: called with how far it is.

    Raises:
        FileError: there are too many Gaussians.
    """
    degree = min(scene.sh_degree, scene.stored_sh_degree, _MAX_DEGREE)
    plane_count = 5
    if degree:
        plane_count = 7
    fixed = _fixed_means(scene)
    order = _order_of_neighbours(fixed.means)
    planes = _PlaneZip(file, len(scene), plane_count, progress)
    meta: dict[str, Any] = {
        "version": 2,
        "asset": {"generator": f"splatview {VERSION}"},
        "count": len(scene),
    }
    if antialiased:
        meta["model"] = "antialiased"
    low_file = planes.add("means_l", fixed.means[order] & 0xFF)
    high_file = planes.add("means_u", fixed.means[order] >> 8)
    meta["means"] = {
        "mins": fixed.low.tolist(),
        "maxs": fixed.high.tolist(),
        "files": [low_file, high_file],
    }
    quats_file = planes.add("quats", _rotations(scene.quats.numpy()[order]))
    meta["quats"] = {"files": [quats_file]}
    scales = scene.scales.numpy()[order].clip(_SCALE_MIN)
    logs = np.log(scales)
    # Errors of large ones are seen more.
    codes = make_codebook(logs, np.sqrt(scales))
    scales_file = planes.add("scales", nearest_codes(logs, codes))
    meta["scales"] = {"codebook": _numbers(codes), "files": [scales_file]}
    colors = scene.sh0.numpy()[order]
    codes = make_codebook(colors)
    opacities = np.rint(scene.opacities.numpy()[order] * 255).astype(np.uint8)
    pixels = np.column_stack([nearest_codes(colors, codes), opacities])
    meta["sh0"] = {"codebook": _numbers(codes), "files": [planes.add("sh0", pixels)]}
    if degree:
        harmonics = scene.shN[order, : (degree + 1) ** 2 - 1].float()
        meta["shN"] = planes.add_harmonics(harmonics, degree, gpu)
    planes.finish(meta)


class _FixedMeans(NamedTuple):
    """Positions as numbers of 16 bits."""

    means: np.ndarray
    """(N, 3) uint16, between the bounds."""
    low: np.ndarray
    high: np.ndarray
    """(3,), of sign(x) ln(|x| + 1)."""


def _fixed_means(scene: GaussianScene) -> _FixedMeans:
    means = scene.means.double().numpy()
    logs = np.sign(means) * np.log1p(np.abs(means))
    low = logs.min(0)
    high = logs.max(0)
    widths = np.where(high > low, high - low, 1)
    fixed = np.rint((logs - low) / widths * _TOP)
    return _FixedMeans(fixed.astype(np.uint16), low, high)


def _order_of_neighbours(means: np.ndarray) -> np.ndarray:
    """Return an order (N,) along Morton's curve: what is near is alike, and compresses.

    Args:
        means: (N, 3) uint16.
    """
    places = np.arange(256, dtype=np.uint64)
    spread = np.zeros(256, np.uint64)
    for bit in range(8):
        spread |= (places >> np.uint64(bit) & np.uint64(1)) << np.uint64(3 * bit)
    codes = np.zeros(len(means), np.uint64)
    for axis in range(3):
        column = means[:, axis]
        bits = spread[column & 0xFF] | spread[column >> 8] << np.uint64(24)
        codes |= bits << np.uint64(axis)
    return codes.argsort(kind="stable")


def _rotations(quats: np.ndarray) -> np.ndarray:
    """Return the three smaller components and the index of the largest, (N, 4) uint8."""
    rows = np.arange(len(quats))
    largest = np.abs(quats).argmax(1)
    is_smaller = np.ones(quats.shape, bool)
    is_smaller[rows, largest] = False
    smaller = quats[is_smaller].reshape(-1, 3)
    smaller = smaller * np.where(quats[rows, largest] < 0, -1, 1)[:, None]
    fractions = smaller / math.sqrt(2) + 0.5
    levels = np.rint(fractions * 255).clip(0, 255)
    return np.column_stack([levels, FIRST_COMPONENT + largest]).astype(np.uint8)


def _numbers(codes: np.ndarray) -> list[float]:
    """Return a codebook for meta.json."""
    return [float(f"{code:.{_DIGITS}g}") for code in codes]


def _palette_of(
    rows: torch.Tensor, gpu: torch.device | None, progress: Progress
) -> RowPalette:
    """Return a palette for rows, made on a GPU that has the memory for it."""
    import torch

    if gpu is not None:
        try:
            return make_palette(rows.to(gpu), progress)
        except torch.cuda.OutOfMemoryError:
            # A training has all of it; the CPU takes some seconds.
            pass
        finally:
            torch.cuda.empty_cache()
    return make_palette(rows, progress)


class _PlaneZip:
    """A zip of planes that is being written."""

    def __init__(
        self, file: BinaryIO, count: int, plane_count: int, progress: Progress
    ) -> None:
        """Begin a zip for so many Gaussians. Raises FileError for too many."""
        self._width = ceil_div(math.ceil(math.sqrt(count)), _SIDE_STEP) * _SIDE_STEP
        if self._width > _MOST_PIXELS:
            raise FileError(
                f"SOG: {count:,} Gaussians are too many for its pictures, which have "
                f"{_MOST_PIXELS:,} pixels a side: write .ply"
            )
        self._archive = zipfile.ZipFile(file, "w")
        self._plane_count = plane_count
        self._written_count = 0
        self._progress = progress

    def add(self, field: str, values: np.ndarray) -> str:
        """Write a plane of values (N, 3) or (N, 4) of 0 to 255; return its file's name."""
        height = ceil_div(len(values), self._width * _SIDE_STEP) * _SIDE_STEP
        pixels = np.full((height * self._width, 4), 255, np.uint8)
        pixels[: len(values), : values.shape[1]] = values
        return self._add_picture(field, pixels.reshape(height, self._width, 4))

    def _add_picture(self, field: str, pixels: np.ndarray) -> str:
        from PIL import Image

        content = io.BytesIO()
        # Exact: where alpha is 0, Pillow would drop what the other channels hold.
        Image.fromarray(pixels).save(
            content, "WEBP", lossless=True, exact=True, method=_EFFORT
        )
        name = f"{field}.webp"
        # Pictures are packed already.
        self._archive.writestr(zipfile.ZipInfo(name), content.getvalue())
        self._written_count += 1
        self._report("writing planes", 0.0)
        return name

    def add_harmonics(
        self, harmonics: torch.Tensor, degree: int, gpu: torch.device | None
    ) -> dict[str, Any]:
        """Write coefficients (N, K-1, 3) as a palette; return their part of meta.json."""
        palette = _palette_of(harmonics.flatten(1), gpu, self._report)
        entries = palette.entries.cpu().numpy()
        labels = palette.labels.cpu().numpy()
        codes = make_codebook(entries)
        lines = ceil_div(len(entries), _PALETTE_COLUMNS)
        coefficients = harmonics.shape[1]
        pixels = np.full((lines * _PALETTE_COLUMNS, coefficients, 4), 255, np.uint8)
        indices = nearest_codes(entries, codes)
        pixels[: len(entries), :, :3] = indices.reshape(-1, coefficients, 3)
        pixels = pixels.reshape(lines, _PALETTE_COLUMNS * coefficients, 4)
        centroids_file = self._add_picture("shN_centroids", pixels)
        zeros = np.zeros_like(labels)
        label_bytes = np.column_stack([labels & 0xFF, labels >> 8, zeros])
        return {
            "count": len(entries),
            "bands": degree,
            "codebook": _numbers(codes),
            "files": [centroids_file, self.add("shN_labels", label_bytes)],
        }

    def finish(self, meta: dict[str, Any]) -> None:
        """Write the meta.json, and end the zip."""
        text = json.dumps(meta, separators=(",", ":"))
        self._archive.writestr(zipfile.ZipInfo(META), text)
        self._archive.close()

    def _report(self, activity: str, fraction: float) -> None:
        """Report progress.

        fraction: of what is written next.
        """
        done = (self._written_count + fraction) / self._plane_count
        self._progress(activity, done)
