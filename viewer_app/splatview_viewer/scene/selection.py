"""A choice of Gaussians as plain numbers, so that it holds for every version of a scene, wherever that lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import Array, GaussianScene

HIDDEN, MARKED = 1, 2
"""Bits of `Selection.flags`: not drawn; drawn in a colour of its own."""

_FEW = 16

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Box:
    """A box of any orientation, world units."""

    center: Vector = (0.0, 0.0, 0.0)
    half: Vector = (1.0, 1.0, 1.0)
    """Half the lengths of its edges, along its own axes."""
    axes: tuple[Vector, Vector, Vector] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    """Its axes in the world, unit vectors at right angles."""
    outside: bool = False
    """Whether what lies outside is kept, instead of what lies inside."""

    def excludes(self, means: Any) -> Any:
        """(N,) bool for centres (N, 3) of NumPy or torch: which are not kept."""
        x, y, z = (means[:, i] - c for i, c in enumerate(self.center))
        inside: Any = True
        for (a, b, c), half in zip(self.axes, self.half, strict=True):
            inside = inside & (abs(x * a + y * b + z * c) <= half)
        return inside if self.outside else ~inside


@dataclass(frozen=True)
class Sphere:
    """World units."""

    center: Vector = (0.0, 0.0, 0.0)
    radius: float = 1.0
    outside: bool = False
    """As `Box.outside`."""

    def excludes(self, means: Any) -> Any:
        """As `Box.excludes`."""
        x, y, z = (means[:, i] - c for i, c in enumerate(self.center))
        inside = x * x + y * y + z * z <= self.radius * self.radius
        return inside if self.outside else ~inside


@dataclass(frozen=True)
class Selection:
    """What has to hold for a Gaussian to be drawn, all of it. Immutable, so that it can be part of what a picture is
    known by."""

    opacity: tuple[float, float] = (0.0, 1.0)
    """Least and most, both included."""
    scale: tuple[float, float] = (0.0, math.inf)
    """The same of its largest standard deviation, world units."""
    sh_energy: tuple[float, float] = (0.0, math.inf)
    """The same of `sh_energy`: how much its colour depends on where it is seen from."""
    box: Box | None = None
    """Where its centre has to lie."""
    sphere: Sphere | None = None
    """The same."""
    marked: tuple[int, ...] = ()
    """Indices into the scene of Gaussians that stand out, ascending. Those that it does not have do not count."""

    def flags(self, scene: GaussianScene) -> Array:
        """(N,) uint8, `HIDDEN` and `MARKED`, for each Gaussian of an activated scene: an array of NumPy's, or a tensor
        on the GPU where the scene lies, made on torch's current stream without waiting."""
        opacities: Any = scene.opacities
        low, high = self.opacity
        hidden = (opacities < low) | (opacities > high)
        if self.scale != (0.0, math.inf):
            hidden = hidden | _beyond(largest_scale(scene), self.scale)
        if self.sh_energy != (0.0, math.inf):
            hidden = hidden | _beyond(sh_energy(scene), self.sh_energy)
        for part in (self.box, self.sphere):
            if part is not None:
                hidden = hidden | part.excludes(scene.means)
        flags = hidden.byte() if scene.on_gpu else hidden.astype("uint8")
        there = [i for i in self.marked if i < len(scene)]
        if len(there) > _FEW:
            flags[there] |= MARKED
        else:
            for i in there:  # so that no indices have to come to the GPU
                flags[i] |= MARKED
        return flags


EVERYTHING = Selection()


def largest_scale(scene: GaussianScene) -> Any:
    """(N,) the largest standard deviation of each Gaussian of an activated scene, world units."""
    scales: Any = scene.scales
    # Column by column: numpy takes ten times as long along an axis of three.
    if scene.on_gpu:
        return scales.amax(-1)
    import numpy as np

    return np.maximum(np.maximum(scales[:, 0], scales[:, 1]), scales[:, 2])


def sh_energy(scene: GaussianScene) -> Any:
    """(N,) the sum of squares of each Gaussian's coefficients of degrees 1 to 4, all channels."""
    rest: Any = scene.shN
    if scene.on_gpu:
        import torch

        return torch.linalg.vector_norm(rest, dim=(1, 2)).square()  # squares of all of them would take as much again
    import numpy as np

    return np.einsum("nkc,nkc->n", rest, rest)


def _beyond(values: Any, limits: tuple[float, float]) -> Any:
    low, high = limits
    out = values < low
    return out | (values > high) if high < math.inf else out
