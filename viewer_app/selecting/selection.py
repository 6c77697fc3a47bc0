"""A choice of Gaussians as plain numbers, so that it holds for every version of a scene, wherever that lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viewer_app.scene import Array, GaussianScene

HIDDEN, MARKED = 1, 2
"""Bits of `Selection.flags`: not drawn; drawn in a colour of its own."""


@dataclass(frozen=True)
class Selection:
    """What has to hold for a Gaussian to be drawn. Immutable, so that it can be part of what a picture is known by."""

    opacity: tuple[float, float] = (0.0, 1.0)
    """Least and most, both included."""
    scale: tuple[float, float] = (0.0, math.inf)
    """The same of its largest standard deviation, world units."""
    marked: tuple[int, ...] = ()
    """Indices into the scene of Gaussians that stand out, ascending. Those that it does not have do not count."""

    def flags(self, scene: GaussianScene) -> Array:
        """(N,) uint8, `HIDDEN` and `MARKED`, for each Gaussian of an activated scene: an array of NumPy's, or a tensor
        on the GPU where the scene lies, made on torch's current stream without waiting."""
        opacities: Any = scene.opacities
        scales: Any = scene.scales
        largest = scales.amax(-1) if scene.on_gpu else scales.max(-1)
        low, high = self.opacity
        hidden = (opacities < low) | (opacities > high) | (largest < self.scale[0])
        if self.scale[1] < math.inf:
            hidden = hidden | (largest > self.scale[1])
        flags = hidden.byte() if scene.on_gpu else hidden.astype("uint8")
        there = [i for i in self.marked if i < len(scene)]
        if there:
            flags[there] |= MARKED
        return flags


EVERYTHING = Selection()
