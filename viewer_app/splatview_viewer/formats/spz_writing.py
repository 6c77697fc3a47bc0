"""Writes Niantic's .spz, version 3: planes of quantised attributes in gzip.

Layout, constants and axes (right-up-back) of nianticlabs/spz, `load-spz.cc`, whose loader
reads these files as `formats/spz.py` does.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.spz import ANTIALIASED, DIRECTIONS, MAGIC
from splatview_viewer.scene.turning import rotation_matrices

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene

_VERSION = 3
_POSITION_BITS = 24
_MOST_FRACTIONAL_BITS = 12
"""As in Niantic's own files: a quarter of a thousandth of a world unit."""
_FIRST_DEGREE_STEP = 1 << 3
"""Steps of coefficients of degree 1, of 256: they keep 5 bits, which gzip then packs."""
_HIGHER_DEGREE_STEP = 1 << 4
_FIRST_DEGREE = 9
"""Numbers of a Gaussian's coefficients of degree 1."""
_MAX_DEGREE = 3


def spz_bytes(scene: GaussianScene, *, antialiased: bool = False) -> bytes:
    """Return a scene as the content of an .spz file.

    Args:
        scene: activated, on the CPU.
        antialiased: as it was trained.

    Raises:
        FileError: positions are too far from the origin.
    """
    degree = min(scene.stored_sh_degree, _MAX_DEGREE)
    coefficients = (degree + 1) ** 2 - 1
    axes = np.array([DIRECTIONS[letter] for letter in "RUB"], np.float64)
    rotation, sh_rotation = rotation_matrices(axes, degree)
    means = scene.means.double().numpy() @ axes.T
    harmonics = scene.shN[:, :coefficients].flatten(1).numpy()
    fractional_bits = _fractional_bits(means)
    planes = [
        _positions(means, fractional_bits),
        _bytes_of(scene.opacities.numpy() * 255),
        _bytes_of((scene.sh0.numpy() * 0.15 + 0.5) * 255),
        _bytes_of((_logs(scene.scales.numpy()) + 10) * 16),
        _rotations(scene.quats.numpy() @ rotation),
        _coefficients(harmonics @ sh_rotation),
    ]
    flags = ANTIALIASED if antialiased else 0
    header = MAGIC + struct.pack(
        "<IIBBBB", _VERSION, len(scene), degree, fractional_bits, flags, 0
    )
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(header)]
    pieces += [packer.compress(plane.tobytes()) for plane in planes]
    pieces.append(packer.flush())
    return b"".join(pieces)


def _fractional_bits(means: np.ndarray) -> int:
    """Return how many bits of a position lie behind the point."""
    largest = float(np.abs(means).max(initial=0.0))
    if largest >= 1 << (_POSITION_BITS - 1):
        raise FileError(
            f"SPZ: a Gaussian lies {largest:g} world units from the origin, and the "
            "format holds 8,388,607: write .ply"
        )
    whole_bits = int(np.ceil(np.log2(largest + 1)))
    return min(_POSITION_BITS - 1 - whole_bits, _MOST_FRACTIONAL_BITS)


def _positions(means: np.ndarray, fractional_bits: int) -> np.ndarray:
    """Return fixed point numbers of 24 bits, (N, 3, 3) uint8."""
    fixed = np.rint(means * (1 << fractional_bits)).astype("<i4")
    return fixed.view(np.uint8).reshape(len(means), 3, 4)[..., :3]


def _bytes_of(values: np.ndarray) -> np.ndarray:
    return np.rint(values).clip(0, 255).astype(np.uint8)


def _logs(scales: np.ndarray) -> np.ndarray:
    """Return the logarithms of standard deviations; those of 0 are the smallest."""
    return np.log(np.maximum(scales, np.finfo(np.float32).tiny))


def _rotations(quats: np.ndarray) -> np.ndarray:
    """Return rotations as words, (N,) uint32: the three smallest of x, y, z, w."""
    xyzw = np.roll(quats, -1, axis=1)
    rows = np.arange(len(quats))
    largest = np.abs(xyzw).argmax(axis=1)
    xyzw = xyzw * np.where(xyzw[rows, largest] < 0, -1, 1)[:, None]
    words = largest.astype(np.uint32)
    for component in range(4):
        value = xyzw[:, component]
        sizes = np.rint(np.abs(value) * (511 * np.sqrt(2))).clip(0, 511)
        packed = sizes.astype(np.uint32) | ((value < 0).astype(np.uint32) << 9)
        words = np.where(largest == component, words, words << 10 | packed)
    return words.astype("<u4")


def _coefficients(harmonics: np.ndarray) -> np.ndarray:
    """Return coefficients as bytes, (N, 3 coefficients) uint8."""
    steps = np.full(harmonics.shape[1], _HIGHER_DEGREE_STEP)
    steps[:_FIRST_DEGREE] = _FIRST_DEGREE_STEP
    values = harmonics * 128 + 128
    return _bytes_of(np.rint(values / steps) * steps)
