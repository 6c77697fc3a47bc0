"""The reference for what is not colour: other ways to draw a Gaussian, in NumPy, float64 (`RenderOptions.paint`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.render.base import ALPHA_MAX, AMBIENT, BODY_SIGMAS, LIGHT, RING_INSIDE, RING_PX, RenderOptions

if TYPE_CHECKING:
    from splatview_viewer.render.reference import Projected


@dataclass(frozen=True)
class Bodies:
    """The surfaces of M Gaussians where the density has fallen to that at `BODY_SIGMAS`, in the affine approximation
    that also makes ellipses of them: around each centre, columns and rows of the picture and camera z are linear in
    space.

    With v = `whiten` @ (offset in pixels), the surface's front lies at camera z + slope . v - thickness * s, where
    s = sqrt(BODY_SIGMAS ** 2 - v . v); its normal, towards the camera and of any length, is (s, v) @ `normals`.
    """

    whiten: np.ndarray
    """(M, 2, 2) from pixels to standard deviations: its transpose times itself is the conic."""
    slope: np.ndarray
    """(M, 2) world units along camera z per standard deviation."""
    thickness: np.ndarray
    """(M,) the standard deviation of camera z at one place of the picture."""
    normals: np.ndarray
    """(M, 3, 3) in camera axes."""

    def __getitem__(self, which: np.ndarray) -> Bodies:
        return Bodies(self.whiten[which], self.slope[which], self.thickness[which], self.normals[which])


def bodies(jacobian: np.ndarray, m: np.ndarray, cov: np.ndarray, det: np.ndarray) -> Bodies:
    """Of Gaussians by the Jacobians (M, 2, 3) of their projection in pixels, square roots `m` (M, 3, 3) of their
    covariances in camera space, and projected covariances with blur (M, 3: xx, xy, yy) with determinants (M,)."""
    xx, xy, yy = cov.T
    del xx  # the whitening is the Cholesky factor of the conic
    whiten = np.zeros((len(det), 2, 2))
    whiten[:, 0, 0], whiten[:, 0, 1] = np.sqrt(yy / det), -xy / np.sqrt(yy * det)
    whiten[:, 1, 1] = 1 / np.sqrt(yy)
    along = m[:, 2]
    slope = np.einsum("mij,mjk,mkl,ml->mi", whiten, jacobian, m, along)
    thickness = np.sqrt(np.maximum((along * along).sum(axis=1) - (slope * slope).sum(axis=1), 0))
    sides = whiten @ jacobian  # how the standard deviations of the picture change in space
    front = np.einsum("mi,mij->mj", slope, sides) - [0, 0, 1]
    normals = np.concatenate([front[:, None], thickness[:, None, None] * sides], axis=1)
    return Bodies(whiten, slope, thickness, normals)


def normal_colors(axes: np.ndarray, scales: np.ndarray, towards: np.ndarray) -> np.ndarray:
    """(M, 3) RGB of the shortest of three axes in camera space (M, 3, 3: columns), the first one of equals, by their
    lengths (M, 3); against `towards` (M, 3), where one looks."""
    n = axes[np.arange(len(axes)), :, np.argmin(scales, axis=1)]
    return (np.where((n * towards).sum(axis=1, keepdims=True) > 0, -n, n) + 1) / 2


def coverage(options: RenderOptions, d: tuple[np.ndarray, np.ndarray], conic: np.ndarray, opacity: float | np.ndarray,
             ) -> tuple[np.ndarray, np.ndarray]:
    """The alpha of Gaussians at offsets `d` in pixels from their centres, and whether they are seen there at all. Each
    entry of `conic`, xx, xy, yy, and `opacity` is of one Gaussian, or broadcast against `d`."""
    dx, dy = d
    a, b, c = conic
    if options.paint == "points":
        alpha = np.clip(options.point_reach - np.hypot(dx, dy), 0, 1)
        return np.minimum(ALPHA_MAX, alpha), alpha > 0
    sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
    if options.paint != "rings":
        return np.minimum(ALPHA_MAX, opacity * np.exp(-sigma)), sigma >= 0
    m = np.sqrt(2 * np.maximum(sigma, 0))
    steepness = np.hypot(a * dx + b * dy, b * dx + c * dy)  # m times the gradient of m
    inwards = (BODY_SIGMAS - m) * m / np.maximum(steepness, 1e-12)  # pixels to the outline, where that is near
    line = np.clip(np.minimum(inwards, RING_PX + 1 - inwards), 0, 1)
    return np.minimum(ALPHA_MAX, np.maximum(line, RING_INSIDE)), m <= BODY_SIGMAS


def solid(projected: Projected, shapes: Bodies, near: float, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The nearest surface at each pixel: RGB and camera z (H, W, 4), and alpha (H, W). What is nearer than `near` is
    cut away."""
    width, height = size
    picture, alpha = np.zeros((height, width, 4)), np.zeros((height, width))
    nearest = np.full((height, width), np.inf)
    low, high = projected.pixels(width, height)
    for i, ((x0, y0), (x1, y1)) in enumerate(zip(low, high, strict=True)):
        columns, rows = np.meshgrid(np.arange(x0, x1) + 0.5, np.arange(y0, y1) + 0.5)
        v = np.stack([columns, rows], axis=-1) - projected.centers[i]
        v = v @ shapes.whiten[i].T
        square = BODY_SIGMAS ** 2 - (v * v).sum(axis=-1)
        s = np.sqrt(np.maximum(square, 0))
        z = projected.rgbz[i, 3] + v @ shapes.slope[i] - shapes.thickness[i] * s
        box = slice(y0, y1), slice(x0, x1)
        hit = (square >= 0) & (z >= near) & (z < nearest[box])
        n = np.concatenate([s[..., None], v], axis=-1) @ shapes.normals[i]
        lit = np.maximum((n @ LIGHT) / np.maximum(np.linalg.norm(n, axis=-1), 1e-30), 0)
        shaded = projected.rgbz[i, :3] * (AMBIENT + (1 - AMBIENT) * lit)[..., None]
        picture[box] = np.where(hit[..., None], np.concatenate([shaded, z[..., None]], axis=-1), picture[box])
        nearest[box] = np.where(hit, z, nearest[box])
        alpha[box][hit] = 1
    return picture, alpha
