"""Scenes moved, turned and scaled as a whole, with the colours that depend on direction."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.geometry import rotations
from splatview_viewer.scene.scene import as_floats

if TYPE_CHECKING:
    import torch

    from splatview_viewer.scene.scene import GaussianScene

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Placement:
    """Placement of a scene: scaled and turned around a pivot of its own, then moved."""

    move: Triple = (0.0, 0.0, 0.0)
    """Translation in world units."""
    turn: Triple = (0.0, 0.0, 0.0)
    """Degrees around the world's x, y and z axis, in this order."""
    scale: float = 1.0
    """Factor of sizes, greater than 0."""

    @property
    def rotation(self) -> np.ndarray:
        """The rotation as a matrix, (3, 3) float64."""
        return rotations.by_angles(self.turn)

    def matrix(self, pivot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return A (3, 3) and b (3,) of p -> A p + b, for a pivot (3,)."""
        linear = self.rotation * self.scale
        offset = np.asarray(pivot, np.float64) + self.move - linear @ pivot
        return linear, offset


IDENTITY = Placement()


def transformed(
    scene: GaussianScene, placement: Placement, pivot: np.ndarray
) -> GaussianScene:
    """Return the same Gaussians elsewhere; the scene itself if it stays in its place.

    The tensors are float32 (`means` also float64), on the scene's device and on torch's
    current stream.
    """
    import torch

    if placement == IDENTITY:
        return scene
    linear, _ = placement.matrix(pivot)
    means = as_floats(scene.means)
    center = torch.from_numpy(np.asarray(pivot, np.float64)).to(means)
    offset = torch.tensor(placement.move).to(means)
    means = _multiply_rows(means - center, linear.T) + center + offset
    scales = scene.scales
    if placement.scale != 1:
        if scene.activation.scales:
            scales = scales * placement.scale
        else:
            scales = scales + math.log(placement.scale)
    quats = scene.quats
    coefficients = scene.shN
    if any(placement.turn):
        matrices = rotation_matrices(placement.rotation, scene.stored_sh_degree)
        quats = _multiply_rows(quats, matrices.quats)
        rows = coefficients.flatten(1)
        rotated = _multiply_rows(rows, matrices.harmonics)
        coefficients = rotated.reshape(coefficients.shape)
    return replace(scene, means=means, quats=quats, scales=scales, shN=coefficients)


def _multiply_rows(rows: torch.Tensor, matrix: np.ndarray) -> torch.Tensor:
    """Return rows @ matrix in float32, or float64 as the rows, on their device."""
    import torch

    with torch.no_grad():
        floats = as_floats(rows)
        return floats @ torch.from_numpy(matrix).to(floats)


class RotationMatrices(NamedTuple):
    """Matrices by which Gaussians are multiplied from the right."""

    quats: np.ndarray
    """(4, 4)."""
    harmonics: np.ndarray
    """(3 K-3, 3 K-3) for all coefficients of degree 1 and more, flattened."""


def rotation_matrices(axes: np.ndarray, degree: int) -> RotationMatrices:
    """Return the matrices that rotate Gaussians as `axes` rotates positions.

    Args:
        axes: orthogonal (3, 3), mirrored or not; takes a position to its new one.
        degree: the highest degree of coefficients.
    """
    diagonal = np.diag(axes)
    # A Gaussian stays the same when its own axes are flipped: axes @ R @ diag(flips) is a
    # rotation, under a mirror too, and has the w of R where `axes` only flips.
    if np.array_equal(axes, np.diag(diagonal)):
        flips = diagonal
    else:
        flips = np.full(3, np.sign(np.linalg.det(axes)))
    w, x, y, z = rotations.quaternion(axes * flips)
    w_row = [w, -x, -y, -z]
    x_row = [x, w, -z, y]
    y_row = [y, z, w, -x]
    z_row = [z, -y, x, w]
    left = np.array([w_row, x_row, y_row, z_row])
    left[:, 1:] *= flips.prod() * flips
    size = (degree + 1) ** 2 - 1
    matrix = np.zeros((size, size))
    for d in range(1, degree + 1):
        first = d * d - 1
        end = (d + 1) ** 2 - 1
        matrix[first:end, first:end] = harmonics_rotation(axes, d)
    # The three colours of a coefficient lie one after the other.
    harmonics = np.kron(matrix.round(12), np.eye(3)).T
    return RotationMatrices(left.T, harmonics)


# -- spherical harmonics ------------------------------------------------------------------


def harmonics(directions: np.ndarray, degree: int) -> np.ndarray:
    """Return the spherical harmonics of degrees 1 to `degree`, at most 4: (M, K-1).

    The real basis in the Condon-Shortley convention of 3D Gaussian Splatting, written
    out: with x, y, z on the unit sphere gsplat's recurrences
    (csrc/SphericalHarmonicsCUDA.cu, after Sloan, JCGT 2013) are these polynomials.

    Args:
        directions: unit vectors (M, 3).
    """
    x, y, z = np.asarray(directions, np.float64).T
    xx = x * x
    yy = y * y
    zz = z * z
    polynomials = [
        -0.48860251190292 * y,
        0.48860251190292 * z,
        -0.48860251190292 * x,
        1.092548430592079 * x * y,
        -1.092548430592079 * y * z,
        0.3153915652525201 * (3 * zz - 1),
        -1.092548430592079 * x * z,
        0.5462742152960395 * (xx - yy),
        -0.5900435899266435 * y * (3 * xx - yy),
        2.890611442640554 * x * y * z,
        -0.4570457994644658 * y * (5 * zz - 1),
        0.3731763325901154 * z * (5 * zz - 3),
        -0.4570457994644658 * x * (5 * zz - 1),
        1.445305721320277 * z * (xx - yy),
        -0.5900435899266435 * x * (xx - 3 * yy),
        2.5033429417967046 * x * y * (xx - yy),
        -1.770130769779931 * y * z * (3 * xx - yy),
        0.9461746957575601 * x * y * (7 * zz - 1),
        -0.6690465435572892 * y * z * (7 * zz - 3),
        0.1057855469152043 * (35 * zz * zz - 30 * zz + 3),
        -0.6690465435572892 * x * z * (7 * zz - 3),
        0.47308734787878 * (xx - yy) * (7 * zz - 1),
        -1.770130769779931 * x * z * (xx - 3 * yy),
        0.6258357354491763 * (xx * xx - 6 * xx * yy + yy * yy),
    ]
    return np.stack(polynomials[: (degree + 1) ** 2 - 1], axis=1)


class _SampledDegree(NamedTuple):
    """The functions of one degree in a few directions."""

    directions: np.ndarray
    """(M, 3), evenly over the sphere."""
    inverse: np.ndarray
    """(2 degree + 1, M): from values in the directions to coefficients."""


@functools.cache
def _sample_degree(degree: int) -> _SampledDegree:
    """Compute the functions of one degree on a spiral of 32 directions."""
    i = np.arange(32) + 0.5
    z = 1 - 2 * i / len(i)
    azimuth = math.pi * (1 + math.sqrt(5)) * i
    radius = np.sqrt(1 - z * z)
    x = radius * np.cos(azimuth)
    y = radius * np.sin(azimuth)
    directions = np.stack([x, y, z], 1)
    values = harmonics(directions, degree)[:, degree * degree - 1 :]
    return _SampledDegree(directions, np.linalg.pinv(values))


def harmonics_rotation(rotation: np.ndarray, degree: int) -> np.ndarray:
    """Return the matrix that rotates the coefficients of one degree, 1 to 4.

    (2 degree + 1, 2 degree + 1) float64. The rotated function along d is what it was
    along rotation^-1 d.

    The functions of one degree span what they become by a rotation, so that values in a
    few directions determine the coefficients, exactly: Wigner's matrix, without its
    recurrences.
    """
    directions, inverse = _sample_degree(degree)
    values = harmonics(directions @ rotation, degree)
    return inverse @ values[:, degree * degree - 1 :]
