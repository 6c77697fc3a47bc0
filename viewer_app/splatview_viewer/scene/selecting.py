"""The Gaussians of an activated scene that a selection hides or marks."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.selection import Cylinder, Mask, Sphere

if TYPE_CHECKING:
    import torch

    from splatview_viewer.core.selection import Box, Selection, Shape
    from splatview_viewer.scene.scene import GaussianScene

HIDDEN = 1
MARKED = 2
"""Bits of `flags`: not drawn; drawn in a colour of its own."""
_ANY = (0.0, math.inf)
"""Limits that hide nothing."""


def flags(scene: GaussianScene, selection: Selection, first: int = 0) -> torch.Tensor:
    """Return `HIDDEN` and `MARKED` for each Gaussian of an activated scene, (N,) uint8.

    On the scene's device: on torch's current stream and without waiting.

    Args:
        scene: all of it, or a piece.
        selection: the conditions.
        first: the index of the piece's first Gaussian.
    """
    hidden = _is_beyond(scene.opacities, selection.opacity)
    if selection.scale != _ANY:
        hidden |= _is_beyond(largest_scale(scene), selection.scale)
    if selection.sh_energy != _ANY:
        hidden |= _is_beyond(sh_energy(scene), selection.sh_energy)
    for shape in selection.shapes:
        hidden |= _is_excluded(scene.means, shape)
    if selection.hidden is not None:
        hidden |= _masked(selection.hidden, scene, first)
    bits = hidden.byte()
    # One at a time, so that no indices have to come to the GPU.
    for index in selection.marked:
        if first <= index < first + len(scene):
            bits[index - first] |= MARKED
    return bits


def mask_of(flags: np.ndarray) -> Mask:
    """Return the mask of those Gaussians for which (N,) bool is True."""
    bits = np.packbits(flags).tobytes()
    return Mask(bits, len(flags), int(np.count_nonzero(flags)))


@lru_cache(4)
def array_of(mask: Mask) -> np.ndarray:
    """Return (N,) bool for a mask, which must not be written."""
    packed = np.frombuffer(mask.bits, np.uint8)
    flags = np.unpackbits(packed, count=mask.total).astype(bool)
    flags.flags.writeable = False
    return flags


@lru_cache(4)
def _tensor_of(mask: Mask, device: torch.device) -> torch.Tensor:
    """Return (N,) uint8 for a mask, 1 for what it has."""
    import torch

    return torch.from_numpy(array_of(mask).astype(np.uint8)).to(device)


def _masked(mask: Mask, scene: GaussianScene, first: int) -> torch.Tensor:
    """Return (N,) bool for a piece of a scene: those that a mask has."""
    import torch

    flags = _tensor_of(mask, scene.means.device)[first : first + len(scene)]
    if len(flags) < len(scene):
        # Of a version with more Gaussians.
        flags = torch.nn.functional.pad(flags, (0, len(scene) - len(flags)))
    return flags.bool()


def largest_scale(scene: GaussianScene) -> torch.Tensor:
    """Return the largest standard deviation of each Gaussian, (N,), world units."""
    # On a CPU this takes half the time of a maximum along an axis of three.
    x, y, z = scene.scales.unbind(-1)
    return x.maximum(y).maximum(z)


def sh_energy(scene: GaussianScene) -> torch.Tensor:
    """Return the sum of squares of each Gaussian's coefficients of degrees 1 to 4, (N,)."""
    import torch

    # The norm, squared, needs no square of each coefficient in memory.
    return torch.linalg.vector_norm(scene.shN, dim=(1, 2)).square()


def _is_excluded(means: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Return (N,) bool for centres (N, 3): those that the shape does not keep."""
    center_x, center_y, center_z = shape.center
    x = means[:, 0] - center_x
    y = means[:, 1] - center_y
    z = means[:, 2] - center_z
    if isinstance(shape, Sphere):
        squared_distance = x * x + y * y + z * z
        inside = squared_distance <= shape.radius * shape.radius
    else:
        distances = [x * a + y * b + z * c for a, b, c in shape.axes]
        if isinstance(shape, Cylinder):
            inside = _is_in_cylinder(distances, shape)
        else:
            inside = _is_in_box(distances, shape)
    if shape.outside:
        return inside
    return ~inside


def _is_in_box(distances: list[torch.Tensor], box: Box) -> torch.Tensor:
    """Return (N,) bool for distances (N,) from a box's centre along its three axes."""
    in_slabs = []
    for distance, half in zip(distances, box.half, strict=True):
        in_slabs.append(distance.abs() <= half)
    return in_slabs[0] & in_slabs[1] & in_slabs[2]


def _is_in_cylinder(distances: list[torch.Tensor], cylinder: Cylinder) -> torch.Tensor:
    """Return (N,) bool for distances (N,) from its centre along its three axes."""
    height = distances[cylinder.axis_index]
    right = distances[(cylinder.axis_index + 1) % 3]
    ahead = distances[(cylinder.axis_index + 2) % 3]
    squared_distance = right * right + ahead * ahead
    is_around = squared_distance <= cylinder.radius * cylinder.radius
    return is_around & (height.abs() <= cylinder.half_height)


def _is_beyond(values: torch.Tensor, limits: tuple[float, float]) -> torch.Tensor:
    """Return (N,) bool: the values outside of the limits."""
    low, high = limits
    is_beyond = values < low
    if high < math.inf:
        is_beyond = is_beyond | (values > high)
    return is_beyond
