"""The Gaussians of a scene that a selection hides and marks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.core.selection import Box

if TYPE_CHECKING:
    import torch

    from splatview_viewer.core.selection import Selection, Sphere
    from splatview_viewer.scene.scene import GaussianScene

HIDDEN, MARKED = 1, 2
"""Bits of `flags`: not drawn; drawn in a colour of its own."""

_FEW = 16


def flags(scene: GaussianScene, selection: Selection) -> torch.Tensor:
    """(N,) uint8, `HIDDEN` and `MARKED`, for each Gaussian of an activated scene, on the scene's device: on torch's
    current stream and without waiting."""
    hidden = _beyond(scene.opacities, selection.opacity)
    if selection.scale != (0.0, math.inf):
        hidden |= _beyond(largest_scale(scene), selection.scale)
    if selection.sh_energy != (0.0, math.inf):
        hidden |= _beyond(sh_energy(scene), selection.sh_energy)
    for part in (selection.box, selection.sphere):
        if part is not None:
            hidden |= _excluded(scene.means, part)
    out = hidden.byte()
    there = [i for i in selection.marked if i < len(scene)]
    if len(there) > _FEW:
        out[there] |= MARKED
    else:
        for i in there:  # so that no indices have to come to the GPU
            out[i] |= MARKED
    return out


def largest_scale(scene: GaussianScene) -> torch.Tensor:
    """(N,) the largest standard deviation of each Gaussian of an activated scene, world units."""
    x, y, z = scene.scales.unbind(-1)
    return x.maximum(y).maximum(z)  # on a CPU half the time of a maximum along an axis of three


def sh_energy(scene: GaussianScene) -> torch.Tensor:
    """(N,) the sum of squares of each Gaussian's coefficients of degrees 1 to 4, all channels."""
    import torch

    return torch.linalg.vector_norm(scene.shN, dim=(1, 2)).square()  # without a square of each in memory


def _excluded(means: torch.Tensor, shape: Box | Sphere) -> torch.Tensor:
    """(N,) bool for centres (N, 3): those that the shape does not keep."""
    x, y, z = (means[:, i] - c for i, c in enumerate(shape.center))
    if isinstance(shape, Box):
        within = [(x * a + y * b + z * c).abs() <= half for (a, b, c), half in zip(shape.axes, shape.half, strict=True)]
        inside = within[0] & within[1] & within[2]
    else:
        inside = x * x + y * y + z * z <= shape.radius * shape.radius
    return inside if shape.outside else ~inside


def _beyond(values: torch.Tensor, limits: tuple[float, float]) -> torch.Tensor:
    low, high = limits
    out = values < low
    return out | (values > high) if high < math.inf else out
